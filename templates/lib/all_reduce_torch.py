"""The all-reduce with torch.distributed and RCCL (backend `nccl`): one process per GPU, started by all_reduce.py."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

from all_reduce_address import serve_requests

WARM_UP = 2
REPEATS = 10


def measure(request, torch, distributed, index):
    """Join the processes of the other GPUs and nodes, check one sum, time ten more, and leave again."""
    members, gpus = request["members"], request["gpus"]
    world, rank = len(members) * gpus, request["rank"] * gpus + index
    address = members[0]["address"]
    place = "tcp://%s:%d" % ("[%s]" % address if ":" in address else address, members[0]["port"])
    torch.cuda.set_device(index)
    distributed.init_process_group(
        "nccl", init_method=place, world_size=world, rank=rank, timeout=timedelta(seconds=request["limit"])
    )
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


def main():
    try:
        import torch
        import torch.distributed as distributed

        gpus = torch.cuda.device_count() if distributed.is_available() and distributed.is_nccl_available() else 0
        hello = {"gpus": gpus}
    except Exception as error:  # a torch that cannot be imported raises anything
        hello = {"error": "torch: %s: %s" % (type(error).__name__, str(error)[:300])}
    index = int(sys.argv[1])
    serve_requests(lambda request: measure(request, torch, distributed, index), hello if index == 0 else None)


if __name__ == "__main__":
    main()
