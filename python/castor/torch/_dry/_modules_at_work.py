# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Which module computes: by its forward while that runs, and in a backward by the forward that made the node."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from castor.torch._dry._memory import OUTSIDE
from castor.torch._torch_internals import current_node, graph_task, sequence_number


class _Forward(NamedTuple):
    """A forward under way."""

    module: nn.Module
    name: str
    task: int  # the backward that computes the forward again; -1: none


class ModulesAtWork:
    """Follows one model's forwards. Owner thread only: backwards compute on the thread of the forward."""

    def __init__(self, model: nn.Module, on_output: Callable[[Any], None]) -> None:
        """`on_output` is called with what each forward of the model itself returns."""
        self._stack: list[_Forward] = []
        self._last = OUTSIDE
        # From each of the sequence numbers on, autograd's nodes are of the module beside it. Numbers only grow on a thread.
        self._numbers: list[int] = [0]
        self._names: list[str] = [OUTSIDE]
        self._owners: dict[int, str] = {}
        self._handles: list[Any] = []
        self._on_output = on_output
        for name, module in model.named_modules():
            for parameter in module._parameters.values():
                self._owners.setdefault(id(parameter), name)
            self._handles.append(module.register_forward_pre_hook(self._begins(name), prepend=True))
            # Without exceptions being seen, a recomputation that checkpointing stops early would leave its modules at work.
            self._handles.append(module.register_forward_hook(self._ends(module is model), always_call=True))

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _begins(self, name: str) -> Callable[..., None]:
        def begin(module: nn.Module, inputs: Any) -> None:
            self._stack.append(_Forward(module, name, graph_task()))
            self._part()

        return begin

    def _ends(self, outermost: bool) -> Callable[..., None]:
        def end(module: nn.Module, inputs: Any, output: Any) -> None:
            if any(forward.module is module for forward in self._stack):
                while self._stack.pop().module is not module:
                    pass
            self._part()
            if outermost and graph_task() == -1:
                self._on_output(output)

        return end

    def _part(self) -> None:
        self._numbers.append(sequence_number())
        self._names.append(self._stack[-1].name if self._stack else OUTSIDE)

    def now(self) -> str:
        """The module whose operator comes now."""
        task = graph_task()
        if self._stack and self._stack[-1].task == task:
            self._last = self._stack[-1].name
        elif task == -1:
            self._last = OUTSIDE
        else:
            node = current_node()
            if node is not None:  # autograd adds gradients up outside of nodes, for the node that comes next
                self._last = self._of(node)
        return self._last

    def _of(self, node: Any) -> str:
        parameter = getattr(node, "variable", None)
        if parameter is not None:
            return self._owners.get(id(parameter), OUTSIDE)
        return self._names[bisect.bisect_right(self._numbers, node._sequence_nr()) - 1]
