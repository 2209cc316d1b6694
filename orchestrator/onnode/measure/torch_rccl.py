"""The all-reduce with torch.distributed and RCCL (backend `nccl`): one process per GPU."""

from __future__ import annotations

import importlib
import sys
import time
from datetime import timedelta
from typing import Any

from .worker import Answer, Request, serve

WARM_UP = 2
REPEATS = 10


def measure(request: Request, torch: Any, index: int) -> Answer:
    """Join the processes of the other GPUs and nodes, check one sum, time ten more, and leave again."""
    distributed = torch.distributed
    members, gpus = request["members"], request["gpus"]
    world, rank = len(members) * gpus, request["rank"] * gpus + index
    _, address, port = members[0]
    place = f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"
    torch.cuda.set_device(index)
    limit = timedelta(seconds=request["limit"])
    distributed.init_process_group("nccl", init_method=place, world_size=world, rank=rank, timeout=limit)
    try:
        data = torch.full((request["bytes"] // 4,), float(rank + 1), dtype=torch.float32, device="cuda")
        distributed.all_reduce(data)
        # Exact in 32 bits of floating point: the sum of the ranks of 4096 GPUs is below 2^24.
        wrong = (data != world * (world + 1) / 2).sum().to(torch.float64).reshape(1)
        # Ones stay finite: 1024 GPUs to the power of twelve.
        data.fill_(1.0)
        for _ in range(WARM_UP):
            distributed.all_reduce(data)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(REPEATS):
            distributed.all_reduce(data)
        torch.cuda.synchronize()
        seconds = torch.tensor([(time.perf_counter() - start) / REPEATS], dtype=torch.float64, device="cuda")
        distributed.all_reduce(seconds, op=distributed.ReduceOp.MAX)
        distributed.all_reduce(wrong)
        slowest, bad, size = float(seconds.item()), int(wrong.item()), 4 * (request["bytes"] // 4)
    finally:
        distributed.destroy_process_group()
    busbw = 2 * (world - 1) / world * size / slowest
    return {"bytes": size, "microseconds": round(slowest * 1e6), "mbps": round(busbw / 1e6), "wrong": bad}


def main() -> None:
    index, torch = int(sys.argv[2]), None
    try:
        torch, distributed = importlib.import_module("torch"), importlib.import_module("torch.distributed")
        able = distributed.is_available() and distributed.is_nccl_available()
        hello: Answer = {"gpus": torch.cuda.device_count() if able else 0}
    except Exception as error:  # a torch that cannot be imported raises anything
        hello = {"error": f"torch: {type(error).__name__}: {str(error)[:300]}"}
    serve(lambda request: measure(request, torch, index), hello if index == 0 else None)
