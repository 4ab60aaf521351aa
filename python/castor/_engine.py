# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Worlds and engines as objects. Nothing here knows PyTorch."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections.abc import Callable, Sequence, Iterable
from typing import Any, NamedTuple, Optional, Union

from castor import _abi
from castor._abi import check, lib
from castor._interrupts import defer_handlers, uninterrupted
from castor.errors import CastorError, InvalidArgument, code_of


_answering: set[int] = set()  # threads


def is_in_callback() -> bool:
    """Whether a call of the library's, which has not returned, has this thread run a callback."""
    return threading.get_ident() in _answering


def answer(function: Callable[..., None], *arguments: Any) -> int:
    """Runs a callback of Castor's; what it raises is what the call that ran it fails with."""
    thread = threading.get_ident()
    outermost = thread not in _answering
    try:
        _answering.add(thread)
        function(*arguments)
        return 0
    except BaseException as error:  # no exception gets through C
        lib.castor_set_error(f"{type(error).__name__}: {error}".encode())
        return code_of(error)
    finally:
        if outermost:
            _answering.discard(thread)


class OneHost(NamedTuple):
    """What a rank tells to meet others of its host: its number, how many there are, and a name that is new for each world."""

    rank: int
    size: int
    name: str


class Gpus(NamedTuple):
    """What a rank that is a GPU tells to meet the others: its number, how many there are, the id that rank 0 had made, and its GPU."""

    rank: int
    size: int
    id: bytes
    ordinal: int


def nccl_id() -> bytes:
    """For rank 0, once for each world. Unavailable says what is missing of CUDA and NCCL."""
    made = _abi.NcclUniqueId()
    check(lib.castor_nccl_id(ctypes.byref(made)))
    return bytes(bytearray(made))


class World:
    """The ranks that train together: one rank of this process, or one rank of several processes.

    The caller destroys it after its engines, by ``close``.
    """

    def __init__(
        self, threads: int = 0, timeout_s: float = 120.0, meeting: Union[OneHost, Gpus, None] = None, collectives: Any = None, ranks_of_cores: int = 1
    ) -> None:
        """This process alone, or several that meet.

        `meeting`: over memory that they share, or by NCCL. `collectives` has ``rank``, ``size`` and the blocking methods of the C ABI's
        callbacks. `ranks_of_cores`: how many ranks may use the cores of this process, which each have a part of the threads then.
        """
        self.handle = ctypes.c_void_p()
        options = _abi.WorldOptions(threads=threads, timeout_ms=int(timeout_s * 1000), ranks_of_cores=ranks_of_cores)
        self.rank, self.size, self._kept = 0, 1, None
        self._pid = os.getpid()
        self.closers: list[Callable[[], None]] = []  # of what must be gone before the world goes
        if meeting is not None:
            self.rank, self.size = meeting.rank, meeting.size
            defer_handlers()
            if isinstance(meeting, OneHost):
                check(lib.castor_world_create_shared(self.rank, self.size, meeting.name.encode(), options, ctypes.byref(self.handle)))
            else:
                options.gpu = meeting.ordinal
                told = _abi.NcclUniqueId.from_buffer_copy(meeting.id)
                check(lib.castor_world_create_nccl(self.rank, self.size, told, options, ctypes.byref(self.handle)))
            return
        if collectives is None:
            check(lib.castor_world_create(1, options, ctypes.byref(self.handle)))
            return
        self.rank, self.size = collectives.rank, collectives.size
        # ctypes calls these as long as the world lives.
        self._kept = _abi.Callbacks(
            all_gather=_abi.CallbacksAllGather(lambda _, seq, send, recv, size: answer(collectives.all_gather, send, recv, size)),
            all_to_all=_abi.CallbacksAllToAll(
                lambda _, seq, send, sizes, recv, comes: answer(
                    collectives.all_to_all, send, sizes[: self.size], recv, comes[: self.size]
                )
            ),
            barrier=_abi.CallbacksBarrier(lambda _, seq: answer(collectives.barrier)),
            abort=_abi.CallbacksAbort(lambda _, why: answer(collectives.abort, why.decode(errors="replace")) and None),
        )
        defer_handlers()
        check(lib.castor_world_create_callbacks(self.rank, self.size, self._kept, options, ctypes.byref(self.handle)))

    def record(self, path: str, first_step: int = 0, last_step: int = 0, every: int = 1) -> None:
        """Engines made from now on record what they do to a file, for ``castor report``; of some steps, or of all (0)."""
        options = _abi.RecordOptions(first_step=first_step, last_step=last_step, every=every)
        check(lib.castor_world_record(self.handle, os.fsencode(path), options))

    def end_record(self) -> None:
        """As closing the world does. Engines that are there go on unrecorded."""
        if self.handle:
            check(lib.castor_world_end_record(self.handle))

    def abort(self, why: str) -> None:
        """Ends the world for all ranks."""
        check(lib.castor_world_abort(self.handle, why.encode()))

    def close(self) -> None:
        """Destroys it; waits for the other ranks. Its engines are destroyed before."""
        if self.handle and self._pid == os.getpid():
            check(lib.castor_world_destroy(self.handle))
        self.handle = ctypes.c_void_p()


def _words(words: Iterable[str]) -> Any:
    found = [word.encode() for word in words]
    return (ctypes.c_char_p * len(found))(*found)


def _moments(held: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Any:
    moments = (_abi.Held * len(held))()
    for moment, (params, grads) in zip(moments, held):
        moment.params, moment.param_count = (ctypes.c_int32 * len(params))(*params), len(params)
        moment.grads, moment.grad_count = (ctypes.c_int32 * len(grads))(*grads), len(grads)
    return moments


class Engine:
    """The engine of one rank. Calls are those of castor.h; those of steps are made on ``handle`` by who needs them fast."""

    def __init__(self, world: World, config: dict[str, Any], device: Optional[ctypes.c_void_p] = None) -> None:
        """`device`: a castor_device of the world; None: memory of the host."""
        self.world = world
        self.several = world.size > 1  # ranks
        self.handle = ctypes.c_void_p()
        self._pid = os.getpid()
        self._kept: list[Any] = []
        self.create(config, device)

    def create(self, config: dict[str, Any], device: Optional[ctypes.c_void_p] = None) -> None:
        """After `close`: another engine under the same handle, without parameters yet."""
        text = json.dumps(config).encode()
        check(lib.castor_engine_create(self.world.handle, self.world.rank, device, text, ctypes.byref(self.handle)))

    def register(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        frozen: bool,
        group: str,
        fill: Optional[Callable[[int, int, int], None]],
    ) -> int:
        """Registers a parameter, in initialization order, and returns its number.

        ``fill(begin, end, address)`` writes its elements [begin, end) as fp32 to the address, while the engine is sealed.
        """
        dims = (ctypes.c_int64 * len(shape))(*shape)
        tensor = _abi.Tensor(name.encode(), dims, len(shape), int(frozen), dtype.encode())
        initializer = _abi.Initializer()
        if fill is not None:
            initializer = _abi.Initializer(
                lambda _, begin, end, values: answer(fill, begin, end, ctypes.cast(values, ctypes.c_void_p).value)
            )
            self._kept.append(initializer)
        param = ctypes.c_int32()
        check(lib.castor_engine_register(self.handle, tensor, group.encode(), initializer, None, ctypes.byref(param)))
        return param.value

    def seal(self, held: Sequence[tuple[Sequence[int], Sequence[int]]], estimate: bool) -> None:
        """Places every state and takes all memory.

        `held`: parameters that are held at once, and gradients that are open then, moment by moment. Slots grow where a step holds more; where the
        moments are an estimate, room is left for that.
        """
        options = _abi.SealOptions(grow=1, held=_moments(held), held_count=len(held), estimate=int(estimate))
        defer_handlers()
        check(lib.castor_engine_seal(self.handle, options))
        self._kept.clear()

    def reseal(self, device: int = 0, host: int = 0, held: Sequence[tuple[Sequence[int], Sequence[int]]] = ()) -> None:
        """Places all anew under other budgets in bytes (0: as they were).

        `held`: as for `seal`; none: as the last step showed.
        """
        seal = _abi.SealOptions(grow=1, held=_moments(held), held_count=len(held)) if held else _abi.SealOptions(grow=1)
        options = _abi.ResealOptions(device_budget_bytes=device, host_budget_bytes=host, seal=ctypes.pointer(seal))
        defer_handlers()
        check(lib.castor_engine_reseal(self.handle, options))

    def park(self, tier: int) -> tuple[int, str]:
        """Empties the device. Bytes that remain there, and what would make room for them."""
        made = _abi.Park()
        defer_handlers()
        check(lib.castor_engine_park(self.handle, tier, ctypes.byref(made)))
        return made.remaining_bytes, (made.shortfall or b"").decode()

    def resume(self) -> None:
        """Undoes `park`."""
        defer_handlers()
        check(lib.castor_engine_resume(self.handle))

    def step(self, lr: float) -> _abi.Step:
        step = _abi.Step()
        defer_handlers()
        check(lib.castor_engine_step(self.handle, lr, ctypes.byref(step)))
        return step

    def update_early(self, lr: float) -> None:
        """Lets updates of this step begin before `step`, at this rate."""
        check(lib.castor_engine_update_early(self.handle, lr))

    def guess_updates(self, lr: float) -> None:
        """Lets updates of this step begin as a guess: the step has this rate, and is neither clipped nor skipped."""
        check(lib.castor_engine_guess_updates(self.handle, lr))

    def clip(self, max_norm: float) -> float:
        """Clips this step's gradients, and returns their global norm."""
        norm = ctypes.c_double()
        check(lib.castor_engine_clip_gradients(self.handle, max_norm, ctypes.byref(norm)))
        return norm.value

    def set_update(self, update: Callable[[_abi.Update], None]) -> None:
        """Has ``update`` make the updates of a custom optimizer, on threads of the engine's."""
        self._update = _abi.UpdateFn(lambda _, call: answer(update, call.contents))
        check(lib.castor_engine_set_update(self.handle, self._update, None))

    def set_hyper_parameters(self, group: str, **numbers: float) -> None:
        """Sets lr, beta1, beta2, eps, weight_decay or momentum of a group, from the next step on."""
        fields = 0
        for name in numbers:
            fields |= getattr(_abi, f"SET_{name.upper()}")
        check(lib.castor_engine_set_hyper_parameters(self.handle, group.encode(), _abi.HyperParameters(fields=fields, **numbers)))

    def param(self, number: int) -> _abi.ParamInfo:
        info = _abi.ParamInfo()
        check(lib.castor_engine_get_param(self.handle, number, ctypes.byref(info)))
        return info

    def read(self, param: int, state: int, address: int, elements: int) -> None:
        """Whole values of a state as fp32. All ranks call it."""
        defer_handlers()
        check(lib.castor_engine_read(self.handle, param, state, address, elements))

    def write(self, param: int, state: int, address: int, elements: int) -> None:
        """The same the other way. All ranks write the same values."""
        defer_handlers()
        check(lib.castor_engine_write(self.handle, param, state, address, elements))

    def write_back(self, params: list[int], addresses: list[int]) -> None:
        """Values of several parameters, of which only what differs in the parameters' own type is new. All ranks call it with the same."""
        count = len(params)
        defer_handlers()
        check(lib.castor_engine_write_back(self.handle, (ctypes.c_int32 * count)(*params), (ctypes.c_void_p * count)(*addresses), count))

    def least_of_ranks(self, words: list[int]) -> list[int]:
        """In the place of each word the least that any rank has. All ranks call it with as many."""
        there = (ctypes.c_int64 * len(words))(*words)
        defer_handlers()
        check(lib.castor_engine_least_of_ranks(self.handle, there, len(words)))
        return list(there)

    def set_updates(self, param: int, updates: int) -> None:
        check(lib.castor_engine_set_updates(self.handle, param, updates))

    def loss_scale(self) -> _abi.LossScale:
        scale = _abi.LossScale()
        check(lib.castor_engine_get_loss_scale(self.handle, ctypes.byref(scale)))
        return scale

    def begin_evaluation(self) -> None:
        check(lib.castor_engine_begin_evaluation(self.handle))

    def end_evaluation(self) -> None:
        check(lib.castor_engine_end_evaluation(self.handle))

    def abandon(self) -> None:
        check(lib.castor_engine_abandon(self.handle))

    def digest(self) -> int:
        """A hash of all weights' bits."""
        found = ctypes.c_uint64()
        check(lib.castor_engine_weight_digest(self.handle, ctypes.byref(found)))
        return found.value

    def save(self, directory: str, trainer: bytes, background: bool = False, keep: int = 0) -> None:
        """Saves what training goes on with, and `trainer` beside it. All ranks call it."""
        kept = ctypes.create_string_buffer(trainer, len(trainer))
        options = _abi.SaveOptions(
            trainer=ctypes.cast(kept, ctypes.c_void_p), trainer_size=len(trainer), keep=keep, background=int(background)
        )
        defer_handlers()
        check(lib.castor_engine_save(self.handle, os.fsencode(directory), options))

    def finish_save(self) -> str:
        path = ctypes.c_char_p()
        check(lib.castor_engine_finish_save(self.handle, ctypes.byref(path)))
        return os.fsdecode(path.value or b"")

    def load(self, directory: str, step: Optional[int] = None, weights_only: bool = False, convert: bool = False,
             aliases: Sequence[tuple[str, str]] = (), others: Sequence[str] = (), begin_missing: bool = False,
             trainer_only: bool = False) -> tuple[int, bytes]:
        """Takes a checkpoint back; returns its step and what the trainer had put beside it. All ranks call it.

        `aliases`: further names of parameters, and their own. `others`: tensors that there may be beside the parameters. `begin_missing`: moments and
        masters that the checkpoint lacks begin anew. `trainer_only`: the checkpoint fits, and nothing of the engine changes.
        """
        names = _words(name for pair in aliases for name in pair)
        beside = _words(others)
        options = _abi.LoadOptions(step=step or 0, one_step=int(step is not None), weights_only=int(weights_only), convert=int(convert), aliases=names,
                                   alias_count=len(names) // 2, others=beside, other_count=len(beside), begin_missing=int(begin_missing),
                                   trainer_only=int(trainer_only))
        loaded = ctypes.c_int64()
        defer_handlers()
        check(lib.castor_engine_load(self.handle, os.fsencode(directory), options, ctypes.byref(loaded)))
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        check(lib.castor_engine_loaded_trainer(self.handle, ctypes.byref(data), ctypes.byref(size)))
        return loaded.value, ctypes.string_at(data, size.value) if data else b""

    def stats(self) -> dict[str, int]:
        """Bytes, counts and nanoseconds, as castor_engine_stats names them."""
        stats = _abi.EngineStats()
        check(lib.castor_engine_get_stats(self.handle, ctypes.byref(stats)))
        return {name: getattr(stats, name) for name, _ in stats._fields_[1:]}

    def close(self) -> None:
        """Tells of failures, and destroys it. FailedPrecondition, with nothing done, where a lease is left."""
        if not self.handle or self._pid != os.getpid():
            return
        check(lib.castor_engine_close(self.handle))
        check(lib.castor_engine_destroy(self.handle))
        self.handle.value = None  # in place: others call through it too


def checkpoints(directory: str) -> list[int]:
    """The steps of the checkpoints in a folder, in order."""
    count = ctypes.c_size_t()
    check(lib.castor_checkpoint_list(os.fsencode(directory), None, 0, ctypes.byref(count)))
    steps = (ctypes.c_int64 * count.value)()
    check(lib.castor_checkpoint_list(os.fsencode(directory), steps, count.value, ctypes.byref(count)))
    return list(steps)


__all__ = ["CastorError", "Engine", "InvalidArgument", "World", "checkpoints", "uninterrupted"]
