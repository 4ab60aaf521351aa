# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What optimizers keep for themselves: each window of a step finds it as it was before the step, and a step counts once."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import castor.torch as castor
from castor.torch._machine import _device
from castor.torch._machine._device import ON_CPU, dlpack_viewer
from castor.torch._optimizers._windows import Piece, apart, tensor_at
from test_any_optimizer import WHERE, Lion, Weighted, expect_plain_bits, expect_same, trained, values_of, wrapped


class Stepped(Lion):
    """Subtracts gradients by a rate that `rate` makes of its own numbers, once a step."""

    def rate(self) -> float:
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        rate = self.rate()
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            p.sub_(p.grad, alpha=rate)


class AddedLate(Stepped):
    """Its number is there after its first step."""

    def rate(self) -> float:
        self.last = self.param_groups[0]["lr"]
        return float(self.last)


class CountedLate(Stepped):
    def rate(self) -> float:
        self.steps = getattr(self, "steps", 0) + 1
        return 1e-2 / self.steps


class ReadyLate(Stepped):
    def rate(self) -> float:
        if not hasattr(self, "ready"):
            self.ready = True
            return 1e-3
        return 1e-2


class Turned(Stepped):
    """Zero has a sign, which comparing does not see."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.sign = 0.0

    def rate(self) -> float:
        self.sign = -self.sign
        return math.copysign(1e-2, self.sign)


class InItsGroups(Stepped):
    """Counts in an array of one number in each group, in its place."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        for group in self.param_groups:
            group["count"] = np.zeros(1)

    def rate(self) -> float:
        for group in self.param_groups:
            group["count"][0] += 1
        return 1e-2 / float(self.param_groups[0]["count"][0])


class InASet(Stepped):
    def __init__(self, params: Any) -> None:
        super().__init__(params)
        for group in self.param_groups:
            group["seen"] = set()

    def rate(self) -> float:
        for group in self.param_groups:
            group["seen"].add(len(group["seen"]))
        return 1e-2 / len(self.param_groups[0]["seen"])


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", [AddedLate, CountedLate, ReadyLate, Turned, InItsGroups, InASet])
def test_a_step_counts_once(kind: type, where: str, tmp_path: Path) -> None:
    expect_plain_bits(kind, where, tmp_path)


class InAnArray(Stepped):
    """Two numbers in one array have no truth value, so nobody knows whether they changed."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        for group in self.param_groups:
            group["counts"] = np.zeros(2)

    def rate(self) -> float:
        return 1e-2


class Counter:
    def __init__(self) -> None:
        self.count = 0


class InAnObject(Stepped):
    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.counter = Counter()

    def rate(self) -> float:
        self.counter.count += 1
        return 1e-2 / self.counter.count


class SharedWithStates(Lion):
    """The step that its state has is a tensor of its own."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.steps = torch.zeros(())

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.steps += 1
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            self.state[p].setdefault("step", self.steps)
            p.sub_(p.grad, alpha=1e-2)


@pytest.mark.parametrize(("kind", "words"), [
    (InAnArray, "InAnArray updates a parameter by what others have"),
    (InAnObject, "InAnObject keeps counter beside its state"),
    (SharedWithStates, "SharedWithStates keeps steps beside its state"),
])
def test_what_windows_would_count_twice_is_refused(kind: Any, words: str) -> None:
    model = Weighted()
    with pytest.raises(castor.InvalidArgument, match=words):
        castor.wrap(model, kind(model.parameters()))


class Weighed(Stepped):
    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.weight = 1e-2

    def rate(self) -> float:
        return self.weight


def test_numbers_are_set_before_a_backward_that_updates(tmp_path: Path) -> None:
    plain = Weighted()
    theirs = Weighed(plain.parameters())
    model, optimizer = wrapped(lambda groups: Weighed([p for g in groups for p in g["params"]]), "everywhere", tmp_path, update_in_backward=True)
    for step in range(3):
        for one, its in ((plain, theirs), (model, optimizer)):
            its.weight = 1e-2 * (step + 1)
            trained(one, its, step + 1, first=step)
    expect_same(values_of(model), values_of(plain))
    optimizer.zero_grad()
    model(3).backward()
    with pytest.raises(castor.FailedPrecondition, match="weight of the optimizer is set within a step"):
        optimizer.weight = 1.0
    optimizer.step()


def test_tensors_over_windows_go_with_the_engine() -> None:
    model = nn.Linear(64, 64)
    model, optimizer = castor.wrap(model, torch.optim.NAdam(model.parameters()))  # type: ignore[assignment]
    for _ in range(2):
        model(torch.ones(1, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    kept = optimizer.rule._updates._tensor_at
    assert kept.cache_info().hits > 0
    assert 0 < kept.cache_info().currsize <= 16


def test_a_view_of_a_converted_gradient_does_not_keep_all_of_it() -> None:
    model = nn.Linear(64, 64, bias=False)
    model, optimizer = castor.wrap(model, torch.optim.NAdam(model.parameters()))  # type: ignore[assignment]
    kept = optimizer.rule._kept[0]
    memory = torch.zeros(4, 64, 64)
    values, grad, *states = (tensor.data_ptr() for tensor in memory)
    taken = Piece(kept, SimpleNamespace(elements=64 * 64, values=values, grad=grad, states=states + [None] * 6)).taken(tensor_at, torch.float32, 0.5)
    assert taken.p.grad is not None
    for tensor in (taken.p.grad, taken.values, *taken.states.values()):
        assert apart(tensor.view(-1)[0], set(taken.memory)).untyped_storage().nbytes() == 4


def test_threads_that_view_one_shape_get_their_own_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second thread comes when the first has set its place and torch has not read it."""
    mine, others = torch.zeros(4), torch.zeros(4)
    view = dlpack_viewer(mine.shape, torch.float32, ON_CPU, 0)
    seen: list[int] = []
    other = threading.Thread(target=lambda: seen.append(view(others.data_ptr(), None).data_ptr()))
    from_dlpack = _device.from_dlpack

    def read_late(capsule: Any) -> torch.Tensor:
        if threading.current_thread() is not other:
            other.start()
            other.join(timeout=0.2)  # it waits, or is done
        return from_dlpack(capsule)

    monkeypatch.setattr(_device, "from_dlpack", read_late)
    assert view(mine.data_ptr(), None).data_ptr() == mine.data_ptr()
    other.join()
    assert seen == [others.data_ptr()]
