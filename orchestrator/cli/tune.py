"""Show, change and restore the host settings of a run.

Acts on this host; with --nodes on other hosts: through Slurm if the site has it, which lends them
for the time of the command, else over SSH. `apply` goes over SSH: its settings outlast the command.
Inside a Slurm allocation every action uses srun, without --nodes on all its nodes; --via slurm
without --nodes takes the idle nodes of the partition. Jobs tune their nodes themselves: this
command is for rehearsals, for inspection, and to restore the settings left by a killed job. apply
and revert need root on the hosts: --sudo, or a login as root.

Exit code: 0 everything holds, 1 a required setting does not or a host refused, 4 a host did not
answer.

example:
  orchestrator tune plan
  orchestrator tune apply --nodes 'node[1-8]' --sudo --for 3600
  orchestrator tune verify --nodes 'node[1-8]' --json
  orchestrator tune status --nodes 'node[1-8]'
  orchestrator tune revert --nodes 'node[1-8]' --sudo
  orchestrator tune facts MI325X_08x08x32-flux1-20261121-101500-9f3c
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import (
    MOST,
    add_action,
    add_choice,
    add_flag,
    add_json,
    add_number,
    add_option,
    add_site,
    add_text,
    positive,
    seconds,
)
from orchestrator.cli.command import Action, Command
from orchestrator.cli.finding import chosen_set
from orchestrator.cli.output import note, print_json, print_parts
from orchestrator.errors import ExitCode, UsageError
from orchestrator.views.parts import Table
from orchestrator.words import count, local_time

if TYPE_CHECKING:
    from orchestrator.evidence.attempts import Drift
    from orchestrator.evidence.starts import AttemptStart, FactDifference
    from orchestrator.model import Site
    from orchestrator.nodes.names import NamedNode
    from orchestrator.nodes.transport import Transport
    from orchestrator.tuning.hosts import HostAnswer, Root
    from orchestrator.tuning.profile import HostSetting, TuningProfile
    from orchestrator.tuning.rows import HostState, SettingRow

Cells = tuple[str, ...]

_COLUMNS = {
    "plan": ("setting", "wanted", "found", "result", "need", "purpose"),
    "apply": ("setting", "wanted", "before", "after", "result", "need"),
    "verify": ("setting", "wanted", "found", "result", "need"),
    "revert": ("setting", "remembered", "was", "is", "result", "file"),
    "status": ("what", "name", "state", "detail"),
}
_ON_HOSTS = (
    "--nodes --via --profile --workload --round --sudo --ask-sudo-password --sudo-password-fd "
    "--ssh-config --parallel --timeout"
)
ACTIONS = {
    "plan": Action("preview the changes", _ON_HOSTS),
    "apply": Action("make the changes, and keep the former values", f"{_ON_HOSTS} --owner --for"),
    "verify": Action("check that the settings hold", _ON_HOSTS),
    "revert": Action("restore the former values", f"{_ON_HOSTS} --owner --all-owners"),
    "status": Action("list who holds settings, and until when", _ON_HOSTS),
    "facts": Action("show differences between the nodes and runs of a set", "set"),
}
_WITH_SETTINGS = ("plan", "apply", "verify")
"""The others need no profile, so that no fault of a site file stops a revert."""
_OWNER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,119}")


def add_arguments(parser: ArgumentParser) -> None:
    add_action(parser, ACTIONS)
    parser.add_argument(
        "set", metavar="SET", nargs="?", default="", help="facts: a set (default: the newest)"
    )
    add_text(
        parser, "--nodes", "NAMES", "hosts, such as 'node[1-8]' or a,b=ssh://root@10.0.0.7:2222"
    )
    add_choice(
        parser,
        "--via",
        ("auto", "local", "ssh", "srun", "slurm"),
        "how to reach them (default: srun inside an allocation, else Slurm if the site has it, and "
        "SSH for apply)",
        "auto",
    )
    add_option(
        parser,
        "--profile",
        "NAME|FILE",
        "tuning profile (default: the site's, else by workload and round)",
    )
    add_text(parser, "--workload", "W", "the workload whose profile is meant")
    add_text(parser, "--round", "R", "and its round")
    add_option(
        parser, "--owner", "NAME", "in whose name they are held (default: tune)", default="tune"
    )
    parser.add_argument(
        "--for",
        dest="hold",
        metavar="SECONDS",
        type=positive,
        default=0,
        help="apply: the host reverts everything after this time (default: until revert)",
    )
    add_flag(
        parser, "--all-owners", "revert: also settings that somebody holds, such as a running job"
    )
    add_flag(parser, "--sudo", "become root with sudo -n")
    add_flag(parser, "--ask-sudo-password", "become root with sudo and a password, asked for here")
    add_option(
        parser,
        "--sudo-password-fd",
        "N",
        "the same, the password is read from descriptor N",
        type=_descriptor,
    )
    add_option(parser, "--ssh-config", "FILE", "instead of ~/.ssh/config")
    add_number(parser, "--parallel", "N", "hosts at a time (default: 32)", 32)
    add_option(parser, "--timeout", "S", "per host (default: 60)", type=seconds, default=60.0)
    add_site(parser)
    parser.set_defaults(systems_dir=[])
    add_json(parser)


def _descriptor(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > MOST:
        raise ArgumentTypeError(f"{text!r} is not a file descriptor")
    return int(text)


def run(args: Namespace) -> int:
    if args.action == "facts":
        return _facts(args)
    if args.set:
        raise UsageError(
            f"{args.action} takes no set", hint=f"hosts are named with --nodes {args.set}"
        )
    from orchestrator.tuning.hosts import tune_hosts
    from orchestrator.tuning.profile import load_profile, profile_script

    profile = load_profile(args.profile or _chosen_profile(args))
    action = "revert-all" if args.action == "revert" and args.all_owners else args.action
    with _hosts(args) as (nodes, transport):
        work = tune_hosts(
            nodes,
            profile_script(profile),
            action,
            transport=transport,
            owner=_owner(args.owner),
            root=_root(args),
            hold_seconds=args.hold,
            timeout_s=args.timeout,
            limit=args.parallel,
        )
        by_node = {answer.node: answer for answer in work}
    answers = [by_node[node.name] for node in nodes]
    if args.json:
        print_json("tune", _document(args.action, profile, answers))
    else:
        _print(args.action, profile, answers)
        _print_way_without_ssh(args, answers)
    return _exit_code(answers)


# ---- arguments ----


def _chosen_profile(args: Namespace) -> str:
    """Raises UsageError for an unknown workload or round."""
    from orchestrator.cli.finding import catalogue_of
    from orchestrator.model.compose import round_order
    from orchestrator.tuning.profile import choose_profile

    if args.workload or args.round:
        catalogue = catalogue_of(args)
        workloads = (
            [catalogue.workload(args.workload)[1]] if args.workload else catalogue.workloads()
        )
        rounds = {name for workload in workloads for name in workload.rounds}
        if args.round and args.round not in rounds:
            raise UsageError(
                f"there is no round {args.round}{' of ' * bool(args.workload)}{args.workload}; "
                f"there are: {', '.join(sorted(rounds, key=round_order))}"
            )
    site = _site(args) if args.action in _WITH_SETTINGS else None
    if site is not None and site.tunables == "off":
        note("the site has `tunables: off`: its jobs leave the host settings unchanged")
    return choose_profile(args.workload, args.round, site)


def _site(args: Namespace) -> Site | None:
    from orchestrator.cli.finding import find_site
    from orchestrator.model import load_site

    path = find_site(args.site)
    return load_site(path) if path else None


@contextmanager
def _hosts(args: Namespace) -> Iterator[tuple[list[NamedNode], Transport]]:
    site = _lending_site(args)
    if site is None:
        yield _reached(args)
        return
    from orchestrator.cli.lending import lent
    from orchestrator.nodes.names import parse_nodes

    names = [node.name for node in parse_nodes(args.nodes)] if args.nodes else []
    with lent(site, names, "tune", seconds=args.timeout, limit=args.parallel) as nodes_and_way:
        yield nodes_and_way


def _lending_site(args: Namespace) -> Site | None:
    """Return the site whose Slurm lends the nodes, or None. Raises UsageError."""
    if args.via == "auto" and args.action == "apply":
        return None
    return _site_with_slurm(args)


def _site_with_slurm(args: Namespace) -> Site | None:
    if args.via not in ("auto", "slurm") or args.ssh_config:
        return None
    if args.via == "auto" and not args.nodes:
        return None
    from orchestrator.cli.lending import lends
    from orchestrator.nodes.names import parse_nodes

    site = _site(args)
    if lends(site, parse_nodes(args.nodes) if args.nodes else []):
        return site
    if args.via == "slurm":
        raise UsageError(
            "--via slurm lends nodes by name, outside an allocation, for a site with Slurm",
            hint="inside an allocation: --via srun; addresses: --via ssh",
        )
    return None


def _reached(args: Namespace) -> tuple[list[NamedNode], Transport]:
    import socket

    from orchestrator.nodes.fanout import choose_transport
    from orchestrator.nodes.names import NamedNode, for_commands, parse_nodes
    from orchestrator.nodes.transport import ThisHost
    from orchestrator.scheduler.slurm_step import STEP
    from orchestrator.scheduler.slurm_variables import current_allocation

    names = args.nodes
    allocation = current_allocation()
    if not names and args.via in ("auto", STEP) and allocation.job:
        names = allocation.nodelist
    if names:
        nodes = for_commands(parse_nodes(names))
        return nodes, choose_transport(args.via, ssh_config=args.ssh_config)
    if args.via in ("ssh", STEP):
        raise UsageError(f"--via {args.via} needs hosts", hint="name them with --nodes 'node[1-8]'")
    name = socket.gethostname().partition(".")[0] or "localhost"
    return [NamedNode(name)], ThisHost()


def _owner(name: str) -> str:
    if not _OWNER.fullmatch(name):
        raise UsageError(
            f"--owner: {name!r} is not a name; accepted: letters, digits, '_', '.' and '-'"
        )
    return name


def _root(args: Namespace) -> Root:
    from orchestrator.tuning.hosts import Root

    if args.sudo_password_fd is not None:
        return Root(True, _password_from(args.sudo_password_fd))
    if args.ask_sudo_password:
        return Root(True, _asked_password())
    return Root(args.sudo)


def _asked_password() -> str:
    import warnings
    from getpass import GetPassWarning, getpass

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", GetPassWarning)  # it would show the password
            return getpass("sudo password for the hosts: ")
    except (GetPassWarning, EOFError) as error:
        raise UsageError(
            "--ask-sudo-password: no terminal gave a password",
            hint="without a terminal: --sudo-password-fd N",
        ) from error


def _password_from(descriptor: int) -> str:
    """Return the first line; the descriptor stays open. Raises UsageError, also if empty."""
    try:
        with os.fdopen(os.dup(descriptor), encoding="utf-8", errors="surrogateescape") as source:
            password = source.readline().rstrip("\n")
    except OSError as error:
        raise _no_password(descriptor, error.strerror or str(error)) from error
    if not password:
        raise _no_password(descriptor, "no password was written to it")
    return password


def _no_password(descriptor: int, reason: str) -> UsageError:
    return UsageError(
        f"--sudo-password-fd {descriptor}: {reason}",
        hint="open it in the shell: ... --sudo-password-fd 3 3< <(pass show cluster/sudo)",
    )


# ---- output ----


def _exit_code(answers: list[HostAnswer]) -> int:
    if any(not answer.answered for answer in answers):
        return ExitCode.UNKNOWN
    return ExitCode.OK if all(answer.ok for answer in answers) else ExitCode.NO_SCORE


def _document(action: str, profile: TuningProfile, answers: list[HostAnswer]) -> dict[str, object]:
    nodes = []
    for answer in answers:
        status = {"status": answer.state.to_json()} if action == "status" else {}
        nodes.append(answer.to_json() | status)
    return {
        "action": action,
        "profile": profile.name,
        "knobs": [setting.to_json() for setting in profile.settings],
        "nodes": nodes,
    }


def _print(action: str, profile: TuningProfile, answers: list[HostAnswer]) -> None:
    """Hosts without a result come last."""
    from orchestrator.nodes.names import fold

    groups: dict[tuple[Cells, ...], list[HostAnswer]] = {}
    for answer in answers:
        if not answer.problem:
            groups.setdefault(tuple(_cells(action, profile, answer)), []).append(answer)
    for cells, group in groups.items():
        names = fold([answer.node for answer in group])
        print(f"{names} ({count(len(group), 'host')})" if len(group) > 1 else names)
        if cells:
            print_parts([_table(action, cells)])
        else:
            print("  nothing is held" if action == "status" else "  nothing to put back")
        for text in dict.fromkeys(answer.note for answer in group if answer.note):
            print(f"  {text}")
        print()
    for answer in answers:
        if answer.problem:
            note(f"{answer.node}: {answer.problem}")


def _table(action: str, rows: Sequence[Cells]) -> Table:
    header = _COLUMNS[action]
    return Table(
        "Host settings",
        header,
        rows,
        states=[index for index, name in enumerate(header) if name in ("result", "state")],
        under=("purpose", "file", "detail"),
        leave=("need",),
    )


def _print_way_without_ssh(args: Namespace, answers: list[HostAnswer]) -> None:
    """Print how `apply` reaches nodes of the site's Slurm that take no SSH login."""
    silent = [answer.node for answer in answers if not answer.answered]
    if args.action != "apply" or args.via != "auto" or not silent:
        return
    if (site := _site_with_slurm(args)) is not None:
        from orchestrator.nodes.names import fold
        from orchestrator.scheduler.advice import allocate

        note("without SSH: this command in the shell of an allocation, which uses srun:")
        note(f"  {allocate(fold(silent), site.partition)}")


def _cells(action: str, profile: TuningProfile, answer: HostAnswer) -> Iterator[Cells]:
    if action == "status":
        yield from _status_cells(answer.state)
        return
    settings = {setting.name: setting for setting in profile.settings}
    for row in answer.rows:
        yield _row_cells(action, row, settings.get(row.knob))


def _status_cells(state: HostState) -> Iterator[Cells]:
    for owner in state.owners:
        yield "owner", str(owner["name"]), str(owner["state"]), _held_until(owner)
    if state.watchdog:
        yield "watchdog", "", "alive", f"pid {state.watchdog}"
    for value in state.remembered:
        text = f"{value['before']} (now {value['now']})"
        yield "remembered", value["knob"], text, value["target"]


def _held_until(owner: dict[str, object]) -> str:
    """Return the end of an owner's hold: of its process, at a time, or by hand."""
    if owner["pid"]:
        return f"while process {owner['pid']} lives"
    if isinstance(until := owner["until"], int) and until:
        return f"until {local_time(1000 * until, '%Y-%m-%d %H:%M:%S')}"
    return "until `tune revert`"


def _row_cells(action: str, row: SettingRow, setting: HostSetting | None) -> Cells:
    from orchestrator.tuning.documents import BOOT_KINDS

    needs_boot = setting is not None and setting.kind in BOOT_KINDS
    result = "boot" if row.result == "failed" and needs_boot else row.result
    match action:
        case "plan":
            purpose = setting.purpose if setting else ""
            return row.knob, row.wanted, row.before, result, row.need, purpose
        case "apply":
            return row.knob, row.wanted, row.before, row.after, result, row.need
        case "verify":
            return row.knob, row.wanted, row.after, result, row.need
        case _:
            return row.knob, row.wanted, row.before, row.after, result, row.target


# ---- facts of a set ----


def _facts(args: Namespace) -> int:
    from orchestrator.evidence.attempts import drifts
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.evidence.starts import attempt_starts, differences

    root = chosen_set(args).layout.root
    evidence = SetEvidence(root)
    starts = attempt_starts(evidence)
    drifted = drifts(evidence)
    different = differences(starts)
    if args.json:
        print_json(
            "tune-facts",
            {
                "set": str(root),
                "differences": [difference.to_json() for difference in different],
                "drift": [drift.to_json() for drift in drifted],
                "attempts": [_start_document(start) for start in starts],
            },
        )
    else:
        print(f"facts of {count(len(starts), 'attempt')} of {root.name}")
        _print_changes(
            "Differences",
            ("fact", "value", "usual"),
            [(fact, fact.field, fact.value, fact.usual) for fact in different],
        )
        _print_changes(
            "Drift",
            ("setting", "wanted", "found at the end"),
            [(drift, drift.knob, drift.wanted, drift.found) for drift in drifted],
        )
        if not different and not drifted:
            print("all nodes and runs are the same experiment, and no host setting drifted")
    return ExitCode.NO_SCORE if different or drifted else ExitCode.OK


def _print_changes(
    title: str,
    columns: tuple[str, str, str],
    changes: Sequence[tuple[Drift | FactDifference, str, str, str]],
) -> None:
    rows = [(change.run, change.attempt, change.node, *texts) for change, *texts in changes]
    if rows:
        header = ("run", "attempt", "node", *columns)
        print_parts([Table(title, header, rows, numeric=(0, 1))])


def _start_document(start: AttemptStart) -> dict[str, object]:
    caches = {
        node: {
            "ready_ms": cache.ready_ms,
            "before_kib": cache.before_kib,
            "after_kib": cache.after_kib,
        }
        for node, cache in start.caches.items()
    }
    return {"run": start.run, "attempt": start.attempt, "facts": start.facts, "caches": caches}


COMMAND = Command(
    "tune",
    __doc__,
    add_arguments,
    run,
    {
        ExitCode.OK: "every host is as it should be",
        ExitCode.NO_SCORE: "a host is not; for facts: nodes or runs differ",
    },
    ACTIONS,
)
