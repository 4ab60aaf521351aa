# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Steps whose gradients are not finite change nothing, and do not go on in silence."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor


def trained(steps: int, bad: Any, **arguments: Any) -> Any:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **arguments)
    for step in range(steps):
        loss = model(torch.ones(2, 4)).sum()
        (loss * float("nan") if bad(step) else loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def test_the_first_is_told_at_once_with_its_parameter(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "castor"):
        optimizer = trained(8, lambda step: step in (2, 5), place={"*": "host"})
    assert optimizer.skipped == 2
    (line,) = (record.message for record in caplog.records if "has changed nothing" in record.message)
    assert line.startswith("castor: step 3 has changed nothing: gradients are not finite, the first is that of 0.weight, and the next step is checked")


def test_the_first_step_of_all_is_checked_by_then(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "castor"):
        trained(2, lambda step: step == 0)
    assert "no operation of a checked step has read a parameter without values" in caplog.text


def test_the_parameter_is_the_first_of_such_a_gradient(caplog: pytest.LogCaptureFixture) -> None:
    for place in ("device", "host"):
        caplog.clear()
        torch.manual_seed(0)
        model: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
        model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), place={"*": place})
        model[1].bias.register_hook(lambda gradient: gradient * float("inf"))
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        assert optimizer.skipped == 1 and "the first is that of 1.bias" in caplog.text


def test_a_loss_scale_that_is_too_high_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model: Any = nn.Linear(4, 2)
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), dtype=torch.float16, initial_scale=65536.0)
    optimizer.backward(model(torch.full((2, 4), 100.0)).sum())
    optimizer.step()
    assert optimizer.skipped == 1 and "overflow at a loss scale of 65536, the first is that of weight. The scale is lowered" in caplog.text


def test_twenty_in_a_row_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "castor"):
        optimizer = trained(60, lambda step: step % 20 != 0)
    assert optimizer.skipped == 57 and "in a row" not in caplog.text
    with caplog.at_level(logging.WARNING, "castor"):
        trained(25, lambda step: True)
    assert caplog.text.count("gradients were not finite in 20 steps in a row") == 1


def test_a_hundred_in_a_row_are_an_error_that_names_a_parameter() -> None:
    with pytest.raises(castor.FailedPrecondition, match=r"in 100 steps in a row.*such a gradient is 0\.weight, and no operation"):
        trained(200, lambda step: True)


@pytest.mark.parametrize("budgets", [{}, {"place": {"*": "host"}}])
def test_the_number_is_the_scripts(budgets: Any) -> None:
    with pytest.raises(castor.FailedPrecondition, match="in 3 steps in a row"):
        trained(5, lambda step: step > 0, max_skips=3, **budgets)
    assert trained(150, lambda step: True, max_skips=0, **budgets).skipped == 150


def test_a_loss_that_nobody_scaled_is_refused_where_losses_are() -> None:
    torch.manual_seed(0)
    model: Any = nn.Linear(4, 2)
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), initial_scale=1024.0)
    with pytest.raises(castor.FailedPrecondition, match="this loss was not scaled"):
        model(torch.ones(2, 4)).sum().backward()
    for scaled in (optimizer.backward, lambda loss: optimizer.scale(loss).backward()):
        optimizer.zero_grad()
        scaled(model(torch.ones(2, 4)).sum())
        assert torch.equal(castor.gradient(model.weight), torch.full((2, 4), 2.0))
        optimizer.step()
