# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What autograd saves in a forward: of a parameter its name and shape, since its memory serves others until the backward."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

import torch
import torch.utils.checkpoint
from torch import Tensor

if TYPE_CHECKING:
    from castor.torch._params import Param
    from castor.torch._runtime import Runtime

# Older torches have none.
_top_hooks: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


class _Saved(NamedTuple):
    """A saved tensor that is a parameter's, as autograd keeps it."""

    param: Param
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    step: int


class _Kept(NamedTuple):
    """Another tensor. Autograd itself compares versions only of what it saves without hooks."""

    tensor: Tensor
    version: int


class _Other(NamedTuple):
    """One that the hooks around the model's keep."""

    unpack: Callable[[Any], Tensor]
    kept: Any


def _is_of_checkpointing(hooks: Any) -> bool:
    return hooks is not None and "checkpoint" in getattr(hooks[0], "__module__", "")


def _is_recomputed() -> bool:
    """Whether checkpointing without reentry computes a forward again: it does so when a saved tensor is asked for."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "unpack_hook" and frame.f_code.co_filename == torch.utils.checkpoint.__file__:
            return True
        frame = frame.f_back
    return False


class SavedTensors:
    """The hooks on saved tensors of one model, while its outermost module computes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._hooks: Optional[Any] = None

    def watch(self) -> None:
        outer = _top_hooks(False) if _top_hooks is not None else None
        if _is_of_checkpointing(outer) if _top_hooks is not None else self._runtime.backward and _is_recomputed():
            return  # checkpointing counts what is saved, and its own storages hold leases
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._packer(outer), self._unpack)
        self._hooks.__enter__()

    def end(self) -> None:
        if self._hooks is not None:
            self._hooks.__exit__(None, None, None)
            self._hooks = None

    def _packer(self, outer: Any) -> Callable[[Tensor], Any]:
        runtime = self._runtime
        active = runtime.active

        def pack(tensor: Tensor) -> Any:
            p = active.get(tensor.untyped_storage().data_ptr()) if tensor.device.type != "meta" else None
            if p is not None and tensor.dtype is p.dtype:
                return _Saved(p, tensor.size(), tensor.stride(), tensor.storage_offset(), runtime.step_number)
            return _Kept(tensor, tensor._version) if outer is None else _Other(outer[1], outer[0](tensor))

        return pack

    def _unpack(self, kept: Any) -> Tensor:
        if type(kept) is _Saved:
            if kept.step != self._runtime.step_number:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"{kept.param.name} was written to since the forward, by optimizer.step() as a rule"
                )
            p = kept.param
            view = self._runtime.acquire(p.unit)[0] if p.block is None else self._runtime.blocks.value(p)
            return view.as_strided(kept.size, kept.stride, kept.offset)
        if type(kept) is _Other:
            return kept.unpack(kept.kept)
        if kept.tensor._version != kept.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of shape "
                f"{tuple(kept.tensor.shape)} is at version {kept.tensor._version}; expected version {kept.version} instead"
            )
        return kept.tensor
