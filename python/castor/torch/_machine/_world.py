# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Worlds of the ranks that torch.distributed has: over memory that they share, a gloo group of Castor's own, or NCCL."""

from __future__ import annotations

import atexit
import itertools
import json
import logging
import os
import secrets
import socket
import sys
import weakref
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

from castor._engine import Gpus, OneHost, World, nccl_id
from castor.errors import CastorError, FailedPrecondition, InvalidArgument, Unavailable
from castor.torch._machine._gloo import Gloo
from castor.torch._machine._join import warn_where_bound

log = logging.getLogger("castor")


class _Made(NamedTuple):
    """A world of several ranks."""

    world: World
    gloo: Optional[Gloo]
    ranks: weakref.ref[Any]  # torch's default group when the world was made
    process: int  # a fork of the process has the object, and neither its threads nor its sockets


_made: dict[int, _Made] = {}  # in the order in which all ranks made them
_numbers = itertools.count()


def several_ranks() -> bool:
    """Whether torch.distributed connects this process with others. FailedPrecondition where a launcher started others and nobody connected them."""
    begun = dist.is_available() and dist.is_initialized()
    if not begun and int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise FailedPrecondition(
            f"torchrun started {os.environ['WORLD_SIZE']} ranks, and torch.distributed has not begun, so each would train alone: call castor.join() before "
            "the model is made"
        )
    return begun and dist.get_world_size() > 1


def make_world(timeout_s: float, device: torch.device) -> World:
    """The ranks that torch.distributed has, where it was begun; else this process alone.

    A world of several ranks ends when all of its ranks have lost its models and make another world, at the latest with the process. The end waits for all
    ranks, which a garbage collector must not. A script may destroy torch's process groups before: a world that is made needs none of them.
    """
    if not several_ranks():
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
    group = Gloo(f"castor gloo {next(_turns)}", timeout_s)
    try:
        world = World(timeout_s=timeout_s, collectives=group, ranks_of_cores=sharing)
    except BaseException:
        group.close()
        raise
    return _noted(world, group)


def _noted(world: World, gloo: Optional[Gloo] = None) -> World:
    _made[next(_numbers)] = _Made(world, gloo, weakref.ref(dist.group.WORLD), os.getpid())
    atexit.unregister(_end_with_process)  # so the end comes before that of whatever was there when the last world was made
    atexit.register(_end_with_process)
    return world


def _end_unused() -> None:
    """Ends the worlds that no rank has a model in. All ranks call it."""
    mine = [number for number, made in _made.items() if made.ranks() is dist.group.WORLD and not made.world.closers]
    unused = set.intersection(*(set(json.loads(said)) for said in said_by_all(json.dumps(mine))))
    for number in sorted(unused):
        _end(_made.pop(number), "no rank has a model in the world any more")


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


def _end(made: _Made, why: str) -> None:
    """Waits for the other ranks; where they do not come, leaves no call of torch's under way."""
    try:
        made.world.close()
    except CastorError as error:
        log.debug("castor: %s", error)
        made.world.abort(why)
        # Python ends a thread that comes back from a callback after the interpreter's end, and the process with the thread.
        if made.gloo is not None:
            made.gloo.hold()
    # Gloo's threads let go of the last call's tensors, which aborts a process whose Python has ended.
    if made.gloo is not None:
        made.gloo.close()


def _why_the_process_ends() -> str:
    raised = getattr(sys, "last_value", None)  # of the exception that the interpreter printed
    return "its script is over" if raised is None else f"its script ended by {type(raised).__name__}: {str(raised)[:200]}"


def _end_with_process() -> None:
    """Closes the engines whose models are still there, and their worlds, the last one first on all ranks."""
    for number in sorted(_made, reverse=True):
        if _made[number].process != os.getpid():
            continue  # a destructor here would wait for threads that a fork lacks
        made = _made.pop(number)
        if made.gloo is not None:
            made.gloo.leave(_why_the_process_ends())
        try:
            for close in list(made.world.closers):
                close()
        except CastorError as error:
            log.error("castor: a model could not be closed at the end of the process: %s", error)
        _end(made, "the process ends while values of the model are still in use")
        _left.add(made.process)


_left: set[int] = set()  # processes whose worlds ended with them


def _destroy_groups() -> None:
    """Destroys the groups of torch's that the script left: their threads abort a process whose Python has ended."""
    if os.getpid() in _left and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


# Handlers run in reverse order, so a script's own handler that destroys the groups comes first.
atexit.register(_destroy_groups)
