"""The index of the commands: groups of (command, its line in `--help`), in the order of `--help`.

Lines stand here alone, so that `--help` loads no command.
"""

from __future__ import annotations

GROUPS: dict[str, dict[str, str]] = {
    "start": {
        "init": "create a site file by inspecting the cluster",
        "doctor": "check that everything a set needs is in place, and how to fix what is not",
        "demo": "the whole path on this machine, without Slurm, Docker, GPU or root",
    },
    "run": {
        "run": "submit a set, watch it and score it; the exit code reflects the verdict",
        "submit": "create a set and submit its job",
        "resume": "submit the remaining runs of a set",
        "cancel": "stop a set's job and clean up its containers",
        "rehearse": "play a set on a virtual clock, with faults: what happens, how long it takes",
    },
    "look": {
        "status": "show the state of all sets, or of one",
        "watch": "show a set live until it ends",
        "logs": "show or follow the logs of a set's runs",
        "explain": "say why a set is pending, slow, paused, hung or failed, and what to do",
        "nodes": "show the results, timings and exclusions of every node of a set",
    },
    "results": {
        "score": "compute time-to-train per run and the score, of a set or a folder of logs",
        "compare": "compare sets and published results, with how sure a difference is",
        "report": "write a page about a set; also Markdown, CSV and JSON",
        "export": "export the runs of finished sets as CSV, Parquet, or to MLflow",
        "package": "check finished sets and write their submission tree",
    },
    "cluster": {
        "systems": "list the systems and the workloads that each can run",
        "images": "show, pull, distribute and inspect container images",
        "prepare": "download and convert a workload's data, or check it",
        "tune": "plan, apply, verify or revert the nodes' host settings",
        "preflight": "check nodes before use: a verdict and a remedy for each",
    },
    "more": {
        "render": "write the bundle of scripts for a system and a workload",
        "code": "copy the benchmark's code out of an image",
        "published": "list the published results",
        "check": "list compliance findings of a set or a folder of logs, by file and line",
        "ledger": "verify that no record or result of a set was altered",
        "replay": "recompute a set's decisions from its event log",
        "metrics": "write Prometheus metrics of all sets",
        "docs": "read or search the documents",
        "completion": "print the completion for bash, zsh or fish",
    },
}
HIDDEN = "more"
"""The group that only `help --all` shows."""

COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}


def usage(*, every: bool = False) -> str:
    """Return the text of `orchestrator --help`; with `every`, of `help --all`."""
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
            "`orchestrator help COMMAND` explains a command; `orchestrator docs` has the documents.",
            "`orchestrator --version` prints the version.",
        ]
    )
