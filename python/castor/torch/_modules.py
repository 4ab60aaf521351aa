# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The modules of a wrapped model, with what Castor has at each."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torch import nn

from castor.torch._hooks import ModuleHooks, places_in
from castor.torch._model import Owner, Unit
from castor.torch._parameters._guards import Replacements
from castor.torch._parameters._ignored import Ignored


class Modules:
    """Those of one model, which nothing here keeps alive."""

    def __init__(self, model: nn.Module, runtime: Owner, units: Sequence[Any], ignore: Sequence[nn.Module]) -> None:
        """`units`: modules, or their classes, whose parameters come and go together. `ignore`: modules that are left alone."""
        left_alone = {id(m) for module in ignore for m in module.modules()}
        params = runtime.params
        self.model = weakref.ref(model)
        self.replacements = Replacements(model, params.by_tensor, left_alone)
        self.ignored = Ignored(model, params.by_tensor, [p.tensor for p in params if p.frozen], runtime.engine.world.size)
        self.hooks: list[ModuleHooks] = []  # the model's own first
        self._hook(model, runtime, units, left_alone)

    def _hook(self, model: nn.Module, runtime: Owner, units: Sequence[Any], left_alone: set[int]) -> None:
        classes = tuple(u for u in units if isinstance(u, type))
        chosen = {id(u) for u in units if not isinstance(u, type)}
        by_tensor = runtime.params.by_tensor
        inside: set[int] = set()
        for module in model.modules():
            if id(module) in inside or id(module) in left_alone:
                continue
            whole = id(module) in chosen or (classes and isinstance(module, classes))
            if whole:
                inside.update(id(m) for m in module.modules())
            own = {id(t): by_tensor[id(t)] for t in module.parameters(recurse=bool(whole)) if id(t) in by_tensor}
            if own or module is model:
                unit = Unit(tuple(own.values()), block=bool(whole) and runtime.engine.several) if own else None
                hooks = ModuleHooks(runtime, unit, places_in(module.modules() if whole else (module,), by_tensor))
                hooks.add_to(module)
                self.hooks.append(hooks)
                if unit is not None and unit.block:
                    for p in unit.params:
                        p.block = unit

    @property
    def inner_hooks(self) -> list[ModuleHooks]:
        """But those of the model itself."""
        return self.hooks[1:]
