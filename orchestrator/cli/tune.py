"""Host settings of a run: preview changes (plan), set (apply), check (verify), restore (revert),
and list their owners (status). `facts` shows differences between the nodes and runs of a set.

Acts on this host; with --nodes on other hosts over SSH (or, inside a Slurm allocation, through
srun); inside an allocation without --nodes on all its nodes. Jobs tune their nodes themselves: this
command is for rehearsals, for inspection, and to restore the settings left by a killed job. apply
and revert need root on the hosts: --sudo, or a login as root.

Exit code: 0 everything holds, 1 a required setting does not or a host refused, 4 a host did not
answer.

example:
  orchestrator tune plan
  orchestrator tune verify --nodes node[1-8] --json
  orchestrator tune revert --nodes node[1-8] --sudo
  orchestrator tune facts MI325X_08x08x32-flux1-20261121-101500-9f3c
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

from orchestrator.cli.arguments import MOST, add_json, add_site, positive, seconds
from orchestrator.cli.command import Command
from orchestrator.cli.finding import chosen_set
from orchestrator.cli.output import note, print_json, print_table
from orchestrator.errors import ExitCode, UsageError
from orchestrator.words import TextTable

if TYPE_CHECKING:
    from orchestrator.nodes.names import NamedNode
    from orchestrator.nodes.transport import Transport
    from orchestrator.tuning.hosts import HostAnswer, Root
    from orchestrator.tuning.profile import TuningProfile

_KNOBS = {"states": ("RESULT",), "below": ("PURPOSE",), "leave": ("NEED",)}
TABLES = {
    "plan": TextTable("KNOB", "WANTED", "FOUND", "RESULT", "NEED", "PURPOSE", **_KNOBS),
    "apply": TextTable("KNOB", "WANTED", "BEFORE", "AFTER", "RESULT", "NEED", **_KNOBS),
    "verify": TextTable("KNOB", "WANTED", "FOUND", "RESULT", "NEED", **_KNOBS),
    "revert": TextTable(
        "KNOB", "REMEMBERED", "WAS", "IS", "RESULT", "FILE", states=("RESULT",), below=("FILE",)
    ),
    "status": TextTable("WHAT", "NAME", "STATE", "DETAIL", below=("DETAIL",)),
}
FACTS = TextTable("RUN", "ATTEMPT", "NODE", "FACT", "VALUE", "USUAL", right=("RUN", "ATTEMPT"))
DRIFT = TextTable(
    "RUN", "ATTEMPT", "NODE", "KNOB", "WANTED", "FOUND AT THE END", right=("RUN", "ATTEMPT")
)
BOOT = frozenset({"cmdline", "acs", "numa_per_socket"})
"""Settings that only a boot or the BIOS changes: they are checked, and no run can fix them."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("plan", "apply", "verify", "revert", "status", "facts"),
        help="what to do",
    )
    parser.add_argument(
        "set", metavar="SET", nargs="?", default="", help="for facts: a set (default: the newest)"
    )
    parser.add_argument(
        "--nodes",
        metavar="NAMES",
        default="",
        help="hosts, such as node[1-8] or a,b=ssh://root@10.0.0.7:2222",
    )
    parser.add_argument(
        "--via",
        choices=("auto", "local", "ssh", "srun"),
        default="auto",
        help="how to reach them (default: srun inside an allocation, else SSH)",
    )
    parser.add_argument(
        "--profile", metavar="NAME|FILE", help="tuning profile (default: by workload and round)"
    )
    parser.add_argument(
        "--workload", metavar="W", default="", help="the workload whose profile is meant"
    )
    parser.add_argument("--round", metavar="R", default="", help="and its round")
    parser.add_argument(
        "--owner",
        metavar="NAME",
        default="tune",
        help="in whose name they are held (default: tune)",
    )
    parser.add_argument(
        "--for",
        dest="hold",
        metavar="SECONDS",
        type=positive,
        default=0,
        help="apply: the host puts everything back after this time (default: it stays until revert)",
    )
    parser.add_argument(
        "--all-owners",
        action="store_true",
        help="revert: whoever holds the settings, also a running job",
    )
    parser.add_argument("--sudo", action="store_true", help="become root with sudo -n")
    parser.add_argument(
        "--ask-sudo-password",
        action="store_true",
        help="become root with sudo and a password, asked for here",
    )
    parser.add_argument(
        "--sudo-password-fd",
        metavar="N",
        type=_descriptor,
        help="the same, the password is read from descriptor N",
    )
    parser.add_argument("--ssh-config", metavar="FILE", help="instead of ~/.ssh/config")
    parser.add_argument(
        "--parallel", metavar="N", type=positive, default=32, help="hosts at a time (default: 32)"
    )
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, default=60.0, help="per host (default: 60)"
    )
    add_site(parser)
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
    from orchestrator.tuning.profile import choose_profile, load_profile
    from orchestrator.tuning.script import tunables_script

    profile = load_profile(args.profile or choose_profile(args.workload, args.round))
    nodes, transport = _hosts(args)
    action = "revert-all" if args.action == "revert" and args.all_owners else args.action
    answers = {
        answer.node: answer
        for answer in tune_hosts(
            nodes,
            tunables_script(profile),
            action,
            transport=transport,
            owner=_owner(args.owner),
            root=_root(args),
            hold_seconds=args.hold,
            timeout_s=args.timeout,
            limit=args.parallel,
        )
    }
    ordered = [answers[node.name] for node in nodes]
    if args.json:
        print_json("tune", _document(args.action, profile, ordered))
    else:
        _print(args.action, profile, ordered)
    return _exit_code(ordered)


# ---- the request ----


def _hosts(args: Namespace) -> tuple[list[NamedNode], Transport]:
    import socket

    from orchestrator.nodes.fanout import choose_transport
    from orchestrator.nodes.names import NamedNode, for_commands, parse_nodes
    from orchestrator.nodes.ssh import Ssh
    from orchestrator.nodes.transport import Srun, ThisHost

    job, listed = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_NODELIST", "")
    names = args.nodes or (listed if args.via in ("auto", "srun") and job else "")
    if not names:
        if args.via in ("ssh", "srun"):
            raise UsageError(
                f"--via {args.via} needs hosts", hint="name them with --nodes node[1-8]"
            )
        return [NamedNode(socket.gethostname().partition(".")[0] or "localhost")], ThisHost()
    nodes = for_commands(parse_nodes(names))
    if args.via == "local":
        return nodes, ThisHost()
    if args.via == "srun":
        if not job:
            raise UsageError(
                "--via srun works inside a Slurm allocation only",
                hint="salloc -N2, then this command in its shell",
            )
        return nodes, Srun(job)
    return nodes, Ssh(config_file=args.ssh_config) if args.via == "ssh" else choose_transport(
        ssh_config=args.ssh_config
    )


def _owner(name: str) -> str:
    import re

    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,119}", name):
        raise UsageError(
            f"--owner: {name!r} is not a name; accepted: letters, digits, '_', '.' and '-'"
        )
    return name


def _root(args: Namespace) -> Root:
    from orchestrator.tuning.hosts import Root

    if args.sudo_password_fd is not None:
        try:
            with os.fdopen(
                os.dup(args.sudo_password_fd), encoding="utf-8", errors="surrogateescape"
            ) as source:
                return Root(True, source.readline().rstrip("\n"))
        except OSError as error:
            raise UsageError(
                f"--sudo-password-fd {args.sudo_password_fd}: {error.strerror}",
                hint="open it in the shell: ... --sudo-password-fd 3 3< <(pass show cluster/sudo)",
            ) from error
    if args.ask_sudo_password:
        from getpass import getpass

        return Root(True, getpass("sudo password for the hosts: "))
    return Root(args.sudo)


# ---- the answers ----


def _exit_code(answers: list[HostAnswer]) -> int:
    if any(not answer.answered for answer in answers):
        return ExitCode.UNKNOWN
    return ExitCode.OK if all(answer.ok for answer in answers) else ExitCode.NO_SCORE


def _document(action: str, profile: TuningProfile, answers: list[HostAnswer]) -> dict[str, object]:
    return {
        "action": action,
        "profile": profile.name,
        "knobs": [
            {
                "knob": one.name,
                "kind": one.kind,
                "target": one.target,
                "wanted": one.wanted,
                "set": one.set,
                "root": one.root,
                "need": "required" if one.required else "optional",
                "purpose": one.purpose,
                "source": one.source,
            }
            for one in profile.tunables
        ],
        "nodes": [
            {
                "node": answer.node,
                "ok": answer.ok,
                "answered": answer.answered,
                "problem": answer.problem,
                "note": answer.note,
                "seconds": round(answer.seconds, 3),
                "rows": [row.to_json() for row in answer.rows],
                **({"status": answer.state.to_json()} if action == "status" else {}),
            }
            for answer in answers
        ],
    }


def _print(action: str, profile: TuningProfile, answers: list[HostAnswer]) -> None:
    """Print a table for all hosts with the same rows; hosts without an answer last."""
    from orchestrator.nodes.names import fold

    alike: dict[tuple[tuple[str, ...], ...], list[HostAnswer]] = {}
    for answer in answers:
        if not answer.problem:
            alike.setdefault(_cells(action, profile, answer), []).append(answer)
    for cells, group in alike.items():
        names = fold([answer.node for answer in group])
        print(f"{names} ({len(group)} hosts)" if len(group) > 1 else names)
        if cells:
            print_table(TABLES[action], cells)
        else:
            print("  nothing is held" if action == "status" else "  nothing to put back")
        for text in dict.fromkeys(answer.note for answer in group if answer.note):
            print(f"  {text}")
        print()
    for answer in answers:
        if answer.problem:
            note(f"{answer.node}: {answer.problem}")


def _cells(action: str, profile: TuningProfile, answer: HostAnswer) -> tuple[tuple[str, ...], ...]:
    if action == "status":
        state = answer.state
        return (
            *(
                ("owner", str(one["name"]), str(one["state"]), f"pid {one['pid']}")
                for one in state.owners
            ),
            *((("watchdog", "", "alive", f"pid {state.watchdog}"),) if state.watchdog else ()),
            *(
                ("remembered", one["knob"], f"{one['before']} (now {one['now']})", one["target"])
                for one in state.remembered
            ),
        )
    known = {one.name: one for one in profile.tunables}
    made = []
    for row in answer.rows:
        tunable = known.get(row.knob)
        result = (
            "boot" if row.result == "failed" and tunable and tunable.kind in BOOT else row.result
        )
        middle = {
            "plan": (row.before, result, row.need, tunable.purpose if tunable else ""),
            "apply": (row.before, row.after, result, row.need),
            "verify": (row.after, result, row.need),
            "revert": (row.before, row.after, result, row.target),
        }[action]
        made.append((row.knob, row.wanted, *middle))
    return tuple(made)


# ---- a set ----


def _facts(args: Namespace) -> int:
    from orchestrator.evidence.attempts import drifts
    from orchestrator.evidence.sets import SetEvidence
    from orchestrator.evidence.starts import attempt_starts, differences

    root = chosen_set(args).layout.root
    evidence = SetEvidence(root)
    starts, drifted = attempt_starts(evidence), drifts(evidence)
    different = differences(starts)
    if args.json:
        print_json(
            "tune-facts",
            {
                "set": str(root),
                "differences": [one.to_json() for one in different],
                "drift": [one.to_json() for one in drifted],
                "attempts": [
                    {
                        "run": one.run,
                        "attempt": one.attempt,
                        "facts": one.facts,
                        "caches": {
                            node: {
                                "ready_ms": cache.ready_ms,
                                "before_kib": cache.before_kib,
                                "after_kib": cache.after_kib,
                            }
                            for node, cache in one.caches.items()
                        },
                    }
                    for one in starts
                ],
            },
        )
    else:
        print(f"{len(starts)} attempts of {root.name} told their facts")
        if different:
            rows = [
                (one.run, one.attempt, one.node, one.field, one.value, one.usual)
                for one in different
            ]
            print_table(FACTS, rows)
        if drifted:
            print_table(
                DRIFT,
                [
                    (one.run, one.attempt, one.node, one.knob, one.wanted, one.found)
                    for one in drifted
                ],
            )
        if not different and not drifted:
            print("all nodes and runs are the same experiment, and no knob drifted")
    return ExitCode.NO_SCORE if different or drifted else ExitCode.OK


COMMAND = Command(
    "tune",
    "host settings of the nodes: plan, apply, verify, revert, status",
    __doc__,
    add_arguments,
    run,
    {
        ExitCode.OK: "every host is as it should be",
        ExitCode.NO_SCORE: "one is not; for facts: nodes or runs differ",
    },
)
