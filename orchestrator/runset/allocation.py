"""Options of a later job of a set beyond its unchanged bundle: more nodes, nodes to avoid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.evidence.files import Findings
from orchestrator.nodes.names import expand, expand_all

if TYPE_CHECKING:
    from orchestrator.onnode.kernel.layout import Layout
    from orchestrator.onnode.kernel.records import SetRecord

_EXCLUDE = r"^#SBATCH --exclude=(\S+)$"
_NODELIST = r"^#SBATCH --nodelist=(\S+)$"
_MINUTES = r"^#SBATCH --time=([0-9]+)$"
_USE = r"^use {} ([0-9]+)$"


@dataclass(frozen=True, slots=True)
class Allocation:
    """`spares` and `side_by_side` None and no `exclude` keep the values of job.sh; `words` are
    further options for sbatch."""

    spares: int | None = None
    exclude: tuple[str, ...] = ()
    side_by_side: int | None = None
    words: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """Return variables for the job's environment, which wins over its settings.sh."""
        given = {"SPARES": self.spares, "SIDE_BY_SIDE": self.side_by_side}
        return {name: str(value) for name, value in given.items() if value is not None}

    def options(self, record: SetRecord, layout: Layout, missing: int) -> tuple[str, ...]:
        """Return options for sbatch, which win over the #SBATCH lines of job.sh; `missing`:
        remaining runs.

        An option of the command line replaces such a line, so nodes avoided by job.sh are named
        again.
        """
        script, options = Findings().text(layout.bundle / "job.sh"), list[str]()
        if self.variables:
            settings = Findings().text(layout.bundle / "settings.sh")
            before = int(_listed(_USE.format("SIDE_BY_SIDE"), settings, "1")[0])
            now = self.side_by_side or before
            spares = (
                int(_listed(_USE.format("SPARES"), settings, "0")[0])
                if self.spares is None
                else self.spares
            )
            options = [f"--nodes={record.nodes * now + spares}"]
            if minutes := longer(script, -(-record.nexp // before), -(-missing // now)):
                options.append(f"--time={minutes}")
        if self.exclude:
            avoided = expand_all([*_listed(_EXCLUDE, script), ",".join(self.exclude)])
            options.append(f"--exclude={','.join(avoided)}")
            wanted = expand_all(_listed(_NODELIST, script))
            if left := without(wanted, avoided):
                options += [f"--nodelist={','.join(left)}"] if len(left) < len(wanted) else []
        return (*options, *self.words)


def longer(script: str, before: int, now: int) -> int:
    """Return the minutes that a job needs for `now` consecutive runs, 0 if the limit of job.sh is
    enough.

    `before`: the runs of that limit, 5 + `before` x (minutes_per_run + 5); a limit from the site
    stays.
    """
    limit = int(_listed(_MINUTES, script, "0")[0])
    each, rest = divmod(limit - 5, before)
    return 5 + now * each if now > before and each > 5 and not rest else 0


def without(nodelist: Sequence[str], avoided: Sequence[str]) -> list[str]:
    """Return `nodelist` (names, or Slurm's short form) without the nodes to avoid. Raises
    UsageError if none is left."""
    wanted = [name for text in nodelist for name in expand(text)]
    left = [name for name in wanted if name not in set(avoided)]
    if wanted and not left:
        raise UsageError(
            f"every node of the nodelist ({','.join(nodelist)}) is excluded",
            hint="name other nodes in the site's `nodelist`, or exclude fewer",
        )
    return left


def _listed(pattern: str, script: str, default: str = "") -> list[str]:
    found = re.search(pattern, script, re.MULTILINE)
    return [found[1]] if found else [default] if default else []
