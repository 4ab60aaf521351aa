# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Frozen weights of any type, held in chunks as their bytes: integers and float8."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run
from torch import nn

import castor.torch as castor
from castor.errors import FailedPrecondition, InvalidArgument

TYPES = [torch.uint8, torch.int8, torch.int32, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64, torch.bool]
TIGHT: dict[str, Any] = {"device": "120KiB", "host": "10MiB"}


class Quantized(nn.Module):
    """A layer with a frozen weight of this type by hand, beside a trained one."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        drawn = torch.randint(0, 0x3F, (64, 64 * dtype.itemsize), dtype=torch.uint8)
        self.weight = nn.Parameter((drawn & 1 if dtype is torch.bool else drawn).view(dtype), requires_grad=False)
        self.scale = nn.Parameter(torch.tensor(0.01 if dtype.itemsize == 1 else 1e-9), requires_grad=False)
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x @ torch.tanh(self.weight.float() * self.scale))


def make() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(*map(Quantized, TYPES))


def wrapped(**budgets: Any) -> tuple[Any, Any]:
    model = make()
    return castor.wrap(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3), **budgets)


def train(model: Any, optimizer: Any, steps: int = 3) -> list[float]:
    told = []
    for _ in range(steps):
        loss = model(torch.linspace(-1, 1, 128).view(2, 64)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append(float(loss.detach()))
    return told


def of_bytes(model: Any) -> dict[str, torch.Tensor]:
    return {name: p for name, p in model.named_parameters() if p.dtype in TYPES}


def same(values: torch.Tensor, wanted: torch.Tensor) -> bool:
    return values.dtype is wanted.dtype and torch.equal(values.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8))


@pytest.mark.parametrize("where", ["device", "host", "nvme"])
def test_training_beside_them_has_the_bits_of_a_plain_forward_wherever_they_are(where: str, tmp_path: Path) -> None:
    plain = make()
    first = float(plain(torch.linspace(-1, 1, 128).view(2, 64)).pow(2).mean())
    before = {name: p.detach().clone() for name, p in of_bytes(plain).items()}
    resident = train(*wrapped())
    budgets = {"device": {}, "host": TIGHT, "nvme": {**TIGHT, "nvme": str(tmp_path), "place": {"*": "nvme"}}}[where]
    model, optimizer = wrapped(**budgets)
    told = train(model, optimizer)
    assert told == resident and told[0] == first
    assert len(before) == len(TYPES)
    state = model.state_dict()
    for name, values in before.items():
        assert same(state[name], values), name
        assert same(castor.exact(of_bytes(model)[name]), values), name
    copied = copy.deepcopy(model)
    assert all(same(p.detach(), before[name]) for name, p in of_bytes(copied).items())


def test_a_checkpoint_brings_them_back_under_other_budgets(tmp_path: Path) -> None:
    model, optimizer = wrapped(**TIGHT)
    with castor.gathered([model[1].weight], write=True), torch.no_grad():
        model[1].weight.add_(1)
    train(model, optimizer)
    castor.save(str(tmp_path), model)
    other, optimizer = wrapped()
    castor.load(str(tmp_path), other)
    assert same(castor.exact(other[1].weight), make()[1].weight.detach() + 1)
    assert all(same(castor.exact(p), castor.exact(of_bytes(model)[name])) for name, p in of_bytes(other).items())
    other.load_state_dict(make().state_dict())
    assert same(castor.exact(other[1].weight), make()[1].weight.detach())


def test_writes_between_steps_reach_the_chunk() -> None:
    model, optimizer = wrapped(**TIGHT)
    train(model, optimizer, 1)
    with torch.no_grad():
        model[0].weight.copy_(make()[0].weight.flip(0))
    train(model, optimizer, 1)
    assert same(castor.exact(model[0].weight), make()[0].weight.detach().flip(0))


def test_ranks_gather_them(tmp_path: Path) -> None:
    found = run("frozen_bytes", 2, tmp_path)
    assert found["losses"] == found["alone"] and found["same"]


def test_a_plan_counts_their_bytes() -> None:
    model = make()
    trained = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    plan = castor.plan(model, optimizer=trained, device_budget="120KiB", host_budget="10MiB")
    assert plan.fits and plan.document["model"]["total_bytes"] == sum(p.numel() * p.itemsize for p in model.parameters())


def test_training_them_is_refused() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 4))
    model.register_parameter("counts", nn.Parameter(torch.zeros(4, dtype=torch.float64)))
    with pytest.raises(InvalidArgument, match="parameter counts is torch.float64: Castor trains float32"):
        castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))


class Pair(torch.Tensor):
    """A weight of two tensors under one name, as torchao makes them."""

    codes: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, codes: torch.Tensor, scale: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype)  # type: ignore[attr-defined]
        made.codes, made.scale = codes, scale
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], _meta: Any, _size: Any, _stride: Any) -> Pair:
        return Pair(inner["codes"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return Pair(arguments[0].codes, arguments[0].scale)
        plain = [one.codes * one.scale if isinstance(one, Pair) else one for one in arguments]
        return function(*plain, **(keywords or {}))


def test_weights_of_several_tensors_are_refused_by_name() -> None:
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    model[0].weight = nn.Parameter(Pair(torch.ones(8, 8, dtype=torch.int8), torch.tensor(0.5)), requires_grad=False)
    with pytest.raises(InvalidArgument, match="parameter 0.weight is a Pair of test_bytes, which is no tensor of one memory: leave its module alone by ignore="):
        castor.wrap(model, torch.optim.SGD(model[1].parameters(), lr=0.1))
    model, optimizer = castor.wrap(model, torch.optim.SGD(model[1].parameters(), lr=0.1), ignore=[model[0]])
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()


class Anew(Quantized):
    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__(torch.uint8)
        self.anew = shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data = self.weight.data.flip(0).reshape(self.anew)
        return self.linear(x @ torch.tanh(self.weight.reshape(64, 64).float() * self.scale))


def anew(shape: tuple[int, int], **budgets: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(Anew(shape), *map(Quantized, TYPES))
    return castor.wrap(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]), **budgets)


@pytest.mark.parametrize("budgets", [{}, TIGHT], ids=["resident", "tight"])
def test_a_forward_that_writes_to_one_loses_nothing(budgets: dict[str, Any]) -> None:
    model, optimizer = anew((64, 64), **budgets)
    train(model, optimizer, 3)
    torch.manual_seed(0)
    assert same(castor.exact(model[0].weight), Anew((64, 64)).weight.detach().flip(0))


def test_a_forward_that_lays_one_out_anew_is_refused() -> None:
    model, optimizer = anew((128, 32), **TIGHT)
    with pytest.raises(FailedPrecondition, match=r"laid the quantized weight 0.weight out anew, from \[64, 64\] to \[128, 32\]"):
        train(model, optimizer, 1)
