"""Stands in for torch where there is no GPU: as much of it as measure/rccl.py uses. A tensor has one value for all.

STAND_IN_GPUS are the GPUs; STAND_IN_RATES has `node=MB/s` words: an all-reduce takes as long as the slowest node of it needs.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

float32, float64 = 4, 8
cuda = SimpleNamespace(
    device_count=lambda: int(os.environ["STAND_IN_GPUS"]),
    set_device=lambda index: None,
    synchronize=lambda: None,
)


class Tensor:
    def __init__(self, count: int, value: float, width: int) -> None:
        self.count, self.value, self.width = count, value, width

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return Tensor(self.count, float(self.value != other), 1)

    def sum(self) -> Tensor:
        return Tensor(1, self.value * self.count, self.width)

    def to(self, _: int) -> Tensor:
        return self

    def reshape(self, _: int) -> Tensor:
        return self

    def fill_(self, value: float) -> None:
        self.value = value

    def item(self) -> float:
        return self.value


def full(shape: tuple[int], value: float, *, dtype: int, device: str) -> Tensor:
    return Tensor(shape[0], value, dtype)


def tensor(values: list[float], *, dtype: int, device: str) -> Tensor:
    return Tensor(len(values), values[0], dtype)
