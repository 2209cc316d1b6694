"""Options of a set's later job: more nodes, nodes to avoid. The bundle stays as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import Fix, SchedulerError, UsageError
from orchestrator.evidence.files import Findings
from orchestrator.nodes.names import expand, expand_all
from orchestrator.render.job_time import JobTime
from orchestrator.scheduler.slurm_nodes import Demand, limit_may_differ, node_states
from orchestrator.scheduler.slurm_script import options_in, replacing

if TYPE_CHECKING:
    from orchestrator.onnode.kernel.layout import Layout
    from orchestrator.onnode.kernel.records import SetRecord

_USE = r"^use {} ([0-9]+)$"


@dataclass(frozen=True, slots=True)
class Allocation:
    """`spares` and `side_by_side` None, no `time` and no `exclude` keep job.sh's values;
    `further`: more sbatch options."""

    spares: int | None = None
    exclude: tuple[str, ...] = ()
    side_by_side: int | None = None
    further: tuple[str, ...] = ()
    allow_changes: bool = False
    """Run although image or content of containers differ from earlier runs."""
    time: str = ""
    """The job's time limit."""

    @property
    def variables(self) -> dict[str, str]:
        """Return variables for the job's environment, which wins over its settings.sh."""
        given = {"SPARES": self.spares, "SIDE_BY_SIDE": self.side_by_side}
        sizes = {name: str(value) for name, value in given.items() if value is not None}
        return sizes | ({"CHANGES": "flag"} if self.allow_changes else {})

    def options(self, record: SetRecord, layout: Layout, missing: int) -> tuple[str, ...]:
        """Return scheduler options, which replace job.sh's: nodes avoided there are named again.

        `missing`: remaining runs.
        """
        script = options_in(Findings().text(layout.bundle / "job.sh"))
        nodes, minutes = self._size(record, layout, script.minutes, missing)
        time = self.time or str(minutes or "")
        avoided = list[str]()
        remaining = list[str]()
        if self.exclude:
            avoided = expand_all([*filter(None, [script.exclude]), ",".join(self.exclude)])
            wanted = expand_all([*filter(None, [script.nodelist])])
            left = without(wanted, avoided)
            remaining = left if len(left) < len(wanted) else []
        changed = replacing(nodes=nodes, time=time, exclude=avoided, nodelist=remaining)
        return (*changed, *self.further)

    def refuse_too_few(self, record: SetRecord, layout: Layout, missing: int) -> None:
        """Raise UsageError if the partition has too few nodes without `exclude`; not without an
        answer of Slurm, or if other options choose the partition."""
        script = options_in(Findings().text(layout.bundle / "job.sh"))
        nodes = self._size(record, layout, script.minutes, missing)[0] or script.nodes
        if not self.exclude or not nodes or limit_may_differ(self.further):
            return
        try:
            states = node_states(script.partition or None)
        except SchedulerError:
            return
        settings = Findings().text(layout.bundle / "settings.sh")
        spares = _used(settings, "SPARES", 0) if self.spares is None else self.spares
        excluded = expand_all([*filter(None, [script.exclude]), ",".join(self.exclude)])
        demand = Demand(nodes - spares, spares, frozenset(excluded))
        shortage = demand.shortage(states)
        if not states or not shortage:
            return
        fewer = len(demand.left(states)) - demand.for_runs
        if fewer >= 0:
            hint, fix = "ask for fewer spares", Fix(options=("--spares", str(fewer)))
        else:
            hint = "let it run there once more, or have the nodes repaired first"
            fix = Fix(without="--exclude")
        raise UsageError(shortage, hint=hint, fix=fix)

    def _size(self, record: SetRecord, layout: Layout, limit: int, missing: int) -> tuple[int, int]:
        """Return the job's nodes and minutes; 0 keeps job.sh's."""
        settings = Findings().text(layout.bundle / "settings.sh")
        planned = _used(settings, "NEXP", record.nexp)
        if self.spares is None and self.side_by_side is None and planned >= record.nexp:
            return 0, 0
        before = _used(settings, "SIDE_BY_SIDE", 1)
        now = self.side_by_side or before
        spares = _used(settings, "SPARES", 0) if self.spares is None else self.spares
        each = _run_minutes(layout)
        needed = JobTime(each, "", now).minutes(missing)
        is_computed = limit == JobTime(each, "", before).minutes(planned)
        minutes = needed if is_computed and needed > limit else 0
        if self.spares is None and self.side_by_side is None:
            return 0, minutes
        return record.nodes * now + spares, minutes


def without(nodelist: Sequence[str], avoided: Sequence[str]) -> list[str]:
    """Return `nodelist` (names, or Slurm's short form) without `avoided`. Raises UsageError for an
    empty result."""
    wanted = [name for text in nodelist for name in expand(text)]
    left = [name for name in wanted if name not in set(avoided)]
    if wanted and not left:
        raise UsageError(
            f"every node of the nodelist ({','.join(nodelist)}) is excluded",
            hint="name other nodes in the site's `nodelist`, or exclude fewer",
        )
    return left


def _run_minutes(layout: Layout) -> int:
    """Return the minutes of a run in the bundle's time limit, 0 for a limit of the site."""
    files = Findings()
    match = re.search(
        "^RUN_MINUTES=([0-9]+)$", files.text(layout.bundle / "settings.sh"), re.MULTILINE
    ) or re.search(  # bundles of earlier versions
        r"^Time asked for: \(runs \+ 1\) x ([0-9]+) min",
        files.text(layout.bundle / "README"),
        re.MULTILINE,
    )
    return int(match[1]) if match else 0


def _used(settings: str, name: str, default: int) -> int:
    match = re.search(_USE.format(name), settings, re.MULTILINE)
    return int(match[1]) if match else default
