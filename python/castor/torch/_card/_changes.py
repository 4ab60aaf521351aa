# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The smallest changes by which a card holds a step: more of the card or of the host, or a smaller batch. Each is tried before it is said."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from typing import Any, Optional

from torch import Tensor

from castor._plan import Plan
from castor.sizes import format_size, parse_size
from castor.torch._dry._fakes import fake_batch, tensors_of_batch

_FLAGS = {"--device-budget": "card", "--host-budget": "host", "--nvme": "nvme"}


def changes_for(batch: Any, refused: Plan, fits: Callable[[Any], bool], beside: int) -> list[str]:
    """In words of `castor.wrap`.

    Args:
      refused: the plan that does not fit.
      fits: whether the step of a smaller batch does.
      beside: bytes of the host's budget that are not the plan's.
    """
    asked = _values_of(refused.command)
    changes = []
    for change in refused.changes:
        differs = [(flag, value) for flag, value in _values_of(change.command).items() if asked.get(flag) != value]
        if len(differs) == 1 and differs[0][0] in _FLAGS:
            flag, value = differs[0]
            size = format_size(parse_size(value, flag) + (beside if flag == "--host-budget" else 0))
            changes.append(f"a drive with {size} for nvme=" if flag == "--nvme" else f"{_FLAGS[flag]}={size!r}")
    for dim, of_what in ((0, "sequences or samples"), (1, "tokens")):
        length = _length(batch, dim)
        most = None if length is None else _largest(length, lambda count: fits(_cut(batch, dim, length, count)))  # noqa: B023
        if most:
            changes.append(f"a batch of {most} of these {length} {of_what}")
    return changes


def _values_of(command: str) -> dict[str, str]:
    words = shlex.split(command)
    return {word: following for word, following in zip(words, words[1:]) if word.startswith("--")}


def _length(batch: Any, dim: int) -> Optional[int]:
    """The size that most of a batch's tensors share there; None where nothing could be cut."""
    sizes = Counter(tensor.shape[dim] for tensor in tensors_of_batch(batch) if tensor.dim() > dim and (dim == 0 or not tensor.is_floating_point()))
    if not sizes:
        return None
    size, _ = sizes.most_common(1)[0]
    return size if size > 1 else None


def _cut(batch: Any, dim: int, length: int, count: int) -> Any:
    """Tensors of a memory of their own: a step counts the storages of a batch."""

    def cut(tensor: Tensor) -> Tensor:
        return tensor.narrow(dim, 0, count).clone() if tensor.dim() > dim and tensor.shape[dim] == length else tensor

    return fake_batch(batch, cut)


def _largest(length: int, fits: Callable[[int], bool]) -> int:
    """The most below a length that fits, by halves; 0: none does, or the step takes no such batch."""
    low, high = 0, length  # fits, does not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            good = fits(middle)
        except Exception:  # of the script's step, whose batch has a meaning that nobody knows here
            return 0
        low, high = (middle, high) if good else (low, middle)
    return low
