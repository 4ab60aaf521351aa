# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parameters that were frozen at wrap and are trained later, and groups that part what one group had: as with plain PyTorch, or all stays as it was."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any, Optional

import pytest
import torch
from torch import nn

import castor.torch as castor
from castor import _command

BUDGETS: dict[str, dict[str, Any]] = {
    "resident": {"device": "64MiB", "host": "64MiB"}, "a third": {"device": "24KiB", "host": "64MiB"}, "nvme": {"device": "24KiB", "host": "48KiB"},
}
KINDS: dict[str, Callable[[Any], Any]] = {
    "AdamW": lambda params: torch.optim.AdamW(params, lr=1e-2),
    "SGD": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9),
    "NAdam": lambda params: torch.optim.NAdam(params, lr=1e-2),  # by its own code
    "Adafactor": lambda params: torch.optim.Adafactor(params, lr=1e-2),  # of whole matrices
}


def make() -> nn.Sequential:
    """Of whose three layers the last is trained."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(3)])
    model[:2].requires_grad_(False)
    return model


def train(model: Any, optimizer: Any, steps: int, seed: int = 1) -> list[float]:
    torch.manual_seed(seed)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 32)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def made(kind: str, budgets: Optional[dict[str, Any]], all_given: bool = False, **more: Any) -> tuple[Any, Any]:
    model: Any = make()
    optimizer = KINDS[kind](list(model.parameters()) if all_given else [p for p in model.parameters() if p.requires_grad])
    return (model, optimizer) if budgets is None else castor.wrap(model, optimizer, chunk=4 << 10, **budgets, **more)


def thaw(model: Any, optimizer: Any, layer: int, lr: float, given: bool) -> None:
    model[layer].requires_grad_(True)
    if not given:
        optimizer.add_param_group({"params": model[layer].parameters(), "lr": lr})


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [False, True])
def test_layers_are_thawed_one_after_another(given: bool, kind: str, budget: str, tmp_path: Any) -> None:
    """`given`: the optimizer had them when they were frozen."""
    budgets = dict(BUDGETS[budget], **({"nvme": str(tmp_path)} if budget == "nvme" else {}))
    ends = []
    for wrap in (None, budgets):
        model, optimizer = made(kind, wrap, given)
        losses = train(model, optimizer, 3)
        thaw(model, optimizer, 1, 3e-3, given)
        losses += train(model, optimizer, 3)
        thaw(model, optimizer, 0, 1e-3, given)
        losses += train(model, optimizer, 3)
        with torch.no_grad():
            losses.append(model(torch.ones(2, 32)).sum().item())
        ends.append((losses, {name: values.clone() for name, values in model.state_dict().items()}, copy.deepcopy(optimizer.state_dict())))
    (losses, weights, states), (ours, own_weights, own_states) = ends
    assert ours == pytest.approx(losses, rel=1e-5)
    for name, values in weights.items():
        torch.testing.assert_close(own_weights[name], values, rtol=1e-5, atol=1e-6)
    assert states["state"].keys() == own_states["state"].keys()
    for number, state in states["state"].items():
        for name, values in state.items():
            torch.testing.assert_close(own_states["state"][number][name], values, rtol=1e-4, atol=1e-6, check_dtype=False)
    assert [group["params"] for group in own_states["param_groups"]] == [group["params"] for group in states["param_groups"]]
    assert not list(tmp_path.glob("castor-groups-*"))


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", ["AdamW", "NAdam"])
def test_one_group_becomes_two_whose_rates_part_later(kind: str, budget: str, tmp_path: Any) -> None:
    budgets = dict(BUDGETS[budget], **({"nvme": str(tmp_path)} if budget == "nvme" else {}))
    ends = []
    for wrap in (None, budgets):
        model, optimizer = made(kind, wrap)
        train(model, optimizer, 2)
        first = optimizer.param_groups[0]
        optimizer.param_groups.append({**first, "params": [first["params"].pop()]})
        train(model, optimizer, 2)
        optimizer.param_groups[1]["lr"] = 0.0
        train(model, optimizer, 2)
        ends.append({name: values.clone() for name, values in model.state_dict().items()})
    for name, values in ends[0].items():
        torch.testing.assert_close(ends[1][name], values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_kept_in_half_gets_a_master(dtype: torch.dtype) -> None:
    ends = []
    for budgets in BUDGETS["resident"], BUDGETS["a third"]:
        model, optimizer = made("AdamW", budgets, dtype=dtype)
        train(model, optimizer, 2)
        thaw(model, optimizer, 1, 1e-4, False)
        before = castor.exact(model[1].weight)
        train(model, optimizer, 2)
        ends.append(castor.exact(model[1].weight))
        assert not torch.equal(ends[-1], before)
        assert not torch.equal(ends[-1], ends[-1].to(dtype).float())  # finer than the weight
    assert torch.equal(*ends)


def test_budgets_that_are_too_small_leave_all_as_it_was() -> None:
    budgets = {"device": "24KiB", "host": "50KiB"}
    plain, its = made("AdamW", None)
    model, optimizer = made("AdamW", budgets)
    expected = train(plain, its, 3)
    assert train(model, optimizer, 3) == pytest.approx(expected, rel=1e-5)
    before = {name: values.clone() for name, values in model.state_dict().items()}
    model[1].requires_grad_(True)
    optimizer.add_param_group({"params": model[1].parameters()})
    for _ in range(2):  # and a script that goes on is refused again
        with pytest.raises(castor.DoesNotFit, match=r"2 parameters are to be trained that were frozen at castor.wrap, 1.weight the first, and stay frozen: .*raise the") as refused:
            train(model, optimizer, 1)
        assert refused.value.raises
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items() if name.startswith("2."))
    optimizer.param_groups.pop()
    model[1].requires_grad_(False)
    assert train(model, optimizer, 3, seed=2) == pytest.approx(train(plain, its, 3, seed=2), rel=1e-5)
    assert optimizer.state_dict()["state"][0]["step"] == 6


def test_values_that_a_script_keeps_stand_in_the_way_until_they_go() -> None:
    model, optimizer = made("AdamW", BUDGETS["a third"])
    train(model, optimizer, 2)
    kept: list[Any] = []
    handle = model[1].register_forward_pre_hook(lambda module, _: kept.append(module.weight))
    train(model, optimizer, 1)
    handle.remove()
    model[1].requires_grad_(True)
    optimizer.add_param_group({"params": model[1].parameters()})
    before = model[1].weight.detach().clone()
    with pytest.raises(castor.FailedPrecondition, match="param_groups have changed, which takes a new engine, and a tensor over a parameter's values is kept"):
        train(model, optimizer, 1)
    kept.clear()
    gc.collect()
    train(model, optimizer, 1)
    assert not torch.equal(model[1].weight.detach(), before)


def test_groups_that_change_inside_a_step() -> None:
    model, optimizer = made("AdamW", BUDGETS["a third"])
    train(model, optimizer, 1)
    # What has no gradient in this step is trained from the next one on, as with plain PyTorch.
    model(torch.ones(2, 32)).sum().backward()
    thaw(model, optimizer, 1, 1e-2, False)
    before = model[1].weight.detach().clone()
    optimizer.step()
    assert torch.equal(model[1].weight.detach(), before)
    train(model, optimizer, 1)
    assert not torch.equal(model[1].weight.detach(), before)
    # A gradient that is there already would be lost.
    model[0].requires_grad_(True)
    model(torch.ones(2, 32)).sum().backward()
    optimizer.add_param_group({"params": model[0].parameters()})
    with pytest.raises(castor.FailedPrecondition, match="0.weight has a gradient, and was put into param_groups when the step had begun"):
        optimizer.step()
    optimizer.zero_grad()
    train(model, optimizer, 1)
    # Nor can a step that has begun follow two rates in the place of one.
    model(torch.ones(2, 32)).sum().backward()
    first = optimizer.param_groups[0]
    optimizer.param_groups.append({**first, "params": [first["params"].pop()], "lr": 0.0})
    with pytest.raises(castor.FailedPrecondition, match="were in one group when the step began, and are in two with other numbers"):
        optimizer.step()
    optimizer.zero_grad()
    train(model, optimizer, 1)


def test_a_checkpoint_of_a_thawed_model_goes_on_where_the_same_is_thawed(tmp_path: Any) -> None:
    model, optimizer = made("AdamW", BUDGETS["a third"])
    train(model, optimizer, 2)
    thaw(model, optimizer, 1, 3e-3, False)
    train(model, optimizer, 2)
    castor.save(str(tmp_path), model)
    expected = train(model, optimizer, 2, seed=3)
    again, its = made("AdamW", BUDGETS["resident"])
    with pytest.raises(castor.InvalidArgument, match="1.weight\" was trained when the checkpoint was saved, and is frozen now"):
        castor.load(str(tmp_path), again)
    thaw(again, its, 1, 3e-3, False)
    castor.load(str(tmp_path), again)
    assert train(again, its, 2, seed=3) == pytest.approx(expected, rel=1e-5)


def test_a_checkpoint_of_parted_groups_is_not_taken_into_one(tmp_path: Any) -> None:
    def part(optimizer: Any) -> None:
        first = optimizer.param_groups[0]
        optimizer.param_groups.append({**first, "params": [first["params"].pop()], "lr": 1e-4})

    model, optimizer = made("AdamW", BUDGETS["a third"])
    train(model, optimizer, 1)
    part(optimizer)
    train(model, optimizer, 1)
    castor.save(str(tmp_path), model)
    expected = train(model, optimizer, 2, seed=3)
    again, its = made("AdamW", BUDGETS["resident"])
    with pytest.raises(castor.InvalidArgument, match="with 2 parameter groups, and there are 1: part or add groups as the saved run did"):
        castor.load(str(tmp_path), again)
    part(its)
    castor.load(str(tmp_path), again)
    assert [group["lr"] for group in its.param_groups] == [1e-2, 1e-4]
    assert train(again, its, 2, seed=3) == pytest.approx(expected, rel=1e-5)


def test_updates_in_the_backward_and_loss_scales_go_on() -> None:
    ends = []
    for wrap in (None, {**BUDGETS["a third"], "update_in_backward": True}):
        model, optimizer = made("AdamW", wrap)
        losses = train(model, optimizer, 2)
        thaw(model, optimizer, 1, 1e-3, False)
        ends.append(losses + train(model, optimizer, 3))
    assert ends[1] == pytest.approx(ends[0], rel=1e-5)
    model, optimizer = made("AdamW", BUDGETS["a third"], initial_scale=1024.0)
    for step in range(4):
        if step == 2:
            thaw(model, optimizer, 1, 1e-3, False)
        optimizer.zero_grad()
        optimizer.backward(model(torch.ones(2, 32)).pow(2).mean())
        optimizer.step()
    assert optimizer.runtime.engine.loss_scale().scale == 1024.0
    assert optimizer.skipped == 0


def test_words_that_only_a_new_group_has_are_refused() -> None:
    model, optimizer = made("AdamW", BUDGETS["a third"])
    train(model, optimizer, 1)
    model[1].requires_grad_(True)
    optimizer.add_param_group({"params": model[1].parameters(), "amsgrad": True})
    with pytest.raises(castor.FailedPrecondition, match="with words that the other groups have not"):
        train(model, optimizer, 1)
    optimizer.param_groups[-1]["amsgrad"] = False
    train(model, optimizer, 1)


def test_of_several_optimizers_nobody_knows_whose_a_group_is() -> None:
    model: Any = make()
    model[1].requires_grad_(True)
    optimizers = [torch.optim.SGD(model[2].parameters(), lr=0.1), torch.optim.NAdam(model[1].parameters())]
    model, optimizer = castor.wrap(model, optimizers, **BUDGETS["a third"])
    train(model, optimizer, 1)
    thaw(model, optimizer, 0, 1e-3, False)
    with pytest.raises(castor.FailedPrecondition, match="several optimizers were given to castor.wrap, and nothing says whose groups these are"):
        train(model, optimizer, 1)


def test_a_record_goes_on(tmp_path: Any) -> None:
    with castor.record(tmp_path / "run.rec"):
        model, optimizer = made("AdamW", BUDGETS["a third"])
        train(model, optimizer, 2)
        thaw(model, optimizer, 1, 1e-3, False)
        train(model, optimizer, 2)
    assert [step["step"] for step in _command.ask(["report", str(tmp_path / "run.rec")])["steps"]] == [1, 2, 3, 4]
