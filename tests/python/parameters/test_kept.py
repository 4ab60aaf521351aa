# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parameters keep views of chunks that stay where they are: whatever writes to these, and whoever holds them, nothing is lost."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import castor.torch as castor
from castor.torch._parameters._leases import _Lease


def wrapped(dtype: torch.dtype = torch.float32, **budgets: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(dtype)
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.1), **budgets)


def inputs(model: Any) -> torch.Tensor:
    return torch.ones(2, 8, dtype=model._castor.params[0].dtype)


def kept(model: Any) -> list[bool]:
    model(inputs(model))
    return [p.kept for p in model._castor.params]


def resident(model: Any) -> bool:
    return model._castor.residents.active


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parameters_are_plain_only_where_all_states_stay(dtype: torch.dtype, tmp_path: Path) -> None:
    assert resident(wrapped(dtype)[0])
    assert not resident(wrapped(dtype, place={"*": {"exp_avg": "host"}})[0])
    assert not resident(wrapped(dtype, device="4KiB", host="1MiB", chunk="1KiB")[0])
    assert not resident(wrapped(dtype, update_in_backward=True)[0]), "a chunk is updated before the step"
    with castor.record(tmp_path / "run.rec"):
        assert not resident(wrapped(dtype)[0]), "a record has each use"


def test_views_are_kept_only_where_chunks_of_parameters_stay() -> None:
    def model_at(**budgets: Any) -> Any:
        model, optimizer = wrapped(**budgets)
        model(inputs(model)).sum().backward()
        optimizer.step()
        model(inputs(model)).sum()  # views are kept from the first use of a step on
        return model

    assert all(kept(model_at(place={"*": {"exp_avg": "host"}})))
    assert not any(kept(model_at(device="4KiB", host="1MiB", chunk="1KiB")))
    assert not any(kept(model_at(place={"*": "host"})))


def test_where_states_are_elsewhere_views_end_with_the_step() -> None:
    model, optimizer = wrapped(torch.bfloat16, place={"*": {"exp_avg": "host"}})
    with torch.no_grad():
        assert not any(kept(model)), "no step has begun"
    assert all(kept(model))
    with torch.no_grad():
        assert all(kept(model))
    model(inputs(model)).sum().backward()
    optimizer.zero_grad()
    assert all(p.kept for p in model._castor.params), "the weights are the same"
    model(inputs(model)).sum().backward()
    optimizer.step()
    assert not any(p.kept for p in model._castor.params)
    with torch._C.DisableTorchFunctionSubclass():
        assert bool(model[0].weight.isnan().all()), "whoever writes here is told so"
    assert all(kept(model))


def test_a_graph_may_be_gone_through_twice_before_the_step() -> None:
    gradients = []
    for budgets in ({}, {"device": "4KiB", "host": "1MiB", "chunk": "1KiB"}):
        model, optimizer = wrapped(torch.bfloat16, **budgets)
        loss = model(inputs(model)).pow(2).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
        gradients.append([castor.exact(p) for p in model.parameters()])
    for mine, theirs in zip(*gradients):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_graph_of_the_values_before_a_step_is_refused(dtype: torch.dtype) -> None:
    model, optimizer = wrapped(dtype)
    loss = model(inputs(model)).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_write_to_a_name_past_all_functions_is_refused() -> None:
    model, optimizer = wrapped(torch.bfloat16, place={"*": {"exp_avg": "host"}})
    model(inputs(model)).sum().backward()
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        model[0].weight.fill_(3.0)
    with pytest.raises(castor.FailedPrecondition, match="0.weight was written to"):
        optimizer.step()


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_write_between_a_forward_and_its_backward_is_refused(dtype: torch.dtype, frozen: bool) -> None:
    """Where views stay, graphs have the memory that is written to, which plain PyTorch notices."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to(dtype)
    model[2].weight.requires_grad_(not frozen)
    model, optimizer = castor.wrap(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))
    for _ in range(2):
        model(torch.ones(2, 8, dtype=dtype)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert resident(model)
    loss = model(torch.ones(2, 8, dtype=dtype)).sum()
    with torch.no_grad():
        model[0].weight.mul_(2.0)  # of which this backward needs nothing, since its input has no gradient
    loss.backward()
    optimizer.zero_grad()
    loss = model(torch.ones(2, 8, dtype=dtype)).sum()
    with torch.no_grad():
        model[2].weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_write_that_torch_alone_saw_is_kept(dtype: torch.dtype) -> None:
    model, optimizer = wrapped(dtype)
    for _ in range(2):
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


def both(make: Callable[[], nn.Module], step: Callable[[Any, Any], None], steps: int = 4) -> None:
    """The weights of a plain script and of Castor's are equal after some steps; in bf16 those of chunks that stay and of chunks that move."""
    in_bf16 = []
    for budgets in ({}, {"place": {"*": "host"}}):
        torch.manual_seed(0)
        model: Any = make()
        model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-2), dtype=torch.bfloat16, **budgets)
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16):
            for _ in range(steps):
                step(model, optimizer)
        in_bf16.append([castor.exact(p) for p in model.parameters()])
    for stayed, moved in zip(*in_bf16):
        torch.testing.assert_close(stayed, moved, rtol=0, atol=0)
    weights = []
    for wraps in (False, True):
        torch.manual_seed(0)
        model: Any = make()
        optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if wraps:
            model, optimizer = castor.wrap(model, optimizer)
        torch.manual_seed(1)
        for _ in range(steps):
            step(model, optimizer)
        weights.append([p.detach().clone() for p in model.parameters()])
    for mine, plain in zip(weights[1], weights[0]):
        torch.testing.assert_close(mine, plain, rtol=1e-5, atol=1e-6)


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def forward_backward_step(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.randn(3, 8)).pow(2).sum().backward()
    optimizer.step()


def test_a_first_forward_may_be_in_inference_mode() -> None:
    def step(model: Any, optimizer: Any) -> None:
        with torch.inference_mode():
            model(torch.ones(1, 8))
        forward_backward_step(model, optimizer)

    both(linear, step)


class Twisted(torch.autograd.Function):
    """Whose gradient is a lazy one: negated, or nothing but zeros."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, zeros: bool) -> torch.Tensor:
        ctx.zeros = zeros
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return (torch._efficientzerotensor(gradient.shape) if ctx.zeros else torch._neg_view(gradient.clone())), None


@pytest.mark.parametrize("zeros", [False, True])
def test_gradients_that_torch_has_not_computed_yet(zeros: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ Twisted.apply(self.w, zeros)

    both(Model, forward_backward_step)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_graph_that_outlives_its_model_is_refused(dtype: torch.dtype) -> None:
    """A resident parameter has no values without an engine."""
    model: Any = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 2)).requires_grad_(False).to(dtype)
    x = torch.randn(2, 8, dtype=dtype, requires_grad=True)
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss = model(x).sum()
    del model, optimizer
    gc.collect()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_an_alias_shows_what_a_forward_writes_by_data() -> None:
    class Clamped(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data.clamp_(-0.2, 0.2)
            return super().forward(x)

    def step(model: Any, optimizer: Any) -> None:
        alias = model[1].weight.data
        forward_backward_step(model, optimizer)
        model(torch.ones(1, 8))
        assert alias.abs().max() <= 0.2
        alias.mul_(0.9)

    both(lambda: nn.Sequential(nn.Linear(8, 8), Clamped(8, 8)), step)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transforms_of_torch_func_may_come_first(dtype: torch.dtype) -> None:
    model, optimizer = wrapped(dtype)
    plain = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(dtype)
    plain.load_state_dict(model.state_dict())
    x = inputs(model)
    for _ in range(2):
        got = torch.func.jacrev(lambda x: model(x).sum(0))(x)
        assert torch.equal(got, torch.func.jacrev(lambda x: plain(x).sum(0))(x))
        model(x).sum().backward()
        optimizer.zero_grad()


def test_a_step_without_gradients_leaves_graphs_alone() -> None:
    model, optimizer = wrapped(torch.bfloat16)
    loss = model(inputs(model)).sum()
    model(inputs(model)).sum().backward()
    optimizer.zero_grad()
    optimizer.step()
    loss.backward()
    assert all(bool(castor.gradient(p).isfinite().all()) for p in model.parameters())


def test_another_backward_may_follow_one_that_failed() -> None:
    model, optimizer = wrapped(torch.bfloat16)

    def fail(_gradient: Any) -> None:
        raise ValueError("of the script")

    losses = [model(inputs(model)) for _ in range(2)]
    losses[0].register_hook(fail)
    with pytest.raises(ValueError, match="of the script"):
        losses[0].sum().backward()
    optimizer.zero_grad()
    losses[1].sum().backward()
    optimizer.step()


def test_functional_calls_leave_nothing_behind() -> None:
    model, _ = wrapped()
    counts = []
    for _ in range(6):
        nn.functional.linear(inputs(model), model[0].weight, model[0].bias).sum().backward()
        gc.collect()
        counts.append(sum(isinstance(one, _Lease) for one in gc.get_objects()))
    assert counts[1] == counts[-1]


def test_gradients_from_before_are_dropped_between_a_forward_and_its_backward() -> None:
    def step(model: Any, optimizer: Any) -> None:
        x = torch.randn(3, 8)
        model(x).pow(2).sum().backward()
        loss = model(-x).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    both(linear, step)


def reentrant(function: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(function, x, use_reentrant=True)


class Shared(nn.Module):
    """One layer in several checkpoints with reentry: each adds to its gradient by a backward of its own."""

    def __init__(self, by_function: bool = False) -> None:
        super().__init__()
        self.w, self.a, self.o = nn.Parameter(torch.randn(8, 8) / 3), nn.Linear(8, 8), nn.Linear(8, 8)
        self.by_function = by_function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        for _ in range(3):
            x = reentrant((lambda x: torch.tanh(x @ self.w)) if self.by_function else (lambda x: torch.tanh(self.a(x))), x)
        return self.o(x)


@pytest.mark.parametrize("by_function", [False, True])
def test_checkpoints_with_reentry_around_a_shared_layer(by_function: bool) -> None:
    def twice(model: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        losses = [model(torch.randn(3, 8)).pow(2).sum() for _ in range(2)]
        for loss in losses:
            loss.backward()
        optimizer.step()

    both(lambda: Shared(by_function), forward_backward_step)
    both(lambda: Shared(by_function), twice)


def test_checkpoints_with_reentry_from_outside_the_model() -> None:
    def step(model: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        x = torch.randn(3, 8, requires_grad=True)
        for _ in range(3):
            x = torch.tanh(reentrant(model[0], x))
        model[2](x).sum().backward()
        optimizer.step()

    both(linear, step)
