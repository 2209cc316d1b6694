"""Check a site for a set: site file, Slurm, log directory, and one node."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING

from orchestrator import __version__
from orchestrator.errors import (
    DescriptorError,
    OrchestratorError,
    SchedulerError,
    SetError,
    UsageError,
    closest,
    did_you_mean,
)
from orchestrator.model.prerequisites import needs
from orchestrator.model.sites import group_problem
from orchestrator.onnode.policy.check_names import SYSTEM_CHECKS
from orchestrator.onnode.policy.verdict import Row, Verdicts
from orchestrator.preflight import places
from orchestrator.preflight.bundle import temporary_bundle
from orchestrator.runset.doubts import doubts
from orchestrator.scheduler import advice
from orchestrator.scheduler.kinds import kind_of
from orchestrator.scheduler.slurm_site import partitions
from orchestrator.site.remedies import Remedies, on_this_host, through_slurm
from orchestrator.trust import replaceable
from orchestrator.words import quoted

if TYPE_CHECKING:
    from orchestrator.model import Entry, Site

HERE = "here"
"""Names this host in rows without a node."""
_OF_SYSTEM = (*SYSTEM_CHECKS, "reach")


def examine(
    find_site: Callable[[], Path],
    load: Callable[[Path], Entry],
    progress: Callable[[str], None],
    *,
    names: Sequence[str],
    hosts_only: bool,
) -> Iterator[Row]:
    """Yield the most important results first; skip checks whose precondition failed.

    `find_site` raises UsageError without a site file, `load` DescriptorError for an unusable file.
    `names`: as in Remedies. `hosts_only`: without a real system, its requirements of a node are not
    checked.
    """
    yield _row("version", "pass", f"orchestrator {__version__}, Python {platform.python_version()}")
    try:
        path = find_site()
    except UsageError as error:
        yield _row("site", "fail", *_problem(error, ["doctor", *names]))
        return
    try:
        entry = load(path)
    except DescriptorError as error:
        if error.fix:
            yield _row("site", "fail", error.message, error.fix.line([]))
        else:
            yield _look("site", "fail", error.message, f"ls -ld {quoted(path)}")
        return
    yield _row("site", "pass", f"{path.absolute()} ({entry.site.name})")
    is_local = kind_of(entry.site.scheduler).runs_here
    run_on = on_this_host if is_local else through_slurm(entry.site.partition)
    remedies = Remedies(entry, names, run_on)
    if problem := group_problem(entry.site):
        yield _row("shared_group", "fail", problem, remedies.set_key("shared_group", None))
    slurm = _scheduler(entry.site, remedies.set_key)
    yield slurm
    if hosts_only:
        yield _look(
            "system",
            "skip",
            "name a SYSTEM and a WORKLOAD to check GPUs, RDMA, image, data and code",
            join(["orchestrator", "systems", *names]),
        )
    else:
        yield from _code(entry)
        yield from _contract(entry)
        for doubt in doubts(entry):
            yield _row(doubt.check, "warn", doubt.text, doubt.fix.line(["submit", *names]))
        for need in needs(entry, os.environ):
            yield _row(need.check, "fail", *remedies.of_need(need))
    log_dir = Path(entry.site.log_dir or "")
    if not log_dir.is_dir():
        yield _row(
            "log_dir",
            "fail",
            f"{log_dir} (log_dir of {path}) is not here",
            f"mkdir -p {quote(str(log_dir))}",
        )
        return
    if why := replaceable(log_dir):
        yield _row(
            "log_dir_mode",
            "warn",
            f"{why} and replace your sets while they run",
            f"chmod +t {quote(str(log_dir))}",
        )
    if slurm.verdict != "fail":
        yield from (
            row if row.node == HERE or row.shows else remedies.with_command(row)
            for row in _node(entry, log_dir, progress, names)
            if not (hosts_only and row.check in _OF_SYSTEM)
        )


def _row(check: str, verdict: str, text: str, remedy: str = "") -> Row:
    return Row(HERE, check, verdict, 0, " ".join(text.split()), remedy)


def _look(check: str, verdict: str, text: str, command: str) -> Row:
    """Return a row whose command only shows what is wrong."""
    return replace(_row(check, verdict, text, command), shows=True)


def _problem(error: OrchestratorError, typed: Sequence[str]) -> tuple[str, str]:
    """Return text and command."""
    return (error.message, error.fix.line(typed)) if error.fix else (_with_hint(error), "")


def _with_hint(error: OrchestratorError) -> str:
    return "; ".join(filter(None, (error.message, error.hint)))


def _scheduler(site: Site, set_key: Callable[[str, object], str]) -> Row:
    if kind_of(site.scheduler).runs_here:
        return _row("slurm", "skip", "scheduler: local; this host is the node")
    try:
        known = {partition.name: partition for partition in partitions()}
    except SchedulerError as error:
        return _look("slurm", "fail", _with_hint(error), advice.PING)
    names = ", ".join(known) or "none"
    for name in (site.partition or "").split(",") if site.partition else ():
        if name not in known:
            meant = did_you_mean(name, known)
            near = closest(name, known) or next(iter(known), "")
            return _row(
                "slurm",
                "fail",
                f"there is no partition {name}{meant}; the cluster has {names}",
                set_key("partition", near) if near else advice.PARTITIONS,
            )
        if not known[name].is_up:
            return _look("slurm", "fail", f"partition {name} is down", advice.show_partition(name))
    if not site.partition and not any(partition.is_default for partition in known.values()):
        return _row(
            "slurm",
            "fail",
            f"Slurm has no default partition, and the site names no partition; known: {names}",
            set_key("partition", next(iter(known))) if known else advice.PING,
        )
    text = "; ".join(
        f"partition {partition.name}: {partition.description}"
        for partition in known.values()
        if partition.name in _names(site, list(known))
    )
    return _row("slurm", "pass", f"reachable; {text}")


def _names(site: Site, known: list[str]) -> list[str]:
    return site.partition.split(",") if site.partition else known


def _code(entry: Entry) -> Iterator[Row]:
    if path := entry.code_path:
        if Path(path).is_dir():
            yield _row("code", "pass", f"{path} is here")
        else:
            names = f"{quoted(entry.system)} {quoted(entry.workload)}"
            remedy = f"orchestrator images code {names} -o {quoted(path)}"
            yield _row("code", "fail", f"{path} (`code` of the site file) is not here", remedy)
    else:
        yield _row("code", "skip", "using the code in the image")


def _contract(entry: Entry) -> Iterator[Row]:
    from orchestrator.inspection.kept import command_for, kept_for

    if entry.container.engine == "none":
        return
    kept = kept_for(entry)
    if kept is None:
        yield _row("contract", "skip", f"{entry.image} was not inspected", command_for(entry))
    elif kept.is_stand_in:
        yield _row(
            "contract", "skip", f"{entry.image} is a stand-in of the lab, not the real image"
        )
    elif kept.errors:
        yield _row("contract", "fail", kept.problem, command_for(entry))
    else:
        yield _row("contract", "pass", f"{entry.image}: no error in its scripts")


def _node(
    entry: Entry, log_dir: Path, progress: Callable[[str], None], names: Sequence[str]
) -> Iterator[Row]:
    try:
        with temporary_bundle(entry, log_dir) as bundle:
            request = places.Request(bundle)
            if kind_of(entry.site.scheduler).runs_here:
                verdicts = places.on_this_host(request)
            else:
                chosen = places.select(entry.site, [])
                if not chosen.idle:
                    yield _look(
                        "node",
                        "warn",
                        "no node is idle, so no node was checked: try again later",
                        advice.PARTITIONS,
                    )
                    return
                verdicts = places.allocate(
                    request, entry, chosen.idle[:1], progress, of=len(chosen.nodes)
                )
    except SetError as error:
        command = error.fix.command if error.fix else f"df -h {quote(str(log_dir))}"
        yield _look("log_dir", "fail", _with_hint(error), command)
    except SchedulerError as error:
        yield _look("node", "fail", _with_hint(error), advice.PARTITIONS)
    else:
        yield from _verdict_rows(verdicts, names)


def _verdict_rows(verdicts: Verdicts, names: Sequence[str]) -> Iterator[Row]:
    for node in verdicts.nodes:
        yield from node.rows
        if node.untested:
            text = f"{node.node} was not tested: {node.untested}"
            command = join(["orchestrator", "doctor", *names, "--all-nodes"])
            yield replace(_look("node", "fail", text, command), node=node.node)
    yield from verdicts.together
