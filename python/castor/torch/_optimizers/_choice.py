# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Whose code updates the parameters of a model: the engine's own, or the optimizers'."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Union

import torch

from castor.errors import InvalidArgument
from castor.torch._model import Owner
from castor.torch._optimizers._facts import refuse_replaced_step
from castor.torch._optimizers._fused import Fused, fused_kind
from castor.torch._optimizers._program import Program
from castor.torch._optimizers._rule import Rule


def rule_for(optimizers: Sequence[torch.optim.Optimizer]) -> Rule:
    """Of optimizers that are about to train."""
    rule = _rule_of(optimizers)
    if isinstance(rule, Fused) and optimizers[0].state:
        raise InvalidArgument("the optimizer has made steps already: wrap it before, and load its state into the one that castor.wrap returns")
    return rule


def _rule_of(optimizers: Sequence[torch.optim.Optimizer]) -> Rule:
    for one in optimizers:
        if not isinstance(one, torch.optim.Optimizer):
            what = f"the class {one.__name__}" if isinstance(one, type) else type(one).__name__
            raise InvalidArgument(f"the optimizer is {what}: give castor.wrap a torch.optim.Optimizer, or a list of them")
        if getattr(one.step, "_castor_wrapped", False):
            raise InvalidArgument("the optimizer is wrapped already: give one of the same class that was not given to castor.wrap")
    if not optimizers:
        raise InvalidArgument("there is no optimizer: give castor.wrap one, or a list")
    kind = fused_kind(optimizers[0]) if len(optimizers) == 1 else None
    if kind is None:
        return Program(optimizers)
    refuse_replaced_step(optimizers[0])
    return Fused(optimizers[0].param_groups, kind)


def listed(optimizer: Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]) -> list[torch.optim.Optimizer]:
    """What is neither is listed, too: `rule_for` says what it is."""
    return list(optimizer) if isinstance(optimizer, Iterable) and not isinstance(optimizer, type) else [optimizer]


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
    rule = _rule_of(optimizers)
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
        p = runtime.params.by_tensor.get(id(tensor))  # of a name, what the optimizer keeps of all together, there is none
        if p is not None and not p.frozen and state:
            rule.take_state(p, state, int(state.get("step", 0)))
    optimizer.state.clear()
