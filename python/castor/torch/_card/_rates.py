# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""How fast a device computes, and how fast its link to host memory is: measured, in a fraction of a second."""

from __future__ import annotations

import time
from typing import Any, Callable, NamedTuple

import torch

_ROUNDS = 3
_SIDE = {"cpu": 768, "cuda": 8192}  # of a square matrix
_COPIED = {"cpu": 32 << 20, "cuda": 256 << 20}  # bytes


class Rates(NamedTuple):
    """Of one rank."""

    flops_per_s: float
    link_bytes_per_s: float  # one way


def measured(device: torch.device, dtype: torch.dtype) -> Rates:
    """Of products of matrices of this type, and of copies from host memory to the device. The best of a few rounds: others may use the machine."""
    side, size = _SIDE[device.type], _COPIED[device.type]
    with torch.no_grad():
        left, right = torch.ones(side, side, dtype=dtype, device=device), torch.ones(side, side, dtype=dtype, device=device)
        product = _best_seconds(device, lambda: left @ right)
        there = torch.ones(size, dtype=torch.uint8, device="cpu", pin_memory=device.type == "cuda")
        here = torch.ones(size, dtype=torch.uint8, device=device)
        copy = _best_seconds(device, lambda: here.copy_(there, non_blocking=True))
    return Rates(2 * side**3 / product, size / copy)


def _best_seconds(device: torch.device, work: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(_ROUNDS + 1):  # the first one finds caches cold
        _finish(device)
        begin = time.perf_counter()
        work()
        _finish(device)
        best = min(best, time.perf_counter() - begin)
    return max(best, 1e-9)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
