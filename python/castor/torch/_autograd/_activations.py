# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Activations of a GPU in host memory between forward and backward.

What autograd saves is copied to a pinned arena on a stream of its own. The backward has it copied back on another stream, ahead of its use
and in reverse order. Tensors that share a storage are copied once. The same bits come back.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections import deque
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor

from castor import _abi
from castor._abi import check, lib
from castor.errors import CastorError
from castor.sizes import format_size, parse_size
from castor.torch._torch_internals import fake_tensor

_AHEAD = 2  # storages that are copied back before they are asked for
_PAGE = 4096


class _Arena:
    """Pinned host memory under a budget. Buffers are freed once the copy that reads them is over."""

    def __init__(self, budget: int, mover: Any) -> None:
        self._handle = ctypes.c_void_p()
        check(lib.castor_pinned_arena_create(max(budget // _PAGE, 1) * _PAGE, ctypes.byref(self._handle)))
        stats = _abi.PinnedArenaStats()
        check(lib.castor_pinned_arena_get_stats(self._handle, ctypes.byref(stats)))
        address = self.take(stats.largest_gap_bytes)
        self._mover = mover
        self._registered: Optional[int] = None
        if address is not None:
            try:
                mover.register(address, stats.largest_gap_bytes)
                self._registered = address
            finally:
                self.free(address)  # else the arena would never go

    def take(self, size: int) -> Optional[int]:
        """An address, or None where there is no room."""
        address = ctypes.c_void_p()
        code = lib.castor_pinned_arena_allocate(self._handle, size, 0, ctypes.byref(address))
        return None if code else address.value

    def free(self, address: int) -> None:
        check(lib.castor_pinned_arena_free(self._handle, address))

    def __del__(self) -> None:
        if getattr(self, "_registered", None) is not None:
            self._mover.unregister(self._registered)
        lib.castor_pinned_arena_destroy(self._handle)


def _bytes_at(address: int, size: int) -> Tensor:
    return torch.frombuffer((ctypes.c_byte * size).from_address(address), dtype=torch.uint8)


class HostMover:
    """The twin of a GPU's streams: copies are done when they return."""

    def arena(self, budget: int) -> Any:
        return _Arena(budget, self)

    def place(self, address: int, size: int) -> Tensor:
        """What is at an address of the arena's."""
        return _bytes_at(address, size)

    def register(self, address: int, size: int) -> None:
        """Devices may copy from and to this memory."""

    def unregister(self, address: int) -> None:
        """It goes."""

    def save(self, source: Tensor, place: Tensor) -> Any:
        """Copies to the host. Returns what `over` and `load` take."""
        place.copy_(source)

    def load(self, place: Tensor, saved: Any) -> tuple[Tensor, Any]:
        """Copies back. Returns memory of the device, and what `use` takes."""
        return place.clone(), None

    def use(self, loaded: Tensor, ready: Any) -> None:
        """The current stream may use what was copied back."""

    def over(self, event: Any) -> bool:
        return True


class _GpuMover:
    """Copies on two streams of one GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._out, self._in = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def arena(self, budget: int) -> Any:
        return _Arena(budget, self)

    def place(self, address: int, size: int) -> Tensor:
        return _bytes_at(address, size)

    def register(self, address: int, size: int) -> None:
        with torch.cuda.device(self._device):  # else a context on another GPU is made
            error = torch.cuda.cudart().cudaHostRegister(address, size, 0)
        if int(error):
            # The runtime keeps the error for the next kernel, which is nobody's fault.
            with contextlib.suppress(RuntimeError):
                torch.zeros((), device=self._device)
            raise CastorError(f"{format_size(size)} of host memory cannot be pinned for {self._device}: error {int(error)} of CUDA")

    def unregister(self, address: int) -> None:
        for stream in (self._out, self._in):  # copies may still be under way
            stream.synchronize()
        with torch.cuda.device(self._device):
            torch.cuda.cudart().cudaHostUnregister(address)

    def save(self, source: Tensor, place: Tensor) -> Any:
        self._out.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._out):
            place.copy_(source, non_blocking=True)
        source.record_stream(self._out)
        return self._out.record_event()

    def load(self, place: Tensor, saved: Any) -> tuple[Tensor, Any]:
        self._in.wait_event(saved)
        with torch.cuda.stream(self._in):
            loaded = torch.empty_like(place, device=self._device)
            loaded.copy_(place, non_blocking=True)
        return loaded, self._in.record_event()

    def use(self, loaded: Tensor, ready: Any) -> None:
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(ready)
        loaded.record_stream(stream)

    def over(self, event: Any) -> bool:
        return event.query()


def mover_of(device: torch.device) -> Any:
    """None where nothing is gained: the CPU's activations are in host memory already."""
    return _GpuMover(device) if device.type == "cuda" else None


class _Storage:
    """A storage's bytes on the host."""

    def __init__(self, owner: offload_activations, mover: Any, arena: Any, address: int, source: Tensor, before: Optional[_Storage]) -> None:
        self._owner, self._mover, self._arena, self._address = owner, mover, arena, address
        self.size = source.numel()
        self._place = mover.place(address, self.size)
        self._saved = self._over = mover.save(source, self._place)
        self._loaded: Optional[tuple[Tensor, Any]] = None
        self.before = None if before is None else weakref.ref(before)
        self.wanted = 0  # tensors over it that were saved and not asked for yet

    def load(self) -> None:
        if self._loaded is None:
            self._loaded = self._mover.load(self._place, self._saved)
            self._over = self._loaded[1]

    def take(self) -> Tensor:
        """Its bytes on the device, for the current stream."""
        self.load()
        assert self._loaded is not None
        loaded, ready = self._loaded
        self._mover.use(loaded, ready)
        self.wanted -= 1
        if self.wanted <= 0:
            self._loaded = None  # autograd holds it as long as it needs that
        return loaded

    def __del__(self) -> None:
        self._owner._give_back(self._arena, self._address, self.size, self._mover, self._over)


def _check_version(tensor: Tensor, version: int, shape: Optional[torch.Size] = None) -> None:
    """As autograd does, which compares versions only of what it saves without hooks."""
    if tensor._version != version:
        if shape is None and not tensor.is_nested:  # a nested one tells no shape here
            shape = tensor.shape
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of shape "
            f"{'(nested)' if shape is None else tuple(shape)} is at version {tensor._version}; expected version {version} instead"
        )


class Kept(NamedTuple):
    """Another tensor."""

    tensor: Tensor
    version: int

    def tensor_unchanged(self) -> Tensor:
        _check_version(self.tensor, self.version)
        return self.tensor


class _Saved(NamedTuple):
    storage: _Storage
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    counter: Tensor  # without memory, with the saved tensor's version: a later write may come before the copy to the host
    version: int


def _counter_of(tensor: Tensor) -> Tensor:
    if isinstance(tensor, fake_tensor):
        return torch.empty(0, device="meta")  # a fake tensor's detached one keeps the storage
    counter = tensor.detach()
    counter.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return counter


class offload_activations:
    """A context in which forwards keep what autograd saves in host memory, until their backward asks for it.

        saver = castor.offload_activations(budget="32GiB")
        with saver:
            loss = model(batch)
        loss.backward()

    It may be entered again, and be around a whole training. Its memory goes when it and all that was saved have gone. What finds no room
    stays on the GPU. Activations on the CPU stay where they are.

    Args:
      budget: host memory, all of it taken and pinned when the first tensor comes.
      least: smaller storages stay on the GPU.
    """

    _kinds: tuple[type, ...] = (Tensor,)  # of tensors that are moved

    def __init__(self, budget: Union[int, str], least: Union[int, str] = "64KiB") -> None:
        self._budget = parse_size(budget, "budget")
        self._least = parse_size(least, "least")
        self._movers: dict[torch.device, Any] = {}
        self._arena: Any = None
        self._known: dict[int, tuple[weakref.ref[Any], int, weakref.ref[_Storage]]] = {}  # by the identity of a storage, while that is there
        self._last: Optional[weakref.ref[_Storage]] = None
        self._waiting: deque[tuple[Any, int, Any, Any]] = deque()  # buffers that a copy still reads
        self._hooks: list[Any] = []
        self.saved_bytes = self.peak_bytes = self.refused_bytes = 0  # on the host now, at most, and what found no room so far

    def __enter__(self) -> offload_activations:
        hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)
        hooks.__enter__()
        self._hooks.append(hooks)
        return self

    def __exit__(self, *what: Any) -> None:
        self._hooks.pop().__exit__(*what)

    def pack(self, tensor: Tensor) -> Any:
        found = self._storage_of(tensor)
        if found is None:
            return Kept(tensor, tensor._version)
        found.wanted += 1
        return _Saved(found, tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset(), (counter := _counter_of(tensor)), counter._version)

    def unpack(self, kept: Any) -> Tensor:
        if type(kept) is Kept:
            return kept.tensor_unchanged()
        _check_version(kept.counter, kept.version, kept.size)
        storage = kept.storage
        loaded = storage.take()
        ahead = storage.before
        for _ in range(_AHEAD):
            one = ahead() if ahead is not None else None
            if one is None:
                break
            one.load()
            ahead = one.before
        return self._over(loaded, kept)

    def _over(self, loaded: Tensor, kept: _Saved) -> Tensor:
        """What was saved, over bytes that were copied back."""
        return torch.empty(0, dtype=kept.dtype, device=loaded.device).set_(loaded.untyped_storage(), kept.offset, kept.size, kept.stride)

    def _bytes_of(self, storage: Any, device: torch.device) -> Tensor:
        return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)

    def _mover_for(self, device: torch.device) -> Any:
        return mover_of(device)

    def _storage_of(self, tensor: Tensor) -> Optional[_Storage]:
        if type(tensor) not in self._kinds or tensor.layout is not torch.strided or tensor.device.type == "meta":
            return None
        if tensor.device not in self._movers:
            self._movers[tensor.device] = self._mover_for(tensor.device)
        mover = self._movers[tensor.device]
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if mover is None or size < self._least or hasattr(storage, "_castor_lease"):
            return None  # a chunk's memory goes to others when its lease ends, which knows nothing of a copy on another stream
        if not storage.resizable():
            return None  # memory of DLPack, numpy and other processes: its owner may free it before the copy, which torch's allocator does not
        known = self._known.get(id(storage))
        if known is not None and known[0]() is storage and known[1] == tensor._version:
            found = known[2]()
            if found is not None:
                return found
        if self._arena is None:
            self._arena = mover.arena(self._budget)
        self._free_those_over()
        place = self._arena.take(size)
        if place is None:
            self.refused_bytes += size
            return None
        made = _Storage(self, mover, self._arena, place, self._bytes_of(storage, tensor.device), None if self._last is None else self._last())
        self._known[id(storage)] = (weakref.ref(storage), tensor._version, weakref.ref(made))
        self._last = weakref.ref(made)
        self.saved_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.saved_bytes)
        return made

    def _give_back(self, arena: Any, address: int, size: int, mover: Any, event: Any) -> None:
        self.saved_bytes -= size
        self._waiting.append((arena, address, mover, event))
        self._free_those_over()

    def _free_those_over(self) -> None:
        # A garbage collector may come back here at any line, and another thread too.
        for _ in range(len(self._waiting)):
            try:
                arena, address, mover, event = self._waiting.popleft()
            except IndexError:
                break
            if mover.over(event):
                arena.free(address)
            else:
                self._waiting.append((arena, address, mover, event))
        if len(self._known) > 4096:
            self._known = {storage: known for storage, known in self._known.items() if known[0]() is not None}
