# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What optimizers need beside chunks, and what plans say of them before there is a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from castor.torch._optimizers import _choice
from test_any_optimizer import Lion

O = torch.optim


class ThreeCopies(Lion):
    """Has three copies of a gradient at one time."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            m = self.state[p].setdefault("m", torch.zeros_like(p))
            one, two, three = p.grad * 0.1, p.grad * 0.2, p.grad * 0.3
            m.add_(one).add_(two).add_(three)
            p.sub_(m, alpha=1e-2)


def test_what_updates_take_beside_the_budgets_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = nn.Linear(600, 500)
    count = sum(p.numel() for p in whole.parameters())

    def of(optimizer: Any) -> Any:
        return castor.plan(whole, optimizer=optimizer, host_budget="64MiB").update_bytes

    assert of(O.AdamW(whole.parameters())) == 0
    taken = min(count, 1 << 18)  # elements of a call
    assert of(ThreeCopies(whole.parameters())) == 4 * taken * (3 + 1)  # and a gradient in float32
    few = of(O.NAdam(whole.parameters(), foreach=False))
    assert 4 * taken <= few < 4 * taken * 10
    odd = of(O.Adafactor(whole.parameters(), lr=1e-2))  # looks at values, and keeps a row and a column of a matrix
    assert 4 * count + 2 * 4 * (600 + 500) <= odd < 4 * count * 10
    if hasattr(O, "Muon"):
        both = [O.Muon([whole.weight]), O.AdamW([whole.bias])]
        alone = of(both)
        assert alone > 4 * whole.weight.numel() + 2 * 500 * 500  # in bfloat16, a product of the matrix by itself
        assert f"beside them {castor.format_size(alone)} for updates" in repr(castor.plan(whole, optimizer=both))
    model, optimizer = castor.wrap(whole, O.NAdam(whole.parameters(), foreach=False))
    on_host = f"in host memory beside the budgets: {castor.format_size(few)}"
    assert model.memory_summary().endswith(on_host)
    monkeypatch.setattr(model._castor.device, "follow", lambda: None)  # as a GPU has it, whose updates take more at once
    on_gpu = optimizer.rule.device_update_bytes
    assert count / taken * few * 0.99 <= on_gpu <= count / taken * few * 1.01
    assert model.memory_summary().endswith(f"{on_host}; in the GPU's, of states on it: {castor.format_size(on_gpu)}")


@pytest.mark.parametrize("shape", [(8192, 8192), (128000, 4096), (64, 2048, 2048), (300, 200)])
def test_states_that_are_not_of_a_parameters_shape_are_counted_as_they_will_be(shape: tuple[int, ...]) -> None:
    p = nn.Parameter(torch.empty(shape, device="meta"))
    rows_and_columns = math.prod(shape[:-2]) * (shape[-2] + shape[-1])
    assert _choice.rule_for([O.Adafactor([p], lr=1e-3)]).other_bytes == 4 * rows_and_columns


class Squares(Lion):
    """Of a matrix larger than those that are tried in memory: a square of each side, all of it flat, and a history of one length."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            state = self.state[p]
            bool(p.grad.abs().sum() > 0)  # by values
            for name, size in (("left", (p.shape[0],) * 2), ("right", (p.shape[-1],) * 2), ("flat", (p.numel(),)), ("history", (11,))):
                state.setdefault(name, torch.zeros(size))
            p.sub_(p.grad, alpha=1e-2)


def test_states_of_other_sizes_grow_with_what_they_are_of() -> None:
    p = nn.Parameter(torch.empty(2048, 4096, device="meta"))
    of_its_own = 11 * 4  # which no dimension explains: as if it grew with the elements
    assert _choice.rule_for([Squares([p])]).other_bytes == 4 * (2048**2 + 4096**2 + 2048 * 4096 + of_its_own)


def layers() -> nn.Module:
    return nn.Sequential(*(nn.Linear(128, 128) if number % 2 == 0 else nn.GELU() for number in range(8)))


def muon_and_adamw(model: nn.Module) -> list[torch.optim.Optimizer]:
    return [O.Muon([p for p in model.parameters() if p.dim() == 2], lr=1e-3), O.AdamW([p for p in model.parameters() if p.dim() != 2], lr=1e-3)]


PLANNED: list[tuple[str, Callable[[nn.Module], Any]]] = [
    ("device", lambda model: O.NAdam(model.parameters(), lr=1e-3)),
    ("device", lambda model: O.SGD(model.parameters(), lr=1e-3, momentum=0.9)),
    ("host", lambda model: O.Adafactor(model.parameters(), lr=1e-3)),  # with states beside chunks
]
if hasattr(O, "Muon"):
    PLANNED.append(("device", muon_and_adamw))


@pytest.mark.parametrize(("tier", "make"), PLANNED)
def test_plan_and_wrap_ask_for_the_same(tier: str, make: Callable[[nn.Module], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.device("meta"):
        model = layers()
    told = _choice.asked_of(model, make(model))
    assert told.flags["other_states"] == (4 * 4 * (128 + 128) if tier == "host" else None)  # a row and a column of each matrix
    monkeypatch.setattr(_choice, "asked_of", lambda *_: told)  # which takes longer than a plan
    budgets = {"device": 200 << 10, "host": 64 << 20} if tier == "host" else {"host": 64 << 20}
    refused, least = 0, 8 << 20
    while least - refused > 1024:
        budgets[tier] = (refused + least) // 2
        given = {f"{name}_budget": size for name, size in budgets.items()}
        if castor.plan(model, optimizer=make(model), chunk=32 << 10, **given).fits:
            least = budgets[tier]
        else:
            refused = budgets[tier]
    monkeypatch.undo()
    whole = layers()
    wrapped, optimizer = castor.wrap(whole, make(whole), chunk=32 << 10, **budgets | {tier: least})  # type: ignore[arg-type]
    for _ in range(3):
        wrapped(torch.randn(4, 128)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    whole = layers()
    with pytest.raises(castor.DoesNotFit):
        castor.wrap(whole, make(whole), chunk=32 << 10, **budgets | {tier: least - (32 << 10)})  # type: ignore[arg-type]


def test_a_plan_has_the_states_of_the_optimizers_by_name() -> None:
    model = layers()
    count = {dims: sum(p.numel() for p in model.parameters() if p.dim() == dims) for dims in (1, 2)}

    def states(optimizer: Any) -> dict[str, int]:
        plan = castor.plan(model, optimizer=optimizer, chunk=64 << 10)
        classes = plan.document["tiers"][0]["classes"]
        names = [name.removesuffix("_bytes") for name in classes]
        return {name: classes[f"{name}_bytes"] for name in names[names.index("master") + 1 : names.index("rounding")]}

    assert list(states(O.NAdam(model.parameters()))) == ["exp_avg", "exp_avg_sq"]
    assert list(states(O.SGD(model.parameters()))) == []
    assert list(states(O.SGD(model.parameters(), momentum=0.9))) == ["momentum_buffer"]
    if hasattr(O, "Muon"):
        both = states(muon_and_adamw(model))
        assert list(both) == ["momentum_buffer_or_exp_avg", "exp_avg_sq"]
        assert both["momentum_buffer_or_exp_avg"] >= 4 * (count[1] + count[2])
        assert 4 * count[1] <= both["exp_avg_sq"] < 4 * count[2]
    weights = [p for p in model.parameters() if p.dim() == 2]
    assert 4 * count[2] <= states(O.NAdam(weights))["exp_avg"] < 4 * (count[1] + count[2]) + (64 << 10)  # biases are not trained
    with pytest.raises(castor.InvalidArgument, match="parameters that are not the model's"):
        castor.plan(model, optimizer=O.NAdam(layers().parameters()))
    with pytest.raises(castor.InvalidArgument, match="the optimizer is the class NAdam: give castor.wrap"):
        castor.plan(model, optimizer=O.NAdam)
    with pytest.raises(castor.InvalidArgument, match="the optimizer is the class NAdam: give castor.wrap"):
        castor.wrap(model, O.NAdam)  # type: ignore[arg-type]
    with pytest.raises(castor.InvalidArgument, match="known of a torch module's parameters"):
        castor.plan([("w", (4, 4), "F32")], optimizer=O.NAdam(weights))


@pytest.mark.parametrize("kind", [O.AdamW, O.NAdam])
def test_a_plan_takes_an_optimizer_that_has_made_steps_and_none_that_is_wrapped(kind: Any) -> None:
    model = layers()
    fresh = castor.plan(model, optimizer=kind(model.parameters()))
    began = kind(model.parameters())
    model(torch.randn(4, 128)).pow(2).mean().backward()
    began.step()
    assert castor.plan(model, optimizer=began).tiers == fresh.tiers
    given = kind(model.parameters())
    wrapped, optimizer = castor.wrap(model, given)
    for one in (given, optimizer):
        with pytest.raises(castor.InvalidArgument, match="the optimizer is wrapped already"):
            castor.plan(wrapped, optimizer=one)


@pytest.mark.skipif(not hasattr(O, "Muon"), reason="torch has it from 2.9 on")
def test_the_page_says_what_a_step_moves_for_muon_and_adamw() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pytorch.md").read_text()
    code = page.split("<!-- tested -->\n```python\n")[1].split("```")[0]
    said = StringIO()
    with redirect_stdout(said):
        exec(code, {"torch": torch, "castor": castor})
    assert said.getvalue().splitlines() == [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
