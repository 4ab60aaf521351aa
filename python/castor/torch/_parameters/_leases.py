# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parameters on lease as torch tensors.

A lease backs storages of its own, and the end of the last one ends the lease. Whatever aliases a storage (autograd, checkpointing, the
user's code) keeps the memory where it is. Too long costs memory, never a wrong number. Leases that have ended reach the engine with
its next call, because storages die anywhere, inside other calls too.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Any, Optional

import torch

from castor import _abi
from castor._abi import lib
from castor._interrupts import raises_outside, whole
from castor.torch._model import Unit


class _Lease(tuple[deque[tuple[int, int]], int, Any]):
    """Where its end is told, its handle, and its device if that has streams. Ends when nothing refers to it any more. A tuple is made without a function of Python's."""

    __slots__ = ()

    @raises_outside
    def __del__(self) -> None:
        ended, handle, device = self
        ended.append((handle, 0 if device is None else device.trainers_stream()))


class Leases:
    """The leases of one engine."""

    def __init__(self, engine: ctypes.c_void_p, device: Any) -> None:
        """`device`: a Cpu or Gpu of _device.py."""
        self._engine = engine
        self._follow: Optional[Callable[[], None]] = device.follow  # called before the engine
        self._streams = None if device.follow is None else device
        self.ended: deque[tuple[int, int]] = deque()  # leases that the engine has not been told of, and the stream that was current then
        self._handle = ctypes.c_void_p()
        self._out = ctypes.byref(self._handle)

    @whole
    def end_those_over(self) -> None:
        """Tells the engine of leases that have ended."""
        ended = self.ended
        while ended:
            lease, stream = ended[0]
            # Who lets go of a tensor has used it on the stream that is current then.
            if self._streams is not None:
                self._streams.used_on(stream)
            code = lib.castor_param_lease_release(lease)
            ended.popleft()
            if code:
                raise _abi.error(code)

    @whole
    def acquire(self, unit: Unit) -> list[torch.Tensor]:
        """The parameters' values, each in a storage of its own, in their own shapes."""
        if self.ended:
            self.end_those_over()
        if self._follow is not None:
            self._follow()
        code = lib.castor_engine_acquire(self._engine, unit.ids, unit.size, unit.addresses, self._out)
        if code:
            raise _abi.error(code)
        lease = _Lease((self.ended, self._handle.value, self._streams))
        self._handle.value = None
        views = []
        for p, address in zip(unit.params, unit.addresses):
            views.append(p.view(address, lease))
        return views


def floats_at(address: int, count: int) -> torch.Tensor:
    """A flat tensor over floats in memory of the host."""
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)
