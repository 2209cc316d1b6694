"""Faults on request, for tests of whatever starts this program. Nothing here runs unless
BUILTIN_FAULT is set.

BUILTIN_FAULT holds one or more faults, separated by commas: KIND[:NAME=VALUE]... The README lists
them.
"""

from __future__ import annotations

import os
import time

from training.environment import Environment
from training.failures import BadSettings

KINDS = ("die", "kill", "hang", "nan", "slow", "abort", "late-exit", "leak")
CONDITIONS = ("run", "attempt", "node")
SELF_DESTRUCTION_CODE = 9


class Fault:
    """One fault that applies to this run, attempt and node. `at` is a share of the expected length,
    -1 before start."""

    def __init__(self, kind: str, options: dict[str, str]) -> None:
        self.kind = kind
        self.options = options
        self.done = False
        try:
            self.at = -1.0 if options.get("at") == "init" else float(options.get("at", "0.5"))
            self.milliseconds = float(options.get("ms", "5"))
            self.seconds = float(options.get("seconds", "60"))
        except ValueError:
            raise BadSettings(
                f"BUILTIN_FAULT: {options} holds something that is not a number"
            ) from None


def parse(text: str) -> tuple[str, dict[str, str]]:
    kind, *parts = text.strip().split(":")
    options = dict([part.split("=", 1) if "=" in part else (part, "1") for part in parts])
    unknown = [
        name
        for name in options
        if name not in (*CONDITIONS, "at", "ms", "seconds", "deaf", "session")
    ]
    if kind not in KINDS or unknown:
        accepted = f"KIND[:run=N][:attempt=N][:node=N][:at=SHARE], KIND one of {', '.join(KINDS)}"
        raise BadSettings(f"BUILTIN_FAULT: {text!r}: expected {accepted}")
    return kind, options


class Faults:
    """The faults of BUILTIN_FAULT that are meant for this process."""

    def __init__(self, environment: Environment, node: int) -> None:
        self.now: list[Fault] = []
        self.active = environment.has("BUILTIN_FAULT")
        if not self.active:
            return
        here = {"node": str(node)}
        for text in environment.text("BUILTIN_FAULT").split(","):
            kind, options = parse(text)
            for name, variable in (("run", "ORCH_RUN"), ("attempt", "ORCH_ATTEMPT")):
                if name in options:
                    here[name] = environment.text(variable)
            if all(options[name] == here[name] for name in CONDITIONS if name in options):
                self.now.append(Fault(kind, options))

    def reach(self, share: float) -> None:
        """Called before every step with the share of the expected length that is done (-1: before
        the rendezvous)."""
        for fault in self.now:
            if fault.at > share:
                continue
            if fault.kind == "slow" and share >= 0:
                time.sleep(fault.milliseconds / 1000)
            elif not fault.done:
                fault.done = True
                strike(fault)

    def wants(self, kind: str, share: float) -> bool:
        """Whether a fault of a kind that the training itself has to carry out is due."""
        return self.active and any(fault.kind == kind and share >= fault.at for fault in self.now)


def strike(fault: Fault) -> None:
    if fault.kind == "die":
        os._exit(SELF_DESTRUCTION_CODE)
    if fault.kind == "kill":
        os.kill(os.getpid(), 9)
    if fault.kind == "hang":
        hang("deaf" in fault.options)
    if fault.kind == "leak":
        leak(fault.seconds, "session" in fault.options)


def hang(deaf: bool) -> None:
    """Sleep for ever; when deaf, TERM and INT do not end it."""
    if deaf:
        import signal  # 6 ms of start-up that only this needs

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def leak(seconds: float, own_session: bool) -> None:
    """Start a process that holds our standard output open and outlives us by `seconds`."""
    os.posix_spawnp("sleep", ["sleep", f"{seconds:g}"], os.environ, setsid=own_session)
