# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Threads that compute with one model take turns: each is served as if it were alone."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from castor.torch._turn import Turn

BUDGETS: dict[str, dict[str, Any]] = {"resident": {"device": "64MiB", "host": "64MiB"}, "tight": {"device": 60_000, "host": "8MiB", "config": {"poison": True}}}


def made(budgets: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(5)))
    return castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.01), **budgets)


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
