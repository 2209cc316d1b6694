"""The last lines about a set in trouble: cause, fix, and a command to paste."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.words import quoted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orchestrator.evidence.explanation import Explanation
    from orchestrator.evidence.picture import SetPicture
    from orchestrator.model import Entry, Site
    from orchestrator.views.parts import Part

TROUBLE = frozenset({"failed", "refused", "lost", "paused", "held", "time_limit"})
WAITS_IN_VAIN = frozenset({"nodes_unavailable", "never_fits", "partition_down", "partition_limit"})
"""Only others can remove these causes of waiting."""


def explained(picture: SetPicture, site: str | None = None) -> Explanation:
    """Explain a set, with its command for this host. `site`: file of --site."""
    from orchestrator.evidence.explain import explain
    from orchestrator.evidence.sets import SetEvidence

    explanation = explain(SetEvidence(picture.root), picture)
    complete = _COMMANDS.get(explanation.cause)
    way = complete(Trouble(picture, explanation, site)) if complete and picture.record else ""
    command, remedy = (way, "") if isinstance(way, str) else way
    return replace(
        explanation, next=command or explanation.next, remedy=remedy or explanation.remedy
    )


def with_short_name(command: str, root: Path, site: str | None = None) -> str:
    """Shorten the set's path to the end of its id, if other commands find it in the log directory
    of the site file without --site."""
    from orchestrator.cli.finding import find_site, log_dir_of
    from orchestrator.errors import OrchestratorError
    from orchestrator.runset.find import short_name

    path = quoted(root)
    if site or path not in command:
        return command
    try:
        used = find_site(None)
        name = quoted(short_name(root, log_dir_of(used))) if used else path
    except (OrchestratorError, OSError):
        return command
    return " ".join(name if word == path else word for word in command.split(" "))


def set_parts(picture: SetPicture, site: str | None = None) -> list[Part]:
    """Return facts, runs and closing lines. `site`: file of --site."""
    from orchestrator.views.parts import with_commands

    closing = with_commands(closing_lines(picture, site))
    return [*facts_and_runs(picture, site), closing]


def facts_and_runs(picture: SetPicture, site: str | None = None) -> list[Part]:
    from orchestrator.views.parts import FactList
    from orchestrator.views.sets import describe, run_table

    command = ""
    if picture.state == "complete":
        command = f"orchestrator score {quoted(picture.root)}"
        command = with_short_name(command, picture.root, site)
    return [FactList(describe(picture, command)), run_table(picture.runs)]


def closing_lines(picture: SetPicture, site: str | None = None) -> list[str]:
    """Return at most three last lines; [] without trouble."""
    from orchestrator.evidence.sets import SetEvidence

    is_incomplete = picture.state == "complete" and (
        bool(picture.given_up) or SetEvidence(picture.root).too_few_runs > 0
    )
    if not is_incomplete and picture.state not in (*TROUBLE, "pending"):
        return []
    explanation = explained(picture, site)
    if picture.state == "pending" and explanation.cause not in WAITS_IN_VAIN:
        return []
    fix = [f"fix: {explanation.remedy}"] if explanation.remedy else []
    command = with_short_name(explanation.next, picture.root, site)
    return [f"why: {explanation.sentence}", *fix, *([f"  {command}"] if command else [])]


def end_lines(picture: SetPicture, site: str | None = None) -> list[str]:
    """Return the last lines of a command that waited for the set's end; [] without trouble."""
    lines = closing_lines(picture, site)
    if picture.state == "complete":
        return lines
    ended = f"the set ended as {picture.state}: {picture.reason}"
    resume = with_short_name(f"orchestrator resume {quoted(picture.root)}", picture.root, site)
    return [ended, *(lines or [f"  {resume}"])]


def with_unreleased(picture: SetPicture) -> SetPicture:
    """Warn of nodes that may still have the container of a job that ended before its set was
    complete."""
    from orchestrator.evidence.events import unreleased
    from orchestrator.evidence.sets import SetEvidence

    if picture.live or picture.state == "complete" or not picture.job_id or picture.rehearsed:
        return picture
    nodes = unreleased(SetEvidence(picture.root), picture.job_id)
    texts = [unreleased_line(picture, picture.job_id, nodes)] if nodes else []
    return replace(picture, warnings=(*picture.warnings, *texts))


def unreleased_line(picture: SetPicture, job_id: str, nodes: list[str]) -> str:
    """Return the nodes that may still have a job's container, and a command that shows it."""
    from orchestrator.nodes.names import fold

    engine = picture.record.engine if picture.record else ""
    look = f"{engine or 'docker'} ps --all --filter label=orchestrator.job={quoted(job_id)}"
    if engine == "none":
        look = "ps -ef | grep orch-"
    return f"{fold(nodes)} did not confirm the end of job {job_id}; check there: {look}"


# ---- commands that need facts besides the set ----


class Trouble(NamedTuple):
    """`explanation`: why it is in trouble; `site`: file of --site."""

    picture: SetPicture
    explanation: Explanation
    site: str | None

    @property
    def site_option(self) -> str:
        return f" --site {quoted(self.site)}" if self.site else ""

    @property
    def text(self) -> str:
        return " ".join([self.picture.reason, *(proof.text for proof in self.explanation.evidence)])


def _arguments(trouble: Trouble, without: str = "") -> list[str]:
    """Return the recorded arguments that submit the set again, `without` a variable of --env."""
    from orchestrator.evidence.sets import again

    record = trouble.picture.record
    if record is None:
        return []
    arguments = again(record) + (["--site", trouble.site] if trouble.site else [])
    given = (f"{name}={value}" for name, value in _given(trouble).items() if name != without)
    return arguments + [word for value in given for word in ("--env", value)]


def _given(trouble: Trouble) -> dict[str, str]:
    """Return the variables of --env with their values, in the order of the bundle."""
    from shlex import split

    from orchestrator.evidence.bundle import origins
    from orchestrator.evidence.sets import SetEvidence

    evidence, record = SetEvidence(trouble.picture.root), trouble.picture.record
    names = [name for name, origin in origins(evidence).items() if origin == "command line"]
    if not names or record is None:
        return {}
    values = {}
    for file in (f"config_{record.system}.sh", "rccl_env.sh"):
        for line in evidence.findings.text(evidence.layout.bundle / file).splitlines():
            name, _, value = line.removeprefix("export ").partition("=")
            if name in names:
                with suppress(ValueError):
                    values[name] = "".join(split(value))
    return values


def _again(trouble: Trouble, *overrides: str, without: str = "") -> str:
    """Submit the set again with `overrides` of the site file, `without` a variable of --env."""
    more = [word for value in overrides for word in ("--override", value)]
    return " ".join(map(quoted, ["orchestrator", *_arguments(trouble, without), *more]))


def _name_data(trouble: Trouble) -> str:
    from orchestrator.model.prerequisites import likely_folder, name_folders

    record = trouble.picture.record
    match = re.search(r"(\w+) is not set", trouble.text)
    if record is None or match is None:
        return ""
    site = _site(trouble)
    folder = likely_folder(site, record.workload, match[1], os.environ)
    need = name_folders(record.workload, {match[1]: folder})
    return need.fix.line(_arguments(trouble)) if need.fix else ""


def _site(trouble: Trouble) -> Site:
    """Return the user's site, else a site with the set's log directory."""
    from orchestrator.cli.finding import find_site
    from orchestrator.errors import OrchestratorError
    from orchestrator.model import Site, load_site

    with suppress(OrchestratorError):
        if path := find_site(trouble.site):
            return load_site(path)
    return Site(log_dir=str(trouble.picture.root.parent))


def _find_data(trouble: Trouble) -> str:
    from orchestrator.model.prerequisites import find_data

    record = trouble.picture.record
    match = re.search(r"(\w+): (/\S+) does not exist", trouble.text)
    if record is None or match is None:
        return ""
    fix = find_data(_site(trouble), record.workload, match[1], match[2])
    return fix.line(_arguments(trouble))


def _load_image(trouble: Trouble) -> str:
    """Load the image on the nodes; without a kept tar pull or build it first."""
    from orchestrator.container.store import stored
    from orchestrator.evidence.sets import entry_of

    record = trouble.picture.record
    if record is None:
        return ""
    image = " ".join(map(quoted, entry_of(record))) + trouble.site_option
    kept = stored(trouble.picture.root.parent.parent / "images", record.image)
    steps = [] if kept else [f"orchestrator images pull {image}"]
    if not kept and _is_built(trouble):
        steps.insert(0, f"orchestrator images build {image}")
    steps += [
        f"orchestrator images distribute {image}",
        f"orchestrator resume {quoted(trouble.picture.root)}",
    ]
    return " && ".join(steps)


def _is_built(trouble: Trouble) -> bool:
    """Return whether no registry has the image of the set."""
    record, entry = trouble.picture.record, _entry(trouble)
    if record is None or entry is None:
        return False
    return entry.build is not None and entry.image == record.image


def _entry(trouble: Trouble) -> Entry | None:
    """Return the entry that a new submission would have, or None."""
    from orchestrator.errors import OrchestratorError
    from orchestrator.model import load_entry

    record = trouble.picture.record
    if record is None:
        return None
    with suppress(OrchestratorError):
        names = (record.system, record.workload)
        return load_entry(*names, round=record.round, site=_site(trouble))
    return None


def _without_sudo(trouble: Trouble) -> str:
    """Submit the set again without the part that calls sudo."""
    if "container engine (sudo" in trouble.text:
        return _again(trouble, "container.command=[docker]")
    return _again(trouble, "tunables=off", "clear_caches=false")


def _join_group(trouble: Trouble) -> str:
    """Let the set's owner use the engine: a command for the administrator."""
    from orchestrator.trust import owner_name

    try:
        return f"sudo usermod -aG docker {quoted(owner_name(trouble.picture.root))}"
    except OSError:
        return ""


def _look_at_nodes(trouble: Trouble) -> str | tuple[str, str]:
    """Show why nodes take no jobs; if all take jobs, the queue."""
    from orchestrator.errors import SchedulerError
    from orchestrator.nodes.names import fold
    from orchestrator.scheduler import advice
    from orchestrator.scheduler.slurm_nodes import unavailable_nodes

    try:
        nodes = unavailable_nodes()
    except SchedulerError:
        return ""
    if nodes:
        return advice.look_at_nodes(fold(nodes))
    remedy = "no node is down or drained: it starts when other jobs or a reservation release them"
    return advice.show_queue(_site(trouble).partition), remedy


def _correct_value(trouble: Trouble) -> str | tuple[str, str]:
    """Submit the set again without the refused variable of --env."""
    named = re.findall(r"\w+", trouble.explanation.sentence)
    wrong = next((name for name in _given(trouble) if name in named), "")
    if not wrong:
        return ""
    remedy = (
        f"resume would run the same bundle: submit a new set without `--env {wrong}`, as below, or "
        "with a correct value"
    )
    return _again(trouble, without=wrong), remedy


def _name_interface(trouble: Trouble) -> str | tuple[str, str]:
    """Submit the set again without a missing interface: nodes then take that of their route to the
    others."""
    match = re.search(
        r"\b(\w+)=(\S+) \((\w+)\): this node has no such.* it has (\S+)", trouble.text
    )
    if match is None:
        return ""
    network, variable, missing = _site(trouble).network, match[1], match[2]
    values = {
        "network.socket_ifname": network.socket_ifname,
        "network.gloo_socket_ifname": network.gloo_socket_ifname,
    }
    nulls = [f"{key}=null" for key, value in values.items() if value == missing]
    place = "`network.socket_ifname` of the site" if match[3] == "site" else f"`--env {variable}`"
    remedy = f"name one of {match[4]} in {place}, or leave it to the nodes, as below"
    return _again(trouble, *nulls, without=variable), remedy


def _longer_job(trouble: Trouble) -> str | tuple[str, str]:
    """Resume with a longer limit, if no run of the last job ended in time."""
    from math import ceil

    from orchestrator.errors import SchedulerError
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.render.job_time import MARGIN, JobTime, job_time
    from orchestrator.scheduler.slurm_nodes import partition_limits

    picture, files = trouble.picture, SetEvidence(trouble.picture.root)
    job, record = files.job, picture.record
    if job is None or record is None or record.scheduler != "slurm" or files.finished:
        return ""
    took = [run.seconds for run in picture.runs if run.done and run.seconds]
    entry = None if took else _entry(trouble)
    each = ceil(MARGIN * min(took, default=0) / 60) if entry is None else job_time(entry).each
    had = ceil(((job.ended_ms or job.updated_ms) - job.started_ms) / 60_000)
    # The run took longer than expected.
    each = each if each > had else 2 * had
    missing = sum(not run.done for run in picture.runs)
    minutes = JobTime(each, "").minutes(missing)
    with suppress(SchedulerError):
        limits = [*partition_limits(_site(trouble).partition).values()]
        longest = max((limit or minutes for limit in limits), default=minutes)
        minutes = min(minutes, longest) if longest > had else minutes
    arguments = ["orchestrator", "resume", str(picture.root), "--time", str(minutes)]
    remedy = f"no run fitted into {had} min: give the next job more time"
    return " ".join(map(quoted, arguments)), remedy


_COMMANDS: dict[str, Callable[[Trouble], str | tuple[str, str]]] = {
    "input_refused": _correct_value,
    "bad_argument": _correct_value,
    "no_interface": _name_interface,
    "time_limit": _longer_job,
    "data_unset": _name_data,
    "data_missing": _find_data,
    "image_absent": _load_image,
    "no_root": lambda trouble: _again(trouble, "tunables=off", "clear_caches=false"),
    "caches_kept": lambda trouble: _again(trouble, "clear_caches=false"),
    "engine_no_access": _join_group,
    "sudo_missing": _without_sudo,
    "engine_no_sudo": lambda trouble: _again(trouble, "container.command=[docker]"),
    "nodes_unavailable": _look_at_nodes,
}
"""Cause -> command, or command and remedy; other causes use their rule's."""
