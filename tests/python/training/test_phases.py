# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A model is in one phase at a time, and a call that cannot come in a phase is refused by its words and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from castor.torch._steps import Phase

BUDGETS: dict[str, dict[str, Any]] = {"resident": {}, "moving": {"place": {"*": "host"}}}


def made(budgets: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.1), **BUDGETS[budgets])


def trained(model: Any, optimizer: Any) -> list[torch.Tensor]:
    for _ in range(2):
        model(torch.ones(3, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [castor.exact(p) for p in model.parameters()]


@pytest.mark.parametrize("budgets", BUDGETS)
def test_phases_follow_what_a_script_does(budgets: str) -> None:
    model, optimizer = made(budgets)
    steps, seen = model._castor.steps, []
    model[1].register_forward_hook(lambda *_: seen.append(steps.phase))
    assert steps.phase is Phase.IDLE
    with torch.no_grad():
        model(torch.ones(3, 8))
    loss = model(torch.ones(3, 8)).sum()
    moves = budgets == "moving"
    assert seen == [Phase.EVALUATING if moves else Phase.FORWARD, Phase.FORWARD]
    assert steps.phase is (Phase.BETWEEN if moves else Phase.IDLE), "a resident parameter's step begins when the engine gets its gradients"
    model[1].register_full_backward_hook(lambda *_: seen.append(steps.phase))
    (loss + model(torch.ones(3, 8)).sum()).backward()
    assert seen[3] is (Phase.BACKWARD if moves else Phase.IDLE)
    castor.gradient(model[0].weight)
    assert steps.phase is Phase.BETWEEN
    optimizer.step()
    assert steps.phase is Phase.IDLE
    with castor.sleep(model):
        assert steps.phase is Phase.ASLEEP
    assert steps.phase is Phase.IDLE


@pytest.mark.parametrize("budgets", BUDGETS)
@pytest.mark.parametrize(("call", "words"), [
    (lambda optimizer: optimizer.step(), r"optimizer.step\(\) cannot come inside a forward"),
    (lambda optimizer: optimizer.zero_grad(), r"optimizer.zero_grad\(\) cannot come inside a forward"),
])
def test_a_call_inside_a_forward_is_refused(call: Any, words: str, budgets: str) -> None:
    want = trained(*made(budgets))
    model, optimizer = made(budgets)
    hook = model[1].register_forward_hook(lambda *_: call(optimizer))
    for context in (torch.enable_grad(), torch.no_grad()):
        with context, pytest.raises(castor.FailedPrecondition, match=words):
            model(torch.ones(3, 8))
    hook.remove()
    assert all(map(torch.equal, trained(model, optimizer), want))


def test_a_step_inside_a_backward_is_refused() -> None:
    model, optimizer = made("moving")
    out = model(torch.ones(3, 8))
    out.register_hook(lambda _: optimizer.step())
    with pytest.raises(castor.FailedPrecondition, match=r"optimizer.step\(\) cannot come inside a backward"):
        out.sum().backward()
    optimizer.zero_grad()
    assert all(map(torch.equal, trained(model, optimizer), trained(*made("moving"))))


@pytest.mark.parametrize("budgets", BUDGETS)
def test_a_model_sleeps_between_steps_alone(budgets: str) -> None:
    model, optimizer = made(budgets)
    model(torch.ones(3, 8)).sum().backward()
    with pytest.raises(castor.FailedPrecondition, match="castor.sleep cannot come inside a step"):
        castor.sleep(model)
    optimizer.step()
    with castor.sleep(model):
        with pytest.raises(castor.FailedPrecondition, match=r"optimizer.step\(\) cannot come while the model is asleep"):
            optimizer.step()
        optimizer.zero_grad()
