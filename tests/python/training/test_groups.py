# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Groups of parameters: what differs between them is obeyed for each, wherever states live."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from older_torch import needs_torch

MADE: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam with one group's decay apart": lambda groups: torch.optim.Adam(
        [{"params": groups[0], "decoupled_weight_decay": True}, {"params": groups[1]}], lr=1e-2, weight_decay=0.3),
    "adamw with one group's decay in the gradient": lambda groups: torch.optim.AdamW(
        [{"params": groups[0]}, {"params": groups[1], "decoupled_weight_decay": False}], lr=1e-2, weight_decay=0.3),
    "sgd with momentum in the first group": lambda groups: torch.optim.SGD(
        [{"params": groups[0]}, {"params": groups[1], "momentum": 0}], lr=1e-2, momentum=0.9),
    "sgd with momentum in the second group": lambda groups: torch.optim.SGD(
        [{"params": groups[0]}, {"params": groups[1], "momentum": 0.9}], lr=1e-2, weight_decay=0.1),
    "sgd with nesterov's in one group": lambda groups: torch.optim.SGD(
        [{"params": groups[0]}, {"params": groups[1], "momentum": 0}], lr=1e-2, momentum=0.9, nesterov=True),
}
DECAYS_APART = needs_torch("2.7", "groups of Adam have no decoupled_weight_decay")
WHERE: dict[str, dict[str, Any]] = {
    "on the device": {},
    "everywhere": {"device": "6KiB", "host": "16KiB", "chunk": "1KiB", "config": {"poison": True}},
}


def trained(make: Callable[[Any], torch.optim.Optimizer], budgets: Any, change: Callable[[Any, int], None]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer: Any = make([list(model[0].parameters()), list(model[2].parameters())])
    if budgets is not None:
        model, optimizer = castor.wrap(model, optimizer, **budgets)
    for step in range(6):
        change(optimizer, step)
        optimizer.zero_grad()
        model(torch.randn(4, 8, generator=torch.Generator().manual_seed(step))).pow(2).sum().backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", [pytest.param(name, marks=DECAYS_APART) if "decay" in name else name for name in MADE])
def test_each_group_is_updated_by_its_own_numbers(name: str, where: str, tmp_path: Path) -> None:
    def nothing(_optimizer: Any, _step: int) -> None:
        """Goes on as it began."""

    want, plain = trained(MADE[name], None, nothing)
    budgets = dict(WHERE[where], nvme=str(tmp_path)) if where == "everywhere" else WHERE[where]
    got, optimizer = trained(MADE[name], budgets, nothing)
    for mine, theirs in zip(got.parameters(), want.parameters()):
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=1e-6)
    states, theirs = optimizer.state_dict()["state"], plain.state_dict()["state"]
    for number, state in theirs.items():
        for word, value in state.items():
            if value is not None:
                torch.testing.assert_close(states[number][word], value, rtol=2e-5, atol=1e-6)


def test_momentum_may_end_and_begin_again() -> None:
    def change(optimizer: Any, step: int) -> None:
        optimizer.param_groups[0]["momentum"] = 0.0 if step in (2, 3) else 0.9

    def make(groups: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD([{"params": groups[0]}, {"params": groups[1]}], lr=1e-2, momentum=0.9)

    want, _ = trained(make, None, change)
    got, _ = trained(make, {}, change)
    for mine, theirs in zip(got.parameters(), want.parameters()):
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=1e-6)


def test_momentum_that_begins_where_no_moment_is_kept_is_refused() -> None:
    def change(optimizer: Any, step: int) -> None:
        optimizer.param_groups[0]["momentum"] = 0.9 if step == 2 else 0.0

    with pytest.raises(castor.InvalidArgument, match="a momentum of 0.9 needs a moment"):
        trained(lambda groups: torch.optim.SGD(groups[0] + groups[1], lr=1e-2), {}, change)
