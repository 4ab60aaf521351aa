# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""``card=`` without a batch: the first training forward of the model tells what the card is to hold, before anything of the forward runs.

Chunks have the whole card until then. What is chosen is chosen for a skeleton of the model, made before `castor.wrap` puts the parameters into chunks: the
same modules around parameters without memory.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn

from castor.errors import InvalidArgument
from castor.torch._card._sharing import Shared, applied, choose_for, rates_for


class FirstForward:
    """Of one wrapped model."""

    def __init__(self, model: nn.Module, optimizer: Any, card: Union[int, str], device: torch.device, dtype: Optional[torch.dtype], told: Mapping[str, Any]) -> None:
        """Arguments as for `choose_for`. The model is not wrapped yet.

        Raises:
          InvalidArgument: the model cannot be copied without its parameters.
        """
        self._card, self._device, self._dtype = card, device, dtype
        self._rates = rates_for(model, device, dtype)
        memo: dict[int, Any] = {id(p): _without_memory(name, p) for name, p in model.named_parameters()}
        memo.update((id(buffer), buffer) for buffer in model.buffers())
        try:
            self._skeleton, self._optimizer = copy.deepcopy((model, optimizer), memo)
        except (TypeError, RuntimeError, AttributeError) as error:
            raise InvalidArgument(f"card= without batch= copies the model without its parameters, which fails here ({error}): give castor.wrap batch= as well, and "
                                  "step= for the loss") from error
        self._told = {**told, "units": [unit if isinstance(unit, type) else memo[id(unit)] for unit in told["units"]]}
        self._model: weakref.ref[nn.Module]
        self._hook: Any = None

    def __deepcopy__(self, memo: Any) -> FirstForward:
        return self  # a copy of the model is plain, and its forwards are nobody's first

    def await_in(self, model: nn.Module, then: Callable[[Shared], None]) -> None:
        """`then`: takes what the card holds, behind the choice and before the forward."""
        self._model, self._then = weakref.ref(model), then
        self._hook = model.register_forward_pre_hook(self._before, prepend=True, with_kwargs=True)

    def _before(self, model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if model is not self._model() or not torch.is_grad_enabled():
            return
        modules = dict(model.named_modules())
        for name, module in self._skeleton.named_modules():
            if name in modules:
                module.training = modules[name].training
        shared = applied(model, *choose_for(self._skeleton, self._optimizer, self._card, _step, (arguments, keywords), self._device, self._dtype, self._told,
                                            self._rates))
        try:
            self._then(shared)
        except BaseException:
            shared.take_back()
            raise
        self._hook.remove()


def _without_memory(name: str, parameter: nn.Parameter) -> nn.Parameter:
    if type(parameter) is not nn.Parameter:
        raise InvalidArgument(f"card= without batch= copies the model without its parameters, and {name} is a {type(parameter).__name__}: give castor.wrap batch= "
                              "as well, and step= for the loss")
    return nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=parameter.requires_grad)


def _step(model: Any, batch: Any) -> Tensor:
    """A model's own loss; where it has none, what a cross-entropy over the last dimension of the first floating output takes."""
    arguments, keywords = batch
    result = model(*arguments, **keywords)
    loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
    if isinstance(loss, Tensor):
        return loss
    for output in _tensors(result):
        if output.is_floating_point() and output.requires_grad:
            return output.float().log_softmax(-1).mean() if output.dim() else output
    raise InvalidArgument(f"card= without batch= needs an output that a loss can be made of, and the model returned {type(result).__name__} without one: give "
                          "castor.wrap batch= as well, and step= for the loss")


def _tensors(result: Any) -> Any:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from _tensors(value)
    elif isinstance(result, (list, tuple)):
        for value in result:
            yield from _tensors(value)
