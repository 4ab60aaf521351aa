# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Where all states stay on the device, parameters are plain: no hooks, gradients that are torch's own, and the bits of chunks that move."""

from __future__ import annotations

import copy
import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import castor.torch as castor
from castor.torch._parameters._residents import ResidentParameter

MOVING: dict[str, Any] = {"place": {"*": "host"}}
TYPES = [torch.float32, torch.bfloat16]


def make(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(dtype)


def wrapped(dtype: torch.dtype = torch.float32, *, model: Any = None, **more: Any) -> tuple[Any, Any]:
    model = make(dtype) if model is None else model
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01), **more)


def loss_of(model: Any, seed: int) -> torch.Tensor:
    dtype = next(iter(model.parameters())).dtype
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return model(x).float().pow(2).mean()


def exact(model: Any) -> list[torch.Tensor]:
    return [castor.exact(p) if hasattr(p, "_castor") else p.detach().clone() for p in model.parameters()]


def same_bits(train: Callable[[Any, Any], Any], dtype: torch.dtype, of: Callable[[torch.dtype], nn.Module] = make) -> None:
    """Of a training whose chunks stay, and of one whose chunks move."""
    ends, told = [], []
    for budgets in ({}, MOVING):
        model, optimizer = wrapped(dtype, model=of(dtype), **budgets)
        assert model._castor.residents.active == (not budgets)
        told.append(train(model, optimizer))
        ends.append(exact(model))
    for stayed, moved in zip(*ends):
        assert torch.equal(stayed, moved)
    assert told[0] == told[1]


def calls_of_castor(work: Callable[[], Any]) -> list[str]:
    """The files of functions, in order. But those of other models, which other tests have left and every backward is told to."""
    files: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/castor/" in frame.f_code.co_filename:
            if frame.f_code.co_name not in ("outermost_begins", "backward_begins", "is_over", "backward_ends"):
                files.append(frame.f_code.co_filename)

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return files


@pytest.mark.parametrize("dtype", TYPES)
def test_a_forward_and_a_backward_run_no_code_of_castors_but_at_the_root(dtype: torch.dtype) -> None:
    few, many = (wrapped(dtype, model=nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers))).to(dtype)) for layers in (2, 24))
    calls = []
    for model, optimizer in (few, many):
        loss_of(model, 0).backward()
        optimizer.step()
        calls.append(len(calls_of_castor(lambda: loss_of(model, 1).backward())))  # noqa: B023
        optimizer.step()
        assert not any(module._forward_pre_hooks or module._forward_hooks for module in model)
    assert calls[0] == calls[1] < 30


@pytest.mark.parametrize("dtype", TYPES)
def test_a_module_whose_parameters_come_and_go_costs_few_calls(dtype: torch.dtype) -> None:
    """Twelve where each use has a lease of its own and the next module ends the lease; a move is from one file to another."""
    calls, moves = [], []
    for layers in (4, 20):
        model, _ = wrapped(dtype, model=nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers))).to(dtype), chunk=512, **MOVING)
        with torch.no_grad():
            loss_of(model, 0)  # checked
            for p in model._castor.params:
                p.watched = 0
            files = calls_of_castor(lambda: loss_of(model, 0))  # noqa: B023
        calls.append(len(files))
        moves.append(sum(file != following for file, following in zip(files, files[1:])))
    assert 0 < calls[1] - calls[0] <= 12 * 16
    assert moves[1] - moves[0] <= 8 * 16


@pytest.mark.parametrize("dtype", TYPES)
def test_gradients_are_torchs_own_until_the_step(dtype: torch.dtype) -> None:
    model, optimizer = wrapped(dtype)
    plain = make(dtype)
    for one in (model, plain):
        loss_of(one, 0).backward()
    for mine, theirs in zip(model.parameters(), plain.parameters()):
        assert type(mine.grad) is torch.Tensor and torch.equal(mine.grad, theirs.grad)
    optimizer.step()
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("dtype", TYPES)
def test_what_a_script_does_to_gradients(dtype: torch.dtype) -> None:
    def train(model: Any, optimizer: Any) -> list[float]:
        norms = []
        for step in range(4):
            loss_of(model, step).backward()
            if step == 1:
                model[0].weight.grad.mul_(0.5)
                model[0].bias.grad = None
            elif step == 2:
                model[2].bias.grad = torch.ones_like(model[2].bias)
            elif step == 3:
                loss_of(model, 10).backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
            if step == 1:
                norms.append(float(model[2].weight.grad.float().norm()))
            optimizer.step()
            optimizer.zero_grad()
        return norms

    same_bits(train, dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_gradient_that_is_read_by_castor_goes_on_as_before(dtype: torch.dtype) -> None:
    def train(model: Any, optimizer: Any) -> list[float]:
        seen = []
        for step in range(3):
            loss_of(model, step).backward()
            seen.append(float(castor.gradient(model[0].weight).sum()))
            loss_of(model, step + 10).backward()
            seen.append(float(model[2].bias.grad.float().sum()))
            if step == 2:
                model[2].bias.grad = None
                model[2].bias.grad = torch.full_like(model[2].bias, 0.25)
            optimizer.step()
        return seen

    same_bits(train, dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_gradients_are_dropped_in_all_the_ways_of_torch(dtype: torch.dtype) -> None:
    model, optimizer = wrapped(dtype)
    before = exact(model)
    drops: list[Callable[[], Any]] = [
        optimizer.zero_grad, model.zero_grad, lambda: optimizer.zero_grad(set_to_none=False), lambda: [setattr(p, "grad", None) for p in model.parameters()]]
    for hands_over in (False, True):
        for drop in drops:
            loss_of(model, 0).backward()
            if hands_over:
                castor.gradient(model[0].weight)
            drop()
            assert all(p.grad is None for p in model.parameters())
            optimizer.step()
    assert all(map(torch.equal, exact(model), before))


def test_a_backward_behind_a_clip_adds_to_what_was_clipped() -> None:
    ends = []
    for wraps in (False, True):
        model: Any = make()
        optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.01)
        if wraps:
            model, optimizer = castor.wrap(model, optimizer)
        for step in range(3):
            loss_of(model, step).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            loss_of(model, step + 10).backward()
            optimizer.step()
            optimizer.zero_grad()
        ends.append(exact(model))
    for plain, mine in zip(*ends):
        torch.testing.assert_close(mine, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("asks", [lambda optimizer: None, lambda optimizer: optimizer.state_dict()])
def test_groups_that_change_between_a_backward_and_its_step_lose_no_gradient(asks: Any) -> None:
    """A frozen parameter that joins then is trained from the next step on, wherever chunks are."""
    ends = []
    for budgets in ({}, MOVING):
        model: Any = make()
        model[0].weight.requires_grad_(False)
        optimizer: Any = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
        model, optimizer = castor.wrap(model, optimizer, **budgets)
        before = exact(model)
        loss_of(model, 0).backward()
        model[0].weight.requires_grad_(True)
        optimizer.add_param_group({"params": [model[0].weight]})
        asks(optimizer)
        optimizer.step()
        now = exact(model)
        assert torch.equal(now[0], before[0]) and not any(map(torch.equal, now[1:], before[1:]))
        loss_of(model, 1).backward()
        optimizer.step()
        assert not torch.equal(castor.exact(model[0].weight), before[0])
        ends.append(exact(model))
    assert all(map(torch.equal, *ends))


class Tied(nn.Module):
    """A layer that several checkpoints with reentry use, each of which goes backward by itself, and a tied one."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.last.weight = self.shared.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        for _ in range(3):
            x = checkpoint(lambda x: torch.tanh(self.shared(x)), x, use_reentrant=True)
        return self.last(x)


@pytest.mark.parametrize("dtype", TYPES)
def test_micro_batches_of_shared_weights_and_nested_backwards(dtype: torch.dtype) -> None:
    def tied(dtype: torch.dtype) -> nn.Module:
        torch.manual_seed(5)
        return Tied().to(dtype)

    def train(model: Any, optimizer: Any) -> None:
        for step in range(3):
            for micro_batch in range(3):
                loss_of(model, 3 * step + micro_batch).backward()
            optimizer.step()
            optimizer.zero_grad()

    same_bits(train, dtype, tied)


@pytest.mark.parametrize("dtype", TYPES)
def test_writes_of_any_kind_are_kept(dtype: torch.dtype) -> None:
    def train(model: Any, optimizer: Any) -> None:
        for step in range(6):
            loss_of(model, step).backward()
            optimizer.step()
            with torch.no_grad():
                if step == 0:
                    model[0].weight.mul_(0.5)
                elif step == 1:
                    model[0].weight.data.add_(0.25)
                elif step == 2:
                    model[0].weight.data = torch.full((16, 8), 0.125, dtype=dtype)
                elif step == 3:
                    torch.nn.utils.vector_to_parameters(torch.linspace(-1, 1, 212).to(dtype), model.parameters())
                else:
                    with castor.gathered(model, write=True):
                        model[2].weight.copy_(model[2].weight * 2)

    same_bits(train, dtype)


def test_a_write_that_no_counter_shows_is_found() -> None:
    model, optimizer = wrapped(torch.float16)
    for _ in range(3):
        loss_of(model, 0).backward()
        optimizer.step()
        model[0].weight.detach().numpy()[:] = 3.0
        for _ in range(4):  # of four parameters, one is looked at in each step
            loss_of(model, 1).backward()
            optimizer.step()
        assert (castor.exact(model[0].weight) - 3.0).abs().max() < 0.2


def test_other_memory_is_taken_into_the_chunk() -> None:
    model, optimizer = wrapped(torch.bfloat16)
    model[0].weight.data.fill_(2.0)
    model.share_memory()
    loss_of(model, 0).backward()
    optimizer.step()
    assert (castor.exact(model[0].weight) - 2.0).abs().max() < 0.1
    assert torch.equal(model[0].weight.detach().float(), castor.exact(model[0].weight).bfloat16().float())


def test_hooks_of_the_scripts_see_torchs_own_gradients() -> None:
    model, optimizer = wrapped()
    seen: list[Any] = []
    model[0].weight.register_hook(lambda gradient: gradient * 2)
    model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    plain = make()
    for one in (model, plain):
        loss_of(one, 0).backward()
    assert torch.equal(seen[0], 2 * plain[0].weight.grad)  # type: ignore[operator]
    optimizer.step()


def test_parameters_leave_their_memory_and_come_back() -> None:
    """Sleep, a parameter that thaws, and a model that goes: the parameter is the same object, and its values are."""
    model = make()
    model[0].weight.requires_grad_(False)
    optimizer: Any = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    model, optimizer = castor.wrap(model, optimizer)
    kept, runtime = model[0].weight, model._castor
    loss_of(model, 0).backward()
    optimizer.step()
    before = exact(model)
    with castor.sleep(model):
        assert not runtime.residents.active
    assert runtime.residents.active and type(kept) is ResidentParameter
    assert all(map(torch.equal, exact(model), before))
    kept.requires_grad_(True)
    optimizer.add_param_group({"params": [kept]})
    for seed in range(2):
        loss_of(model, seed).backward()
        optimizer.step()
    assert runtime.residents.active and not torch.equal(castor.exact(kept), before[0])
    assert model[0].weight is kept
    world = runtime.engine.world
    del model, optimizer, runtime
    gc.collect()
    assert not world.handle and kept.shape == (16, 8)


def test_a_step_that_fails_in_the_backward_can_be_made_again() -> None:
    def train(model: Any, optimizer: Any) -> None:
        loss = loss_of(model, 0)

        def fail(_: torch.Tensor) -> None:
            raise ValueError("of the script")

        hook = model[0].weight.register_hook(fail)
        with pytest.raises(ValueError, match="of the script"):
            loss.backward()
        hook.remove()
        optimizer.zero_grad()
        for seed in range(2):
            loss_of(model, seed).backward()
            optimizer.step()

    same_bits(train, torch.bfloat16)


def test_copies_are_plain() -> None:
    model, optimizer = wrapped(torch.bfloat16)
    loss_of(model, 0).backward()
    optimizer.step()
    made = copy.deepcopy(model)
    assert all(type(p) is nn.Parameter for p in made.parameters())
    assert torch.equal(made(torch.ones(1, 8).bfloat16()), model(torch.ones(1, 8).bfloat16()))
    assert not any(module._forward_pre_hooks for module in made.modules())


def test_gradients_take_their_bytes_of_the_budget_and_no_others() -> None:
    model, optimizer = wrapped(torch.bfloat16, model=nn.Linear(512, 512, bias=False).bfloat16())
    homes = model._castor.engine.param(0).homes
    assert list(homes)[1] == -1, "a borrowed gradient has none"
    most = 512 * 512 * (2 + 12) + 512 * 512 * 2
    tight, _ = wrapped(torch.bfloat16, model=nn.Linear(512, 512, bias=False).bfloat16(), device=most - 4096, host="64MiB")
    assert not tight._castor.residents.active


def test_frozen_weights_elsewhere_leave_gradients_in_chunks() -> None:
    """As under LoRA, whose base does not fit: trained states are all on the device, and no parameter is resident."""
    plain = make()
    plain[0].requires_grad_(False)
    model, optimizer = wrapped(model=plain, place={"0.*": "host"})
    assert not model._castor.residents.active
    reference = make()
    reference[0].requires_grad_(False)
    theirs = torch.optim.AdamW(reference[2].parameters(), lr=0.01)
    for step in range(3):
        for one, its in ((model, optimizer), (reference, theirs)):
            loss_of(one, step).backward()
            its.step()
            its.zero_grad()
    assert torch.allclose(castor.exact(model[2].weight), reference[2].weight)
