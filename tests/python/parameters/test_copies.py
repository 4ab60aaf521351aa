# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Copies of wrapped models are plain models with the values, and states are read by the parameter."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import castor.torch as castor
from models import gpt2, language

WHERE: dict[str, dict[str, Any]] = {"on the device": {}, "on the host": {"place": {"*": "host"}}}


def trained(wraps: Any, steps: int = 3) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.BatchNorm1d(16), nn.Linear(16, 4))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if wraps is not None:
        model, optimizer = castor.wrap(model, optimizer, **wraps)
    for step in range(steps):
        model(torch.randn(6, 8, generator=torch.Generator().manual_seed(step))).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


@pytest.mark.parametrize("where", WHERE)
def test_a_copy_is_a_plain_model_of_its_own(where: str) -> None:
    model, optimizer = trained(WHERE[where])
    before = {name: values.clone() for name, values in model.state_dict().items()}
    other = copy.deepcopy(model)
    assert all(type(p) is nn.Parameter and p.requires_grad for p in other.parameters()) and not hasattr(other, "_castor")
    for name, values in other.state_dict().items():
        assert torch.equal(values, before[name]), name
    # Each trains on without the other.
    plain = torch.optim.SGD(other.parameters(), lr=0.1)
    other(torch.ones(4, 8)).sum().backward()
    plain.step()
    for name, values in model.state_dict().items():
        assert torch.equal(values, before[name]), name
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    # A copy may be wrapped as any model, saved, and copied in its turn.
    again = copy.deepcopy(other)
    assert torch.equal(again[0].weight, other[0].weight)
    assert torch.equal(pickle.loads(pickle.dumps(other))[0].weight, other[0].weight)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in other.modules())


@pytest.mark.parametrize("where", WHERE)
def test_a_copy_of_a_part_leaves_the_engine_alone(where: str) -> None:
    model, optimizer = trained(WHERE[where])
    part = copy.deepcopy(model[3])
    x = torch.randn(2, 16)
    with torch.no_grad():
        want = model[3](x)
    assert torch.equal(part(x), want)
    gathers = optimizer.runtime.engine.stats()["gathers"]
    for _ in range(3):
        part(x).sum().backward()
    assert optimizer.runtime.engine.stats()["gathers"] == gathers and not optimizer.runtime.steps.begun
    assert part.weight.grad is not None


def test_tied_weights_stay_tied() -> None:
    torch.manual_seed(0)
    model: Any = gpt2()
    model, _ = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), place={"*": "host"})
    other = copy.deepcopy(model)
    assert other.lm_head.weight is other.transformer.wte.weight
    model.eval(), other.eval()
    with torch.no_grad():
        torch.testing.assert_close(language(other, 0), language(model, 0))


@pytest.mark.parametrize("where", WHERE)
def test_an_average_of_models_is_that_of_a_plain_script(where: str) -> None:
    averages = []
    for wraps in (None, WHERE[where]):
        model, optimizer = trained(wraps, steps=0)
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
        for step in range(4):
            model(torch.randn(6, 8, generator=torch.Generator().manual_seed(step))).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update_parameters(model)
        averages.append({name: values.clone() for name, values in average.state_dict().items()})
        average.eval()(torch.ones(2, 8))
    for name, values in averages[0].items():
        torch.testing.assert_close(averages[1][name], values, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("part", [False, True])
def test_pickles_say_what_to_use_instead(part: bool) -> None:
    model, _ = trained({})
    with pytest.raises(castor.FailedPrecondition, match="save model.state_dict"):
        torch.save(model[0] if part else model, io.BytesIO())
    with pytest.raises(castor.FailedPrecondition, match="save model.state_dict"):
        pickle.dumps(model[0] if part else model)
    torch.save(model.state_dict(), io.BytesIO())


@pytest.mark.parametrize("where", WHERE)
def test_states_of_a_parameter_are_read_on_demand(where: str) -> None:
    plain, theirs = trained(None)
    model, optimizer = trained(WHERE[where])
    for mine, p in zip(model.parameters(), plain.parameters()):
        state = optimizer.state[mine]
        assert set(state) == set(theirs.state[p])
        for name, values in theirs.state[p].items():
            torch.testing.assert_close(state[name], values, rtol=1e-4, atol=1e-6)
    assert len(optimizer.state) == len(theirs.state) and dict.__len__(optimizer.state) == 0, "nothing is kept"


def test_a_copy_of_a_model_in_low_precision_can_be_pickled_and_given_another_type() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4))
    model, _ = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="4MiB", host="4MiB", dtype=torch.bfloat16, keep_fp32=["1"])
    images = torch.randn(4, 8)
    expected = model(images)
    copied = copy.deepcopy(model)
    assert torch.equal(copied(images), expected) and expected.dtype is torch.bfloat16
    assert torch.equal(pickle.loads(pickle.dumps(copied))(images), expected)
    whole: Any = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    whole, _ = castor.wrap(whole, torch.optim.AdamW(whole.parameters()), device="4MiB", host="4MiB", dtype=torch.bfloat16)
    assert copy.deepcopy(whole).float()(images).dtype is torch.float32
