# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Aliases of parameters in a dry step, as modules of a wrapped model have them.

A module's aliases are made before its forward, so autograd reaches their nodes, and with these the gradients, behind all other nodes of the module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from castor.torch._torch_internals import plain_functions, same_memory, views_unnoted


def _alias_of(parameter: Tensor) -> Tensor:
    with plain_functions(), views_unnoted()():
        alias: Tensor = same_memory(parameter)
    alias._is_param = True  # type: ignore[attr-defined]
    return alias


@contextlib.contextmanager
def aliased(model: nn.Module) -> Iterator[None]:
    """Inside, each forward of a module computes with aliases of the module's own trained parameters. Recurrent modules keep lists of theirs, and keep them."""
    handles: list[Any] = []
    try:
        for module in model.modules():
            if not isinstance(module, nn.RNNBase) and any(p is not None and p.requires_grad for p in module._parameters.values()):
                uses = _Uses()
                handles.append(module.register_forward_pre_hook(uses.begin))
                handles.append(module.register_forward_hook(uses.end, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Uses:
    """Those of one module. A forward inside the module's own forward has the same aliases."""

    def __init__(self) -> None:
        self._before: list[dict[str, Any]] = []

    def begin(self, module: nn.Module, _arguments: Any) -> None:
        self._before.append(dict(module._parameters))
        if len(self._before) == 1:
            for name, parameter in self._before[0].items():
                if parameter is not None and parameter.requires_grad:
                    module._parameters[name] = _alias_of(parameter)  # type: ignore[assignment]

    def end(self, module: nn.Module, _arguments: Any, _result: Any) -> None:
        if self._before:
            module._parameters.update(self._before.pop())
