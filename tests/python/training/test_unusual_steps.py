# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Steps that are compiled as a whole, and inputs that are nested: losses and weights of the plain script at every budget."""

from __future__ import annotations

import copy
from typing import Any, Callable, Optional

import pytest
import torch
from torch import nn

import castor.torch as castor
from older_torch import needs_torch

BUDGETS: dict[str, dict[str, Any]] = {
    "resident": {"device": "64MiB", "host": "64MiB"}, "a third": {"device": "24KiB", "host": "64MiB"}, "nvme": {"device": "24KiB", "host": "64KiB"},
}


def made(budgets: Optional[dict[str, Any]]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 32))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return (model, optimizer) if budgets is None else castor.wrap(model, optimizer, chunk=4 << 10, **budgets)


def batch(step: int) -> torch.Tensor:
    return torch.randn(8, 32, generator=torch.Generator().manual_seed(step))


def nested(step: int) -> torch.Tensor:
    return torch.nested.nested_tensor([*batch(step).split([1, 4, 3])], layout=torch.jagged)


def a_step(model: Any, optimizer: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def of_nested(model: Any, optimizer: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).values().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


COMPILES = needs_torch("2.7", "frames are left uncompiled one by one, and Castor is not shown to work under torch.compile")
WAYS: dict[str, tuple[Callable[[Any, Any], Callable[[torch.Tensor], torch.Tensor]], Callable[[int], torch.Tensor]]] = {
    "a whole step compiled": (lambda *both: torch.compile(a_step(*both), backend="aot_eager"), batch),
    "nested inputs": (of_nested, nested),
}


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("way", [pytest.param(way, marks=COMPILES) if "compiled" in way else way for way in WAYS])
def test_steps_are_those_of_the_plain_script(way: str, budget: str, tmp_path: Any) -> None:
    make, inputs = WAYS[way]
    ends = []
    for budgets in (None, dict(BUDGETS[budget], **({"nvme": str(tmp_path)} if budget == "nvme" else {}))):
        torch._dynamo.reset()
        model, optimizer = made(budgets)
        step = a_step(model, optimizer) if budgets is None and way != "nested inputs" else make(model, optimizer)
        ends.append(([step(inputs(number)).item() for number in range(4)], {name: values.clone() for name, values in model.state_dict().items()}))
    (losses, weights), (ours, own) = ends
    assert ours == pytest.approx(losses, rel=1e-5)
    for name, values in weights.items():
        torch.testing.assert_close(own[name], values, rtol=1e-4, atol=1e-5)


@COMPILES
def test_one_graph_of_a_model_is_refused_with_what_works() -> None:
    torch._dynamo.reset()
    model, _ = made(BUDGETS["a third"])
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match=r"castor brings parameters to each module .*: leave fullgraph=True away, or compile a copy\.deepcopy of the model"):
        compiled(batch(0))
    plain = torch.compile(copy.deepcopy(model), backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(plain(batch(0)), model(batch(0)))
