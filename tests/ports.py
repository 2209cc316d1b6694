"""Ports for servers that tests start."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections import deque
from pathlib import Path

LOW = 32_000
"""Above the ports of the lab (lab/up) and of runs (MASTER_PORT, orchestrator/onnode/loop/attempt.py):
a run must not meet a server here."""
_own = random.Random(os.urandom(16))  # pytest-randomly gives every worker the same numbers
_claims = deque[socket.socket](maxlen=64)
"""The last ports of this process, which no other test process takes before their servers listen."""


def free_port(address: str = "127.0.0.1") -> int:
    """Return a free port below the range that the kernel hands to connections.

    A port of that range can be somebody else's before the server listens. Raises OSError for an
    address of another machine.
    """
    high = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = _own.randrange(min(LOW, high - 700), high)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0orchestrator-test-port-{port}")
            with socket.socket() as probe:
                probe.bind((address, port))
        except OSError as reason:
            claim.close()
            if reason.errno != errno.EADDRINUSE:
                raise
            continue
        if len(_claims) == _claims.maxlen:
            _claims.popleft().close()
        _claims.append(claim)
        return port
