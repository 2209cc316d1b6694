"""All-reduce through the first process: everybody sends a value and a rate to it, and gets the result back.

MAX returns the time of the sum before it at these rates, whatever the load: only times are reduced by MAX.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from datetime import timedelta
from enum import Enum
from typing import Any

from torch import Tensor


class ReduceOp(Enum):
    SUM = 1
    MAX = 2


_links: list[Any] = []
_world = 0
_rank = 0
_needed_s = 0.0


def is_available() -> bool:
    return True


def is_nccl_available() -> bool:
    return True


def _own(name: str) -> float | None:
    words = dict(word.split("=") for word in os.environ.get(name, "").split())
    # The measuring process of node n1 of a test is /.../orch-0-test-n1-deep/measure.
    node = os.environ.get("STAND_IN_NODE") or sys.argv[0].split("/")[-2].split("-")[-2]
    value = words.get(node)
    return None if value is None else float(value)


def init_process_group(
    backend: str, *, init_method: str, world_size: int, rank: int, timeout: timedelta
) -> None:
    global _world, _rank
    assert backend == "nccl"
    if _own("STAND_IN_HANGS") is not None:
        time.sleep(1000)
    if _own("STAND_IN_CRASHES") is not None:
        os._exit(7)
    _world, _rank = world_size, rank
    host, _, port = init_method.removeprefix("tcp://").rpartition(":")
    if rank == 0:
        with socket.create_server((host, int(port))) as server:
            _links[:] = [server.accept()[0].makefile("rw") for _ in range(world_size - 1)]
        return
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            _links[:] = [socket.create_connection((host, int(port))).makefile("rw")]
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def all_reduce(data: Tensor, op: ReduceOp = ReduceOp.SUM) -> None:
    global _needed_s
    mine = [data.value + (_own("STAND_IN_LIES") or 0.0), _own("STAND_IN_RATES") or 5_000.0]
    if _rank == 0:
        told = [mine, *(json.loads(link.readline()) for link in _links)]
        if op is ReduceOp.SUM:
            value = sum(one[0] for one in told)
            size = data.count * data.width
            _needed_s = 2 * (_world - 1) / _world * size / min(one[1] for one in told) / 1e6
            time.sleep(_needed_s)
        else:
            value = _needed_s
        for link in _links:
            print(json.dumps(value), file=link, flush=True)
        data.value = value
    else:
        print(json.dumps(mine), file=_links[0], flush=True)
        data.value = json.loads(_links[0].readline())


def destroy_process_group() -> None:
    for link in _links:
        link.close()
    _links.clear()
