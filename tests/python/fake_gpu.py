# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A GPU in memory of the host: what torch does on it is done by the CPU, when the current stream has come so far.

Needs libcastor_fake_gpu.so, which has Castor's CUDA device on a fake of CUDA (fake_gpu.cc), as the library of CASTOR_LIBRARY.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any, Optional

import torch

from castor._abi import lib
from castor._engine import World
from castor.torch import _device

lib.castor_fake_stream_create.restype = ctypes.c_void_p
lib.castor_fake_stream_wait.argtypes = [ctypes.c_void_p]
lib.castor_fake_live.restype = ctypes.c_int64
ROOM = 1 << 30


class FakeGpu(_device.Gpu):
    activations = 0  # the most that torch has beside Castor

    def __init__(self, world: World, device: torch.device, streams: int = 1) -> None:
        lib.castor_fake_gpu_begin()
        self._buffers: dict[int, Any] = {}
        self._most = 0
        super().__init__(world, torch.device("cuda", 0))
        self.torch_device = torch.device("cpu")
        self._own = [lib.castor_fake_stream_create() for _ in range(streams)]
        assert all(self._own)
        self._turns = itertools.cycle(self._own)

    def take(self, size: int) -> int:
        if self.taken + size > ROOM:
            raise torch.OutOfMemoryError(f"the fake GPU has {ROOM} bytes, and {size} more are wanted")
        buffer = ctypes.create_string_buffer(size + 256)
        address = (ctypes.addressof(buffer) + 255) & ~255
        self._buffers[address] = buffer
        self._most = max(self._most, self.taken + size)
        return address

    def give_back(self, address: int) -> None:
        del self._buffers[address]

    def room(self) -> int:
        return ROOM

    def in_use(self) -> int:
        return self.taken

    def peak(self, begin: bool = False) -> int:
        most = self._most + self.activations
        if begin:
            self._most = self.taken
        return most

    def current_stream(self) -> int:
        return next(self._turns)

    def viewer(self, shape: torch.Size, dtype: torch.dtype) -> _device.Viewer:
        if not shape.numel():
            return super().viewer(shape, dtype)
        inner = _device.dlpack_viewer(shape, dtype, _device.ON_CPU, 0)

        def view(address: Optional[int], lease: Any) -> torch.Tensor:
            error = lib.castor_fake_stream_wait(self._stream)
            assert error == 0, f"the stream failed with error {error} of CUDA"
            return inner(address, lease)

        return view

    def truth(self, flag: torch.Tensor) -> Callable[[], Optional[bool]]:
        """As on hardware, nobody knows at once."""
        known, asked = bool(flag), itertools.count()
        return lambda: known if next(asked) > 2 else None

    def random_state(self) -> None:
        return None
