# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The second line behind aliases: a step in which every operation is asked whether it reads a parameter without values.

Bit patterns would prove nothing, since many operations make a number of a NaN. So a dispatch mode compares addresses: those of the operation's
arguments with the memory that all names of a model share.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any, Optional

import torch
from torch import Tensor

from castor._interrupts import raises_outside
from castor.errors import FailedPrecondition
from castor.torch._autograd._compile import uncompiled
from castor.torch._hooks import address_of
from castor.torch._model import Owner
from castor.torch._torch_internals import current_mode, DispatchMode, Operation, plain_functions, push_mode
from castor.torch._turn import levels_to

_OF_SHAPE = {
    f"aten::{name}"
    for name in "empty_like zeros_like ones_like full_like rand_like randn_like randint_like new_empty new_empty_strided new_zeros new_ones new_full "
                "is_same_size".split()
}


class Check(DispatchMode):
    """That of one model. It is due in the first step, in the one after each new placement, and in the one behind the first that was not finite."""

    supports_higher_order_operators = True

    def __init__(self, runtime: Owner, always: bool) -> None:
        super().__init__()
        self._runtime = weakref.ref(runtime)
        self._always = always
        self.due = True
        self.evaluated = False  # a forward without gradients was checked since it is due
        self.cleared = False  # a step that was not finite was checked
        self._reads: dict[Any, bool] = {}  # by operation
        self.of: Any = None  # the frame whose forward is watched; None: no forward is
        self.thread = 0  # of that frame

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # compiled code stays compiled

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # which would import the compiler: `uncompiled` does the same

    def lives(self) -> bool:
        """Whether the forward goes on, as far as this thread can tell. An interrupt calls no hook, and leaves the mode behind."""
        return self.of is None or self.thread != threading.get_ident() or levels_to(self.of) > 0

    def begin(self, frame: Any) -> None:
        """Watches a forward that lasts as long as this frame."""
        self.of, self.thread = frame, threading.get_ident()
        self.__enter__()

    def end(self) -> None:
        """Once for each `begin`."""
        self.of = None
        self.__exit__(None, None, None)

    def forget(self) -> None:
        """The same where an exception has ended the forward, maybe in another thread, whose modes are its own."""
        if current_mode() is not self:
            push_mode(self)  # so that `end` undoes all else
        self.end()

    def begin_anew(self) -> None:
        """Homes are others: the next step is checked."""
        self.due = True

    def clear(self) -> None:
        """No step has to be: parameters have their values everywhere."""
        self.due, self.cleared = False, True

    def after_step(self, finite: bool) -> None:
        self.cleared |= self.due and not finite
        self.due = self._always or not (finite or self.cleared)
        self.evaluated &= not self.due

    def is_due(self, evaluating: bool) -> bool:
        return self.due and (self._always or not (evaluating and self.evaluated))

    @uncompiled
    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple = (), keywords: Optional[dict] = None) -> Any:
        keywords = keywords or {}
        if not isinstance(function, Operation):
            return function(*arguments, **keywords)  # which calls code of the script's
        reads = self._reads.get(function)
        if reads is None:
            reads = self._reads[function] = _reads_values(function)
        with plain_functions():  # the operation is for these very tensors
            if reads and self.lives():
                self._look_at((*arguments, *keywords.values()), function)
            return function(*arguments, **keywords)

    def _look_at(self, of: Any, function: Any) -> None:
        for one in of:
            if isinstance(one, Tensor):
                runtime = self._runtime()
                hole = None if runtime is None else runtime.params.holes.get(one.dtype)
                if hole is not None and runtime is not None and address_of(one) == hole.data_ptr():
                    those = [p.name for p in runtime.params if p.dtype is one.dtype]
                    self._refuse(function, those[min(one.storage_offset(), len(those) - 1)])
            elif type(one) in (list, tuple):
                self._look_at(one, function)

    def _refuse(self, function: Any, name: str) -> None:
        raise FailedPrecondition(
            f"{function} reads parameter {name} where it has no values, past what Castor serves, as code in C++ does: the result would be wrong. "
            "Do it inside the forward of the parameter's own module, hand the parameter to a function of torch's or to an autograd Function's apply, "
            "or put castor.gathered around it"
        )


def _reads_values(function: Any) -> bool:
    schema = function._schema
    is_view = any(made.alias_info is not None and not made.alias_info.is_write for made in schema.returns)
    return not is_view and schema.name not in _OF_SHAPE


class checked:
    """A context inside which the checks of these models that are due watch what is done."""

    def __init__(self, runtimes: Iterable[Owner]) -> None:
        self._checks: list[Check] = [runtime.forwards.check for runtime in runtimes if runtime.forwards.check.due]

    @raises_outside
    def __enter__(self) -> None:
        for check in self._checks:
            check.__enter__()

    @raises_outside
    def __exit__(self, *_: Any) -> None:
        for check in reversed(self._checks):
            check.__exit__(None, None, None)
