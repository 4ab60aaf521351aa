# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Whose code updates the parameters of a model: the engine's own, or the optimizers'."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from castor.errors import InvalidArgument
from castor.torch._model import Owner
from castor.torch._optimizers._fused import Fused, fused_kind
from castor.torch._optimizers._program import Program
from castor.torch._optimizers._rule import Rule


def rule_for(optimizers: Sequence[torch.optim.Optimizer]) -> Rule:
    for one in optimizers:
        if not isinstance(one, torch.optim.Optimizer):
            raise InvalidArgument(f"the optimizer is {type(one).__name__}: give castor.wrap a torch.optim.Optimizer, or a list of them")
    if not optimizers:
        raise InvalidArgument("there is no optimizer: give castor.wrap one, or a list")
    kind = fused_kind(optimizers[0]) if len(optimizers) == 1 else None
    return Fused(optimizers[0], kind) if kind is not None else Program(optimizers)


def take_states(runtime: Owner, rule: Rule, optimizer: torch.optim.Optimizer) -> None:
    """What an optimizer keeps before its first step."""
    for tensor, state in optimizer.state.items():
        p = runtime.by_tensor.get(id(tensor))  # of a name, what the optimizer keeps of all together, there is none
        if p is not None and not p.frozen and state:
            rule.take_state(p, state, int(state.get("step", 0)))
    optimizer.state.clear()
