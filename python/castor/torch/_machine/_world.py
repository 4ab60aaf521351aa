# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Worlds of the ranks that torch.distributed has: over memory that they share, a gloo group of Castor's own, or NCCL."""

from __future__ import annotations

import atexit
import ctypes
import datetime
import itertools
import json
import logging
import os
import secrets
import socket
import threading
import weakref
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

from castor._engine import Gpus, OneHost, World, nccl_id
from castor.errors import CastorError, FailedPrecondition, InvalidArgument, Unavailable
from castor.torch._machine._join import warn_where_bound

log = logging.getLogger("castor")


def _flat(address: int, size: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8, device="cpu")


class _Gloo:
    """What the C ABI's callbacks ask of a process group. One thread calls all but `abort`."""

    def __init__(self, timeout_s: float) -> None:
        self.group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=timeout_s))
        self.rank = dist.get_rank(self.group)
        self.size = dist.get_world_size(self.group)
        self.calling = threading.Lock()

    def all_gather(self, send: int, recv: int, size: int) -> None:
        mine, all_of_them = _flat(send, size), _flat(recv, size * self.size)
        with self.calling:
            dist.all_gather_into_tensor(all_of_them, mine, group=self.group)

    def all_to_all(self, send: int, sizes: list[int], recv: int, comes: list[int]) -> None:
        there, here = _flat(send, sum(sizes)), _flat(recv, sum(comes))
        with self.calling:
            dist.all_to_all_single(here, there, comes, sizes, group=self.group)

    def barrier(self) -> None:
        with self.calling:
            dist.barrier(group=self.group)

    def abort(self, why: str) -> None:
        """A call that waits ends by gloo's own timeout, or when its peers have gone."""


class _Made(NamedTuple):
    """A world of several ranks."""

    world: World
    gloo: Optional[_Gloo]
    ranks: weakref.ref[Any]  # torch's default group when the world was made


_made: dict[int, _Made] = {}  # in the order in which all ranks made them
_numbers = itertools.count()


def make_world(timeout_s: float, device: torch.device) -> World:
    """The ranks that torch.distributed has, where it was begun; else this process alone.

    A world of several ranks ends when all of its ranks have lost its models and make another world, at the latest with the process. The end waits for all
    ranks, which a garbage collector must not. Torch's process groups end with the process too.
    """
    begun = dist.is_available() and dist.is_initialized()
    if not begun and int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise FailedPrecondition(
            f"torchrun started {os.environ['WORLD_SIZE']} ranks, and torch.distributed has not begun, so each would train alone: call castor.join() before "
            "the model is made"
        )
    if not begun or dist.get_world_size() == 1:
        return World(timeout_s=timeout_s)
    warn_where_bound()
    _end_unused()
    sharing = ranks_of_cores()
    if device.type == "cuda":
        _check_gpus(device)
        return _noted(World(timeout_s=timeout_s, meeting=_meet(device.index), ranks_of_cores=sharing))
    meeting = one_host()
    if meeting is not None:
        return _noted(World(timeout_s=timeout_s, meeting=meeting, ranks_of_cores=sharing))
    group = _Gloo(timeout_s)
    return _noted(World(timeout_s=timeout_s, collectives=group, ranks_of_cores=sharing), group)


def _noted(world: World, gloo: Optional[_Gloo] = None) -> World:
    number = next(_numbers)
    _made[number] = _Made(world, gloo, weakref.ref(dist.group.WORLD))
    atexit.register(_end_with_process, number)
    return world


def _end_unused() -> None:
    """Ends the worlds that no rank has a model in. All ranks call it."""
    mine = [number for number, made in _made.items() if made.ranks() is dist.group.WORLD and not made.world.closers]
    unused = set.intersection(*(set(json.loads(said)) for said in said_by_all(json.dumps(mine))))
    for number in sorted(unused):
        made = _made.pop(number)
        group = None if made.gloo is None else made.gloo.group
        if _end(made, "no rank has a model in the world any more") and group is not None:
            dist.destroy_process_group(group)


_MOST_ON_ONE_HOST = 64
_SHARED_MEMORY = 32 << 20


def one_host() -> Optional[OneHost]:
    """Where all ranks can share memory, which takes a quarter of the time of gloo's sockets."""
    size = dist.get_world_size()
    try:
        here, room = os.stat("/dev/shm"), os.statvfs("/dev/shm")
        with open("/proc/sys/kernel/random/boot_id") as boot:
            place = (socket.gethostname(), boot.read(), here.st_dev, here.st_ino, os.getuid(), room.f_bavail * room.f_frsize >= 2 * _SHARED_MEMORY)
    except OSError:
        place = ("", "", 0, 0, 0, False)
    all_of_them: list[Any] = [None] * size
    dist.all_gather_object(all_of_them, (place, secrets.token_hex(16)))
    if size > _MOST_ON_ONE_HOST or not place[-1] or any(one[0] != place for one in all_of_them):
        return None
    return OneHost(dist.get_rank(), size, all_of_them[0][1])


_turns = itertools.count()


def said_by_all(words: str) -> list[bytes]:
    """What each rank says, by torch's store: its groups may be of NCCL, which needs the GPUs that are in question."""
    store, turn = dist.distributed_c10d._get_default_store(), next(_turns)
    store.set(f"castor {turn} {dist.get_rank()}", words)
    return [store.get(f"castor {turn} {rank}") for rank in range(dist.get_world_size())]


def _host() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return f"{socket.gethostname()} {boot.read().strip()}"
    except OSError:
        return socket.gethostname()


def ranks_of_cores() -> int:
    """How many ranks may use the cores that this rank may use: launchers leave ranks of a host all cores, or give each its own."""
    mine = json.dumps([_host(), sorted(os.sched_getaffinity(0))])
    return said_by_all(mine).count(mine.encode())


def _gpu_of(device: torch.device) -> tuple[str, str]:
    """The host, and the GPU on it."""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return _host(), f"{os.environ.get('CUDA_VISIBLE_DEVICES')} {device.index}" if uuid is None else str(uuid)


def _check_gpus(device: torch.device) -> None:
    """NCCL takes one GPU for one rank; all ranks are told which share one."""
    places = said_by_all(json.dumps(_gpu_of(device)))
    ranks = [rank for rank, place in enumerate(places) if places.count(place) > 1]
    if ranks:
        raise InvalidArgument(
            f"ranks {', '.join(map(str, ranks[:4]))} would share a GPU, here {device}: call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before "
            "the model is made, or give castor.wrap on=f\"cuda:{{os.environ['LOCAL_RANK']}}\""
        )


def _meet(ordinal: int) -> Gpus:
    """All ranks have what rank 0 has made, or why it has not."""
    mine = {"id": "", "why": ""}
    if dist.get_rank() == 0:
        try:
            mine["id"] = nccl_id().hex()
        except CastorError as error:
            mine["why"] = str(error)
    said = json.loads(said_by_all(json.dumps(mine))[0])
    if said["why"]:
        raise Unavailable(said["why"])
    return Gpus(dist.get_rank(), dist.get_world_size(), bytes.fromhex(said["id"]), ordinal)


def _end(made: _Made, why: str) -> bool:
    """Whether it ended as it should, with no call of torch's under way."""
    ended = False
    try:
        made.world.close()
        ended = True
    except CastorError as error:
        log.debug("castor: %s", error)
        made.world.abort(why)
        # Python ends a thread that comes back from a callback after this, and the process with it.
        if made.gloo is not None:
            made.gloo.calling.acquire(timeout=5)
    # Gloo's threads let go of the last call's tensors, which aborts a process whose Python has ended.
    if made.gloo is not None:
        made.gloo.group = None
    return ended


def _end_with_process(number: int) -> None:
    """Closes the engines whose models are still there, then the world."""
    made = _made.pop(number, None)
    if made is None:
        return
    for close in list(made.world.closers):
        close()
    if made.gloo is not None and not dist.is_initialized():
        return  # nobody can be waited for any more
    _end(made, "the process ends while values of the model are still in use")
    # So do threads of groups that the script left.
    if dist.is_initialized():
        dist.destroy_process_group()
