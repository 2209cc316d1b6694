"""Causes that the loop reports: why an attempt or a job ended, or a node is excluded; and the lines
of a job's output that explain nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from orchestrator.causes.cause import LEAVE_OUT, MACHINE, PROGRAM, RESUME, SYMPTOM, Cause
from orchestrator.evidence.progress import read_end
from orchestrator.onnode.kernel.node_names import ALL_NODES
from orchestrator.onnode.kernel.walk import FilesInside
from orchestrator.onnode.set.ledger import MARK
from orchestrator.scheduler.advice import SCHEDULER
from orchestrator.scheduler.reasons import is_remark

EDITED = f"{RESUME} --edited"
SUBMIT = "orchestrator {again}"
_PREFLIGHT = "orchestrator doctor --nodes {nodes}"
FILLS = "du -ahd1 {log_dir} | sort -h | tail -5"
"""Shows the largest folders of a full log directory."""
_ROOM = f"df -h {{log_dir}}; {FILLS}"

_BOOKKEEPING = re.compile(
    rf" orchestrator: {MARK}\d"  # the head of the ledger closes every output
    rf"| orchestrator: (?:nodes? \S+|{ALL_NODES}): tunables: \w+ wanted "
)


def is_bookkeeping(text: str) -> bool:
    """Return whether a line of a job's output is never evidence."""
    line = text.strip()
    return _BOOKKEEPING.search(line) is not None or is_remark(line)


def last_line(output: Path, files: FilesInside) -> str:
    """Return the last line of a job's output that can be evidence, or ""."""
    lines = read_end(output, files, 2048).decode("utf-8", "replace").split("\n")
    evidence = (line.strip() for line in reversed(lines) if not is_bookkeeping(line))
    return next(filter(None, evidence), "")


LOOP_CAUSES: tuple[Cause, ...] = (
    Cause("data_unset", PROGRAM, SUBMIT,
          "the site file names no folder for the data",
          "name the folder in the site file, and submit a new set",
          "is not set: give the site file"),
    Cause("data_missing", PROGRAM, "orchestrator prepare {workload}",
          "a folder of the data does not exist there",
          "mount or prepare the data, or correct the site file and submit a new set",
          "does not exist on this node | cannot be read by"),
    Cause("image_absent", PROGRAM, "orchestrator images distribute {entry}",
          "the image is not on the node",
          "load it on the nodes, then resume",
          "image * is not on this node"),
    Cause("engine_no_access", PROGRAM, _PREFLIGHT,
          "this user may not use the container engine",
          "an administrator adds the user to the engine's group on the nodes "
          f"({SCHEDULER} notices within 10 minutes); or give the site "
          "`container.command: [sudo, -n, docker]`",
          "engine * does not answer on this node: *permission denied while"),
    Cause("sudo_missing", PROGRAM, SUBMIT,
          "the site calls sudo, which is not installed on the node",
          "install sudo on the nodes, or leave it out of the site's `sudo` and "
          "`container.command`",
          "sudo: no such file | sudo: command not found | sudo: not found"),
    Cause("engine_no_sudo", PROGRAM, SUBMIT,
          "this user may not call the container engine with sudo",
          "an administrator allows it without a password (sudoers); in the engine's group, without "
          "sudo",
          "(sudo * does not answer on this node: "),
    Cause("engine_silent", PROGRAM, _PREFLIGHT,
          "the container engine does not answer",
          "start it (systemctl start docker), then check the nodes",
          "engine * does not answer on this node"),
    Cause("no_root", PROGRAM, SUBMIT,
          "host settings need root on the node",
          "give the site `sudo: [sudo, -n]`; a set for trials runs without host settings",
          "root is needed"),
    Cause("no_space", MACHINE, _ROOM,
          "a file system is full",
          "remove old files, then resume",
          "gb free, at least | no inodes free | no space left on device | disk quota exceeded"),
    Cause("no_interface", PROGRAM, SUBMIT,
          "the named network interface is missing",
          "correct `network.socket_ifname` of the site; the reason names those of the nodes",
          "has no such interface; it has"),
    Cause("bundle_incomplete", PROGRAM, RESUME,
          "a file of the set's bundle is missing",
          "resume puts it back as it was declared",
          "is missing from this bundle | of the bundle is missing; | of the bundle are missing;"),
    Cause("bundle_edited", PROGRAM, EDITED,
          "the set's bundle was edited",
          "if it is meant, resume with --edited; otherwise put the files back",
          "the bundle was edited since it was declared"),
    Cause("run_timeout", SYMPTOM, "orchestrator logs {set} --run {run}",
          "a run did not end within its time-out",
          "it hung, or `run_timeout_s` is too short for it",
          "no run_stop within"),
    Cause("node_silent", SYMPTOM, RESUME,
          "a node went silent",
          "look at the node; resume takes another one",
          "went silent | no word for | it did not answer before run"),
    Cause("node_babbles", SYMPTOM, LEAVE_OUT,
          "a node sends unexpected messages",
          "check its programs: `python:` of the site, or a program that writes to the agent's "
          "output",
          "was given up: it | it sends too much"),
    Cause("container_ended", SYMPTOM, RESUME,
          "the container of a node ended under its run",
          "look at the engine's log on the node",
          "its container ended"),
    Cause("caches_kept", PROGRAM, SUBMIT,
          "only root may drop the caches of the node",
          "give the site `sudo: [sudo, -n]`; a set for trials runs without it",
          "or set clear_caches: false"),
    Cause("setting_lost", PROGRAM, RESUME,
          "a host setting does not hold",
          "find the program that changes it; `orchestrator tune verify` checks it",
          " wanted * found "),
    Cause("state_unwritable", MACHINE, RESUME,
          "the set's folder cannot be written",
          "make room on the shared storage, or mount it again",
          "cannot write to "),
)  # fmt: skip
"""The loop's reasons for the end of an attempt or a job."""


UNFIT = Cause(
    "node_unfit",
    PROGRAM,
    LEAVE_OUT,
    "a node failed a check",
    "repair it, or leave the node out",
    "",
)
ALL_UNFIT = replace(UNFIT, next=_PREFLIGHT, remedy="repair it, check again, then resume")
"""The same for nodes that no spare replaces."""
