# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Calls of ranks of several hosts, by a gloo group that torch.distributed does not know of."""

from __future__ import annotations

import ctypes
import datetime
import threading
from typing import Any

import torch
import torch.distributed as dist

from castor.torch import _torch_internals


def _flat(address: int, size: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8, device="cpu")


class Gloo:
    """What the C ABI's callbacks ask of a process group. One thread calls all but `abort`.

    The group is of no table of torch's, so a script's destroy_process_group leaves it connected.
    """

    def __init__(self, name: str, timeout_s: float) -> None:
        """`name`: new for each group, and the same on all ranks."""
        # The server of the store lives on rank 0 as long as the store.
        self._store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._group: Any = _torch_internals.gloo_group(self._store, self.rank, self.size, datetime.timedelta(seconds=timeout_s))
        self._calling = threading.Lock()

    def all_gather(self, send: int, recv: int, size: int) -> None:
        mine, all_of_them = _flat(send, size), _flat(recv, size * self.size)
        with self._calling:
            _torch_internals.gloo_all_gather(self._group, all_of_them, mine).wait()

    def all_to_all(self, send: int, sizes: list[int], recv: int, comes: list[int]) -> None:
        there, here = _flat(send, sum(sizes)), _flat(recv, sum(comes))
        with self._calling:
            self._group.alltoall_base(here, there, comes, sizes).wait()

    def barrier(self) -> None:
        with self._calling:
            self._group.barrier().wait()

    def abort(self, why: str) -> None:
        """A call that waits ends by gloo's own timeout, or when its peers have gone."""

    def hold(self) -> None:
        """Waits a while for the call under way, and lets no other one begin."""
        self._calling.acquire(timeout=5)

    def close(self) -> None:
        """Ends the group's threads."""
        self._group = None
