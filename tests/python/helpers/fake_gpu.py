# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A GPU in memory of the host: what torch does on it is done by the CPU, when the current stream has come so far.

Needs libcastor_fake_gpu.so, which has Castor's CUDA device on a fake of CUDA (../fake_gpu.cc), as the library of CASTOR_LIBRARY.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch

from castor._abi import lib
from castor._engine import World
from castor.torch._machine import _device
from queued_torch import QueuedTorch

lib.castor_fake_stream_create.restype = ctypes.c_void_p
lib.castor_fake_stream_wait.argtypes = [ctypes.c_void_p]
lib.castor_fake_scribble.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
lib.castor_fake_live.restype = ctypes.c_int64
ROOM = 1 << 30


class FakeGpu(_device.Gpu):
    size = ROOM  # bytes that it has, as it says
    free = ROOM  # and those that Castor can have at most
    activations = 0  # the most that torch has beside Castor
    updates = 0  # calls of an optimizer's own code that came with a stream
    takes_turns = True
    gives = False  # torch's tensors are in memory of the host, and may be queued
    latest: FakeGpu

    def __init__(self, world: World, device: torch.device, streams: int = 1) -> None:
        lib.castor_fake_gpu_begin()
        self._buffers: dict[int, Any] = {}
        self._nothing = ctypes.create_string_buffer(1)
        self._most = 0
        super().__init__(world, torch.device("cuda", 0))
        self.torch_device = torch.device("cpu")
        self.streams = [lib.castor_fake_stream_create() for _ in range(max(streams, 2))]
        assert all(self.streams)
        self._turns = itertools.cycle(self.streams[:streams])
        self.now = self.streams[0]  # the current one
        self._made = threading.local()  # `stream`: the current one of a thread of the engine's
        self.taking_turns = self.takes_turns
        FakeGpu.latest = self

    def take(self, size: int) -> int:
        if self.taken + size > self.free:
            self.ran_out(size)  # as torch's allocator says
            raise torch.OutOfMemoryError(f"the fake GPU has {self.free} bytes, and {size} more are wanted")
        buffer = ctypes.create_string_buffer(size + 256)
        address = (ctypes.addressof(buffer) + 255) & ~255
        self._buffers[address] = buffer
        self._most = max(self._most, self.taken + size)
        # As of a block that kernels on the stream still use, which a caching allocator gives for that stream.
        lib.castor_fake_scribble(self._stream, address, size)
        return address

    def give_back(self, address: int) -> None:
        buffer = self._buffers.pop(address)
        # Its next user on the stream has it at once.
        lib.castor_fake_scribble(self._stream, address, len(buffer) - 256)
        lib.castor_fake_stream_wait(self._stream)

    def room(self) -> int:
        return self.size

    def in_use(self) -> int:
        return self.taken

    def peak(self, begin: bool = False) -> int:
        most = self._most + self.activations
        if begin:
            self._most = self.taken
        return most

    def current_stream(self) -> int:
        return getattr(self._made, "stream", self.now)

    def follow(self) -> None:
        """The program makes another stream current before each call, unless it chooses them itself."""
        if self.taking_turns:
            self.now = next(self._turns)
        super().follow()

    @contextlib.contextmanager
    def stream(self, number: int) -> Iterator[None]:
        """As torch.cuda.stream."""
        before, self.now = self.now, self.streams[number]
        yield
        self.now = before

    def delay(self, ms: int) -> None:
        """A kernel that takes so long, on the current stream."""
        for _ in range(ms // 2):
            lib.castor_fake_scribble(self.now, self._nothing, 1)

    def viewer(self, shape: torch.Size, dtype: torch.dtype) -> _device.Viewer:
        if not shape.numel():
            return super().viewer(shape, dtype)
        inner = _device.dlpack_viewer(shape, dtype, _device.ON_CPU, 0)

        def view(address: Optional[int], lease: Any) -> torch.Tensor:
            queue = QueuedTorch.active
            if queue is not None:
                return queue.add(inner(address, lease), in_chunk=True)
            error = lib.castor_fake_stream_wait(self._stream)
            assert error == 0, f"the stream failed with error {error} of CUDA"
            return inner(address, lease)

        return view

    def view_at(self, address: int, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        return _device.dlpack_viewer(shape, dtype, _device.ON_CPU, 0)(address, None)

    @contextlib.contextmanager
    def made_current(self, stream: int) -> Iterator[None]:
        # The CPU does at once what torch queues on a GPU.
        error = lib.castor_fake_stream_wait(stream)
        assert error == 0, f"the stream failed with error {error} of CUDA"
        self.updates += 1
        self._made.stream = stream
        yield
        del self._made.stream

    def keep_for_current(self, tensor: torch.Tensor) -> None:
        """What is queued keeps its tensors itself."""

    def truth(self, flag: torch.Tensor) -> Callable[[], Optional[bool]]:
        """As on hardware, nobody knows at once."""
        known, asked = bool(flag), itertools.count()
        return lambda: known if next(asked) > 2 else None

    def release_cached(self) -> None:
        """Nothing is cached."""

    def random_state(self) -> None:
        return None
