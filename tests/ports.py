"""Ports for servers that tests start."""

from __future__ import annotations

import errno
import os
import random
import socket
from pathlib import Path

LOW = 32_000  # above those of the lab (lab/up) and of runs (MASTER_PORT, orchestrator/onnode/loop/attempt.py): a run must not meet a server here
_own = random.Random(os.urandom(16))  # pytest-randomly gives every worker the same numbers


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nobody has, from below the range that the kernel hands to connections: one from there can be somebody
    else's before the server listens. Raises OSError when `address` is not of this machine."""
    high = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = _own.randrange(min(LOW, high - 700), high)
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError as reason:
                if reason.errno != errno.EADDRINUSE:
                    raise
                continue
        return port
