# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Where a model computes: on the CPU, or on a GPU whose memory and streams are torch's.

Both make tensors over a chunk's memory. On the CPU a call of the engine returns when what it gives is there. On a GPU it returns at once, and
the current stream waits: every stream that torch makes current becomes a lane of the engine.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch

from castor import _abi
from castor._abi import check, lib
from castor._engine import World, answer
from castor.errors import Unavailable
from castor.sizes import format_size
from castor.torch._torch_internals import current_stream, from_dlpack, watch_out_of_memory

log = logging.getLogger("castor")
_OUT_OF_MEMORY: Any = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)  # older torches have it there alone

# A tensor over memory at an address; its storage keeps the lease.
Viewer = Callable[[Optional[int], Any], torch.Tensor]

_DLPACK = {torch.float32: (2, 32), torch.bfloat16: (4, 16), torch.float16: (2, 16), torch.uint8: (1, 8)}  # type code, bits
ON_CPU, ON_CUDA = 1, 2  # of DLPack


class Cpu:
    """Castor takes memory from the machine."""

    torch_device = torch.device("cpu")
    handle: Optional[ctypes.c_void_p] = None  # a castor_device; None: a simulated one of the size that is needed
    follow: Optional[Callable[[], None]] = None
    gives = True  # the engine copies gradients itself

    def bind(self, engine: ctypes.c_void_p) -> None:
        """Calls of this engine follow the current stream from now on."""

    def current_stream(self) -> int:
        return 0

    def trainers_stream(self) -> int:
        """The current stream, or where that is the engine's own the one that its calls follow."""
        return 0

    def used_on(self, stream: int) -> None:
        """The engine's lanes in use are to have this one."""

    def wait_for(self, stream: int) -> None:
        """What is done next on the current stream comes behind what is on this one."""

    def take_over(self, tensor: torch.Tensor, stream: int) -> None:
        """The current stream uses a tensor that was made on this one."""

    def viewer(self, shape: torch.Size, dtype: torch.dtype) -> Viewer:
        array: Any = ctypes.c_byte * (shape.numel() * dtype.itemsize)
        at, over = array.from_address, torch.frombuffer
        sizes: tuple[Any, ...] = tuple(shape) or ((),)  # one by one: torch takes three times as long over a torch.Size

        def flat(address: Optional[int], lease: Any) -> torch.Tensor:
            buffer = at(address)
            buffer.lease = lease
            return over(buffer, dtype=dtype)

        def view(address: Optional[int], lease: Any) -> torch.Tensor:
            buffer = at(address)
            buffer.lease = lease
            return over(buffer, dtype=dtype).view(*sizes)

        if not shape.numel():
            return _empty(shape, dtype, self.torch_device)
        return flat if len(shape) == 1 else view

    def truth(self, flag: torch.Tensor) -> Callable[[], Optional[bool]]:
        """What says whether a flag is set: None while that is not known."""
        known = bool(flag)
        return lambda: known

    def random_state(self) -> Optional[torch.Tensor]:
        """Of the device's own generator, if it has one."""
        return None

    def release_cached(self) -> None:
        """Gives what torch has cached of the device to other processes."""

    def set_random_state(self, state: torch.Tensor) -> None:
        """Takes what `random_state` gave."""

    def close(self) -> None:
        """Gives the device back, after its engine."""


class _Tensor(ctypes.Structure):
    """DLPack's DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]


@functools.cache
def _described(sizes: tuple[int, ...], dtype: torch.dtype, device_type: int, index: int) -> tuple[_Tensor, Any]:
    """Without a place. A storage looks at it once more when it dies, so it lives as long as the process; few shapes are many parameters'."""
    code, bits = _DLPACK[dtype]
    array = (ctypes.c_int64 * len(sizes))(*sizes)
    return _Tensor(None, device_type, index, len(sizes), code, bits, 1, ctypes.addressof(array), None, 0, None, None), array


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_CAPSULE = b"dltensor"
# Threads share descriptions. A thread that holds the lock may come here again: torch has read the place when a finalizer runs.
_placing = threading.RLock()


def dlpack_viewer(shape: torch.Size, dtype: torch.dtype, device_type: int, index: int) -> Viewer:
    """Tensors by DLPack, which can lie on a GPU. The end of a storage drops its lease.

    The lease is an attribute of the storage: a deleter in Python would be called where an exception is on its way, and take its place.
    """
    if dtype not in _DLPACK:
        inner = dlpack_viewer(torch.Size((shape.numel() * dtype.itemsize,)), torch.uint8, device_type, index)
        return lambda address, lease: inner(address, lease).view(dtype).view(shape)
    described, _ = _described(tuple(shape), dtype, device_type, index)
    at = ctypes.addressof(described)

    def view(address: Optional[int], lease: Any) -> torch.Tensor:
        capsule = _new_capsule(at, _CAPSULE, None)
        with _placing:
            described.data = address
            tensor: torch.Tensor = from_dlpack(capsule)
        tensor.untyped_storage()._castor_lease = lease  # type: ignore[attr-defined]
        return tensor

    return view


def _empty(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Viewer:
    return lambda address, lease: torch.empty(shape, dtype=dtype, device=device)


_gpus: weakref.WeakSet[Gpu] = weakref.WeakSet()
_watches = False


def _watch(gpu: Gpu) -> None:
    """Has a GPU hear of it where torch's allocator gives up."""
    global _watches
    _gpus.add(gpu)
    if watch_out_of_memory is not None and not _watches and torch.cuda.is_available():
        _watches = True
        with contextlib.suppress(RuntimeError):  # of allocators that do not tell, as cudaMallocAsync
            watch_out_of_memory(_ran_out)


def _ran_out(index: int, wanted: int, _allowed: int, _free: int) -> None:
    for gpu in list(_gpus):
        if gpu.torch_device.index == index:
            gpu.ran_out(wanted)


@functools.cache
def _updating_stream(index: int) -> Any:
    """Where an optimizer's own code queues its work. Torch's allocator keeps memory by stream, also behind the end of an engine's streams."""
    return torch.cuda.Stream(index)


class Gpu:
    """A GPU. Castor's device memory comes from torch's allocator, so torch's summaries and its out-of-memory message count Castor's."""

    gives = True

    def __init__(self, world: World, device: torch.device) -> None:
        self.torch_device = device
        self._inside = threading.local()  # `own`: this thread works on a stream of the engine's
        self.handle: Optional[ctypes.c_void_p] = ctypes.c_void_p()
        self._engine = ctypes.c_void_p()
        self._lanes: dict[int, ctypes.c_void_p] = {}  # by stream
        self._stream: Optional[int] = None  # whose lane the engine uses
        self._sizes: dict[int, int] = {}  # by address
        check(lib.castor_device_open_cuda(world.handle, device.index, ctypes.byref(self.handle)))
        self._allocator = _abi.Allocator(
            allocate=_abi.AllocatorAllocate(lambda _, size, to: answer(self._allocate, size, to)),
            release=_abi.AllocatorRelease(lambda _, address: answer(self._release, address) and None),
        )
        try:
            check(lib.castor_device_set_allocator(self.handle, self._allocator))
        except BaseException:
            lib.castor_device_destroy(self.handle)
            raise
        self._takes = False  # memory for Castor is asked for
        self._beside: Optional[int] = None  # the most that others had at one time; None: nobody asks
        self.lacked = 0  # bytes that torch asked for in vain since somebody looked
        self.out_of_memory: Optional[Callable[[], None]] = None  # called then
        _watch(self)

    def ran_out(self, wanted: int) -> None:
        """Torch raises OutOfMemoryError behind this, in whatever it was doing."""
        if self._takes:
            return  # Castor was told itself
        self.lacked = max(self.lacked, wanted)
        least = self.taken - wanted * 9 // 8
        would = f"give castor.wrap device={format_size(least)!r} or less, or" if least > 0 else "give"
        log.warning("castor: torch has no %s more on %s, of which Castor has %s: %s a smaller batch", format_size(wanted), self.torch_device,
                    format_size(self.taken), would)
        if self.out_of_memory is not None:
            self.out_of_memory()

    @property
    def taken(self) -> int:
        """Bytes that Castor has."""
        return sum(self._sizes.values())

    def begin_measuring(self) -> None:
        """What others have beside Castor is looked at from now on, whatever Castor takes and gives back meanwhile."""
        self._beside = 0
        self.peak(begin=True)

    def most_beside(self) -> int:
        """The most bytes that others had at one time since `begin_measuring`."""
        self._note_beside()
        most, self._beside = self._beside or 0, None
        return most

    def _note_beside(self) -> None:
        """Castor's part is about to change."""
        if self._beside is not None:
            self._beside = max(self._beside, self.peak() - self.taken)

    def _allocate(self, size: int, to: Any) -> None:
        self._note_beside()
        self._takes = True
        try:
            to[0] = address = self.take(size)
        except _OUT_OF_MEMORY as error:
            raise Unavailable(str(error)) from None
        finally:
            self._takes = False
        self._sizes[address] = size
        if self._beside is not None:
            self.peak(begin=True)

    def _release(self, address: int) -> None:
        self._note_beside()
        del self._sizes[address]
        self.give_back(address)
        if self._beside is not None:
            self.peak(begin=True)

    # What is torch's. A twin in memory of the host has others.

    def take(self, size: int) -> int:
        """The address of so many bytes, of which work queued on the engine's stream may still use some: Castor waits for that stream."""
        return torch.cuda.caching_allocator_alloc(size, self.torch_device.index, self._stream or 0)

    def give_back(self, address: int) -> None:
        torch.cuda.caching_allocator_delete(address)

    def room(self) -> int:
        """Bytes that this process's tensors and Castor could have together."""
        free, _ = torch.cuda.mem_get_info(self.torch_device)
        return free + torch.cuda.memory_reserved(self.torch_device)

    def in_use(self) -> int:
        return torch.cuda.memory_allocated(self.torch_device)

    def peak(self, begin: bool = False) -> int:
        """The most that was in use since the last call that began to measure."""
        most = torch.cuda.max_memory_allocated(self.torch_device)
        if begin:
            torch.cuda.reset_peak_memory_stats(self.torch_device)
        return most

    def keep_for_current(self, tensor: torch.Tensor) -> None:
        """The allocator gives a tensor's memory to others only behind the current stream, too."""
        tensor.record_stream(torch.cuda.current_stream(self.torch_device))

    def view_at(self, address: int, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """A tensor over its memory."""
        return dlpack_viewer(shape, dtype, ON_CUDA, self.torch_device.index)(address, None)

    @contextlib.contextmanager
    def made_current(self, stream: int) -> Iterator[None]:
        """What is done inside is queued behind this stream of the engine's, and before what the stream does next."""
        engines, own = torch.cuda.ExternalStream(stream, device=self.torch_device), _updating_stream(self.torch_device.index)
        own.wait_stream(engines)
        try:
            with torch.cuda.stream(own):
                yield
        finally:
            engines.wait_stream(own)

    def truth(self, flag: torch.Tensor) -> Callable[[], Optional[bool]]:
        place = torch.empty((), dtype=torch.bool, device="cpu", pin_memory=True)
        place.copy_(flag, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(flag.device))
        return lambda: bool(place) if event.query() else None

    def release_cached(self) -> None:
        torch.cuda.empty_cache()

    def random_state(self) -> Optional[torch.Tensor]:
        return torch.cuda.get_rng_state(self.torch_device)

    def set_random_state(self, state: torch.Tensor) -> None:
        torch.cuda.set_rng_state(state, self.torch_device)

    def current_stream(self) -> int:
        return current_stream(self.torch_device.index)

    def viewer(self, shape: torch.Size, dtype: torch.dtype) -> Viewer:
        if not shape.numel():
            return _empty(shape, dtype, self.torch_device)
        return dlpack_viewer(shape, dtype, ON_CUDA, self.torch_device.index)

    # Lanes.

    @contextlib.contextmanager
    def on_own_stream(self, stream: int) -> Iterator[None]:
        """What is done inside is queued as on a stream of the engine's."""
        self._inside.own = True
        try:
            with self.made_current(stream):
                yield
        finally:
            self._inside.own = False

    def trainers_stream(self) -> int:
        # A garbage collector ends leases anywhere.
        if self._stream is not None and getattr(self._inside, "own", False):
            return self._stream
        return self.current_stream()

    def bind(self, engine: ctypes.c_void_p) -> None:
        self._engine, self._stream = engine, None
        self.follow()

    def follow(self) -> None:
        """The engine's next calls are for work on the current stream."""
        self.used_on(self.current_stream())

    def used_on(self, stream: int) -> None:
        if stream == self._stream:
            return
        check(lib.castor_engine_use_lane(self._engine, self._lane(stream)))
        self._stream = stream

    def wait_for(self, stream: int) -> None:
        now = self.current_stream()
        if stream != now:
            check(lib.castor_lane_wait(self._lane(now), self._lane(stream)))

    def take_over(self, tensor: torch.Tensor, stream: int) -> None:
        if stream != self.current_stream():
            self.wait_for(stream)
            self.keep_for_current(tensor)

    def _lane(self, stream: int) -> ctypes.c_void_p:
        lane = self._lanes.get(stream)
        if lane is None:
            lane = ctypes.c_void_p()
            check(lib.castor_lane_adopt_stream(self.handle, stream, ctypes.byref(lane)))
            self._lanes[stream] = lane
        return lane

    def close(self) -> None:
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            check(lib.castor_lane_destroy(lane))
        handle, self.handle = self.handle, None
        if handle:
            check(lib.castor_device_destroy(handle))


def device_of(world: World, device: torch.device) -> Any:
    """The Castor device for a torch device that `place_of` named."""
    return Gpu(world, device) if device.type == "cuda" else Cpu()
