# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parameters keep views of chunks that stay in the host's memory: whatever writes to these, and whoever holds them, nothing is lost."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor


def wrapped(dtype: torch.dtype = torch.float32, **budgets: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(dtype)
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.1), **budgets)


def inputs(model: Any) -> torch.Tensor:
    return torch.ones(2, 8, dtype=model._castor.params[0].dtype)


def kept(model: Any) -> list[bool]:
    model(inputs(model))
    return [p.kept for p in model._castor.params]


def test_only_where_chunks_stay(tmp_path: Path) -> None:
    assert all(kept(wrapped()[0]))
    assert not any(kept(wrapped(device="4KiB", host="1MiB", chunk="1KiB")[0]))
    assert not any(kept(wrapped(place={"*": "host"})[0]))
    with castor.record(tmp_path / "run.rec"):
        assert not any(kept(wrapped()[0])), "a record has each use"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_graph_of_the_values_before_a_step_is_refused(dtype: torch.dtype) -> None:
    model, optimizer = wrapped(dtype)
    loss = model(inputs(model)).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_write_that_torch_alone_saw_reaches_the_master(dtype: torch.dtype) -> None:
    model, optimizer = wrapped(dtype)
    for step in range(2):  # the second has no digests to compare
        model(inputs(model)).sum().backward()
        optimizer.step()
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            model[0].weight.fill_(3.0)
        model(inputs(model)).sum().backward()
        assert torch.equal(castor.exact(model[0].weight), torch.full((16, 8), 3.0))
        optimizer.step()
        assert (castor.exact(model[0].weight) - 3.0).abs().max() < 0.2


def test_numpy_may_write_to_what_is_the_master_itself() -> None:
    model, _ = wrapped()

    def write(module: Any, _arguments: Any) -> None:
        module.weight.detach().numpy()[:] = 5.0

    model[2].register_forward_pre_hook(write)
    for _ in range(40):
        with torch.no_grad():
            model(inputs(model))
    assert torch.equal(castor.exact(model[2].weight), torch.full((4, 16), 5.0))


def test_others_of_a_parameters_memory_do_not_keep_the_engine() -> None:
    model, optimizer = wrapped()
    parameter = model[0].weight
    model(inputs(model)).sum().backward()
    optimizer.step()
    world = model._castor.engine.world
    del model, optimizer
    gc.collect()
    assert not world.handle, "which only a closed engine lets go of"
    assert parameter.shape == (16, 8)


def test_a_submodule_alone_and_nested_calls_are_the_models_own() -> None:
    model, _ = wrapped()
    plain = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    plain.load_state_dict(model.state_dict())
    x = torch.randn(3, 8)
    for _ in range(3):
        assert torch.equal(model(x), plain(x))
        assert torch.equal(model[0](x), plain[0](x))
        assert torch.equal(nn.functional.linear(x, model[0].weight, model[0].bias), plain[0](x))
