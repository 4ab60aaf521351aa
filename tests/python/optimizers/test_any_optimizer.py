# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Optimizers that are not Castor's own update by their own code, to their own bits, wherever values and states live."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor

WHERE: dict[str, dict[str, Any]] = {
    "on the device": {},
    "everywhere": {"device": "10KiB", "host": "24KiB", "chunk": "1KiB", "config": {"poison": True}},
}


class Weighted(nn.Module):
    """Its gradients are the same bits whatever computes them: those of a sum of products."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        shapes = {"matrix": (24, 16), "wide": (8, 64), "odd": (7, 9), "vector": (64,), "short": (5,), "kernel": (4, 3, 3, 3), "number": ()}
        self.params = nn.ParameterDict({name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()})

    def forward(self, step: int) -> torch.Tensor:
        chance = torch.Generator().manual_seed(step)
        total = torch.zeros(())
        for p in self.params.values():
            total = total + (p * torch.randn(p.shape, generator=chance) * (100.0 if step == 3 else 0.1)).sum()
        return total


def two_groups(model: Weighted) -> list[dict[str, Any]]:
    tensors = list(model.params.values())
    return [{"params": tensors[:3]}, {"params": tensors[3:], "lr": 3e-3, "weight_decay": 0.0}]


O = torch.optim
ELEMENTWISE: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "ASGD": lambda groups: O.ASGD(groups, lr=1e-2, weight_decay=0.1, t0=2),
    "Adadelta": lambda groups: O.Adadelta(groups, lr=0.5, weight_decay=0.1),
    "Adagrad": lambda groups: O.Adagrad(groups, lr=1e-2, initial_accumulator_value=0.1, lr_decay=0.01),
    "Adam with amsgrad": lambda groups: O.Adam(groups, lr=1e-2, amsgrad=True, weight_decay=0.1),
    "AdamW with amsgrad, foreach": lambda groups: O.AdamW(groups, lr=1e-2, amsgrad=True, foreach=True),
    "AdamW that maximizes": lambda groups: O.AdamW(groups, lr=1e-2, maximize=True, weight_decay=0.1),
    "Adamax": lambda groups: O.Adamax(groups, lr=1e-2, weight_decay=0.1),
    "NAdam": lambda groups: O.NAdam(groups, lr=1e-2, weight_decay=0.1, decoupled_weight_decay=True),
    "RAdam": lambda groups: O.RAdam(groups, lr=1e-2, weight_decay=0.1),
    "RMSprop, centered": lambda groups: O.RMSprop(groups, lr=1e-2, centered=True, momentum=0.9, weight_decay=0.1),
    "RMSprop": lambda groups: O.RMSprop(groups, lr=1e-2),
    "Rprop": lambda groups: O.Rprop([{"params": g["params"]} for g in groups], lr=1e-2),
    "SGD that maximizes": lambda groups: O.SGD(groups, lr=1e-2, momentum=0.9, nesterov=True, maximize=True),
    "SGD, dampening in one group": lambda groups: O.SGD([groups[0] | {"dampening": 0.5}, groups[1]], lr=1e-2, momentum=0.9),
}
WHOLE: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "Adafactor": lambda groups: O.Adafactor(groups, lr=1e-2),
}
if hasattr(O, "Muon"):  # torch 2.9
    WHOLE["Muon"] = lambda groups: O.Muon([p for g in groups for p in g["params"] if p.dim() == 2], lr=1e-2)
ALL = ELEMENTWISE | WHOLE


def trained(model: Any, optimizer: Any, steps: int, first: int = 0) -> None:
    for step in range(first, steps):
        optimizer.zero_grad()
        model(step).backward()
        optimizer.step()


def values_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def expect_same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, torch.Tensor):
        assert torch.equal(mine, theirs)
    elif isinstance(theirs, dict):
        assert mine.keys() == theirs.keys()
        for key in theirs:
            expect_same(mine[key], theirs[key])
    elif isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs):
            expect_same(one, other)
    else:
        assert mine == theirs


def wrapped(make: Callable[[Any], Any], where: str, folder: Path, **more: Any) -> tuple[Any, Any]:
    model = Weighted()
    budgets = WHERE[where] | more
    if where == "everywhere":
        budgets["nvme"] = str(folder)
    return castor.wrap(model, make(two_groups(model)), **budgets)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", ALL)
def test_each_of_torchs_has_the_bits_of_the_plain_script(name: str, where: str, tmp_path: Path) -> None:
    plain = Weighted()
    theirs = ALL[name](two_groups(plain))
    trained(plain, theirs, 6)
    model, optimizer = wrapped(ALL[name], where, tmp_path)
    trained(model, optimizer, 6)
    expect_same(values_of(model), values_of(plain))
    expect_same(optimizer.state_dict(), theirs.state_dict())
    if where == "everywhere" and name in ELEMENTWISE and optimizer.rule.states:
        moved = optimizer.runtime.engine.stats()
        assert moved["nvme_read_bytes"] > 0


def matrices_and_rest(model: Weighted) -> list[torch.optim.Optimizer]:
    tensors = list(model.params.values())
    matrices = [p for p in tensors if p.dim() == 2]
    rest = [p for p in tensors if p.dim() != 2]
    return [O.Muon(matrices, lr=1e-2), O.AdamW(rest, lr=1e-3)]


@pytest.mark.skipif(not hasattr(O, "Muon"), reason="torch has it from 2.9 on")
@pytest.mark.parametrize("where", WHERE)
def test_muon_for_matrices_beside_adamw_for_the_rest(where: str, tmp_path: Path) -> None:
    plain = Weighted()
    theirs = matrices_and_rest(plain)
    for step in range(6):
        for one in theirs:
            one.zero_grad()
        plain(step).backward()
        for one in theirs:
            one.step()
    model = Weighted()
    budgets = WHERE[where] | ({"nvme": str(tmp_path)} if where == "everywhere" else {})
    model, optimizer = castor.wrap(model, matrices_and_rest(model), **budgets)  # type: ignore[assignment]
    assert len(optimizer.param_groups) == 2
    assert "ns_steps" not in optimizer.param_groups[1]
    trained(model, optimizer, 6)
    expect_same(values_of(model), values_of(plain))
    state = optimizer.state[model.params["matrix"]]
    expect_same(state, theirs[0].state[plain.params["matrix"]])


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", ["NAdam", "Adafactor", "RMSprop, centered", "Adagrad"])
def test_training_goes_on_from_a_checkpoint(name: str, where: str, tmp_path: Path) -> None:
    model, optimizer = wrapped(ALL[name], where, tmp_path)
    trained(model, optimizer, 3)
    castor.save(str(tmp_path / "saved"), model)
    trained(model, optimizer, 6, first=3)
    other, its = wrapped(ALL[name], "on the device", tmp_path)
    castor.load(str(tmp_path / "saved"), other)
    trained(other, its, 6, first=3)
    expect_same(values_of(other), values_of(model))
    expect_same(its.state_dict(), optimizer.state_dict())


@pytest.mark.parametrize("name", ["NAdam", "Adafactor", "ASGD"])
def test_its_state_is_torchs_both_ways(name: str, tmp_path: Path) -> None:
    plain = Weighted()
    theirs = ALL[name](two_groups(plain))
    trained(plain, theirs, 3)
    model, optimizer = wrapped(ALL[name], "everywhere", tmp_path)
    model.load_state_dict(values_of(plain))
    optimizer.load_state_dict(theirs.state_dict())
    trained(model, optimizer, 5, first=3)
    back = Weighted()
    back.load_state_dict(values_of(model))
    again = ALL[name](two_groups(back))
    again.load_state_dict(optimizer.state_dict())
    trained(back, again, 7, first=5)
    trained(plain, theirs, 7, first=3)
    expect_same(values_of(back), values_of(plain))


def test_a_checkpoint_of_another_optimizer_is_refused_by_name(tmp_path: Path) -> None:
    model, optimizer = wrapped(ALL["NAdam"], "on the device", tmp_path)
    trained(model, optimizer, 1)
    castor.save(str(tmp_path / "saved"), model)
    other, _ = wrapped(ALL["RAdam"], "on the device", tmp_path)
    with pytest.raises(castor.InvalidArgument, match="of NAdam, and the optimizer is RAdam"):
        castor.load(str(tmp_path / "saved"), other)


def test_a_scheduler_accumulation_and_clipping_are_obeyed(tmp_path: Path) -> None:
    def train(model: Any, optimizer: Any, clip: Callable[[], Any]) -> None:
        scheduler = O.lr_scheduler.OneCycleLR(optimizer, max_lr=[1e-2, 2e-2], total_steps=8)
        for step in range(6):
            optimizer.zero_grad()
            for part in range(2):
                (model(2 * step + part) / 2).backward()
            clip()
            optimizer.step()
            scheduler.step()

    plain = Weighted()
    theirs = O.NAdam(two_groups(plain), lr=1e-3)
    train(plain, theirs, lambda: nn.utils.clip_grad_norm_(plain.parameters(), 0.5))
    model, optimizer = wrapped(lambda groups: O.NAdam(groups, lr=1e-3), "everywhere", tmp_path)
    train(model, optimizer, lambda: optimizer.clip_grad_norm_(0.5))
    for name, value in values_of(plain).items():
        torch.testing.assert_close(values_of(model)[name], value, rtol=1e-5, atol=1e-6)


def test_updates_may_begin_in_the_backward(tmp_path: Path) -> None:
    plain = Weighted()
    trained(plain, ALL["NAdam"](two_groups(plain)), 5)
    model, optimizer = wrapped(ALL["NAdam"], "everywhere", tmp_path, update_in_backward=True)
    trained(model, optimizer, 5)
    expect_same(values_of(model), values_of(plain))


def test_low_precision_has_masters_and_the_same_bits_everywhere(tmp_path: Path) -> None:
    ends = []
    for where in WHERE:
        model, optimizer = wrapped(ALL["RAdam"], where, tmp_path, dtype=torch.bfloat16)
        trained(model, optimizer, 5)
        ends.append((values_of(model), optimizer.state_dict()))
        assert all(value.dtype is torch.bfloat16 for value in ends[-1][0].values())
    expect_same(ends[0], ends[1])


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, lambda: torch.autocast("cpu", dtype=torch.bfloat16), lambda: torch.device("meta")])
def test_modes_of_the_calling_thread_do_not_reach_updates(mode: Callable[[], Any], early: bool, tmp_path: Path) -> None:
    plain = Weighted()
    trained(plain, ALL["NAdam"](two_groups(plain)), 4)
    model, optimizer = wrapped(ALL["NAdam"], "everywhere", tmp_path, update_in_backward=early)
    for step in range(4):
        model(step).backward()
        with mode():
            optimizer.step()
        optimizer.zero_grad()
    expect_same(values_of(model), values_of(plain))


def test_hooks_are_called_once_a_step() -> None:
    model = Weighted()
    inner = O.NAdam(model.parameters())
    calls: list[str] = []
    inner.register_step_pre_hook(lambda *_: calls.append("before"))
    model, optimizer = castor.wrap(model, inner)  # type: ignore[assignment]
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    trained(model, optimizer, 2)
    assert calls == ["before", "after"] * 2


# Optimizers as people write them.


class Lion(torch.optim.Optimizer):
    """Of Chen et al., with its state made when it is first needed."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.add_(torch.sign(m * group["betas"][0] + p.grad * (1 - group["betas"][0])), alpha=-group["lr"])
                m.mul_(group["betas"][1]).add_(p.grad, alpha=1 - group["betas"][1])


class Replaced(Lion):
    """Puts new tensors in place of the old ones, by ``.data`` and in its state, and writes to gradients."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                p.grad.mul_(0.5)
                state = self.state[p]
                state["m"] = p.grad + 0.9 * state["m"] if "m" in state else p.grad.clone()
                p.data = p.data - group["lr"] * state["m"]


class Averaged(Lion):
    """Keeps an average of the weights, which `eval` puts in their place, and counts in its groups."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
            for p in group["params"]:
                p.sub_(p.grad, alpha=group["lr"])
                mean = self.state[p].setdefault("mean", p.clone())
                mean.lerp_(p, 1 / group["k"])

    def _swap(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if "mean" in self.state[p]:
                    mean = self.state[p]["mean"].clone()
                    self.state[p]["mean"].copy_(p.data)
                    p.data.copy_(mean)

    def eval(self) -> None:
        self._swap()

    def train(self) -> None:
        if any(group.get("evaluates") for group in self.param_groups):
            self._swap()


class GlobalNorm(Lion):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in params]).norm()
        for p in params:
            p.sub_(p.grad / (1 + norm), alpha=1e-2)


class Drifting(Lion):
    """Its group's count depends on values, which shows late in the weights."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                group["d"] = group.get("d", 0.0) + float(p.grad.sum())
                p.sub_(p.grad, alpha=group["lr"])


class ClippedByItsRms(Lion):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"]):
            p.sub_(p.grad / max(1.0, float(p.grad.pow(2).mean().sqrt())), alpha=1e-2)


class Noisy(Lion):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"]):
            p.sub_(p.grad + torch.randn_like(p), alpha=1e-2)


class Halved(Lion):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"]):
            m = self.state[p].setdefault("m", torch.zeros_like(p, dtype=torch.bfloat16))
            m.add_(p.grad)
            p.sub_(m, alpha=1e-2)


class NeedsClosure(Lion):
    def step(self, closure: Any) -> None:  # type: ignore[override]
        closure()


class NeedsMore(Lion):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        raise RuntimeError("call update_hessian() first")


class Breaks(Lion):
    """Once its third step has come."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if self.param_groups[0].get("broken"):
            raise ArithmeticError("the rate has no meaning")
        super().step()


def expect_plain_bits(kind: type, where: str, folder: Path) -> None:
    plain = Weighted()
    trained(plain, kind(plain.parameters()), 5)
    model, optimizer = wrapped(lambda groups: kind([p for g in groups for p in g["params"]]), where, folder)
    trained(model, optimizer, 5)
    expect_same(values_of(model), values_of(plain))


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", [Lion, Replaced, ClippedByItsRms])
def test_one_of_the_scripts_own(kind: type, where: str, tmp_path: Path) -> None:
    expect_plain_bits(kind, where, tmp_path)


@pytest.mark.parametrize("where", WHERE)
def test_one_that_swaps_weights_for_evaluation(where: str, tmp_path: Path) -> None:
    plain = Weighted()
    theirs: Any = Averaged(plain.parameters())
    model, optimizer = wrapped(lambda groups: Averaged([p for g in groups for p in g["params"]]), where, tmp_path)
    for one, its in ((plain, theirs), (model, optimizer)):
        trained(one, its, 4)
        its.eval()
    expect_same(values_of(model), values_of(plain))
    for one, its in ((plain, theirs), (model, optimizer)):
        its.param_groups[0]["evaluates"] = True
        its.train()
        its.param_groups[0]["evaluates"] = False
        trained(one, its, 6, first=4)
    expect_same(values_of(model), values_of(plain))
    assert optimizer.param_groups[0]["k"] == 6


class Quantized(O.AdamW):
    """Named as one of torchao's."""

    __module__ = "torchao.optim.adam"


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda p: O.LBFGS(p), "LBFGS evaluates the model inside a step"),
    (lambda p: O.SparseAdam(list(p)), "SparseAdam takes sparse gradients"),
    (lambda p: O.Adam(p, differentiable=True), "leave differentiable away"),
    (lambda p: GlobalNorm(p), "GlobalNorm updates a parameter by what others have"),
    (lambda p: Drifting(p), "Drifting updates a parameter by what others have"),
    (lambda p: Noisy(p), "by chance"),
    (lambda p: Halved(p), "keeps its state m in torch.bfloat16"),
    (lambda p: Quantized(p), "Quantized of torchao compiles its step and quantizes its states"),
    (lambda p: NeedsClosure(p), "evaluates the model inside a step"),
    (lambda p: NeedsMore(p), "call update_hessian"),
    (lambda p: [], "there is no optimizer"),
    (lambda p: list(p), "the optimizer is Parameter"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_what_cannot_be_served_is_refused_by_name(make: Callable[[Any], Any], words: str) -> None:
    model = Weighted()
    with pytest.raises(castor.InvalidArgument, match=words):
        castor.wrap(model, make(model.parameters()))
    assert type(model.params["matrix"]) is nn.Parameter
    trained(model, O.SGD(model.parameters(), lr=0.1), 1)  # and the model is as it was


def test_an_update_that_fails_says_so_and_whose_it_was() -> None:
    model = Weighted()
    model, optimizer = castor.wrap(model, Breaks(model.parameters()))  # type: ignore[assignment]
    trained(model, optimizer, 2)
    optimizer.param_groups[0]["broken"] = True
    with pytest.raises(castor.CastorError, match="the rate has no meaning") as failed:
        trained(model, optimizer, 3, first=2)
    assert isinstance(failed.value.__cause__, ArithmeticError)
    with pytest.raises(castor.CastorError, match="the rate has no meaning"):
        trained(model, optimizer, 4, first=3)


def test_a_parameter_without_a_gradient_stays_as_it_was(tmp_path: Path) -> None:
    def train(model: Any, optimizer: Any) -> None:
        for step in range(4):
            optimizer.zero_grad()
            p = model.params
            loss = (p["matrix"] * (step + 1)).sum() + (p["short"].pow(2).sum() if step % 2 else 0.0)
            loss.backward()
            optimizer.step()

    plain = Weighted()
    theirs = ALL["NAdam"](two_groups(plain))
    train(plain, theirs)
    model, optimizer = wrapped(ALL["NAdam"], "everywhere", tmp_path)
    train(model, optimizer)
    expect_same(values_of(model), values_of(plain))
    expect_same(optimizer.state_dict()["state"], theirs.state_dict()["state"])
    assert math.isclose(float(optimizer.state[model.params["short"]]["step"]), 2.0)


def test_states_are_placed_by_their_names(tmp_path: Path) -> None:
    place = {"*": {"max_exp_avg_sq": "nvme"}}
    model, optimizer = wrapped(ALL["Adam with amsgrad"], "on the device", tmp_path, nvme=str(tmp_path), place=place)
    trained(model, optimizer, 2)
    assert optimizer.runtime.engine.stats()["nvme_read_bytes"] > 0
    with pytest.raises(castor.InvalidArgument, match="param, grad, master, exp_avg, exp_avg_sq, max_exp_avg_sq"):
        wrapped(ALL["Adam with amsgrad"], "on the device", tmp_path, place={"*": {"momentum_buffer": "host"}})


class OddSize(Lion):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            if p.shape[0] == 40:
                raise ValueError("not of 40")
            self.state[p].setdefault("m", torch.zeros_like(p))
            p.sub_(p.grad, alpha=1e-2)


def test_a_shape_that_an_optimizer_cannot_step_is_said_before_training() -> None:
    model = nn.Linear(10, 40)
    with pytest.raises(castor.InvalidArgument, match=r"OddSize steps small parameters and fails at one of shape \(40.*\) \(ValueError: not of 40\)"):
        castor.wrap(model, OddSize(model.parameters()))


class WithAnEmptyOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.none = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.empty(0, 5))

    def forward(self, step: int) -> torch.Tensor:
        return (self.weight * step).sum() + self.none.sum()


@pytest.mark.parametrize("name", ["Adafactor", "NAdam"])
def test_a_parameter_without_elements_is_left_out(name: str) -> None:
    plain, model = WithAnEmptyOne(), WithAnEmptyOne()
    theirs = ALL[name]([{"params": list(plain.parameters())}])
    model, optimizer = castor.wrap(model, ALL[name]([{"params": list(model.parameters())}]))  # type: ignore[assignment]
    plain.none.requires_grad_(False)  # of which Adafactor would divide by nothing
    trained(plain, theirs, 3)
    trained(model, optimizer, 3)
    expect_same(values_of(model), values_of(plain))
