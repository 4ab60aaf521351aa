# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Gradients between a backward and the step, read and written as a script does: the weights are those of the plain script."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor

WHERE: dict[str, dict[str, Any]] = {
    "on the device": {},
    "on the host": {"place": {"*": "host"}},
    "in small chunks": {"device": "24KiB", "host": "64KiB", "chunk": "512B", "config": {"poison": True}},
}


class Model(nn.Module):
    """Of which one layer is used now and then, and one never."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.sometimes, self.never = nn.Linear(16, 16), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, also: bool) -> torch.Tensor:
        x = torch.tanh(self.first(x))
        return self.last(self.sometimes(x) if also else x)


def total_norm(model: Any) -> Any:
    return torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()


def largest(model: Any) -> Any:
    return torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None], norm_type=float("inf"))


def logged(model: Any) -> Any:
    return torch.tensor([p.grad.abs().max().item() + float(p.grad.sum()) for p in model.parameters() if p.grad is not None])


def clip_values(model: Any) -> None:
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.05)


def clip_modules(model: Any) -> Any:
    return torch.stack([torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.1) for layer in (model.first, model.last)])


def clip_by_the_largest(model: Any) -> Any:
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm_type=float("inf"))


def noise(model: Any) -> None:
    generator = torch.Generator().manual_seed(5)
    for p in model.parameters():
        if p.grad is not None:
            p.grad.add_(torch.randn(p.shape, generator=generator), alpha=0.01)


def by_data(model: Any) -> None:
    for p in model.parameters():
        if p.grad is not None:
            p.grad.data.mul_(0.5)
            p.grad.data.clamp_(-0.1, 0.1)


def by_numpy(model: Any) -> None:
    for p in model.parameters():
        if p.grad is not None:
            p.grad.numpy()[...] *= 0.25


def by_replacement(model: Any) -> None:
    for p in model.parameters():
        if p.grad is not None:
            p.grad = p.grad * 0.5 + 0.01


def frozen_for_a_step(model: Any) -> None:
    model.first.weight.grad = None
    del model.last.bias.grad
    assert model.first.weight.grad is None


def by_rows(model: Any) -> None:
    model.first.weight.grad[3:] = 0
    model.last.weight.grad[:, 1] /= 2


def in_lists(model: Any) -> Any:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    torch._foreach_mul_(gradients, 0.5)
    return torch.stack(torch._foreach_norm(gradients))


def twice(model: Any) -> Any:
    clip_values(model)
    return torch.stack([total_norm(model), torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02), total_norm(model)])


LINES: list[Callable[[Any], Any]] = [total_norm, largest, logged, clip_values, clip_modules, clip_by_the_largest, noise, by_data, by_numpy, by_replacement,
                                     frozen_for_a_step, by_rows, in_lists, twice]


def trained(lines: Callable[[Any], Any], wraps: Any, micro_batches: int = 1, dtype: torch.dtype = torch.float32) -> tuple[list[torch.Tensor], list[Any]]:
    torch.manual_seed(0)
    model: Any = Model().to(dtype)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if wraps is not None:
        model, optimizer = castor.wrap(model, optimizer, **wraps)
    said = []
    for step in range(4):
        for micro_batch in range(micro_batches):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + micro_batch)).to(dtype)
            model(x, step % 2 == 1).float().pow(2).sum().backward()
        answer = lines(model)
        if answer is not None:
            said.append(answer.clone())
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().float().clone() for p in model.parameters()], said


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("lines", LINES, ids=lambda lines: lines.__name__)
def test_a_script_does_with_gradients_what_it_does_plainly(lines: Callable[[Any], Any], where: str) -> None:
    want, asked = trained(lines, None)
    got, said = trained(lines, WHERE[where])
    for mine, theirs in zip(got, want):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-6)
    for answer, theirs in zip(said, asked):
        torch.testing.assert_close(answer, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("lines", [total_norm, by_data, noise, by_replacement], ids=lambda lines: lines.__name__)
def test_in_low_precision_all_places_give_the_same_bits(lines: Callable[[Any], Any]) -> None:
    (first, said), *others = [trained(lines, wraps, dtype=torch.bfloat16) for wraps in WHERE.values()]
    for got, answers in others:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(got, first))
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(answers, said))


def test_gradients_may_be_read_and_written_between_micro_batches() -> None:
    def steps(wraps: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model: Any = Model()
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-2)
        if wraps is not None:
            model, optimizer = castor.wrap(model, optimizer, **wraps)
        for step in range(3):
            for micro_batch in range(3):
                x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + micro_batch))
                model(x, micro_batch == 1).pow(2).sum().backward()
                model.first.weight.grad.mul_(0.9)
                total_norm(model)
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach().clone() for p in model.parameters()]

    want = steps(None)
    for wraps in WHERE.values():
        for mine, theirs in zip(steps(wraps), want):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_a_gradient_looks_like_one_without_being_read() -> None:
    model: Any = Model()
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert model.first.weight.grad is None
    model(torch.ones(2, 8), False).sum().backward()
    gradient = model.first.weight.grad
    assert gradient is not None and gradient.shape == (16, 8) and gradient.dtype is torch.float32 and gradient.numel() == 128
    assert not model._castor.gradients.values._copies, "nobody asked for values"
    assert model.never.weight.grad is None and model.sometimes.weight.grad is None
    optimizer.zero_grad()
    assert model.first.weight.grad is None


def test_gradients_that_cannot_be_set_are_named() -> None:
    model: Any = Model()
    model, _ = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), place={"*": "host"})
    with pytest.raises(castor.FailedPrecondition, match="gradient of first.weight is set outside a step"):
        model.first.weight.grad = torch.zeros(16, 8)
    model(torch.ones(2, 8), False).sum().backward()
    with pytest.raises(castor.InvalidArgument, match=r"gradient of first.weight is torch.float32 of shape \(16, 8\)"):
        model.first.weight.grad = torch.zeros(8)


def test_gradients_that_are_used_already_are_refused() -> None:
    model: Any = Model()
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), update_in_backward=True)
    model(torch.ones(2, 8), True).sum().backward()
    for read in (total_norm, by_data, by_replacement, clip_values):
        with pytest.raises(castor.FailedPrecondition, match="update_in_backward=True has used the gradients"):
            read(model)
    kept = model.first.weight.grad  # who holds one does not stop the step
    optimizer.step()
    assert kept.shape == (16, 8)


def test_a_read_inside_a_backward_is_refused() -> None:
    model: Any = Model()
    model, _ = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), place={"*": "host"})
    x = torch.ones(2, 8, requires_grad=True)
    x.register_hook(lambda _: model.last.weight.grad.sum())
    with pytest.raises(castor.FailedPrecondition, match="read it when loss.backward"):
        model(x, False).sum().backward()


def kept_over_a_step(model: Any) -> Any:
    """The gradient of the step before, as somebody has kept it."""
    before, model.__dict__["before"] = model.__dict__.get("before"), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return None if before is None else torch.stack([torch.dot(before[name].flatten(), g.flatten()) for name, g in model.__dict__["before"].items() if name in before])


def swapped(model: Any) -> None:
    first, last = model.first, model.last
    first.bias.grad, first.weight.grad = first.weight.grad.sum(1), first.bias.grad[:, None].expand(16, 8)
    kept = last.weight.grad
    last.weight.grad = None
    last.weight.grad = kept * 0.5


def of_the_scripts_own(model: Any) -> None:
    mine = torch.zeros(8, 16).t()
    model.first.weight.grad = mine
    mine[3] = 0.25
    mine.numpy()[4] = 0.5


def clipped_twice(model: Any) -> Any:
    return torch.stack([torch.nn.utils.clip_grad_norm_(model.parameters(), most) for most in (0.1, 5.0, 0.05)])


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("lines", [kept_over_a_step, swapped, of_the_scripts_own, clipped_twice], ids=lambda lines: lines.__name__)
def test_gradients_are_objects_of_the_scripts(lines: Callable[[Any], Any], where: str) -> None:
    test_a_script_does_with_gradients_what_it_does_plainly(lines, where)


@pytest.mark.parametrize("where", WHERE)
def test_a_look_between_a_forward_and_its_backward(where: str) -> None:
    said = []
    for wraps in (None, WHERE[where]):
        torch.manual_seed(0)
        model: Any = Model()
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if wraps is not None:
            model, optimizer = castor.wrap(model, optimizer, **wraps)
        for step in range(3):
            model(torch.ones(2, 8), True).pow(2).sum().backward()
            loss = model(torch.full((2, 8), 0.5), False).pow(2).sum()
            said.append(total_norm(model))
            model.first.weight.grad.mul_(0.5)
            loss.backward()
            said.append(total_norm(model))
            optimizer.step()
            optimizer.zero_grad()
        said.append(torch.cat([p.detach().flatten() for p in model.parameters()]).norm())
    half = len(said) // 2
    torch.testing.assert_close(torch.stack(said[half:]), torch.stack(said[:half]), rtol=1e-4, atol=1e-6)


def test_one_clip_of_two_models_and_of_what_no_optimizer_has() -> None:
    answers = []
    for wraps in (False, True):
        torch.manual_seed(0)
        models: list[Any] = [nn.Linear(4, 4), nn.Linear(4, 4)]
        optimizers: list[Any] = [torch.optim.SGD([model.weight], lr=0.1) for model in models]
        if wraps:
            models, optimizers = map(list, zip(*(castor.wrap(m, o) for m, o in zip(models, optimizers))))
        for step in range(2):
            sum(model(torch.ones(2, 4)).pow(2).sum() for model in models).backward()
            answers.append(torch.nn.utils.clip_grad_norm_([p for model in models for p in model.parameters()], 0.1))
            answers.append(torch.nn.utils.clip_grad_norm_(models[0].parameters(), 0.05))
            for model, optimizer in zip(models, optimizers):
                optimizer.step()
                model.zero_grad()
            assert models[0].bias.grad is None
        answers.extend(p.detach().norm() for model in models for p in model.parameters())
    half = len(answers) // 2
    torch.testing.assert_close(torch.stack(answers[half:]), torch.stack(answers[:half]), rtol=1e-4, atol=1e-6)


def test_a_norm_that_is_not_finite_is_an_error_where_that_is_asked_for() -> None:
    model: Any = Model()
    model, _ = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    (model(torch.ones(2, 8), True).sum() * float("inf")).backward()
    with pytest.raises(RuntimeError, match="not finite"):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("where", WHERE)
def test_gathered_parameters_have_the_gradients_of_their_chunks(where: str) -> None:
    def trained(wrap: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model: Any = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-2)
        if wrap:
            model, optimizer = castor.wrap(model, optimizer, **WHERE[where])
        model(torch.ones(3, 8)).pow(2).sum().backward()
        seen = []
        with castor.gathered(model) if wrap else contextlib.nullcontext():
            seen += [p.grad.clone() for p in model.parameters()]
            # More of them come inside, and what is written stays.
            model(torch.full((3, 8), 0.5)).pow(2).sum().backward()
            torch.nn.utils.clip_grad_norm_([model[0].weight], 0.01)
            model[2].bias.grad = torch.ones(4)
            model[0].bias.grad = None
            for copied in (copy.deepcopy(model[0].weight), pickle.loads(pickle.dumps(model[0].weight))):
                assert type(copied) is nn.Parameter and torch.equal(copied, model[0].weight)
        assert model[0].bias.grad is None
        seen += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
        return seen + [p.detach().clone() for p in model.parameters()]

    for ours, plain in zip(trained(wrap=True), trained(wrap=False), strict=True):
        assert torch.allclose(ours, plain, rtol=1e-5, atol=1e-7)


def test_a_channels_last_model_trains_as_a_plain_one() -> None:
    def trained(wrap: bool) -> tuple[Any, Any]:
        torch.manual_seed(0)
        model: Any = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).to(memory_format=torch.channels_last)
        optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if wrap:
            model, optimizer = castor.wrap(model, optimizer, device="4MiB", host="4MiB")
        images = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(1)).to(memory_format=torch.channels_last)
        for _ in range(3):
            out = model(images)
            assert out.is_contiguous(memory_format=torch.channels_last)
            out.pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.state_dict(), out

    torch.manual_seed(0)
    wrapped: Any = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)).to(memory_format=torch.channels_last)
    strides = {name: p.stride() for name, p in wrapped.named_parameters()}
    wrapped, _ = castor.wrap(wrapped, torch.optim.AdamW(wrapped.parameters()), device="4MiB", host="4MiB")
    with castor.gathered(wrapped):
        gathered = {name: p.stride() for name, p in wrapped.named_parameters()}
    copies = (gathered, {name: p.stride() for name, p in copy.deepcopy(wrapped).named_parameters()}, {name: p.stride() for name, p in wrapped.state_dict().items()})
    assert all(of_copy == strides for of_copy in copies)

    (ours, out), (plain, plain_out) = trained(wrap=True), trained(wrap=False)
    assert torch.allclose(out, plain_out, rtol=1e-5, atol=1e-6)
    for name in plain:
        assert torch.allclose(ours[name], plain[name], rtol=1e-4, atol=1e-6), name
