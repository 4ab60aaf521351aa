# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Blocks whose activations are in host memory between forward and backward, while other blocks keep theirs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, nn

from castor.torch._autograd._activations import HostMover, Kept, mover_of, offload_activations
from castor.torch._autograd._saves import is_of_checkpointing
from castor.torch._card._blocks import Block
from castor.torch._torch_internals import fake_tensor, top_saving_hooks


class _Other(NamedTuple):
    """What the hooks around a block's keep in a way of their own: of a parameter its name."""

    unpack: Callable[[Any], Tensor]
    kept: Any


class Moved(offload_activations):
    """Of the blocks of one model. On a CPU, whose memory stands for a card's, what is moved is copied like any other."""

    def _mover_for(self, device: torch.device) -> Any:
        return mover_of(device) or HostMover()

    def hooks(self, _module: nn.Module, outer: Any) -> Any:
        """A context around a block's forward. `outer`: the hooks around it, if any, which see each tensor first."""

        def pack(tensor: Tensor) -> Any:
            if outer is None:
                return self.pack(tensor)
            kept = outer[0](tensor)
            return self.pack(tensor) if type(kept) is Kept else _Other(outer[1], kept)

        def unpack(kept: Any) -> Tensor:
            return kept.unpack(kept.kept) if type(kept) is _Other else self.unpack(kept)

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    def __deepcopy__(self, memo: Any) -> Moved:
        return self  # copies of a model share the host memory


class _DryMover(HostMover):
    """Copies nothing, and makes what would be copied back."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def arena(self, budget: int) -> Any:
        return _DryArena()

    def place(self, address: int, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, device="meta")

    def save(self, source: Tensor, place: Tensor) -> Any:
        """Both have no memory."""

    def load(self, place: Tensor, saved: Any) -> tuple[Tensor, Any]:
        return torch.empty(place.numel(), dtype=torch.uint8, device=self._device), None


class _DryArena:
    """Has room for everything, and no memory."""

    def take(self, size: int) -> Optional[int]:
        return 0

    def free(self, address: int) -> None:
        """Nothing was taken."""


class DryMoved(Moved):
    """For a dry step, whose tensors are fake."""

    _kinds = (Tensor, fake_tensor)

    def _mover_for(self, device: torch.device) -> Any:
        return _DryMover(device)

    # What `set_` has given a fake tensor lives as long as the mode.

    def _over(self, loaded: Tensor, kept: Any) -> Tensor:
        return loaded.view(kept.dtype).as_strided(kept.size, kept.stride, kept.offset)

    def _bytes_of(self, storage: Any, device: torch.device) -> Tensor:
        return torch.empty(storage.nbytes(), dtype=torch.uint8, device="meta")

    def hooks(self, module: nn.Module, outer: Any) -> Any:
        of_parameters = {p.untyped_storage()._cdata for p in module.parameters()}

        def pack(tensor: Tensor) -> Any:
            if tensor.untyped_storage()._cdata in of_parameters:
                return Kept(tensor, tensor._version)
            return self.pack(tensor)

        return torch.autograd.graph.saved_tensors_hooks(pack, self.unpack)


def _forward_moved(saver: Moved, forward: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """`forward`: a module's own, bound, so that a copy of the module has that of the copy."""
    outer = top_saving_hooks(False)
    if not torch.is_grad_enabled() or is_of_checkpointing(outer):
        return forward(*arguments, **keywords)
    with saver.hooks(forward.__self__, outer):  # type: ignore[attr-defined]
        return forward(*arguments, **keywords)


def move(blocks: Iterable[Block], saver: Moved) -> Callable[[], None]:
    """Has each block's activations moved by `saver`. Returns what takes all of it back."""
    modules = [block.module for block in blocks]
    before = [(weakref.ref(module), vars(module).get("forward")) for module in modules]
    for module in modules:
        module.forward = functools.partial(_forward_moved, saver, module.forward)  # type: ignore[method-assign]

    def take_back() -> None:
        for held, forward in before:
            module = held()
            if module is None:
                continue
            del module.forward
            if forward is not None:
                module.forward = forward

    return take_back
