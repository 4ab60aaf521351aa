# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A model that sleeps holds nothing of the device, and wakes with the same bits; its weights are read one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor


def made(width: int = 32, dtype: torch.dtype = torch.float32, **arguments: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Linear(width, 4)).to(dtype)
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-2), **arguments)


def trained(model: Any, optimizer: Any, steps: range) -> None:
    for step in steps:
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step)).to(next(model.parameters()).dtype)
        model(x).float().pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("to", ["host", "nvme"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("place", [{}, {"*": {"exp_avg": "host", "exp_avg_sq": "nvme"}}])
def test_training_goes_on_with_the_same_bits(place: Any, dtype: torch.dtype, to: str, tmp_path: Path) -> None:
    ends = []
    for sleeps in (False, True):
        model, optimizer = made(dtype=dtype, device="1MiB", host="64MiB", nvme=str(tmp_path), place=place)
        trained(model, optimizer, range(2))
        if sleeps:
            before = [castor.exact(p) for p in model.parameters()]
            with castor.sleep(model, to=to):
                for p, values in zip(model.parameters(), before):
                    assert torch.equal(castor.exact(p), values)
                with pytest.raises(castor.FailedPrecondition, match=r"call castor\.wake\(model\) first"):
                    model(torch.ones(2, 8, dtype=dtype))
                other, others = made()
                trained(other, others, range(2))
        trained(model, optimizer, range(2, 4))
        if sleeps:
            castor.sleep(model, to=to)
            castor.wake(model)
        trained(model, optimizer, range(4, 6))
        ends.append([castor.exact(p) for p in model.parameters()])
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*ends))


def test_the_devices_memory_is_there_for_others(tmp_path: Path) -> None:
    model, optimizer = made(width=2048, device="256MiB", host="64MiB", nvme=str(tmp_path))
    trained(model, optimizer, range(2))
    before = resident_bytes()
    with castor.sleep(model, to="nvme"):
        assert resident_bytes() < before - (40 << 20)  # of 48 MiB of states
    trained(model, optimizer, range(2, 4))


def test_a_model_that_cannot_sleep_is_as_it_was() -> None:
    model, optimizer = made(width=512, device="64MiB", host="1MiB")
    trained(model, optimizer, range(1))
    before = [castor.exact(p) for p in model.parameters()]
    with pytest.raises(castor.DoesNotFit, match="the model cannot sleep: .*raise the host budget"):
        castor.sleep(model)
    with pytest.raises(castor.InvalidArgument, match="moves to 'device'"):
        castor.sleep(model, to="device")
    for p, values in zip(model.parameters(), before):
        assert torch.equal(castor.exact(p), values)
    model(torch.ones(2, 8)).sum().backward()
    with pytest.raises(castor.FailedPrecondition, match="inside a step"):
        castor.sleep(model)
    optimizer.step()
    trained(model, optimizer, range(1, 3))


@pytest.mark.parametrize("sleeps", [False, True])
def test_weights_come_one_after_another(sleeps: bool) -> None:
    model, optimizer = made(dtype=torch.bfloat16, place={"*": "host"} if not sleeps else {})
    trained(model, optimizer, range(2))
    want = model.state_dict()
    if sleeps:
        castor.sleep(model)
    got = list(castor.weights(model))
    assert [name for name, _ in got] == list(want)
    assert all(torch.equal(values, want[name]) for name, values in got)
    exact = {name: castor.exact(p) for name, p in model.named_parameters()}
    assert all(torch.equal(values, exact[name]) for name, values in castor.weights(model, dtype=torch.float32))
    if sleeps:
        castor.wake(model)
    trained(model, optimizer, range(2, 3))


def test_moments_in_half_the_memory() -> None:
    memory, weights = [], []
    for state_dtype in (None, torch.bfloat16):
        model, optimizer = made(width=256, place={"*": "host"}, device="8MiB", host="64MiB", state_dtype=state_dtype)
        trained(model, optimizer, range(4))
        memory.append(optimizer.runtime.engine.stats()["host_peak_bytes"])
        weights.append(torch.cat([castor.exact(p).flatten() for p in model.parameters()]))
    elements = weights[0].numel()
    assert memory[0] - memory[1] > 3.9 * elements  # of two moments
    assert 0 < (weights[0] - weights[1]).abs().max() < 0.02
    with pytest.raises(castor.InvalidArgument, match="state_dtype is torch.float16"):
        made(state_dtype=torch.float16)
