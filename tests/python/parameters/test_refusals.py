# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What Castor cannot serve is a sentence that names it, and never a wrong number."""

from __future__ import annotations

import copy
import gc
import logging
import os
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
from torch import nn

import castor.torch as castor

ROOMY: dict[str, Any] = {"device": "64MiB", "host": "64MiB"}


def make() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


def wrapped(**more: Any) -> tuple[nn.Module, Any]:
    model = make()
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-2), **(ROOMY | more))


def backward(model: nn.Module, seed: int = 0) -> torch.Tensor:
    loss = model(torch.randn(2, 8, generator=torch.Generator().manual_seed(seed))).pow(2).mean()
    loss.backward()
    return loss


def test_parameters_that_are_not_the_models() -> None:
    model, other = make(), make()
    with pytest.raises(castor.InvalidArgument, match="not the model's"):
        castor.wrap(model, torch.optim.SGD(other.parameters(), lr=0.1), **ROOMY)


def test_ignored_modules_are_left_alone() -> None:
    model = make()
    with pytest.raises(castor.InvalidArgument, match=r"2\.weight is in a module to ignore"):
        castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), ignore=[model[2]], **ROOMY)
    plain = make()
    mine, optimizer = castor.wrap(model, torch.optim.SGD(model[0].parameters(), lr=0.1), ignore=[model[2]], **ROOMY)
    own = torch.optim.SGD(model[2].parameters(), lr=0.1)
    plain_optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for step in range(4):
        losses = []
        for both, optimizers in ((plain, [plain_optimizer]), (mine, [optimizer, own])):
            for one in optimizers:
                one.zero_grad()
            losses.append(backward(both, step).item())
            for one in optimizers:
                one.step()
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert type(mine[2].weight) is nn.Parameter


def test_a_model_is_wrapped_once_and_its_modules_too() -> None:
    model, _ = wrapped()
    with pytest.raises(castor.FailedPrecondition, match="wrapped already"):
        castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **ROOMY)
    whole = nn.Sequential(model[0])
    with pytest.raises(castor.FailedPrecondition, match=r"0\.weight"):
        castor.wrap(whole, torch.optim.SGD(whole.parameters(), lr=0.1), **ROOMY)


def test_types_and_sizes_that_castor_does_not_train() -> None:
    model = make().double()
    with pytest.raises(castor.InvalidArgument, match=r"0\.weight is torch.float64"):
        castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **ROOMY)
    with pytest.raises(castor.InvalidArgument, match="'8 GB'"):
        wrapped(device="8 GB")
    embedding = nn.Embedding(4, 4, max_norm=1.0)
    with pytest.raises(castor.InvalidArgument, match="max_norm"):
        castor.wrap(nn.Sequential(embedding), torch.optim.SGD(embedding.parameters(), lr=0.1), **ROOMY)


def test_budgets_that_do_not_fit_say_what_would() -> None:
    model = make()
    with pytest.raises(castor.DoesNotFit) as refused:
        castor.wrap(model, torch.optim.AdamW(model.parameters()), device="4KiB", host="4KiB")
    assert any("raise the" in change for change in refused.value.changes)
    assert type(model[0].weight) is nn.Parameter
    model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters()), **ROOMY)
    backward(model)
    optimizer.step()


def test_moves() -> None:
    model, optimizer = wrapped()
    for move in (lambda: model.half(), lambda: model.to("meta"), lambda: model.to(torch.bfloat16)):
        with pytest.raises(castor.FailedPrecondition, match="before castor.wrap"):
            move()
    assert model.to("cpu") is model
    backward(model)
    optimizer.step()


def test_what_is_not_in_a_step() -> None:
    model, optimizer = wrapped()
    optimizer.step()  # no gradients: torch does nothing, and so does Castor
    optimizer.step(lambda: None)
    with pytest.raises(castor.FailedPrecondition, match="was put into param_groups after castor.wrap"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})


def test_weights_that_a_step_has_changed_are_not_differentiated() -> None:
    model, optimizer = wrapped()
    x = torch.randn(2, 8)
    first = model(x).pow(2).mean()
    backward(model)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.backward()
    optimizer.zero_grad()
    backward(model)
    optimizer.step()


def test_a_second_backward_with_and_without_retain_graph() -> None:
    model, optimizer = wrapped()
    x = torch.randn(2, 8)
    loss = model(x).pow(2).mean()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    optimizer.zero_grad()
    backward(model)
    optimizer.step()

    plain = make()
    plain_optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    plain_sum = 0.0
    for both, step in ((plain, plain_optimizer), wrapped()):
        loss = both(x).pow(2).mean()
        loss.backward(retain_graph=True)
        loss.backward()
        step.step()
        plain_sum = both(x).sum().item() if both is plain else plain_sum
        assert both(x).sum().item() == pytest.approx(plain_sum, rel=1e-5)


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = make()
        self.fails = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner[0](x)
        if self.fails:
            raise KeyError("the forward failed")
        return self.inner[2](x)


def test_exceptions_in_forward_and_backward_leave_a_model_that_goes_on() -> None:
    torch.manual_seed(3)
    model = Fails()
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **ROOMY)
    with pytest.raises(KeyError):
        model(torch.randn(2, 8))
    model.fails = False
    loss = model(torch.randn(2, 8)).sum()

    def explode(_gradient: torch.Tensor) -> None:
        raise ValueError("the backward failed")

    hidden = model.inner[0].register_full_backward_hook(lambda *_: explode(loss))
    loss = model(torch.randn(2, 8, requires_grad=True)).sum()
    with pytest.raises(ValueError, match="backward failed"):
        loss.backward()
    hidden.remove()
    optimizer.zero_grad()
    before = model.state_dict()["inner.2.bias"]
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
    assert torch.equal(model.state_dict()["inner.2.bias"], before - 0.1 * 2)


def test_a_backward_that_never_comes_costs_nothing() -> None:
    model, optimizer = wrapped()
    for _ in range(5):
        model(torch.randn(2, 8))
    first = backward(model).item()
    optimizer.step()
    other, other_optimizer = wrapped()
    assert backward(other).item() == first
    other_optimizer.step()
    assert model.state_dict()["0.weight"].equal(other.state_dict()["0.weight"])


def test_zero_grad_drops_a_backward() -> None:
    losses = []
    for drops in (False, True):
        model, optimizer = wrapped()
        for step in range(4):
            if drops:
                backward(model, 100 + step)
                optimizer.zero_grad()
            losses.append(backward(model, step).item())
            optimizer.step()
    assert losses[:4] == losses[4:]


def test_memory_is_given_back_with_the_model() -> None:
    model, optimizer = wrapped()
    backward(model)
    optimizer.step()
    engine = optimizer.runtime.engine
    del model, optimizer
    gc.collect()
    assert not engine.handle


class _Changes(nn.Module):
    """Changes what autograd has saved, as `in_place` says."""

    def __init__(self, in_place: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.first, self.second, self.in_place = nn.Linear(8, 8), nn.Linear(8, 4), in_place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.sigmoid(self.first(x))
        out = self.second(hidden * 1.0)
        self.in_place(hidden)
        return out


@pytest.mark.parametrize("in_place", [lambda h: h.add_(1), lambda h: h.detach().zero_(), lambda h: h[0].mul_(2)])
def test_activations_that_are_written_to_are_not_differentiated(in_place: Callable[[torch.Tensor], Any]) -> None:
    for wrap in (False, True):
        model: Any = _Changes(in_place)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if wrap:
            model, optimizer = castor.wrap(model, optimizer, **ROOMY)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            backward(model)
    model.in_place = lambda _: None
    optimizer.zero_grad()
    backward(model)
    optimizer.step()


def test_in_place_activations_that_autograd_allows_are_served() -> None:
    losses = []
    for wrap in (False, True):
        torch.manual_seed(3)
        model: Any = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 16), nn.Dropout(0.1, inplace=True), nn.Linear(16, 4))
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if wrap:
            model, optimizer = castor.wrap(model, optimizer, **ROOMY)
        losses.append([])
        for step in range(4):
            torch.manual_seed(step)
            optimizer.zero_grad()
            losses[-1].append(backward(model, step).item())
            optimizer.step()
    assert losses[0] == losses[1]


@pytest.mark.parametrize("arguments, says", [
    ({"place": {"*": "gpu"}}, "place has 'gpu' for '\\*': give one of device, host, nvme"),
    ({"place": {"0.*": {"moments": "host"}}}, "place has the state 'moments' for '0"),
    ({"place": {"0.*": {"param": "disk"}}}, "place has 'disk' for '0"),
    ({"device": 8}, "device is 8 bytes, in which no model trains: write the unit"),
    ({"host": "64"}, "host is 64 bytes, in which no model trains: write the unit"),
    ({"nvme": "/nowhere/at/all"}, "nvme is '/nowhere/at/all', which is no directory"),
    ({"nvme": ["/var", "/dev/shm"]}, r"nvme is '/dev/shm', which is host memory \(tmpfs\): give a directory on a drive, or a larger host= instead"),
    ({"nvme": ["/proc"]}, "nvme is '/proc', where this process may not write"),
])
def test_arguments_are_named_as_the_script_has_them(arguments: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    monkeypatch.setattr(os, "access", lambda path, mode: path != "/proc")  # root may write anywhere
    with pytest.raises(castor.InvalidArgument, match=says):
        castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **arguments)


def test_budgets_above_the_machine_are_said(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with caplog.at_level(logging.WARNING, "castor"):
        castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="1MiB", host="900TiB")
    assert "with host='900TiB' budgets are above the" in caplog.text


def test_parameters_over_one_memory_are_refused_by_both_names() -> None:
    def by_data(model: Any) -> None:
        model[2].weight.data = model[0].weight.data

    def overlapping(model: Any) -> None:
        both = torch.randn(12, 8)
        model[0].weight, model[2].weight = nn.Parameter(both[:8]), nn.Parameter(both[4:])

    for tie in (by_data, overlapping):
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        tie(model)
        with pytest.raises(castor.InvalidArgument, match=r"parameters 0\.weight and 2\.weight are two over the same memory|2\.weight and 0\.weight"):
            castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **ROOMY)
    # Parameters may lie side by side in one memory, and a parameter may have two names.
    both = torch.randn(16, 8)
    model[0].weight, model[2].weight = nn.Parameter(both[:8]), nn.Parameter(both[8:])
    model[0].bias = model[2].bias
    castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **ROOMY)


@pytest.mark.parametrize("replace", ["attribute", "sequential", "dict", "list", "nested"])
def test_a_layer_in_anothers_place_is_refused_by_its_name(replace: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.seq = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU())
            self.mods, self.many = nn.ModuleDict({"h": nn.Linear(8, 8)}), nn.ModuleList([nn.Linear(8, 8)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.many[0](self.mods["h"](self.seq(self.fc(x))))

    model: Any
    model, optimizer = castor.wrap(*((made := Model()), torch.optim.SGD(made.parameters(), lr=0.1)), **ROOMY)
    x = torch.randn(2, 8)
    model(x).sum().backward()
    optimizer.step()
    model.mods["h"] = nn.Identity()  # has nothing to train
    frozen = nn.Linear(8, 8).requires_grad_(False)
    model.many[0] = frozen
    with torch.no_grad():
        model(x)
    if replace == "attribute":
        name, model.fc = "fc", nn.Linear(8, 8)
    elif replace == "sequential":
        name, model.seq[0] = "seq.0", nn.Linear(8, 8)
    elif replace == "dict":
        name, model.mods["h"] = "mods.h", nn.Linear(8, 8)
    elif replace == "list":
        name, model.many[0] = "many.0", nn.Linear(8, 8)
    else:
        name, model.seq = "seq", nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    for _ in range(2):
        with pytest.raises(castor.FailedPrecondition, match=f"^{name} was added to the model, or put in another's place, after castor.wrap"):
            model(x)


def test_torchscript_is_refused_where_it_would_keep_places(tmp_path: Path) -> None:
    x = torch.randn(2, 8)
    model: Any
    for budgets, traces in ((ROOMY, True), ({"place": {"*": "host"}}, False)):
        model, optimizer = castor.wrap(*((made := make()), torch.optim.SGD(made.parameters(), lr=0.1)), **budgets)
        backward(model)
        optimizer.step()
        words = "TorchScript and the ONNX exporter without dynamo"
        with pytest.raises(castor.FailedPrecondition, match=words):
            torch.jit.script(model)
        with pytest.raises(castor.FailedPrecondition, match=words), torch.no_grad():
            torch.onnx.export(model, (x,), str(tmp_path / "model.onnx"), dynamo=False)
        if traces:
            traced = torch.jit.trace(model, x)
            backward(model)
            optimizer.step()
            torch.testing.assert_close(traced(x), model(x))
        else:
            with pytest.raises(castor.FailedPrecondition, match=words):
                torch.jit.trace(model, x)
        torch.testing.assert_close(torch.jit.trace(copy.deepcopy(model), x)(x), model(x))
        torch.testing.assert_close(torch.export.export(model, (x,), strict=False).module()(x), model(x))
