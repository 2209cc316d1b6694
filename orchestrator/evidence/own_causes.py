"""Causes that the loop itself reports: why an attempt or a job ended, or a node is excluded."""

from __future__ import annotations

from orchestrator.causes.cause import LEAVE_OUT, MACHINE, PROGRAM, RESUME, SYMPTOM, Cause

LOOP_CAUSES: tuple[Cause, ...] = (
    Cause("run_timeout", SYMPTOM, "orchestrator logs {set} --run {run}",
          "a run did not end within its time-out",
          "it hung, or `run_timeout_s` is too short for it",
          "no run_stop within"),
    Cause("node_silent", SYMPTOM, RESUME,
          "a node went silent",
          "look at the node; resume takes another one",
          "went silent | no word for | it did not answer before run"),
    Cause("node_babbles", SYMPTOM, LEAVE_OUT,
          "a node sends what it should not",
          "look at what runs there: `python:` of the site, or a program that writes to the agent's "
          "output",
          "was given up: it | it sends too much"),
    Cause("container_ended", SYMPTOM, RESUME,
          "the container of a node ended under its run",
          "look at the engine's log on the node",
          "its container ended"),
    Cause("caches_kept", PROGRAM, RESUME,
          "a node cannot drop its caches",
          "run as root, give the site a sudo prefix, or set clear_caches: false",
          "or set clear_caches: false"),
    Cause("setting_lost", PROGRAM, RESUME,
          "a host setting does not hold",
          "`orchestrator tune verify` tells who changes it",
          " wanted * found "),
    Cause("state_unwritable", MACHINE, RESUME,
          "the set's folder cannot be written",
          "make room on the shared storage, or mount it again",
          "cannot write to "),
)  # fmt: skip
"""The loop's own reasons for the end of an attempt or a job."""


UNFIT = Cause(
    "node_unfit", PROGRAM, LEAVE_OUT, "a node failed a check", "mend it, or leave the node out", ""
)
"""One of our checks failed there, and has the details."""
