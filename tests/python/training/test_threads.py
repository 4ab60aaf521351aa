# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Threads that compute with one model take turns: each is served as if it were alone."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from castor.errors import DoesNotFit, FailedPrecondition
from castor.torch import _patches
from castor.torch._turn import Turn

BUDGETS: dict[str, dict[str, Any]] = {"resident": {"device": "64MiB", "host": "64MiB"}, "tight": {"device": 60_000, "host": "8MiB", "config": {"poison": True}}}


def made(budgets: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(5)))
    return castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.01), **budgets)


def three_slots(layer: type[nn.Linear] = nn.Linear) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A device that holds three chunks at once, of twelve."""
    torch.manual_seed(0)
    model = nn.Sequential(*(layer(64, 64) for _ in range(6)))
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-3), device="64KiB", host="8MiB", chunk=16 << 10)


def inputs(number: int) -> torch.Tensor:
    return torch.randn(4, 32, generator=torch.Generator().manual_seed(number))


@pytest.mark.parametrize("budgets", BUDGETS.values(), ids=BUDGETS)
def test_eight_threads_evaluate_at_once(budgets: dict[str, Any]) -> None:
    model, _ = made(budgets)
    with torch.no_grad():
        want = [model(inputs(number)) for number in range(8)]
    begin = threading.Barrier(8)

    def evaluate(number: int) -> bool:
        begin.wait()
        with torch.no_grad():
            return all(torch.equal(model(inputs(number)), want[number]) for _ in range(100))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(evaluate, range(8))) == [True] * 8


@pytest.mark.parametrize("budgets", BUDGETS.values(), ids=BUDGETS)
def test_others_evaluate_and_read_while_one_trains(budgets: dict[str, Any]) -> None:
    """They see the weights of some step, whole."""
    model, optimizer = made(budgets)
    plain = nn.Sequential(*(nn.Linear(32, 32) for _ in range(5)))
    plain.load_state_dict(model.state_dict())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.01)
    x, outs = inputs(0), []
    for number in range(60):
        with torch.no_grad():
            outs.append(plain(x))
        plain(inputs(number)).pow(2).mean().backward()
        theirs.step()
        theirs.zero_grad()
    outs.append(plain(x).detach())
    over, begin = threading.Event(), threading.Barrier(8)

    def train() -> int:
        begin.wait()
        try:
            for number in range(60):
                model(inputs(number)).pow(2).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        finally:
            over.set()
        return 60

    def watch(kind: int) -> int:
        begin.wait()
        count = 0
        while not over.is_set():
            if kind % 3 == 0:
                assert all(bool(value.isfinite().all()) for value in model.state_dict().values())
            elif kind % 3 == 1:
                assert bool(next(model.parameters()).detach().clone().isfinite().all())
            else:
                with torch.no_grad():
                    out = model(x)
                assert any(torch.allclose(out, one, rtol=1e-5, atol=1e-6) for one in outs)
            count += 1
        return count

    with ThreadPoolExecutor(8) as pool:
        trained, watched = pool.submit(train), [pool.submit(watch, kind) for kind in range(7)]
        assert trained.result() == 60
        assert all(one.result() > 0 for one in watched)
    with torch.no_grad():
        torch.testing.assert_close(model(x), outs[-1])


@pytest.mark.parametrize("budgets", BUDGETS.values(), ids=BUDGETS)
def test_a_backward_waits_for_another_threads(budgets: dict[str, Any]) -> None:
    """Each has the gradients of its own forward, and a step has the sum."""
    model, optimizer = made(budgets)
    plain = nn.Sequential(*(nn.Linear(32, 32) for _ in range(5)))
    plain.load_state_dict(model.state_dict())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.01)
    events: list[str] = []
    threads: list[threading.Thread] = []

    def second() -> None:
        losses[1].backward()
        events.append("the second ends")

    def in_the_first(_: torch.Tensor) -> None:
        threads.append(threading.Thread(target=second))
        threads[0].start()
        time.sleep(0.2)  # where nothing held the second, the second would be over
        events.append("the first goes on")

    losses = []
    for number in range(2):
        middle = model[:3](inputs(number))
        if number == 0:
            middle.register_hook(in_the_first)
        losses.append(model[3:](middle).pow(2).mean())
        plain(inputs(number)).pow(2).mean().backward()
    losses[0].backward()
    threads[0].join()
    if not model._castor.residents.active:  # whose gradients torch adds up, whichever thread comes first
        assert events == ["the first goes on", "the second ends"]
    optimizer.step()
    theirs.step()
    for ours, want in zip(model.state_dict().values(), plain.state_dict().values()):
        torch.testing.assert_close(ours, want)


def test_a_backward_that_cannot_wait_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where one thread of autograd's computes the backwards of all threads."""
    if os.environ.get("CASTOR_TEST_FAKE_GPU"):
        pytest.skip("a backward waits before it begins, and this one is waited for inside the other")
    model, optimizer = made({"place": {"*": "host"}})
    plain = nn.Sequential(*(nn.Linear(32, 32) for _ in range(5)))
    plain.load_state_dict(model.state_dict())
    errors: list[BaseException] = []

    def second() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(_patches, "backward_under_way", lambda: (sys._getframe(), threading.get_native_id()))
            try:
                losses[1].backward()
            except FailedPrecondition as error:
                errors.append(error)

    def in_the_first(_: torch.Tensor) -> None:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()

    middle = model[:3](inputs(0))
    middle.register_hook(in_the_first)
    losses = [model[3:](middle).pow(2).mean(), model(inputs(1)).pow(2).mean()]
    losses[0].backward()
    assert [str(error) for error in errors] == ["another thread computes with this model"]
    plain(inputs(0)).pow(2).mean().backward()
    for ours, want in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(castor.gradient(ours), want.grad)


def test_values_that_are_held_too_long_are_refused_once() -> None:
    """They take the slots of a step, as those that another thread's traceback refers to do. Training goes on when they are gone."""
    held: list[torch.Tensor] = []
    most = 0

    class Holds(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(held) < most:
                held.append(self.weight)
            return super().forward(x)

    model, optimizer = three_slots(Holds)

    def step() -> None:
        model(torch.ones(2, 64)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    step()
    refused = 0
    for most in range(1, 6):
        try:
            step()
        except DoesNotFit:
            refused += 1
        before, most = most, 0
        held.clear()
        step()
        with torch.no_grad():
            model(torch.ones(2, 64))
        most = before
    assert refused > 0


def test_eight_threads_at_random_leave_a_model_that_trains() -> None:
    """What one of them may not do is refused by a sentence, and costs the others nothing."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    model, optimizer = three_slots()
    # All go on until each has been served often enough, however slow this machine is.
    served, begin, end = [0] * 8, threading.Barrier(8), time.monotonic() + 120

    def work(number: int) -> None:
        draw = random.Random(seed + number)
        begin.wait()
        while min(served) < 40 and time.monotonic() < end:
            kind = draw.randrange(6)
            try:
                if kind == 0:
                    model(torch.ones(2, 64)).pow(2).mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                elif kind == 1:
                    float(model[draw.randrange(6)].weight.detach().norm())  # type: ignore[union-attr]
                elif kind == 2:
                    model.state_dict()
                elif kind == 3:
                    castor.exact(model[1].weight)  # type: ignore[arg-type, union-attr]
                else:
                    with torch.no_grad():
                        assert bool(model(torch.ones(2, 64)).isfinite().all())
                served[number] += 1
            except DoesNotFit as error:
                assert "held" in str(error) or "hold" in str(error), error
            except RuntimeError as error:  # as of torch, where another thread has stepped between a forward and its backward
                assert "modified by an inplace operation" in str(error), error

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert min(served) >= 40, served
    for number in range(3):
        model(torch.ones(2, 64)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_model_is_not_held_by_a_thread_that_has_died() -> None:
    model, optimizer = made(BUDGETS["tight"])

    class Ends(BaseException):
        """No hook of torch's hears of it."""

    def end(*_: Any) -> None:
        raise Ends

    def fail() -> None:
        hook = model[3].register_forward_pre_hook(end)
        try:
            with pytest.raises(Ends):
                model(inputs(0))
        finally:
            hook.remove()

    other = threading.Thread(target=fail)
    other.start()
    other.join()
    for number in range(3):
        model(inputs(number)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        assert bool(model(inputs(0)).isfinite().all())


def test_one_of_those_that_wait_has_the_turn_of_one_that_has_died() -> None:
    def die(turn: Turn) -> None:
        turn.take(sys._getframe())

    def take(turn: Turn, inside: list[int]) -> int:
        turn.take(sys._getframe())
        try:
            inside.append(len(inside))
            time.sleep(1e-4)
            return len(inside)
        finally:
            inside.pop()
            turn.give(sys._getframe())

    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            turn, inside = Turn(lambda: None), []  # type: ignore[var-annotated]
            pool.submit(die, turn).result()
            assert list(pool.map(lambda _, turn=turn, inside=inside: take(turn, inside), range(8))) == [1] * 8  # type: ignore[misc]
