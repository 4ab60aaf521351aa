# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What a script may not do to parameters and gradients that are in chunks, because the result would be silently wrong.

Each refusal names the parameter and what to do instead.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, NoReturn, Optional

import torch
from torch import nn

from castor.errors import FailedPrecondition
from castor.torch._model import Param


def refuse_grad_scaler() -> NoReturn:
    raise FailedPrecondition(
        "GradScaler cannot scale gradients that are in chunks: leave it away, give castor.wrap an initial_scale, and call "
        "optimizer.backward(loss) or optimizer.scale(loss).backward()"
    )


def refuse_torchscript() -> NoReturn:
    raise FailedPrecondition(
        "TorchScript and the ONNX exporter without dynamo keep parameters where they are now, and the next use has others there: give them copy.deepcopy(model)"
    )


def _set_requires_grad(p: Param, value: bool = True) -> None:
    if value and p.frozen:
        p.runtime.optimizer.thaw()


# What Castor does at calls of torch's, with the arguments behind the parameter.
GUARDS: dict[Any, Callable[..., None]] = {
    torch.Tensor.requires_grad.__set__: _set_requires_grad,  # type: ignore[attr-defined]
    torch.Tensor.requires_grad_: _set_requires_grad,
}


class _NoDistributedDataParallel(list):
    """Where DistributedDataParallel looks first."""

    def __iter__(self) -> Any:
        raise FailedPrecondition(
            "the model is wrapped by Castor, which averages gradients over ranks: leave DistributedDataParallel away"
        )


def guard_model(model: nn.Module) -> None:
    """Refuses wrappers that would take the placeholders for weights."""
    model._ddp_params_and_buffers_to_ignore = _NoDistributedDataParallel()  # type: ignore[assignment]


def guard_optimizer(inner: torch.optim.Optimizer) -> None:
    """Refuses steps of the optimizer that was given to wrap: it has no gradients any more."""

    def step(*_: Any, **__: Any) -> NoReturn:
        raise FailedPrecondition("this optimizer was given to castor.wrap: call step() of the one that castor.wrap returned")

    step._castor_wrapped = True  # type: ignore[attr-defined]
    inner.step = step  # type: ignore[method-assign]


# Modules of wrapped models, and where what a script puts into each is noted: its module, and its name there.
_Notes = list[tuple["weakref.ref[nn.Module]", str]]
_wrapped: weakref.WeakKeyDictionary[nn.Module, _Notes] = weakref.WeakKeyDictionary()


def _note_addition(module: nn.Module, name: str, added: Any) -> None:
    notes = _wrapped.get(module)
    if notes is not None and added is not None and name not in module._parameters:
        notes.append((weakref.ref(module), name))


def _is_strange(added: Any) -> bool:
    """Whether it has parameters to train that are in no chunk."""
    parameters = [added] if isinstance(added, nn.Parameter) else added.parameters()
    return any(p.requires_grad and getattr(p, "_castor", None) is None for p in parameters)


@functools.cache
def _watch_additions() -> None:
    nn.modules.module.register_module_module_registration_hook(_note_addition)
    nn.modules.module.register_module_parameter_registration_hook(_note_addition)


class Replacements:
    """Finds parameters of modules that were replaced by others after wrap, and such that came after it."""

    def __init__(self, model: nn.Module, of: dict[int, Param], ignored: set[int]) -> None:
        """`ignored`: ids of modules that are left alone."""
        self._model = weakref.ref(model)
        self.added: _Notes = []
        _watch_additions()
        for module in model.modules():
            if id(module) not in ignored:
                _wrapped[module] = self.added
        self._places = [
            (module._parameters, name, tensor, of[id(tensor)].name)
            for module in model.modules()
            for name, tensor in module._parameters.items()
            if id(tensor) in of
        ]

    def _path(self, parent: Optional[nn.Module], name: str) -> str:
        model = self._model()
        paths = (path for path, module in model.named_modules() if module is parent) if model is not None else ()
        path = next(iter(paths), "")
        return f"{path}.{name}" if path else name

    def check(self) -> None:
        """FailedPrecondition names the first."""
        if self.added:
            notes, self.added[:] = list(self.added), []
            for module, name in notes:
                parent = module()
                added = None if parent is None else parent._modules.get(name, parent._parameters.get(name))
                if added is not None and _is_strange(added):
                    self.added[:] = notes  # for the next forward
                    raise FailedPrecondition(
                        f"{self._path(parent, name)} was added to the model, or put in another's place, after castor.wrap, and Castor does not train it: do so "
                        "before, or give castor.wrap ignore=[...] with its parent and train it by an optimizer of its own"
                    )
        for parameters, key, tensor, name in self._places:
            now = parameters.get(key)
            if now is not tensor and now is not None and getattr(now, "_castor", None) is tensor._castor:
                parameters[key] = tensor  # for its alias, which an interrupt has left there
            elif now is not tensor and now is not None:
                raise FailedPrecondition(
                    f"parameter {name} was replaced by another after castor.wrap, which nothing trains: write its values inside "
                    "castor.gathered([...], write=True), or replace it before castor.wrap"
                )
