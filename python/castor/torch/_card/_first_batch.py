# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The first batch of a trainer's own data, for ``card=``: read so that the training after it reads the same batches."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import random
import sys
import types
from collections.abc import Iterator
from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from castor.errors import InvalidArgument
from castor.torch._dry._step import random_states_kept

_WALKED = 1000  # members of a container; a longer one holds data, whose own attributes stay unseen
_LEAVES = (str, bytes, int, float, complex, type, types.ModuleType, Tensor, nn.Module)
_CONTAINERS = (list, dict, set, collections.deque)


def first_batch(loader: Any, *read: Any) -> Any:
    """The first batch, in this process even where the loader has workers. Data, samplers and random states stay as they are.

    Args:
      loader: a `DataLoader`, or another iterable of batches.
      read: further objects that reading may change, such as a data module.

    Raises:
      InvalidArgument: there is no batch, or the data are an iterator, which would lose what was read.
    """
    with kept(loader, *read) as reached:
        data = getattr(loader, "dataset", None)
        if (not isinstance(loader, DataLoader) or isinstance(data, IterableDataset)) and any(map(_is_read_once, reached)):
            raise InvalidArgument("card= reads the first training batch, and the data hold an iterator or an open file, which can be read once: give batch= "
                                  "beside card=, or data that begin anew with each iter()")
        _leave_workers_away(loader)
        batches = iter(loader)
        try:
            return next(batches)
        except StopIteration:
            raise InvalidArgument("card= reads the first training batch, and the training data are empty: give batch= beside card=") from None
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()


def _leave_workers_away(loader: Any) -> None:
    """Workers would start for one batch. `kept` gives the loader its workers back."""
    inner = getattr(loader, "base_dataloader", loader)  # accelerate's loaders have torch's inside
    if isinstance(inner, DataLoader):
        vars(inner).update(num_workers=0, timeout=0)


@contextlib.contextmanager
def kept(*roots: Any) -> Iterator[list[Any]]:
    """Behind, global random states are as before, and so are attributes, containers and generators that the roots reach. Gives what they reach."""
    reached = list(_reach(roots))
    undo = [back for one in reached for back in (_way_back(one),) if back is not None]
    with random_states_kept():
        try:
            yield reached
        finally:
            for back in undo:
                back()


def _reach(roots: tuple[Any, ...]) -> Iterator[Any]:
    seen: dict[int, Any] = {}
    todo = list(roots)
    while todo:
        one = todo.pop()
        if one is None or isinstance(one, _LEAVES) or id(one) in seen:
            continue
        seen[id(one)] = one
        yield one
        todo.extend(_members(one))


def _members(one: Any) -> list[Any]:
    if isinstance(one, (list, tuple, set, collections.deque)):
        return list(one) if len(one) <= _WALKED else []
    if isinstance(one, dict):
        return list(one.values()) if len(one) <= _WALKED else []
    if isinstance(one, types.MethodType):
        return [one.__self__, one.__func__]
    if isinstance(one, functools.partial):
        return [one.func, *one.args, *one.keywords.values()]
    if isinstance(one, types.FunctionType):
        return [cell.cell_contents for cell in one.__closure__ or () if cell != types.CellType()]
    return list(getattr(one, "__dict__", {}).values())


def _way_back(one: Any) -> Optional[Callable[[], None]]:
    """What gives this object its present state again; None: the object has none that is known."""
    numpy: Any = sys.modules.get("numpy.random")
    if isinstance(one, torch.Generator):
        return functools.partial(one.set_state, one.get_state())
    if isinstance(one, random.Random):
        return functools.partial(one.setstate, one.getstate())
    if numpy is not None and isinstance(one, numpy.RandomState):
        return functools.partial(one.set_state, one.get_state())
    if numpy is not None and isinstance(one, numpy.Generator):
        return functools.partial(setattr, one.bit_generator, "state", one.bit_generator.state)
    if isinstance(one, _CONTAINERS):
        return functools.partial(_refill, one, one.copy())
    attributes = getattr(one, "__dict__", None)
    if isinstance(attributes, dict):
        return functools.partial(_refill, attributes, attributes.copy())
    return None


def _refill(container: Any, before: Any) -> None:
    if type(container) is not type(before) or len(container) != len(before) or not _same(container, before):
        container.clear()
        (container.extend if isinstance(container, (list, collections.deque)) else container.update)(before)


def _same(container: Any, before: Any) -> bool:
    """Member by member the same objects, in one order."""
    if isinstance(container, dict):
        return all(mine is theirs and value is other for (mine, value), (theirs, other) in zip(container.items(), before.items()))
    return all(mine is theirs for mine, theirs in zip(container, before))


def _is_read_once(one: Any) -> bool:
    """An iterator without attributes, such as a generator: no state of its own can be given back."""
    return hasattr(type(one), "__next__") and (isinstance(one, io.IOBase) or not hasattr(one, "__dict__"))
