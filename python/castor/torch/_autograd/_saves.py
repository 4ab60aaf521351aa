# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What autograd saves in a forward: of a parameter its name and shape, since its memory serves others until the backward."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple, Optional

import torch
from torch import Tensor

from castor._interrupts import whole
from castor.torch._autograd._activations import Kept
from castor.torch._autograd._alone import is_watched, unseen
from castor.torch._autograd._compile import uncompiled
from castor.torch._model import Owner, Param
from castor.torch._torch_internals import inside_transform, pop_saving_hooks, push_saving_hooks, top_saving_hooks

_HALVES = (torch.bfloat16, torch.float16)


@contextlib.contextmanager
def without_castors_hooks() -> Iterator[None]:
    """Those of models that compute are away inside, where no others are within them."""
    away: list[Any] = []
    try:
        while (top := top_saving_hooks(False)) is not None and hasattr(top[0], "_castor_model"):
            pop_saving_hooks()
            away.append(top)
        yield
    finally:
        for pack, unpack in reversed(away):
            push_saving_hooks(pack, unpack)


def _version_of(p: Param) -> int:
    """Counts the writes to a parameter, those of a use under way too."""
    return p.version + p.alias._version - p.seen if p.alias is not None else p.version


class Named(NamedTuple):
    """A tensor over a parameter's values, as a graph keeps it."""

    param: Param
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    when: tuple[int, int]


class _Cast:
    """What autocast made of a parameter, which is made again for the backward."""

    __slots__ = ("dtype", "holds", "offset", "param", "size", "stride", "tensor", "when")

    def __init__(self, param: Param, tensor: Tensor, when: tuple[int, int], holds: Callable[[], Optional[bool]]) -> None:
        """`holds`: whether it is; None while that is not known."""
        self.param, self.when, self.holds = param, when, holds
        self.tensor: Optional[Tensor] = tensor  # until it is known
        self.dtype, self.size, self.stride, self.offset = tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset()


class _Other(NamedTuple):
    """One that the hooks around the model's keep."""

    unpack: Callable[[Any], Tensor]
    kept: Any


def is_of_checkpointing(hooks: Any) -> bool:
    """Whether hooks on saved tensors are those of a forward that runs again."""
    return hooks is not None and "checkpoint" in getattr(hooks[0], "__module__", "")


class SavedTensors:
    """The hooks on saved tensors of one model, while its outermost module computes."""

    def __init__(self, runtime: Owner) -> None:
        self._runtime = runtime
        self.packs = False  # what autograd saves is looked at
        self._hooks: Optional[Any] = None
        self._outer: Any = None  # those around them
        self._unsure: deque[_Cast] = deque()  # which a GPU still compares with their parameters

    def watch(self) -> None:
        outer = top_saving_hooks(False)
        if outer is None and self._runtime.uses.stays:
            return  # parameters stay where they are
        if inside_transform() is not None:
            return  # torch.func takes no hooks, and what it saves holds leases
        if is_of_checkpointing(outer):
            return  # checkpointing counts what is saved, and its own storages hold leases
        self._outer = outer
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._packer(outer), self._unpack)
        self._hooks.__enter__()
        self.packs = True

    def end(self) -> None:
        if self._hooks is not None:
            self._hooks.__exit__(None, None, None)
            self._hooks = self._outer = None
            self.packs = False

    def forget(self) -> None:
        """An exception has ended the forward, and contexts of the script's too, each of which took away whichever hooks were innermost."""
        hooks, outer = self._hooks, self._outer
        self._hooks = self._outer = None
        self.packs = False
        top = top_saving_hooks(False) if hooks is not None else None
        if top is not None and (top[0] is hooks.pack_hook or (outer is not None and top[0] is outer[0])):  # type: ignore[union-attr]
            pop_saving_hooks()

    def name_of(self, tensor: Tensor) -> Optional[Named]:
        """What is kept in place of a tensor over a parameter that is in use, and given to `value_of` for the tensor; None of any other."""
        runtime = self._runtime
        try:
            p = runtime.uses.active.get(tensor.untyped_storage().data_ptr()) if not tensor.is_meta else None
        except RuntimeError:
            return None  # of a tensor of torch.export's, which has no memory
        if p is None or tensor.dtype is not p.dtype:
            return None
        return Named(p, tensor.size(), tensor.stride(), tensor.storage_offset(), (runtime.steps.number, _version_of(p)))

    @uncompiled
    @whole
    def value_of(self, named: Named) -> Tensor:
        """Over a lease of its own."""
        with unseen():
            return self._again_of(named)

    def _packer(self, outer: Any) -> Callable[[Tensor], Any]:
        @uncompiled
        @whole
        def pack(tensor: Tensor) -> Any:
            named = self.name_of(tensor)
            if named is not None:
                return named
            if tensor.dtype in _HALVES:
                cast = self._cast_of(tensor)
                if cast is not None:
                    return cast
            return Kept(tensor, tensor._version) if outer is None else _Other(outer[1], outer[0](tensor))

        pack._castor_model = True  # type: ignore[attr-defined]
        return pack

    def _cast_of(self, tensor: Tensor) -> Optional[_Cast]:
        """Where a tensor has the bits of a parameter in another type, which only a look at both can tell."""
        runtime = self._runtime
        storage = tensor.untyped_storage()
        count = storage.nbytes() // tensor.dtype.itemsize
        for p in runtime.uses.active.values():
            # Nobody casts integers and float8 alone, whose scales are elsewhere.
            if p.elements != count or p.dtype is tensor.dtype or p.are_bytes:
                continue
            with unseen():
                found = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, (count,), (1,))
                assert p.alias is not None
                again = p.alias.detach().reshape(-1).to(tensor.dtype)
                holds = runtime.device.truth((found.view(torch.int16) == again.view(torch.int16)).all())
            if holds() is False:
                continue
            cast = _Cast(p, tensor, (runtime.steps.number, _version_of(p)), holds)
            self._unsure.append(cast)
            self._let_casts_go()
            return cast
        return None

    def _let_casts_go(self) -> None:
        while self._unsure and (holds := self._unsure[0].holds()) is not None:
            cast = self._unsure.popleft()
            if holds:
                cast.tensor = None

    def _value_of(self, p: Param, when: tuple[int, int]) -> Tensor:
        if when != (self._runtime.steps.number, _version_of(p)):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"{p.name} was written to since the forward, by optimizer.step() as a rule"
            )
        if p.kept:
            assert p.values is not None
            return p.values
        return self._runtime.acquire(p.unit)[0] if p.block is None else self._runtime.gradients.blocks.value(p)

    def _again_of(self, kept: Named) -> Tensor:
        values = self._value_of(kept.param, kept.when)
        if kept.size == kept.param.shape and kept.stride == values.stride() and not kept.offset:
            return values
        return values.as_strided(kept.size, kept.stride, kept.offset)

    @uncompiled
    @whole
    def _unpack(self, kept: Any) -> Tensor:
        kind = type(kept)
        if kind is Named and not is_watched():
            return self._again_of(kept)
        if kind is Kept:
            return kept.tensor_unchanged()
        if kind is _Other:
            return kept.unpack(kept.kept)
        with unseen():
            return self._again(kept)

    def _again(self, kept: Any) -> Tensor:
        if type(kept) is Named:
            return self._again_of(kept)
        self._let_casts_go()
        if kept.tensor is not None:
            return kept.tensor
        again = self._value_of(kept.param, kept.when).reshape(-1).to(kept.dtype)
        return again.as_strided(kept.size, kept.stride, kept.offset)
