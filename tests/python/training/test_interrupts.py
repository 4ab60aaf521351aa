# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ctrl-C at any moment of a training, caught: the training goes on, and no Ctrl-C is lost."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from castor._abi import lib

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
    optimizer.runtime.steps.abandon()
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
    assert model._castor.steps.asleep  # type: ignore[union-attr]
    with Interrupted("castor_engine_resume", monkeypatch), pytest.raises(KeyboardInterrupt):
        castor.wake(model)
    assert not model._castor.steps.asleep  # type: ignore[union-attr]
    expect_same(values_of(model), before)


def budgets(place: str, folder: Path) -> dict[str, Any]:
    return {"resident": {"device": "64MiB", "host": "64MiB"}, "a third": {"device": 300_000, "host": "20MiB"},
            "nvme": {"device": 300_000, "host": 200_000, "nvme": str(folder)}}[place]


def five_layers(place: str, folder: Path) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(5)))
    return castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.05), **budgets(place, folder))


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(4, 64)).pow(2).mean().backward()
    optimizer.step()


class Instructions:
    """Python's tracing, which sends SIGINT ahead of one instruction, and counts all."""

    def __init__(self, interrupted: int) -> None:
        self.interrupted, self.count, self.where = interrupted, 0, ""

    def begin(self, frame: Any, _event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.next

    def next(self, frame: Any, event: str, _argument: Any) -> Any:
        if event == "opcode":
            self.count += 1
            if self.count == self.interrupted:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}, {frame.f_code.co_name}"
                signal.raise_signal(signal.SIGINT)
                return frame.f_trace  # another, where Castor calls the handler later
        return self.next

    def run(self, what: Callable[[], None]) -> bool:
        """Whether KeyboardInterrupt came out."""
        try:
            sys.settrace(self.begin)
            try:
                what()
            finally:
                sys.settrace(None)
        except KeyboardInterrupt:
            return True
        return False


@pytest.mark.parametrize("place", ["resident", "a third", "nvme"])
def test_a_step_may_be_interrupted_before_any_instruction(place: str, tmp_path: Path) -> None:
    """A hundred of them by chance, and with CASTOR_TEST_EVERY_CELL all."""
    seed = int(os.environ.get("CASTOR_TEST_SEED", random.randrange(1 << 20)))
    print(f"seed {seed}")
    model, optimizer = five_layers(place, tmp_path)
    for _ in range(4):
        step(model, optimizer)
    every = Instructions(0)
    assert not every.run(lambda: step(model, optimizer))
    assert every.count > 5000
    numbers = range(1, every.count + 1)
    names = torch._C.DisableTorchFunctionSubclass()
    with names:
        pass
    for number in numbers if "CASTOR_TEST_EVERY_CELL" in os.environ else random.Random(seed).sample(numbers, 100):
        once = Instructions(number)
        raised = once.run(lambda: step(model, optimizer))
        assert raised == bool(once.where), once.where
        # As before, where torch's own `with` was about to end: Python calls no handler there, only tracing does.
        names.__exit__(None, None, None)
        step(model, optimizer)
        assert all(bool(value.isfinite().all()) for value in model.state_dict().values()), once.where


@pytest.mark.parametrize("place", ["resident", "a third", "nvme"])
def test_a_training_that_is_interrupted_at_random_times_goes_on(place: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("CASTOR_TEST_SEED", random.randrange(1 << 20)))
    print(f"seed {seed}")
    chance, armed, interrupted, done = random.Random(seed), False, 0, 0
    model, optimizer = five_layers(place, tmp_path)

    def stop(*_: Any) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        while interrupted < 200:
            try:
                try:
                    armed = True
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 + chance.random() * 3e-3)
                    step(model, optimizer)
                    done += 1
                finally:
                    armed = False
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    castor.save(str(tmp_path / "checkpoint"), model)
    for _ in range(3):
        step(model, optimizer)
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())


@pytest.mark.parametrize("around", [0, 1])
def test_hooks_on_saved_tensors_are_the_scripts_own_again(around: int, tmp_path: Path) -> None:
    model, optimizer = five_layers("a third", tmp_path)
    step(model, optimizer)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.shape)
        return tensor

    packed: list[Any] = []
    hook = model[2].register_forward_pre_hook(interrupt)  # type: ignore[index]
    with contextlib.ExitStack() as hooks:
        for _ in range(around):
            hooks.enter_context(torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor))
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(4, 64))
    hook.remove()
    step(model, optimizer)
    packed.clear()
    torch.ones(3, requires_grad=True).pow(2).sum().backward()
    assert not packed
