# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Models that are built without memory for their parameters, and initialised into chunks, module by module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable, Optional

import torch
from torch import nn

from castor.errors import InvalidArgument
from castor.torch._parameters._leases import floats_at


@contextlib.contextmanager
def lazy_init() -> Iterator[None]:
    """Models built inside have parameters without values: a model larger than host memory can be built, and given to `castor.wrap`.

    `wrap` initialises one module at a time, by its ``reset_parameters`` and by the ``_init_weights`` of models of transformers. Values
    depend on torch's seed at `wrap` alone: they are equal over ranks, budgets and stages, and are not those of the plain model.
    """
    plain = nn.Module.register_parameter

    def register(module: nn.Module, name: str, parameter: Optional[nn.Parameter]) -> None:
        if isinstance(parameter, nn.Parameter) and parameter.device.type != "meta" and not nn.parameter.is_lazy(parameter):
            if name not in module._parameters or module._parameters[name] is not parameter:
                parameter = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
        plain(module, name, parameter)

    nn.Module.register_parameter = register  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = plain  # type: ignore[method-assign]


class LazyValues:
    """Initial values of parameters without any, made when they are asked for."""

    def __init__(self, root: nn.Module) -> None:
        self._init: Optional[Callable[[nn.Module], None]] = getattr(root, "_init_weights", None)
        self.seed = torch.initial_seed()
        self._numbers = {id(module): number for number, module in enumerate(root.modules())}
        self._names = {id(module): name for name, module in root.named_modules()}
        self._module: Optional[nn.Module] = None  # whose values these are
        self._values: dict[str, torch.Tensor] = {}

    def filler(self, module: nn.Module, name: str) -> Callable[[int, int, int], None]:
        def fill(begin: int, end: int, address: int) -> None:
            flat = self._values_of(module)[name].reshape(-1)
            floats_at(address, end - begin).copy_(flat[begin:end])

        return fill

    def _values_of(self, module: nn.Module) -> dict[str, torch.Tensor]:
        if self._module is module:
            return self._values
        self._module, self._values = None, {}
        kept = dict(module._parameters)
        made: dict[str, Any] = {
            name: p if p is None or not p.is_meta else nn.Parameter(torch.full(p.shape, float("nan"), dtype=p.dtype, device="cpu"), requires_grad=False)
            for name, p in kept.items()
        }
        module._parameters.update(made)
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.default_generator.manual_seed(self.seed + self._numbers[id(module)])  # torch.manual_seed is of GPUs too
                reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
                if reset is not None:
                    reset()
                if self._init is not None:
                    self._init(module)
        finally:
            module._parameters.update(kept)
        for name, values in made.items():
            if values is not None and bool(torch.isnan(values).any()):
                raise InvalidArgument(
                    f"{self._names[id(module)]}.{name} has no initial values: its module has no reset_parameters that sets it; build the "
                    "model outside castor.lazy_init, or give the module one"
                )
        self._module = module
        self._values = {name: p.detach() for name, p in made.items() if p is not None}
        return self._values
