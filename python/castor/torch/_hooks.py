# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The hooks around the forward of a module of a wrapped model, which find and end the uses of its parameters."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn

from castor.errors import FailedPrecondition
from castor.torch._autograd._compile import refuse_cuda_graphs, uncompiled
from castor.torch._model import Owner, Unit

_inside_transform: Any = torch._C._functorch.peek_interpreter_stack


class ModuleHooks:
    """Those of one module. A copy of the module is plain, and its hooks do nothing."""

    __slots__ = ("_entered", "_on_gpu", "_runtime", "_unit")

    def __init__(self, runtime: Optional[Owner], unit: Optional[Unit]) -> None:
        """`unit`: parameters that the module needs, its own as a rule. No runtime: of a copy."""
        self._runtime = runtime
        self._unit = unit
        self._entered = 0
        self._on_gpu = runtime is not None and runtime.device.follow is not None

    def add_to(self, module: nn.Module) -> None:
        module.register_forward_pre_hook(self.before, prepend=True)
        module.register_forward_hook(self.after, always_call=True)

    @uncompiled
    def before(self, _module: nn.Module, _arguments: Any) -> None:
        runtime, unit = self._runtime, self._unit
        if runtime is None:
            return
        if runtime.depth and unit is not None and unit.kept and runtime.keeps and not runtime.values.unsettled and _inside_transform() is None:
            # As below, for a module inside another: most calls are of these.
            runtime.activate_kept(unit, not runtime.backward and not runtime.evaluating)
            if runtime.backward:
                runtime.runs_again(unit)
            runtime.depth += 1
            self._entered += 1
            return
        if self._on_gpu:
            refuse_cuda_graphs()
        runtime.enter()
        try:
            if unit is not None:
                runtime.activate(unit, not runtime.backward and not runtime.evaluating)
                if runtime.backward:
                    runtime.runs_again(unit)
        except BaseException:
            runtime.leave(None)
            raise
        self._entered += 1

    @uncompiled
    def after(self, _module: nn.Module, _arguments: Any, result: Any) -> None:
        if self._entered == 0:
            return  # it never began
        runtime, unit = self._runtime, self._unit
        assert runtime is not None
        self._entered -= 1
        if runtime.depth > 1 and unit is not None and unit.kept:
            runtime.deactivate(unit, own=True)
            runtime.depth -= 1
            return
        if unit is not None:
            runtime.deactivate(unit, own=True)
            if unit.block and torch.is_grad_enabled():
                runtime.blocks.watch(unit, [*tensors_in(result)])
        runtime.leave(result)

    def __deepcopy__(self, memo: Any) -> ModuleHooks:
        return ModuleHooks(None, None)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Pickled copies of modules name this file: it keeps its place.
        if self._runtime is None:
            return ModuleHooks, (None, None)
        raise FailedPrecondition("the model's parameters are in chunks, so it cannot be pickled: save model.state_dict(), or call castor.save")


def without_hooks(copy: nn.Module) -> None:
    """Of a copy of a whole model, which has nothing of Castor's then."""
    for module in copy.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for number in [number for number, hook in hooks.items() if isinstance(getattr(hook, "__self__", None), ModuleHooks)]:
                del hooks[number]
                module._forward_hooks_always_called.pop(number, None)


def tensors_in(of: Any) -> Any:
    """The tensors in a model's output."""
    if isinstance(of, torch.Tensor):
        yield of
    elif isinstance(of, dict):
        for one in of.values():
            yield from tensors_in(one)
    elif isinstance(of, (list, tuple)):
        for one in of:
            yield from tensors_in(one)
    elif hasattr(of, "__dataclass_fields__"):
        for name in of.__dataclass_fields__:
            yield from tensors_in(getattr(of, name))
