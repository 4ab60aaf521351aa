# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The hooks around the forward of a module of a wrapped model, which find and end the uses of its parameters."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import nn

from castor._interrupts import whole
from castor.errors import FailedPrecondition
from castor.torch._autograd._alone import WATCHERS
from castor.torch._autograd._compile import refuse_cuda_graphs, uncompiled
from castor.torch._model import Owner, Param, Unit
from castor.torch._torch_internals import COMPILER, fake_tensor
from castor.torch._turn import levels_to


class Place(NamedTuple):
    """Where a module keeps a parameter: a key of its ``_parameters``, or an index of a list such as a recurrent module's ``_flat_weights``."""

    at: Any
    key: Any
    param: Param


def places_in(modules: Iterable[nn.Module], of: dict[int, Param]) -> list[Place]:
    """`of`: parameters by the ids of their tensors."""
    found = []
    for module in modules:
        # A recurrent module computes with its list alone, and makes that anew where its parameters are others.
        own = () if isinstance(module, nn.RNNBase) else (module._parameters,)
        for at in (*own, *(value for value in vars(module).values() if type(value) is list)):
            for key, tensor in at.items() if isinstance(at, dict) else enumerate(at):
                if isinstance(tensor, nn.Parameter) and id(tensor) in of:
                    found.append(Place(at, key, of[id(tensor)]))
    return found


class ModuleHooks:
    """Those of one module. A copy of the module is plain, and its hooks do nothing."""

    __slots__ = ("_entered", "_handles", "_levels", "_module", "_on_gpu", "_places", "_runtime", "_unit")

    def __init__(self, runtime: Optional[Owner], unit: Optional[Unit], places: Sequence[Place] = ()) -> None:
        """`unit`: parameters that the module needs, its own as a rule. `places`: where a forward finds them. No runtime: of a copy."""
        self._runtime = runtime
        self._unit = unit
        self._places = places
        self._module: Any = None  # a weak reference
        self._handles: list[Any] = []
        self._entered = 0
        self._levels = 1  # calls from the outermost module's, in the last use
        self._on_gpu = runtime is not None and runtime.device.follow is not None

    def add_to(self, module: nn.Module) -> None:
        self._module = weakref.ref(module)
        self.add()

    def add(self) -> None:
        """Again, to the same module."""
        module = self._module()
        if module is not None:
            self._handles = [module.register_forward_pre_hook(self.before, prepend=True), module.register_forward_hook(self.after, always_call=True)]

    def remove(self) -> None:
        """Until `add`."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @whole
    @uncompiled
    def before(self, _module: nn.Module, _arguments: Any) -> None:
        runtime, unit = self._runtime, self._unit
        if runtime is None:
            return
        forwards, staying = runtime.forwards, runtime.residents.active
        # An exception may have ended the forward under way without a word to hooks. Levels are as a rule those of the module's last use.
        inside = False
        if forwards.under_way:
            held = forwards.turn.frame
            try:
                inside = sys._getframe(self._levels) is held
            except ValueError:
                pass
            if not inside:
                self._levels = levels_to(held)
                inside = self._levels > 0 or forwards.is_inside()
        if self._on_gpu and COMPILER in sys.modules:
            refuse_cuda_graphs()
        if inside and not staying and not runtime.values.unsettled:
            forwards.under_way.append(self)  # as `enter` does for most calls
        else:
            forwards.enter(self, sys._getframe(1), inside)
        if unit is not None and not staying:
            backward = runtime.backwards.under_way
            try:
                runtime.uses.begin(unit, not backward and not forwards.evaluating)
                self._show()
                if backward:
                    runtime.gradients.run_again(unit)
            except BaseException:
                self._hide()
                forwards.leave(None)
                raise
        self._entered += 1

    @whole
    @uncompiled
    def after(self, _module: nn.Module, _arguments: Any, result: Any) -> None:
        if self._entered == 0:
            return  # it never began
        runtime, unit = self._runtime, self._unit
        assert runtime is not None
        self._entered -= 1
        forwards = runtime.forwards
        if unit is not None and not runtime.residents.active:
            try:
                if self._entered == 0:
                    self._hide()
                runtime.uses.end(unit, own=True)
                if unit.block and torch.is_grad_enabled():
                    runtime.gradients.blocks.watch(unit, [*tensors_in(result)])
            except BaseException:
                forwards.leave(None)
                raise
        if len(forwards.under_way) > 1:
            forwards.under_way.pop()
        else:
            forwards.leave(result)

    def _show(self) -> None:
        """The module finds aliases where its parameters were, unless a script has put others there, as functional_call does."""
        for at, key, p in self._places:
            try:
                if at[key] is p.tensor:
                    at[key] = p.alias
            except LookupError:  # a script has taken it away
                continue

    def _hide(self) -> None:
        for at, key, p in self._places:
            try:
                if at[key] is p.alias:
                    at[key] = p.tensor
            except LookupError:
                continue

    def reset(self) -> None:
        """The forward is over."""
        self._entered = 0
        for at, key, p in self._places:
            if getattr(at[key], "_castor", None) is p:
                at[key] = p.tensor

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


def address_of(tensor: torch.Tensor) -> int:
    """Of its storage; 0 of a tensor that has none, as a sparse one, a fake one or one of a transform."""
    if isinstance(tensor, fake_tensor):
        return 0
    try:
        return tensor.untyped_storage().data_ptr() if tensor.numel() else 0
    except (NotImplementedError, RuntimeError):
        return 0


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
