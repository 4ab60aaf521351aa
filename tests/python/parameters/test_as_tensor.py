# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A wrapped parameter behaves like a tensor: what is read is there, and what is written is kept, wherever its chunk lives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune  # noqa: F401

import castor.torch as castor
from castor.torch._parameters import _values
from as_tensor_cases import ACCESSES, Access, plain, run

BUDGETS: dict[str, dict[str, Any]] = {
    "resident": {"device": "64MiB", "host": "64MiB"},
    "tight": {"device": "160KiB", "host": "48KiB", "chunk": "2KiB", "config": {"poison": True}},
}


def wrapped(budgets: str, folder: Path) -> Any:
    more = {"nvme": str(folder)} if budgets == "tight" else {}
    return lambda model, optimizer: castor.wrap(model, optimizer, **BUDGETS[budgets], **more)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("case", ACCESSES, ids=lambda case: case.name)
def test_lines_of_a_script_do_what_they_do_on_a_plain_model(case: Access, dtype: torch.dtype, tmp_path: Path) -> None:
    want = run(case, dtype, None)
    resident = run(case, dtype, wrapped("resident", tmp_path))
    tight = run(case, dtype, wrapped("tight", tmp_path))
    if case.name != "ema_by_swapped_data" or dtype is torch.float32:  # a master keeps its low bits where nothing was copied
        torch.testing.assert_close(tight["seen"], resident["seen"], rtol=0, atol=0)
        assert tight["losses"] == resident["losses"]
        assert all(torch.equal(tight["last"][name], resident["last"][name]) for name in want["first"])
    for name, values in want["first"].items():
        for got in (resident, tight):
            torch.testing.assert_close(got["first"][name], values, rtol=1e-6, atol=0)
    if dtype is torch.float32:  # the plain script has no masters for others
        torch.testing.assert_close(torch.tensor(resident["losses"]), torch.tensor(want["losses"]), rtol=1e-5, atol=1e-8)
        for name, values in want["last"].items():
            torch.testing.assert_close(resident["last"][name], values, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(resident["seen"], want["seen"], rtol=1e-4, atol=1e-6)


MOVING: dict[str, Any] = {"place": {"*": "host"}}


def small(**budgets: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = plain()
    return castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **{"device": "64MiB", "host": "64MiB", **budgets})


def step(model: Any, optimizer: Any) -> float:
    loss = model(torch.ones(2, 16)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def test_only_elements_that_changed_lose_the_masters_low_bits() -> None:
    model, optimizer = small(dtype=torch.bfloat16)
    for _ in range(3):
        model(torch.ones(2, 16, dtype=torch.bfloat16)).float().pow(2).mean().backward()
        optimizer.step()
    weight = model[0].weight
    before = castor.exact(weight)
    with torch.no_grad():
        weight[0].fill_(0.5)
        weight[1].add_(0)  # written, and as it was
    after = castor.exact(weight)
    assert (after[0] == 0.5).all() and torch.equal(after[1:], before[1:])
    assert not torch.equal(after[1:], after[1:].bfloat16().float()), "masters have low bits"


def test_a_step_without_such_accesses_keeps_no_copies_and_one_with_aliases_does() -> None:
    model, optimizer = small(**MOVING)
    step(model, optimizer)
    runtime = model._castor
    assert not runtime.values
    total = sum(p.detach().norm() for p in model.parameters())
    assert total > 0 and len(runtime.values.copies) <= 2, "a loop holds few copies"
    alias = model[0].weight.detach()
    step(model, optimizer)
    assert runtime.values and torch.equal(alias, castor.exact(model[0].weight))
    del alias
    step(model, optimizer)
    assert not runtime.values


def test_reads_and_forwards_leave_no_step_half_done(tmp_path: Path) -> None:
    model, optimizer = small()
    step(model, optimizer)
    weights, state = model.state_dict(), optimizer.state_dict()
    castor.save(str(tmp_path), model)
    for begin in (lambda: float(model[0].bias[0]), lambda: model(torch.ones(1, 16))):
        begin()
        model.load_state_dict(weights)
        begin()
        optimizer.load_state_dict(state)
        begin()
        castor.load(str(tmp_path), model)
        begin()
        castor.load_weights(model, str(tmp_path))
    step(model, optimizer)


def test_parts_and_wholes_load_their_states() -> None:
    model, optimizer = small()
    whole: Any = nn.ModuleDict({"inside": model})
    weights = {f"inside.{name}": torch.full_like(values, 0.125) for name, values in model.state_dict().items()}
    whole.load_state_dict(weights)
    assert all((castor.exact(p) == 0.125).all() for p in model.parameters())
    model[2].load_state_dict({"weight": torch.zeros(16, 32), "bias": torch.ones(16)})
    step(model, optimizer)
    assert not castor.exact(model[4].weight).eq(0.125).all(), "it is trained"


def test_autograd_hears_of_a_write_between_forward_and_backward() -> None:
    model, _ = small()
    loss = model(torch.ones(2, 16)).pow(2).mean()
    with torch.no_grad():
        model[2].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_cannot_be_served_is_named() -> None:
    model, optimizer = small()
    weight = model[0].weight
    with pytest.raises(castor.InvalidArgument, match="0.weight.*shape"):
        weight.data = torch.zeros(3)
    with pytest.raises(castor.FailedPrecondition, match="0.weight"), torch.no_grad():
        weight.set_(torch.zeros(3))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        weight.mul_(2)
    step(model, optimizer)
    model.append(nn.Linear(16, 16))
    with pytest.raises(castor.FailedPrecondition, match="5 was added to the model, or put in another's place, after castor.wrap"):
        model(torch.ones(2, 16))
    model, optimizer = small()
    model[0].weight = nn.Parameter(torch.zeros(32, 16))
    with pytest.raises(castor.FailedPrecondition, match="0.weight was replaced"):
        step(model, optimizer)


def test_gathered_takes_writes_without_no_grad() -> None:
    model, optimizer = small()
    with castor.gathered(model, write=True):
        model[0].weight.mul_(0)
        model[2].weight.data.numpy()[0] = 7
    assert not castor.exact(model[0].weight).any() and (castor.exact(model[2].weight)[0] == 7).all()
    step(model, optimizer)


def test_models_may_be_two(tmp_path: Path) -> None:
    online, optimizer = small()
    target, _ = small(**{**BUDGETS["tight"], "nvme": str(tmp_path)})
    torch.manual_seed(0)
    plain_online, plain_target = plain(), plain()
    plain_target.load_state_dict(plain_online.state_dict())
    for mine, theirs in ((target, online), (plain_target, plain_online)):
        with torch.no_grad():
            theirs[2].weight.fill_(0.5)
            torch._foreach_lerp_(list(mine.parameters()), list(theirs.parameters()), 0.3)
            mine[0].weight.copy_(theirs[2].weight.t())
    for p, want in zip(target.parameters(), plain_target.parameters()):
        torch.testing.assert_close(castor.exact(p), want.detach(), rtol=1e-6, atol=0)


def test_what_contains_a_model_saves_its_state() -> None:
    model, _ = small()
    whole: Any = nn.ModuleDict({"inside": model, "beside": nn.Linear(2, 2)})
    state = whole.state_dict()
    assert set(state) == {f"inside.{name}" for name in model.state_dict()} | {"beside.weight", "beside.bias"}
    assert torch.equal(state["inside.0.weight"], castor.exact(model[0].weight))


def test_parts_may_be_added_where_castor_leaves_them_alone_and_parameters_renamed() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(plain(), nn.ModuleList())
    model.forward = lambda x: model[0](x)
    model, optimizer = castor.wrap(model, torch.optim.SGD(model[0].parameters(), lr=0.1), device="64MiB", host="64MiB", ignore=[model[1]])
    model[1].append(nn.Linear(2, 2))
    nn.utils.prune.l1_unstructured(model[0][0], "weight", 0.3)
    step(model, optimizer)


def test_a_shape_that_changes_in_place_is_named() -> None:
    for budgets in ({}, MOVING):
        model, optimizer = small(**budgets)
        with pytest.raises(castor.FailedPrecondition, match="0.weight was given another shape"), torch.no_grad():
            model[0].weight.t_()
            castor.exact(model[0].weight)  # of a resident one, who looks is told
        step(model, optimizer)


def test_bytes_are_looked_at_in_a_models_first_uses_only() -> None:
    for trains in (True, False):
        model, optimizer = small(**MOVING)
        for _ in range(40):
            if trains:
                step(model, optimizer)
            else:
                with torch.no_grad():
                    model(torch.ones(1, 16))
        assert all(p._castor.watched <= 0 for p in model.parameters())


def test_aliases_cost_what_they_are_once_a_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    for name in ("digest_of", "device_digest_of"):
        digest = getattr(_values, name)
        monkeypatch.setattr(_values, name, lambda values, digest=digest: counted.append(1) or digest(values))
    model, optimizer = small(**MOVING)
    for _ in range(3):
        step(model, optimizer)
    aliases = [p.detach() for p in model.parameters()]
    counted.clear()
    model(torch.ones(1, 16))
    # The alias itself, and the chunk before and after the use.
    assert len(aliases) <= len(counted) <= 3 * len(aliases) + 2


class Clamps(nn.Linear):
    begun = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.begun:
            self.weight.data.clamp_(-0.01, 0.01)
        return super().forward(x)


def test_a_forward_that_begins_late_to_write_by_data_is_named() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(Clamps(16, 8), nn.GELU(), nn.Linear(8, 4))
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **BUDGETS["tight"] | {"host": "64MiB"})
    for _ in range(6):
        step(model, optimizer)
    model[0].begun = True
    with pytest.raises(castor.FailedPrecondition, match="memory of 0.weight"):
        for _ in range(4 * 16):
            step(model, optimizer)
    for _ in range(2):
        step(model, optimizer)
        assert castor.exact(model[0].weight).abs().max() < 0.02  # clamped, then one update
