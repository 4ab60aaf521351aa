# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Scripts that reach for gradients, data and parameters by themselves get what PyTorch gives them, or a sentence."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
from torch import nn

import castor.torch as castor

ROOMY: dict[str, Any] = {"device": "64MiB", "host": "64MiB"}
Prepare = Callable[[nn.Module], None]


def make() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


def wrapped(prepare: Prepare = lambda model: None, **more: Any) -> tuple[Any, Any]:
    model = make()
    prepare(model)
    return castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **(ROOMY | more))


def backward(model: nn.Module, seed: int = 0) -> None:
    model(torch.randn(2, 8, generator=torch.Generator().manual_seed(seed))).pow(2).mean().backward()


def test_the_models_zero_grad_drops_gradients_as_the_optimizers_does() -> None:
    weights = []
    for drops in (False, True):
        model, optimizer = wrapped()
        if drops:
            backward(model, 5)
            model.zero_grad()
        backward(model)
        optimizer.step()
        weights.append(model.state_dict()["0.weight"])
    assert torch.equal(*weights)


def test_a_grad_scaler_is_refused_by_name_unless_it_does_nothing() -> None:
    model, optimizer = wrapped()
    before = model.state_dict()["0.weight"]
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.ones(2, 8)).sum()).backward()
    with pytest.raises(castor.FailedPrecondition, match="GradScaler.*initial_scale"):
        scaler.step(optimizer)
    assert torch.equal(model.state_dict()["0.weight"], before)
    optimizer.zero_grad()
    idle = torch.amp.GradScaler("cpu", enabled=False)
    idle.scale(model(torch.ones(2, 8)).sum()).backward()
    idle.step(optimizer)
    idle.update()
    assert not torch.equal(model.state_dict()["0.weight"], before)


def test_freezing_after_wrap_is_obeyed() -> None:
    model, optimizer = wrapped(lambda model: model[2].requires_grad_(False))
    before = {name: values.clone() for name, values in model.state_dict().items()}
    model[0].requires_grad_(False)
    model[0].bias.requires_grad = True
    backward(model)
    optimizer.step()
    moved = [name for name, values in model.state_dict().items() if not torch.equal(values, before[name])]
    assert moved == ["0.bias"]


def test_the_optimizer_that_was_given_to_wrap_makes_no_steps() -> None:
    model = make()
    given = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = castor.wrap(model, given, **ROOMY)
    backward(model)
    with pytest.raises(castor.FailedPrecondition, match="castor.wrap returned"):
        given.step()
    optimizer.step()


def test_distributed_data_parallel_around_a_wrapped_model() -> None:
    import torch.distributed as dist

    model, _ = wrapped()
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        with pytest.raises(castor.FailedPrecondition, match="DistributedDataParallel"):
            nn.parallel.DistributedDataParallel(model)


def test_a_parameter_that_was_replaced_is_named() -> None:
    model, optimizer = wrapped()
    model[2].weight = nn.Parameter(torch.zeros(4, 16))
    backward(model)
    with pytest.raises(castor.FailedPrecondition, match=r"2\.weight was replaced"):
        optimizer.step()


def test_a_forward_without_a_backward_is_no_step_that_saves_and_writes_wait_for(tmp_path: Path) -> None:
    model, optimizer = wrapped()
    backward(model)
    optimizer.step()
    model(torch.ones(2, 8))
    castor.save(str(tmp_path), model)
    model(torch.ones(2, 8))
    with castor.gathered(model, write=True):
        model[0].weight.data.zero_()
    assert model.state_dict()["0.weight"].count_nonzero() == 0


def test_weights_that_are_written_between_forward_and_backward_are_not_differentiated() -> None:
    model, optimizer = wrapped()
    loss = model(torch.ones(2, 8)).sum()
    with castor.gathered(model, write=True):
        model[0].weight.data.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    optimizer.zero_grad()
    backward(model)
    with pytest.raises(castor.FailedPrecondition, match="inside a step"), castor.gathered(model, write=True):
        pass
    optimizer.step()


def test_what_is_not_written_inside_gathered_keeps_its_master_bits() -> None:
    model, optimizer = wrapped(dtype=torch.bfloat16)
    model(torch.ones(2, 8, dtype=torch.bfloat16)).float().sum().backward()
    optimizer.step()
    before = castor.exact(model[0].weight)
    assert not torch.equal(before, before.bfloat16().float())
    with castor.gathered(model, write=True):
        model[0].weight.data[0, 0] = 3.0
    before[0, 0] = 3.0
    assert torch.equal(castor.exact(model[0].weight), before)


def test_a_write_to_a_parameter_where_its_values_are_not_is_refused_and_the_next_step_goes_on() -> None:
    model, optimizer = wrapped(dtype=torch.bfloat16, place={"*": {"master": "host"}})
    for seed in range(2):
        backward(model, seed)
        optimizer.step()
    for _ in range(2):
        backward(model)
        optimizer.step()  # the views of chunks end here
        with torch._C.DisableTorchFunctionSubclass():
            model[2].weight.data[0, 0] = 1.0
        with pytest.raises(castor.FailedPrecondition, match=r"2\.weight was written to after castor.wrap.*the write is lost"):
            optimizer.step()
        optimizer.step()
