# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ctrl-C in a call of the engine's: what the engine has made is noted before KeyboardInterrupt, so that a script can go on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from castor._abi import lib
from castor._interrupts import uninterrupted

MAKE: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "NAdam": lambda params: torch.optim.NAdam(params, lr=1e-2),
    "amsgrad": lambda params: torch.optim.Adam(params, lr=1e-2, amsgrad=True),
    "Adafactor": lambda params: torch.optim.Adafactor(params, lr=1e-2),
}


@pytest.fixture(autouse=True)
def _pythons_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def made() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 8))


def backward(model: nn.Module, step: int) -> None:
    inputs = torch.randn(6, 24, generator=torch.Generator().manual_seed(step))
    model(inputs).pow(2).mean().backward()


def values_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def expect_same(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert mine.keys() == theirs.keys()
    assert [name for name in theirs if not torch.equal(mine[name], theirs[name])] == []


class Interrupted:
    """As a context: Ctrl-C comes while a call of the library's runs, just before it returns."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self._name, self._real = monkeypatch, name, getattr(lib, name)

    def _call(self, *arguments: Any) -> Any:
        code = self._real(*arguments)
        signal.raise_signal(signal.SIGINT)
        return code

    def __enter__(self) -> None:
        self._patch.setattr(lib, self._name, self._call)

    def __exit__(self, *_: object) -> None:
        self._patch.setattr(lib, self._name, self._real)


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("name", MAKE)
def test_a_step_that_the_engine_made_is_the_optimizers_too(name: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, model = made(), made()
    theirs = MAKE[name](plain.parameters())
    model, optimizer = castor.wrap(model, MAKE[name](model.parameters()), device="16MiB", host="16MiB")  # type: ignore[assignment]
    for step in range(5):
        for one, its in ((plain, theirs), (model, optimizer)):
            its.param_groups[0]["lr"] = 1e-2 / (step + 1)  # obeyed after the interrupt, too
            its.zero_grad()
            backward(one, step)
            if its is optimizer and step == at:
                with Interrupted("castor_engine_step", monkeypatch), pytest.raises(KeyboardInterrupt):
                    its.step()
            else:
                its.step()
    expect_same(values_of(model), values_of(plain))
    assert optimizer.state_dict()["state"].keys() == theirs.state_dict()["state"].keys()


def test_a_step_that_is_dropped_leaves_nothing_of_its_rate() -> None:
    model = made()
    model, optimizer = castor.wrap(model, MAKE["NAdam"](model.parameters()), update_in_backward=True)  # type: ignore[assignment]
    model(torch.ones(6, 24))
    optimizer.update_early()
    optimizer.runtime.abandon()
    optimizer.param_groups[0]["lr"] = 0.0
    before = values_of(model)
    backward(model, 0)
    optimizer.step()
    expect_same(values_of(model), before)


def test_gathered_values_go_back_though_a_read_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()
    model, optimizer = castor.wrap(model, MAKE["NAdam"](model.parameters()), device="16MiB", host="16MiB")  # type: ignore[assignment]
    before = values_of(model)
    with Interrupted("castor_engine_read", monkeypatch), pytest.raises(KeyboardInterrupt), castor.gathered(model):
        pytest.fail("the context began")
    assert [p._castor.pins for p in model.parameters()] == [0] * 4  # type: ignore[attr-defined]
    expect_same(values_of(model), before)
    backward(model, 0)
    optimizer.step()


def test_a_checkpoint_is_loaded_wholly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()
    model, optimizer = castor.wrap(model, MAKE["NAdam"](model.parameters()), device="16MiB", host="16MiB")  # type: ignore[assignment]
    after: list[dict[str, torch.Tensor]] = []
    for step in range(3):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
        if step == 0:
            castor.save(str(tmp_path), model)
        after.append(values_of(model))
    with Interrupted("castor_engine_load", monkeypatch), pytest.raises(KeyboardInterrupt):
        castor.load(str(tmp_path), model)
    for step in range(1, 3):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
        expect_same(values_of(model), after[step])


def test_a_model_whose_falling_asleep_was_interrupted_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()
    model, _ = castor.wrap(model, MAKE["NAdam"](model.parameters()), device="16MiB", host="16MiB")  # type: ignore[assignment]
    before = values_of(model)
    with Interrupted("castor_engine_park", monkeypatch), pytest.raises(KeyboardInterrupt):
        castor.sleep(model)
    assert model._castor.asleep  # type: ignore[union-attr]
    with Interrupted("castor_engine_resume", monkeypatch), pytest.raises(KeyboardInterrupt):
        castor.wake(model)
    assert not model._castor.asleep  # type: ignore[union-attr]
    expect_same(values_of(model), before)


def test_what_belongs_together_ends_before_ctrl_c_is_told() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(ValueError, match="inside"), uninterrupted():
        raise ValueError("inside")
    with uninterrupted():
        reached = True
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
