# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Small integers and truths that a dry step knows: those of the batch, of buffers and of ranges, and what operators make of known ones.

Models ask such tensors whether a mask masks anything or a batch is packed, and save other tensors by the answer.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch import Tensor

from castor.torch._torch_internals import fake_tensor, outside_modes

_MOST = 1 << 18  # elements: more take time that no answer is worth
_MAKERS = {f"aten::{name}" for name in ("arange", "full", "full_like", "ones", "ones_like", "scalar_tensor", "zeros", "zeros_like")}
_NONE = object()


def _is_small(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.numel() <= _MOST


class _Value:
    """Of one fake tensor; views of a fake tensor have views of the value."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class KnownValues:
    """Values beside fake tensors, in host memory."""

    def __init__(self) -> None:
        self._wrong: dict[int, Any] = {}  # storages of values that an operator with unknown values has written to

    def tell(self, fake: Tensor, tensor: Tensor) -> None:
        """A fake tensor stands for this one, unless the tensor has no values or too many."""
        if _is_small(tensor) and not tensor.is_meta and not isinstance(tensor, fake_tensor) and tensor.layout is torch.strided:
            with outside_modes():
                self._put(fake, tensor.detach().to("cpu", copy=True))

    def of(self, tensor: Any) -> Optional[Tensor]:
        """The values of a fake tensor, where they are known."""
        value = getattr(tensor, "_castor_value", None)
        return None if value is None or value.tensor.untyped_storage()._cdata in self._wrong else value.tensor

    def _put(self, fake: Tensor, tensor: Tensor) -> None:
        fake._castor_value = _Value(tensor)  # type: ignore[attr-defined]

    def answer(self, func: Any, args: Any) -> Any:
        """The number that an operator reads from a known tensor; `unanswered` of the result otherwise."""
        if func._schema.name == "aten::_local_scalar_dense" and (value := self.of(args[0])) is not None:
            with outside_modes():
                return value.item()
        return _NONE

    @staticmethod
    def unanswered(answer: Any) -> bool:
        return answer is _NONE

    def follow(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Computes an operator's values too, where its results are small and all that it reads is known."""
        fakes = [value for value in _flat((args, tuple(kwargs.values()))) if isinstance(value, Tensor)]
        results = [value for value in _flat(result) if isinstance(value, Tensor)]
        makes = func._schema.name in _MAKERS
        reads_known = bool(fakes) and all(self._values_of(fake, func._schema.is_mutable) is not None for fake in fakes)
        seeded = torch.Tag.nondeterministic_seeded in func.tags
        if results and (reads_known or makes) and not seeded and all(map(_is_small, results)):
            with outside_modes():
                named = {name: self._real(value) for name, value in kwargs.items()}
                if "device" in named or makes:
                    named["device"] = torch.device("cpu")
                real = func(*map(self._real, args), **named)
            for fake, value in zip(results, (value for value in _flat(real) if isinstance(value, Tensor))):
                self._put(fake, value)
        elif func._schema.is_mutable:
            for fake in fakes:
                value = self.of(fake)
                if value is not None:
                    self._wrong[value.untyped_storage()._cdata] = value

    def _values_of(self, tensor: Tensor, written: bool = False) -> Optional[Tensor]:
        """Of a real tensor among fake ones the tensor itself, which is the script's and not to be written."""
        if isinstance(tensor, fake_tensor):
            return self.of(tensor)
        return None if written or tensor.is_meta or not _is_small(tensor) else tensor.detach()

    def _real(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            known = self._values_of(value)
            # What makes a tensor like another one reads the other's shape and type alone.
            return known if known is not None else torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
        return type(value)(map(self._real, value)) if type(value) in (list, tuple) else value

    @contextlib.contextmanager
    def are_shown(self) -> Iterator[None]:
        """transformers asks a tensor with values for an answer, and takes the worst for granted of a fake one: known ones are no fakes to it."""
        library: Any = sys.modules.get("transformers.utils.import_utils")
        plain = getattr(library, "is_fake_tensor", None)
        if plain is None:
            yield
            return
        library.is_fake_tensor = lambda tensor: plain(tensor) and self.of(tensor) is None
        try:
            yield
        finally:
            library.is_fake_tensor = plain


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _flat(part)
    else:
        yield value
