# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Optimizers as scripts write them: counters in odd places, states that change places, many groups, wrappers. Served with the plain script's bits, or refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from test_any_optimizer import WHERE, Weighted, expect_same, trained, values_of


class Own(torch.optim.Optimizer):
    """Calls `move` for each parameter with a gradient."""

    def __init__(self, params: Any, lr: float = 1e-2) -> None:
        super().__init__(params, {"lr": lr})
        self.t = 0

    def move(self, p: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.t += 1
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
            for p in group["params"]:
                if p.grad is not None:
                    self.move(p, self.state[p], group)


class Swaps(Own):
    def move(self, p: Any, state: Any, group: Any) -> None:
        if not state:
            state["a"], state["b"] = torch.zeros_like(p), torch.ones_like(p)
        state["a"], state["b"] = state["b"], state["a"]
        state["a"].mul_(0.9).add_(p.grad)
        p.add_(state["a"] - 0.1 * state["b"], alpha=-group["lr"])


class Shifts(Own):
    def move(self, p: Any, state: Any, group: Any) -> None:
        state["before"] = state.get("last", torch.zeros_like(p))
        state["last"] = p.grad.clone()
        p.add_(2 * state["last"] - state["before"], alpha=-group["lr"])


class RemembersGradients(Own):
    """Without a clone, in a list."""

    def move(self, p: Any, state: Any, group: Any) -> None:
        state["seen"] = [*state.get("seen", [])[-2:], p.grad]
        p.add_(sum(state["seen"]), alpha=-group["lr"])


class KeepsOldValues(Own):
    def move(self, p: Any, state: Any, group: Any) -> None:
        old = state.get("old", p.clone())
        state["old"] = p.data
        p.data = p.data - group["lr"] * p.grad + 0.1 * (p.data - old)


class CountsInGroups(Own):
    def move(self, p: Any, state: Any, group: Any) -> None:
        p.sub_(p.grad, alpha=group["lr"] / group["k"])


class CountsOnItself(Own):
    def move(self, p: Any, state: Any, group: Any) -> None:
        p.sub_(p.grad, alpha=group["lr"] / self.t)


class CountsForAll(Own):
    """Under a name in its state."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        count = self.state["count"].setdefault("step", torch.zeros(()))
        count += 1
        super().step()

    def move(self, p: Any, state: Any, group: Any) -> None:
        p.sub_(p.grad / self.state["count"]["step"], alpha=group["lr"])


class FirstGroupsRate(Own):
    def move(self, p: Any, state: Any, group: Any) -> None:
        p.sub_(p.grad, alpha=self.param_groups[0]["lr"])


class RatesByPosition(Own):
    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.base = [group["lr"] for group in self.param_groups]

    def move(self, p: Any, state: Any, group: Any) -> None:
        place = next(i for i, other in enumerate(self.param_groups) if other is group)
        p.sub_(p.grad, alpha=self.base[place])


class ShapesByDimension(Own):
    """One name for states of different shapes."""

    def move(self, p: Any, state: Any, group: Any) -> None:
        squares = p.grad.pow(2)
        new = squares.mean(-1, keepdim=True) if p.dim() > 1 else squares
        state["v"] = 0.9 * state["v"] + new if "v" in state else new.clone()
        p.sub_(p.grad / (state["v"].sqrt() + 1), alpha=group["lr"])


class LooksAtAttributes(Own):
    def move(self, p: Any, state: Any, group: Any) -> None:
        p.sub_(p.grad, alpha=group["lr"] * getattr(p, "rate", 1.0))


class ScalarsApart(Own):
    def move(self, p: Any, state: Any, group: Any) -> None:
        p.sub_(p.grad, alpha=group["lr"] * (1.0 if p.dim() > 0 and p.numel() > 1 else 0.1))


class TakenNames(Own):
    """Names that the engine has itself, or that no file could have."""

    def move(self, p: Any, state: Any, group: Any) -> None:
        for name in ("grad", "master", "a/b", 7):
            state[name] = state[name] * 0.9 + p.grad if name in state else p.grad.clone()
            p.sub_(state[name], alpha=group["lr"])


SERVED = [Swaps, Shifts, RemembersGradients, KeepsOldValues, CountsInGroups, CountsOnItself, CountsForAll, FirstGroupsRate, RatesByPosition, ShapesByDimension,
          LooksAtAttributes, ScalarsApart, TakenNames]


def groups_of(model: Weighted) -> list[dict[str, Any]]:
    tensors = list(model.params.values())
    tensors[0].rate = tensors[-1].rate = 3.0  # type: ignore[attr-defined]
    for p in tensors:
        p.mark = torch.ones(3)  # type: ignore[attr-defined]
    return [{"params": tensors[:2]}, {"params": tensors[2:5], "lr": 3e-3}, {"params": tensors[5:], "lr": 5e-3}]


def both(kind: Callable[[Any], Any], where: str, folder: Path) -> tuple[Any, Any, Any, Any]:
    plain, model = Weighted(), Weighted()
    budgets = WHERE[where] | ({"nvme": str(folder)} if where == "everywhere" else {})
    theirs = kind(groups_of(plain))
    wrapped, optimizer = castor.wrap(model, kind(groups_of(model)), **budgets)
    return plain, theirs, wrapped, optimizer


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", SERVED)
def test_what_scripts_write_has_the_bits_of_the_plain_script(kind: type, where: str, tmp_path: Path) -> None:
    plain, theirs, model, optimizer = both(kind, where, tmp_path)
    trained(plain, theirs, 7)
    trained(model, optimizer, 7)
    expect_same(values_of(model), values_of(plain))
    mine, its = optimizer.state_dict(), theirs.state_dict()
    expect_same(mine["param_groups"], its["param_groups"])
    if kind is not RemembersGradients:  # the plain script's list has gradients that later backwards write to
        expect_same(mine["state"], its["state"])


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", [CountsInGroups, CountsOnItself, CountsForAll])
def test_counts_go_on_without_gradients(kind: type, where: str, tmp_path: Path) -> None:
    """Of one group in some steps, and of all in one."""

    def train(model: Any, optimizer: Any) -> None:
        tensors = list(model.params.values())
        for step in range(6):
            optimizer.zero_grad()
            if step != 2:
                used = tensors[:2] if step % 2 else tensors
                sum((p * (step + 1)).sum() for p in used).backward()
            optimizer.step()

    plain, theirs, model, optimizer = both(kind, where, tmp_path)
    train(plain, theirs)
    train(model, optimizer)
    expect_same(values_of(model), values_of(plain))
    expect_same(optimizer.state_dict(), theirs.state_dict())


class KeepsBeside(Own):
    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.buffers: dict[Any, torch.Tensor] = {}

    def move(self, p: Any, state: Any, group: Any) -> None:
        m = self.buffers.setdefault(p, torch.zeros_like(p))
        m.mul_(0.9).add_(p.grad)
        p.sub_(m, alpha=group["lr"])


class TwoNames(Own):
    def move(self, p: Any, state: Any, group: Any) -> None:
        if not state:
            state["a"] = state["b"] = torch.zeros_like(p)
        state["a"].add_(p.grad)
        p.sub_(state["b"], alpha=group["lr"])


class Around(Own):
    """Another one, which does the work."""

    def __init__(self, params: Any) -> None:
        groups = list(params)
        super().__init__(groups)
        self.base = torch.optim.SGD([p for group in groups for p in group["params"]], lr=1e-2)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.base.step()


class Shrinks(Own):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"]):
            p.mul_(0.9)
            if p.grad is not None:
                p.sub_(p.grad, alpha=1e-2)


def replaced(groups: Any) -> Any:
    optimizer = torch.optim.NAdam(groups)
    optimizer.step = lambda closure=None: None  # type: ignore[method-assign,assignment]
    return optimizer


class AllTogether(Own):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in params]).norm() if params else torch.ones(())
        for p in params:
            p.sub_(p.grad / norm, alpha=self.param_groups[0]["lr"])


def warming_up(groups: Any) -> Any:
    """Its rate is nothing yet, which must not hide what it does."""
    optimizer = AllTogether(groups)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
    return optimizer


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (KeepsBeside, "keeps buffers beside its state"),
    (TwoNames, "keeps one tensor under two names"),
    (Around, "a wrapper around another optimizer"),
    (Shrinks, "changes parameters that have no gradient"),
    (replaced, "the step of this NAdam was replaced"),
    (warming_up, "AllTogether updates a parameter by what others have"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_what_windows_cannot_serve_is_refused_by_name(make: Callable[[Any], Any], words: str) -> None:
    model = Weighted()
    with pytest.raises(castor.InvalidArgument, match=words):
        castor.wrap(model, make(groups_of(model)))
    assert type(model.params["matrix"]) is nn.Parameter


def test_looking_at_an_optimizer_leaves_it_as_it_was() -> None:
    model = Weighted()
    inner = CountsOnItself(groups_of(model))
    before = torch.get_rng_state()
    castor.wrap(model, inner)
    assert inner.t == 0 and "k" not in inner.param_groups[0]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_step_that_asks_for_the_models_parameters_is_told_so() -> None:
    model = Weighted()

    class Peeks(Own):
        def move(self, p: Any, state: Any, group: Any) -> None:
            p.sub_(p.grad, alpha=group["lr"])
            if self.t == 3:
                float(next(iter(model.params.values())).norm())

    wrapped, optimizer = castor.wrap(model, Peeks(groups_of(model)), place={"*": "host"})
    with pytest.raises(castor.CastorError, match="the call comes from a callback"):
        trained(wrapped, optimizer, 4)


def test_an_attribute_that_a_script_sets_is_the_optimizers() -> None:
    class Scaled(Own):
        factor = 1.0

        def __init__(self, params: Any) -> None:
            super().__init__(params)
            self.factor = 1.0

        def move(self, p: Any, state: Any, group: Any) -> None:
            p.sub_(p.grad, alpha=group["lr"] * self.factor)

    plain, theirs, model, optimizer = both(Scaled, "on the device", Path())
    for one, its in ((plain, theirs), (model, optimizer)):
        trained(one, its, 2)
        its.factor = 5.0
        trained(one, its, 4, first=2)
    expect_same(values_of(model), values_of(plain))


@pytest.mark.parametrize("name", ["NAdam", "AdamW"])
def test_a_state_that_is_not_in_what_is_loaded_begins_anew(name: str) -> None:
    kind = getattr(torch.optim, name)
    plain, theirs, model, optimizer = both(lambda groups: kind(groups, lr=1e-2), "on the device", Path())
    for one, its in ((plain, theirs), (model, optimizer)):
        trained(one, its, 3)
        state = its.state_dict()
        del state["state"][0]
        its.load_state_dict(state)
        trained(one, its, 6, first=3)
    for mine, want in zip(values_of(model).values(), values_of(plain).values()):
        torch.testing.assert_close(mine, want, rtol=1e-5, atol=1e-6)


def test_hooks_of_states_are_called() -> None:
    model = Weighted()
    inner = torch.optim.NAdam(model.parameters())
    inner.register_state_dict_post_hook(lambda _, state: state | {"by": "a hook"})
    inner.register_load_state_dict_pre_hook(lambda _, state: {**state, "param_groups": [{**group, "lr": 0.5} for group in state["param_groups"]]})
    model, optimizer = castor.wrap(model, inner)  # type: ignore[assignment]
    trained(model, optimizer, 1)
    state = optimizer.state_dict()
    assert state["by"] == "a hook"
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("kind", [torch.optim.NAdam, CountsOnItself, CountsInGroups, CountsForAll])
@pytest.mark.parametrize("load", [lambda folder, model: castor.load(folder, model, weights_only=True), lambda folder, model: castor.load_weights(model, folder)],
                         ids=["load", "load_weights"])
def test_weights_alone_are_loaded_without_counts(kind: Any, load: Callable[[str, Any], Any], tmp_path: Path) -> None:
    plain, theirs, model, optimizer = both(kind, "on the device", tmp_path)
    trained(model, optimizer, 3)
    optimizer.param_groups[0]["lr"] = 0.02  # a script's own, which stays
    castor.save(str(tmp_path), model)
    load(str(tmp_path), model)
    assert optimizer.state_dict()["state"] == theirs.state_dict()["state"]
    plain.load_state_dict(values_of(model))
    theirs.param_groups[0]["lr"] = 0.02
    for one, its in ((plain, theirs), (model, optimizer)):
        trained(one, its, 2)
    expect_same(values_of(model), values_of(plain))


class SavesMore(CountsOnItself):
    """As some do, with keys of its own beside torch's, and its states under another name."""

    rate = 1.0

    def __init__(self, params: Any, lr: float = 1e-2) -> None:
        super().__init__(params, lr)
        self.rate = 1.0

    def move(self, p: Any, state: Any, group: Any) -> None:
        m = state.setdefault("m", torch.zeros_like(p))
        m.lerp_(p.grad, 1 / self.t)
        p.sub_(m, alpha=group["lr"] * self.rate)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["state"] = {number: {"mean": of["m"]} for number, of in state["state"].items()}
        return state | {"t": self.t, "rate": self.rate}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        self.t, self.rate = state.pop("t"), state.pop("rate")
        state["state"] = {number: {"m": of["mean"]} for number, of in state["state"].items()}
        super().load_state_dict(state)


@pytest.mark.parametrize("where", WHERE)
def test_what_an_optimizer_saves_in_its_own_form_is_saved_and_loaded(where: str, tmp_path: Path) -> None:
    plain, theirs, model, optimizer = both(SavesMore, where, tmp_path)
    for one, its in ((plain, theirs), (model, optimizer)):
        its.rate = 0.5
        trained(one, its, 3)
    saved, wanted = optimizer.state_dict(), theirs.state_dict()
    expect_same(saved, wanted)
    assert saved["t"] == 3 and saved["rate"] == 0.5
    again, its, back, of_back = both(SavesMore, where, tmp_path)
    for one, one_of in ((again, its), (back, of_back)):
        one.load_state_dict(values_of(plain))
        one_of.load_state_dict(copy.deepcopy(saved))  # whose tensors a plain optimizer updates
        trained(one, one_of, 5, first=3)
    trained(plain, theirs, 5, first=3)
    expect_same(values_of(again), values_of(plain))
    expect_same(values_of(back), values_of(plain))
    expect_same(of_back.state_dict(), theirs.state_dict())


def test_of_several_optimizers_each_keeps_what_it_saves_itself() -> None:
    def made() -> tuple[Any, Any]:
        model = Weighted()
        tensors = list(model.params.values())
        return castor.wrap(model, [torch.optim.NAdam(tensors[:2]), SavesMore(tensors[2:])])

    model, optimizer = made()
    trained(model, optimizer, 3)
    saved = optimizer.state_dict()
    assert (saved["own"][1]["t"], saved["own"][1]["rate"]) == (3, 1.0)
    back, of_back = made()
    back.load_state_dict(values_of(model))
    of_back.load_state_dict(saved)
    for one, its in ((model, optimizer), (back, of_back)):
        trained(one, its, 5, first=3)
    expect_same(values_of(back), values_of(model))


def test_a_copy_steps_the_same_parameters_and_no_copy_is_deep() -> None:
    plain, theirs, model, optimizer = both(torch.optim.NAdam, "on the device", Path())
    for one, its in ((plain, theirs), (model, optimizer)):
        trained(one, its, 2)
        second = copy.copy(its)
        second.param_groups[0]["lr"] = 0.05
        trained(one, second, 4, first=2)
    expect_same(values_of(model), values_of(plain))
    expect_same(second.state_dict(), theirs.state_dict())
    expect_same(second.state[model.params["wide"]], theirs.state[plain.params["wide"]])
    called: list[Any] = []
    for its in (theirs, optimizer):
        its.register_step_post_hook(lambda *_: called.append("first"))
        third = copy.copy(its)
        third.register_step_post_hook(lambda *_: called.append("third"))
        its.step()
    assert called == ["first", "first"]
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(castor.FailedPrecondition, match="cannot be pickled or copied deeply"):
            copied(optimizer)


class OddNames(Own):
    """Names of states that are no words."""

    def move(self, p: Any, state: Any, group: Any) -> None:
        for name in ("m", 7, ("t", 1), ""):
            state[name] = state[name] * 0.9 + p.grad if name in state else p.grad.clone()
            p.sub_(state[name], alpha=group["lr"])


@pytest.mark.parametrize("where", WHERE)
def test_a_state_may_have_any_name(where: str, tmp_path: Path) -> None:
    plain, theirs, model, optimizer = both(OddNames, where, tmp_path)
    trained(plain, theirs, 2)
    trained(model, optimizer, 2)
    castor.save(str(tmp_path / "saved"), model)
    trained(model, optimizer, 3, first=2)
    castor.load(str(tmp_path / "saved"), model)
    expect_same(optimizer.state_dict(), theirs.state_dict())
    for one, its in ((plain, theirs), (model, optimizer)):
        trained(one, its, 4, first=2)
    expect_same(values_of(model), values_of(plain))


class NamesOfReports(Own):
    """States under words that reports have beside states."""

    words = ("norm", "gathered", "kept", "staging", "budget", "peak", "home", "in_use")

    def move(self, p: Any, state: Any, group: Any) -> None:
        for name in self.words:
            state[name] = state[name] * 0.9 + p.grad if name in state else p.grad.clone()
            p.sub_(state[name], alpha=group["lr"])


def test_states_under_words_of_reports_are_reported_apart() -> None:
    plain, theirs, model, optimizer = both(NamesOfReports, "on the device", Path())
    trained(plain, theirs, 4)
    trained(model, optimizer, 4)
    expect_same(optimizer.state_dict(), theirs.state_dict())
    plan = castor.plan(plain, optimizer=theirs, host_budget="1MiB")
    each = 4 * sum(p.numel() for p in plain.parameters())
    classes = [tier["classes"] for tier in plan.document["tiers"]]
    for name in NamesOfReports.words:
        assert sum(of_tier[f"{name}__bytes"] for of_tier in classes) >= each
    for tier, of_tier in zip(plan.document["tiers"], classes):
        assert sum(of_tier.values()) == tier["planned_bytes"]
