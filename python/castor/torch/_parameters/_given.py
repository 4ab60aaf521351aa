# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Copies that state dictionaries give out. As with torch's own, what a script writes to one is the parameter's, or the optimizer's state's.

A write is known by the tensor's counter; of a tensor that numpy has seen, by a digest. It goes to the chunk before the next use of the model, also where
the script has dropped the copy by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from castor.torch._parameters._memory import alone, digest_of, uses_of_storage
from castor.torch._torch_internals import no_function

Keep = Callable[[Tensor], None]


class _Watch:
    """The memory of a copy, and what is known of it."""

    __slots__ = ("digest", "keep", "values", "version")

    def __init__(self, values: Tensor, keep: Keep) -> None:
        self.values, self.keep = values, keep
        self.version = values._version
        self.digest: Optional[int] = None  # where numpy may write

    def is_alone(self) -> bool:
        """Nobody else has a tensor over the memory."""
        return uses_of_storage(self.values) <= alone()

    def by_numpy(self) -> None:
        if self.digest is None:
            self.digest = digest_of(self.values.contiguous())

    def take_write(self) -> bool:
        """Whether the memory was written to since the last call."""
        digest = None if self.digest is None else digest_of(self.values.contiguous())
        written = self.values._version != self.version or digest != self.digest
        self.version, self.digest = self.values._version, digest
        return written


class GivenOut(Tensor):
    """A copy. Functions see a plain tensor, and what they make of it is one; pickled and deep copies are plain, too."""

    __torch_function__ = no_function  # type: ignore[assignment]

    _watch: _Watch

    def plain(self) -> Tensor:
        return self._watch.values

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        """Without a counter of its own, as torch's has."""
        return self.detach()

    @data.setter
    def data(self, values: Tensor) -> None:
        Tensor.data.__set__(self, values)  # type: ignore[attr-defined]

    def numpy(self, *arguments: Any, **keywords: Any) -> Any:
        self._watch.by_numpy()
        return self.plain().numpy(*arguments, **keywords)

    def __array__(self, *arguments: Any, **keywords: Any) -> Any:
        self._watch.by_numpy()
        return self.plain().__array__(*arguments, **keywords)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return memo.setdefault(id(self), self.plain().clone())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.plain().__reduce_ex__(protocol)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self.plain())


class Given:
    """The copies of one model that are out."""

    def __init__(self) -> None:
        self._watches: list[_Watch] = []

    def give(self, values: Tensor, keep: Keep) -> Tensor:
        """A copy whose writes `keep` takes, in `settle`."""
        watch = _Watch(values.detach(), keep)
        self._watches.append(watch)
        copy = watch.values.as_subclass(GivenOut)
        copy._watch = watch
        return copy

    def __bool__(self) -> bool:
        return bool(self._watches)

    def settle(self) -> None:
        """Keeps what was written, and forgets the copies that nobody has. Where a write is refused, so are all that came since the last call."""
        written = [watch for watch in self._watches if watch.take_write()]
        self._watches = [watch for watch in self._watches if not watch.is_alone()]
        for watch in written:
            watch.keep(watch.values)

    def close(self) -> None:
        """The model is gone."""
        self._watches.clear()
