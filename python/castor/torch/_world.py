# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Worlds over torch.distributed: Castor's collectives on a gloo group of its own."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import datetime

import torch
import torch.distributed as dist

from castor._engine import World
from castor.errors import CastorError


def _flat(address: int, size: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)


class _Gloo:
    """What the C ABI's callbacks ask of a process group. One thread calls all but `abort`."""

    def __init__(self, timeout_s: float) -> None:
        self.group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=timeout_s))
        self.rank = dist.get_rank(self.group)
        self.size = dist.get_world_size(self.group)

    def all_gather(self, send: int, recv: int, size: int) -> None:
        mine, all_of_them = _flat(send, size), _flat(recv, size * self.size)
        dist.all_gather_into_tensor(all_of_them, mine, group=self.group)

    def all_to_all(self, send: int, sizes: list[int], recv: int, comes: list[int]) -> None:
        there, here = _flat(send, sum(sizes)), _flat(recv, sum(comes))
        dist.all_to_all_single(here, there, comes, sizes, group=self.group)

    def barrier(self) -> None:
        dist.barrier(group=self.group)

    def abort(self, why: str) -> None:
        """A call that waits ends by gloo's own timeout, or when its peers have gone."""


def make_world(timeout_s: float) -> World:
    """The ranks that torch.distributed has, where it was begun; else this process alone.

    A world of several ranks ends with the process: its end waits for all of them.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return World(timeout_s=timeout_s)
    world = World(timeout_s=timeout_s, collectives=_Gloo(timeout_s))
    atexit.register(_end, world)
    return world


def _end(world: World) -> None:
    if not dist.is_initialized():
        return  # nobody can be waited for any more
    with contextlib.suppress(CastorError):
        world.close()
