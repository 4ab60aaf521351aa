# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""``card=`` without a batch: the model's forwards tell what the card is to hold, before anything of a forward runs.

Chunks have the whole card until the first forward with gradients on. On one rank, a later forward with larger arguments, at the
beginning of a step, has the card shared anew. What is chosen is chosen for a skeleton of the model, made before `castor.wrap` puts the parameters into chunks: the
same modules around parameters without memory.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor, nn

from castor.errors import InvalidArgument
from castor.torch._card._choice import CardChoice
from castor.torch._card._sharing import Shared, applied, choose_for, rates_for
from castor.torch._dry._fakes import tensors_of_batch


class _Applied(NamedTuple):
    choice: CardChoice
    on_host: int
    take_back: Callable[[], None]


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
        self._elements = -1  # of arguments, of the largest forward so far
        self._applied: Optional[_Applied] = None

    def __deepcopy__(self, memo: Any) -> FirstForward:
        return self  # a copy of the model is plain, and its forwards are nobody's first

    def watch(self, model: nn.Module, may: Callable[[], bool], then: Callable[[Shared], None]) -> None:
        """`may`: whether chunks can be placed once more. `then`: places them as shared, behind the choice and before the forward."""
        self._model, self._may, self._then = weakref.ref(model), may, then
        model.register_forward_pre_hook(self._before, prepend=True, with_kwargs=True)

    def _before(self, model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if model is not self._model() or not torch.is_grad_enabled():
            return
        elements = sum(tensor.numel() for tensor in tensors_of_batch((arguments, keywords)))
        if elements <= self._elements or (self._applied is not None and not self._may()):
            return
        modules = dict(model.named_modules())
        for name, module in self._skeleton.named_modules():
            if name in modules:
                module.training = modules[name].training
        choice, on_host = choose_for(self._skeleton, self._optimizer, self._card, _step, (arguments, keywords), self._device, self._dtype, self._told,
                                     self._rates)
        before = self._applied
        if before is not None:
            before.take_back()
        shared = applied(model, choice, on_host)
        try:
            self._then(shared)
        except BaseException:
            shared.take_back()
            if before is not None:
                self._applied = before._replace(take_back=applied(model, before.choice, before.on_host).take_back)
            raise
        self._applied, self._elements = _Applied(choice, on_host, shared.take_back), elements


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
