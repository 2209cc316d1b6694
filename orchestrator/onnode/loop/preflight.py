"""preflight.sh: checks of nodes without a run."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..kernel import records
from ..kernel.events import EventLog, number
from ..kernel.files import make_below
from ..kernel.layout import Layout
from ..kernel.program import Program
from ..kernel.settings_file import SettingsError, check_parts
from ..kernel.waiting import Flow, Lines
from ..policy.place import lost_reason
from ..policy.reports import Check
from ..policy.verdict import Verdicts, judge_preflight, plain_table, table
from ..set.bundle import keep
from .batch_job import BatchJob
from .group import Group
from .host import BatchHost
from .slurm import allocation_or_host, named_node

FIT, UNFIT, USAGE_ERROR, NOT_RUN = 0, 1, 2, 3
OPTIONS = "--deep, --nodes A,B, --tsv FILE, --exclude-file FILE, --judge, --json"
_FLAGS = {"--deep": "deep", "--json": "as_json", "--judge": "judge"}
_VALUES = {"--nodes": "nodes", "--tsv": "tsv", "--exclude-file": "exclude_file"}


@dataclass
class CheckOptions:
    deep: bool = False
    as_json: bool = False
    judge: bool = False
    nodes: list[str] = field(default_factory=list)
    tsv: str = ""
    exclude_file: str = ""


class NotRun(Exception):
    """`status`: the exit status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def main(program: Program, *argv: str) -> int:
    """Print the nodes' verdicts; return the exit status."""
    world = BatchHost()
    try:
        return Preflight(program, _parse(argv), world).work()
    except NotRun as error:
        world.log(f"preflight.sh: {error}")
        return error.status
    except (SettingsError, LookupError, ValueError) as error:
        world.log(f"preflight.sh: {error}")
        return USAGE_ERROR if "must be a number" in str(error) else NOT_RUN
    except OSError as error:
        world.log(f"preflight.sh: cannot write {error.filename}: {error.strerror}")
        return NOT_RUN


def _parse(argv: Sequence[str]) -> CheckOptions:
    """Raises NotRun."""
    options, rest = CheckOptions(), list(argv)
    while rest:
        name = rest.pop(0)
        if name not in _FLAGS and name not in _VALUES:
            raise NotRun(USAGE_ERROR, f"unknown word '{name}' ({OPTIONS})")
        if name in _FLAGS:
            setattr(options, _FLAGS[name], True)
            continue
        value = rest.pop(0) if rest else ""
        if not value:
            raise NotRun(USAGE_ERROR, f"{name} needs a value")
        setattr(options, _VALUES[name], value.split(",") if name == "--nodes" else value)
    if options.judge and not options.nodes:
        raise NotRun(USAGE_ERROR, "--judge needs --nodes")
    if options.judge and options.deep:
        raise NotRun(USAGE_ERROR, "--deep starts steps of its own and cannot go with --judge")
    return options


class Preflight(BatchJob):
    """A check of nodes that leaves nothing behind."""

    def __init__(self, program: Program, options: CheckOptions, world: BatchHost) -> None:
        settings = world.settings(program)
        named = world.environment.get("ORCH_SET_DIR", "")
        folder = f".preflight-{world.host.split('.')[0]}-{world.pid}-{world.token(2)}"
        layout = Layout(Path(named or f"{settings.logdir}/{folder}").absolute())
        # No container starts: twice the checks' limit suffices for the step.
        limit_s = 2 * settings.preflight_check_s
        check_parts(program.files, settings, deep=options.deep)
        settings = dataclasses.replace(
            settings, container_start_s=limit_s, preflight_run=1, preflight_deep=0
        )
        super().__init__(program, settings, layout, world)
        self.options, self.made = options, not named
        self.job_id = world.environment.get("ORCH_JOB_ID") or "preflight"
        self.untried: dict[str, str] = {}
        self.given: list[str] = []
        self.summary = ""

    def work(self) -> int:
        """Return the exit status. Raises NotRun, OSError, SettingsError, LookupError."""
        files = self.world.files
        try:
            try:
                if self.made:
                    files.make_folder(self.layout.root, parents=True)
                for folder in (self.layout.nodes, self.layout.preflight):
                    make_below(self.layout.root, folder, files)
                if not self.program.archive and not self.options.judge:
                    self.program = keep(self.program, self.layout, files)
            except OSError as error:
                question = "is the log directory there, and on shared storage?"
                problem = f"cannot write to {self.layout.root}; {question}"
                raise NotRun(NOT_RUN, problem) from error
            verdicts = self.world.run(self._verdicts())
            if self.ending.state:
                raise NotRun(NOT_RUN, self.ending.reason)
            self._write(verdicts)
            if self.options.as_json:
                print(json.dumps(verdicts.to_json()), flush=True)
            else:
                print(plain_table(verdicts, self.summary), flush=True)
            return FIT if verdicts.fit and verdicts.nodes else UNFIT
        finally:
            if self.made:
                files.remove_tree(self.layout.root)

    def _write(self, verdicts: Verdicts) -> None:
        if self.options.tsv:
            records.write_bytes(self.options.tsv, table(verdicts.rows).encode(), sync=False)
        if self.options.exclude_file:
            text = "".join(f"{node}\n" for node in verdicts.exclude)
            records.write_bytes(self.options.exclude_file, text.encode(), sync=False)

    def _verdicts(self) -> Flow:
        """Check the nodes, or read their replies. Value: the Verdicts."""
        if self.options.judge:
            self.given = self.options.nodes
            group = self._group(self.given)
            self._marker_of_caller(group)
            yield from self._read_replies(group)
        else:
            nodes = self._nodes()
            group = self._group(nodes)
            if nodes:
                yield from self._ask(group, nodes)
        if self.ending.state:
            return None
        return (yield from self._judged(group))

    def _group(self, nodes: Sequence[str]) -> Group:
        group = Group(self, nodes, EventLog(self.layout.events(self.job_id), self.world))
        group.record.note("hold", detail={"generation": 1, "nodes": list(nodes)})
        return group

    def _nodes(self) -> list[str]:
        """Return the nodes to check; put the others into `untried`."""
        settings = self.settings
        # A host is a single node, whatever the system.
        one_host = settings.engine != "none" or settings.nnodes == 1
        count = 1 if one_host else settings.nnodes + settings.spares
        self.allocation = allocation_or_host(self.environment, count, self.world)
        self.job_id = self.allocation.job_id
        allocated = self.allocation.allocated
        self.given = self.options.nodes or list(allocated)
        self.untried = {
            node: "not in this allocation" for node in self.given if node not in allocated
        }
        lost = self.allocation.lost([node for node in self.given if node not in self.untried])
        self.untried.update({node: lost_reason(state) for node, state in (lost or {}).items()})
        return [node for node in self.given if node not in self.untried]

    def _ask(self, group: Group, nodes: Sequence[str]) -> Flow:
        files = self.world.files
        if files.exists(self.layout.environment):
            text = files.read_bytes(self.layout.environment)
        else:
            text, _ = self.world.config(self.program, self.settings, self.settings.nexp)
            records.replace(self.layout.environment, text, sync=False, files=files)
        self.take_environment(text)
        group.start(nodes, "check")
        yield from group.wait_for("waits", nodes)
        yield from group.release()

    def _marker_of_caller(self, group: Group) -> None:
        get = self.environment.get
        group.checks.take_marker(get("ORCH_MARKER", ""), get("ORCH_MARKER_TEXT", ""))

    def _read_replies(self, group: Group) -> Flow:
        # The nodes may have answered before this process started.
        asked_ms = number(self.environment.get("ORCH_ASKED_MS", ""))
        group.step.set_start(asked_ms or self.world.wall_ms())

        def take(line: bytes) -> None:
            # The controller has dropped lines about other nodes.
            group.step.take(named_node(line), line)

        lines = Lines(self.reactor, sys.stdin.fileno(), take)
        while lines.open and not self.ending.state:
            yield self.world.now() + 60

    def _judged(self, group: Group) -> Flow:
        reports = group.state.reports
        untested = dict(self.untried)
        for node in self.given:
            answered = node in reports and "checked" in reports[node].messages
            if not answered and node not in untested:
                untested[node] = group.state.failed.get(node, ("", "no answer"))[1]
        yield from group.checks.see_markers([node for node in self.given if node not in untested])
        verdicts = judge_preflight(self.given, reports, untested, self.settings)
        if self.options.deep:
            fit = [node.node for node in verdicts.nodes if node.verdict in ("pass", "warn")]
            verdicts = verdicts.with_checks((yield from self._deep(fit)))
        return verdicts

    def _deep(self, nodes: Sequence[str]) -> Flow:
        """Value: a check per node; slow nodes fail."""
        if not nodes or "deep" in self.settings.preflight_skip:
            return {}
        from .deep import measure

        table = Path(f"{self.options.tsv}.deep") if self.options.tsv else None
        verdict = yield from measure(self, nodes, table)
        self.summary = verdict.summary
        return {
            node: Check("deep", row[0], verdict.ms, row[1], row[2])
            for node, row in verdict.rows.items()
        }
