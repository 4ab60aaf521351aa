# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Whose code updates the parameters of a model: the engine's own, or the optimizers'."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Union

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


def listed(optimizer: Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]) -> list[torch.optim.Optimizer]:
    return [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)


def refuse_strangers(groups: Sequence[dict[str, Any]], known: Collection[int]) -> None:
    """`known`: ids of the model's parameters."""
    strange = [t for group in groups for t in group["params"] if id(t) not in known]
    if strange:
        raise InvalidArgument(f"the optimizer has {len(strange)} parameters that are not the model's (shape {tuple(strange[0].shape)}): give one of this model's")


class Asked(NamedTuple):
    """What `castor plan` has to know of optimizers."""

    flags: dict[str, Any]
    updates: dict[int, str]  # by the id of each trained parameter, the fourth field of its line
    update_bytes: int  # as Rule has it


def asked_of(model: torch.nn.Module, optimizer: Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]) -> Asked:
    """By the rule that `castor.wrap` updates with."""
    optimizers = listed(optimizer)
    rule = rule_for(optimizers)
    groups = [group for one in optimizers for group in one.param_groups]
    refuse_strangers(groups, {id(p) for p in model.parameters()})
    config = rule.config()
    flags = {"optimizer": config["kind"], "momentum": config.get("momentum") or None, "state": [one["name"] for one in config.get("states", [])],
             "other_states": rule.other_bytes or None}
    updates = {}
    for told, group in zip(rule.groups(), groups):
        words = (["whole"] if told.get("span") == "parameter" else []) + ([f"states={told['states']}"] if "states" in told else [])
        updates.update({id(p): ",".join(words) for p in group["params"] if p.requires_grad})
    return Asked(flags, updates, rule.update_bytes)


def take_states(runtime: Owner, rule: Rule, optimizer: torch.optim.Optimizer) -> None:
    """What an optimizer keeps before its first step."""
    for tensor, state in optimizer.state.items():
        p = runtime.by_tensor.get(id(tensor))  # of a name, what the optimizer keeps of all together, there is none
        if p is not None and not p.frozen and state:
            rule.take_state(p, state, int(state.get("step", 0)))
    optimizer.state.clear()
