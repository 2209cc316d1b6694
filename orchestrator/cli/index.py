"""Groups of (command, its line in `--help`), so that `--help` loads no command."""

from __future__ import annotations

GROUPS: dict[str, dict[str, str]] = {
    "start": {
        "init": "create a site file by inspecting the cluster",
        "doctor": "check that everything a set needs is in place, and show the fixes",
        "demo": "the whole path on this machine, without Slurm, Docker, GPU or root",
    },
    "run": {
        "run": "submit a set, watch it and score it; the exit code reflects the verdict",
        "submit": "create a set and submit its job",
        "resume": "submit the remaining runs of a set, or more runs",
        "cancel": "stop a set's job and clean up its containers",
        "rm": "move sets to the trash",
    },
    "look": {
        "ls": "list the sets",
        "status": "show the state of all sets, or of one",
        "watch": "show a set live until it ends",
        "logs": "show or follow the logs of a set's runs",
        "explain": "explain why a set is pending, slow, paused, hung or failed, and give the fix",
        "nodes": "show the results, timings and exclusions of every node of a set",
    },
    "results": {
        "score": "compute time-to-train per run and the score, of a set or a folder of logs",
        "compare": "compare sets and published results, with how sure a difference is",
        "report": "write a page about a set; also Markdown, CSV and JSON",
        "package": "check finished sets and write their submission tree",
    },
    "cluster": {
        "systems": "list the systems and the workloads that each can run",
        "images": "show, pull, distribute and inspect container images",
        "prepare": "download and convert a workload's data, or check it",
        "tune": "plan, apply, verify or revert the nodes' host settings",
    },
    "more": {
        "config": "show the site file in use, its source, and its values",
        "validate": "check site files, systems and workloads",
        "render": "write the bundle of scripts for a system and a workload",
        "rehearse": "play a set on a virtual clock, with faults: its events and its duration",
        "audit": "verify a set: its records, its decisions and its logs",
        "export": "export the runs of finished sets as CSV, Parquet, to MLflow or Prometheus",
        "published": "list the published results",
        "docs": "read or search the documents",
        "completion": "print the completion for bash, zsh or fish",
    },
}
HIDDEN = "more"
"""Only `help --all` shows this group."""

COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}

OLD_NAMES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("systems", "list"): ("systems",),
    ("systems", "validate"): ("validate",),
    ("ledger", "verify"): ("audit", "--only", "ledger"),
    ("ledger",): ("audit", "--only", "ledger"),
    ("replay",): ("audit", "--only", "replay"),
    ("check",): ("score", "--compliance"),
    ("code",): ("images", "code"),
    ("metrics",): ("export", "--format", "prometheus", "--quiet"),
    ("preflight",): ("doctor", "--all-nodes"),
}
"""Former names -> present words, and `systems list`, which newcomers type. The first match counts.
Help, completion and pages hide them; the next version drops the former names."""


def present(typed: list[str]) -> list[str]:
    """Replace a former name."""
    for old, new in OLD_NAMES.items():
        if tuple(typed[: len(old)]) == old:
            return [*new, *typed[len(old) :]]
    return typed


def usage(*, every: bool = False) -> str:
    """Return `orchestrator --help`, or, with `every`, `help --all`."""
    width = max(map(len, COMMANDS))
    lines = [
        "usage: orchestrator COMMAND [ARGUMENT ...]",
        "",
        "Run, score and reproduce MLPerf Training on AMD Instinct clusters.",
    ]
    for title, group in GROUPS.items():
        if every or title != HIDDEN:
            lines += ["", f"{title}:"]
            lines += [f"  {name:<{width}}  {line}" for name, line in group.items()]
    more = ", ".join(GROUPS[HIDDEN])
    return "\n".join(
        [
            *lines,
            "",
            *([] if every else [f"more (help --all): {more}"]),
            (
                "`orchestrator help COMMAND` explains a command; `orchestrator docs` has the "
                "documents."
            ),
            "Every command: --quiet, --verbose, --debug-log FILE. `orchestrator --version`.",
        ]
    )
