# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Operations that read a parameter past all that Castor serves are found, also where what they give is finite."""

from __future__ import annotations

from typing import Any, Optional

import pytest
import torch
from torch import nn

import castor.torch as castor

TIGHT: dict[str, Any] = {"place": {"*": "host"}}


class Limits(nn.Module):
    """Its forward reads a parameter of another module as C++ does, when it is told to."""

    def __init__(self, how: str = "clamp") -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.how = how
        self.past = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if not self.past:
            return self.second(x)
        with torch._C.DisableTorchFunctionSubclass():
            if self.how == "clamp":
                return torch.clamp(x, max=self.second.bias)
            if self.how == "view":
                return torch.minimum(x, self.second.bias[None].expand(x.shape))
            if self.how == "list":
                return torch.cat([x, self.second.weight])
            with torch.no_grad():
                self.second.bias.copy_(x[0])
            return x


def made(how: str = "clamp", **more: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = Limits(how)
    return castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **TIGHT | more)


def step(model: Any, optimizer: Any, past: bool, times: Optional[float] = None) -> torch.Tensor:
    model.past = past
    loss = model(torch.ones(2, 8)).pow(2).sum()
    (loss if times is None else loss * times).backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


@pytest.mark.parametrize(("how", "operation", "name"), [
    ("clamp", "aten.clamp.Tensor", "second.bias"), ("view", "aten.minimum.default", "second.bias"), ("list", "aten.cat.default", "second.weight"),
    ("write", "aten.copy_.default", "second.bias"),
])
def test_the_first_step_names_operation_and_parameter(how: str, operation: str, name: str) -> None:
    model, optimizer = made(how)
    with pytest.raises(castor.FailedPrecondition, match=rf"{operation} reads parameter {name} .*castor.gathered"):
        step(model, optimizer, past=True)


def test_the_result_may_be_finite() -> None:
    """Which is what makes it hard to see: PyTorch's clamp ignores a NaN of a bound here and there."""
    model, optimizer = made()
    with pytest.raises(castor.FailedPrecondition, match="second.bias"):
        step(model, optimizer, past=True)
    step(model, optimizer, past=False)
    assert optimizer.skipped == 0


def test_an_evaluation_is_checked_too() -> None:
    model, _ = made()
    model.past = True
    with torch.no_grad(), pytest.raises(castor.FailedPrecondition, match="second.bias"):
        model(torch.ones(2, 8))


def test_later_steps_are_checked_where_they_are_asked_to_be() -> None:
    for check in (False, True):
        model, optimizer = made(check=check)
        for _ in range(3):
            step(model, optimizer, past=False)
        assert model._castor.forwards.check.due == check
    with pytest.raises(castor.FailedPrecondition, match="second.bias"):
        step(model, optimizer, past=True)


def test_the_step_behind_the_first_that_is_not_finite_is_checked(caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = made()
    step(model, optimizer, past=False)
    step(model, optimizer, past=False, times=float("inf"))
    assert optimizer.skipped == 1 and "the next step is checked" in caplog.text
    with pytest.raises(castor.FailedPrecondition, match="second.bias"):
        step(model, optimizer, past=True)


def test_a_step_behind_another_placement_is_checked() -> None:
    model, optimizer = made()
    step(model, optimizer, past=False)
    with castor.sleep(model, to="host"):
        assert not model._castor.forwards.check.due
    assert model._castor.forwards.check.due
    with pytest.raises(castor.FailedPrecondition, match="second.bias"):
        step(model, optimizer, past=True)


def test_what_asks_for_a_shape_alone_is_no_reading() -> None:
    class Shapes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            w = self.second.weight
            noise = torch.zeros_like(w) + w.new_ones(8, 8) + torch.empty_like(w).fill_(1.0)
            return self.first(x).type_as(w) + noise.sum() + w.numel()

    torch.manual_seed(0)
    model: Any = Shapes()
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), check=True, **TIGHT)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()


def test_it_is_beside_the_modes_of_a_script() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    counts = []
    for wrap in (False, True):
        torch.manual_seed(0)
        model: Any = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 2))
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if wrap:
            model, optimizer = castor.wrap(model, optimizer, check=True, **TIGHT)
        with FlopCounterMode(display=False) as counter:
            model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_a_parameter_that_was_given_other_memory_is_read_there() -> None:
    """The operations of a backward are for the tensors that they were given, names or not."""

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data = self.weight.data / self.weight.data.norm()
            return x @ self.weight

    gradients = []
    for wrap in (False, True):
        torch.manual_seed(0)
        model: Any = nn.Sequential(nn.Linear(8, 8), Normed(), nn.Linear(8, 2))
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if wrap:
            model, optimizer = castor.wrap(model, optimizer, check=True)
        x = torch.ones(2, 8, requires_grad=True)
        model(x).pow(2).mean().backward()
        gradients.append(x.grad)
    assert torch.allclose(gradients[0], gradients[1])  # type: ignore[arg-type]


def test_an_interrupt_leaves_no_check_behind() -> None:
    """Torch calls no hook then."""

    class Interrupted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
            self.raises = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            if self.raises:
                raise KeyboardInterrupt
            return self.second(x)

    torch.manual_seed(0)
    model: Any = Interrupted()
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **TIGHT)
    model.raises = True
    with pytest.raises(KeyboardInterrupt):
        model(torch.ones(2, 8))
    model.raises = False
    optimizer.zero_grad()
    model(torch.ones(2, 8))
    assert torch._C._len_torch_dispatch_stack() == 0
