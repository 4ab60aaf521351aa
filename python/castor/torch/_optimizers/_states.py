# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""``optimizer.state`` of a wrapped model's optimizer."""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import torch

from castor._interrupts import uninterrupted
from castor.errors import FailedPrecondition
from castor.torch._model import Param
from castor.torch._parameters._given import GivenOut


class State(dict):  # type: ignore[type-arg]
    """One parameter's, by torch's names: what a script puts in or writes to is kept."""

    def __init__(self, states: States, p: Param, values: Mapping[str, Any]) -> None:
        super().__init__({
            name: p.runtime.values.given.give(value, partial(states.write, p, name)) if isinstance(value, torch.Tensor) else value for name, value in values.items()
        })
        self._states, self._p = states, p

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._states.write(self._p, name, value)

    def update(self, *others: Any, **named: Any) -> None:
        for name, value in dict(*others, **named).items():
            self[name] = value

    def setdefault(self, name: str, value: Any = None) -> Any:
        if name not in self:
            self[name] = value
        return self[name]

    def clear(self) -> None:
        super().clear()
        self._states.forget(self._p)

    def _refuse(self, *_: Any) -> NoReturn:
        raise FailedPrecondition(f"a state of {self._p.name} cannot go alone: clear() drops all of them, and zero_() sets one to nothing")

    __delitem__ = pop = popitem = _refuse  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return OrderedDict, (), None, None, iter(self.items())  # torch.load takes no dict by its name

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return {name: copy.deepcopy(value, memo) for name, value in self.items()}


class States(dict):  # type: ignore[type-arg]
    """States by their parameters, of those that have any: fp32 on the CPU, read one parameter's at a time. All ranks read and write alike."""

    def __init__(self, optimizer: Any) -> None:
        """`optimizer`: the CastorOptimizer, which it does not keep."""
        super().__init__()
        self._optimizer = weakref.ref(optimizer)

    def _there(self) -> list[Param]:
        """With a state, in the order of the groups."""
        optimizer = self._optimizer()
        return [] if optimizer is None else [p for p in optimizer._params() if self._has(p)]

    @staticmethod
    def _has(p: Param) -> bool:
        return not p.frozen and p.runtime.optimizer.rule.has_state(p)

    def __missing__(self, tensor: torch.Tensor) -> dict[str, Any]:
        optimizer, p = self._optimizer(), getattr(tensor, "_castor", None)
        return {} if optimizer is None or p is None or p.frozen else State(self, p, optimizer.state_of(p))

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([p.tensor for p in self._there()])

    def __len__(self) -> int:
        return len(self._there())

    def __bool__(self) -> bool:
        """torch.distributed.checkpoint asks, and where there are none makes a step of nothing, which counts. First states are listed from then on, and no step made."""
        optimizer = self._optimizer()
        if optimizer is None:
            return False
        if not self._there():
            optimizer.rule.list_first()
        return True

    def __contains__(self, tensor: object) -> bool:
        optimizer, p = self._optimizer(), getattr(tensor, "_castor", None)
        return optimizer is not None and p is not None and p.runtime is optimizer.runtime and self._has(p)

    def get(self, tensor: torch.Tensor, default: Any = None) -> Any:
        return self[tensor] if tensor in self else default

    def keys(self) -> Any:
        return list(self)

    def values(self) -> Any:
        return (self[tensor] for tensor in self)

    def items(self) -> Any:
        return ((tensor, self[tensor]) for tensor in self)

    def __setitem__(self, tensor: torch.Tensor, state: Mapping[str, Any]) -> None:
        p = self._param(tensor)
        if all(isinstance(value, GivenOut) and value._watch.keep.args[0] is p for value in state.values()) and state:
            return  # what was read; writes to it are kept
        if not state:
            self.forget(p)
            return
        with uninterrupted():
            self._settled(p).rule.take_state(p, {name: getattr(value, "plain", lambda value=value: value)() for name, value in state.items()})

    def __delitem__(self, tensor: torch.Tensor) -> None:
        self.forget(self._param(tensor))

    def pop(self, tensor: torch.Tensor, *default: Any) -> Any:
        if tensor not in self and default:
            return default[0]
        state = self[tensor]
        del self[tensor]
        return state

    def clear(self) -> None:
        for p in self._there():
            self.forget(p)

    def update(self, *others: Any) -> None:  # type: ignore[override]
        for tensor, state in dict(*others).items():
            self[tensor] = state

    def setdefault(self, tensor: torch.Tensor, state: Any = None) -> Any:
        if tensor not in self:
            self[tensor] = state or {}
        return self[tensor]

    def popitem(self) -> Any:
        tensor = list(self)[-1]
        return tensor, self.pop(tensor)

    def become(self, states: Mapping[torch.Tensor, Any]) -> None:
        """``optimizer.state = states``."""
        if states is not self:
            states = dict(states)
            self.clear()
            self.update(states)

    # What State asks for.

    def write(self, p: Param, name: str, value: Any) -> None:
        optimizer = self._settled(p)
        state = {**optimizer.state_of(p), name: value}
        updates = None if name == "step" else p.runtime.engine.param(p.number).updates
        with uninterrupted():
            optimizer.rule.take_state(p, state, updates)

    def forget(self, p: Param) -> None:
        with uninterrupted():
            self._settled(p).rule.forget(p)

    def _settled(self, p: Param) -> Any:
        optimizer = self._optimizer()
        if optimizer is None:
            raise FailedPrecondition("the optimizer is gone: keep it as long as its states are used")
        p.runtime.values.given.settle()
        return optimizer

    @staticmethod
    def _param(tensor: torch.Tensor) -> Param:
        p = getattr(tensor, "_castor", None)
        if p is None or p.frozen:
            raise FailedPrecondition(f"a tensor of shape {tuple(tensor.shape)} is no trained parameter of the wrapped model, and has no state: give it an "
                                     "optimizer of its own")
        return p
