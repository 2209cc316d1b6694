"""How the first of several ranks fails, and what the others print when they lose it."""

from __future__ import annotations

FAILURES = {
    "exception": ("RuntimeError: page table {rank} is empty", 1),
    "gpu memory": ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 9.25 GiB.", 1),
    "disk": ("OSError: [Errno 28] No space left on device", 1),
    "settings": ("ValueError: micro batch 3 does not fit 5 stages", 1),
    "GPU": ("RuntimeError: HIP error: an illegal memory access was encountered", 134),
    "crash": ("", 139),
    "killed": ("", 137),
    "kernel": ("amdgpu 0000:c1:00.0: amdgpu: device lost from bus!", 1),
}
"""How the first rank ends: its last line, and its exit code."""
ECHOES = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was a network error",
    "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.7]:4411",
    "[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8) ran for 600012 ms",
    "RuntimeError: the pipeline has no next stage any more",
)
