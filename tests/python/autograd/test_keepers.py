# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What autograd keeps of a parameter is right when it is read, whoever's hooks are innermost: cells of helpers/keepers.py next to plain PyTorch."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
import keepers
import ranks
from castor.torch._autograd import _activations


def show(found: dict[str, str]) -> None:
    """None differs. What does not fit says so, and is counted."""
    wrong = [f"{cell}: {what}" for cell, what in found.items() if what and what != keepers.DOES_NOT_FIT]
    print(f"{len(found)} cells, {Counter(found.values())[keepers.DOES_NOT_FIT]} do not fit, {len(wrong)} differ")
    assert not wrong, "\n".join(wrong[:20])
    assert Counter(found.values())[keepers.DOES_NOT_FIT] * 50 < len(found)


def test_losses_and_gradients_are_those_of_plain_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mover = _activations.HostMover()
    monkeypatch.setattr(_activations, "mover_of", lambda device: mover)
    show({str(cell): keepers.difference(cell, keepers.budgets(cell, str(tmp_path), False)) for cell in keepers.cells(420)})


def test_they_are_on_two_ranks(tmp_path: Path) -> None:
    show(ranks.run("keepers", 2, tmp_path, timeout_s=86400 if "CASTOR_TEST_EVERY_CELL" in os.environ else 400))


class Bypass(nn.Module):
    """Whose function was kept before anything was wrapped, as a module of kernels keeps its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _kept_before(torch.tanh(self.first(x)), self.second.weight)


class _Product(torch.autograd.Function):
    addresses: list[int] = []

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        assert w.is_contiguous() and w.stride() == (8, 1)
        _Product.addresses.append(w.data_ptr())
        values = torch.frombuffer((keepers.Byte * (w.numel() * 4)).from_address(w.data_ptr()), dtype=torch.float32).view(8, 8)
        return x @ values.t()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        with torch._C.DisableTorchFunctionSubclass():  # as C++ would read it
            return g @ w, g.t() @ x


_kept_before = _Product.apply


@pytest.mark.parametrize("budgets", [{}, {"place": {"*": "host"}}, {"device": "4KiB", "host": "1MiB", "chunk": "512B", "config": {"poison": True}}])
def test_a_function_that_was_kept_before_gets_memory_with_values(budgets: dict[str, Any]) -> None:
    """It reads them at an address, as a kernel does."""

    def trained(wrap: bool) -> list[float]:
        torch.manual_seed(0)
        model: Any = Bypass()
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if wrap:
            model, optimizer = castor.wrap(model, optimizer, **budgets)
        losses = []
        for step in range(4):
            loss = model(torch.randn(3, 8, generator=torch.Generator().manual_seed(step))).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    assert trained(wrap=True) == pytest.approx(trained(wrap=False), rel=1e-5)


class Stash(nn.Module):
    """Its forward keeps its weight, for whoever looks later."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.weight.role = "matrix"  # type: ignore[attr-defined]
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.weight, nn.Parameter) and self.weight.role == "matrix"  # type: ignore[attr-defined]
        self.weight.last = x.shape[0]  # type: ignore[attr-defined]
        self.seen.append(self.weight)
        return x @ self.weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("budgets", [{}, {"place": {"*": "host"}}])
def test_what_a_forward_keeps_of_its_parameter_is_the_parameter(budgets: dict[str, Any], dtype: torch.dtype) -> None:
    def trained(wrap: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model: Any = Stash().to(dtype)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.5)
        if wrap:
            model, optimizer = castor.wrap(model, optimizer, **budgets)
        model(torch.ones(3, 4, dtype=dtype)).sum().backward()
        kept = model.seen[0]
        assert model.weight.last == 3
        found = [kept.sum(), kept.grad.clone()]
        # A penalty in the same step, and what the kept one is after the step.
        (kept.float() ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        found += [kept.clone(), kept @ kept]
        with torch.no_grad():
            kept.mul_(2)
        found.append(model.weight.clone())
        model.seen.clear()
        found.append(model(torch.ones(1, 4, dtype=dtype)))
        return [tensor.detach().float().clone() for tensor in found]

    for ours, plain in zip(trained(wrap=True), trained(wrap=False), strict=True):
        assert torch.allclose(ours, plain, rtol=1e-5 if dtype is torch.float32 else 2e-2)


def test_who_freezes_a_parameter_between_two_forwards_has_no_gradient_of_the_second() -> None:
    for budgets in ({}, {"place": {"*": "host"}}):
        torch.manual_seed(0)
        model: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).to(torch.bfloat16)
        model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.5), **budgets)
        x = torch.ones(2, 4, dtype=torch.bfloat16)
        model(x).sum().backward()
        first = castor.gradient(model[0].weight).clone()
        model[0].requires_grad_(False)
        model(x).sum().backward()
        assert torch.equal(castor.gradient(model[0].weight), first)
        model[0].requires_grad_(True)
        model(x).sum().backward()
        assert torch.allclose(castor.gradient(model[0].weight), 2 * first, rtol=2e-2)
        optimizer.step()


def test_what_is_replaced_in_torch_is_there_again_after_the_last_model() -> None:
    from castor.torch import _patches

    for owner in _patches._alive():
        _patches.let_go(owner)  # other tests' models, which wait for the collector
    before = [vars(place).get(name) for place, name, _ in _patches._PATCHES]
    assert not any(vars(place).get(name) is ours for place, name, ours in _patches._PATCHES)
    models = []
    for _ in range(2):
        model: Any = nn.Linear(2, 2)
        models.append(castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1)))
    assert all(vars(place)[name] is ours for place, name, ours in _patches._PATCHES)
    models.pop()[0]._castor.close()
    assert all(vars(place)[name] is ours for place, name, ours in _patches._PATCHES)
    models.pop()[0]._castor.close()
    assert [vars(place).get(name) for place, name, _ in _patches._PATCHES] == before


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def inputs_of_a_backward(model: Any, loss: torch.Tensor) -> list[torch.Tensor]:
    loss.backward(inputs=[model.first.weight, model.second.bias])
    return [model.first.weight.grad, model.second.bias.grad]


def gradients_asked_for(model: Any, loss: torch.Tensor) -> list[torch.Tensor]:
    return [*torch.autograd.grad(loss, list(model.parameters()))]


def penalty_on_gradients(model: Any, loss: torch.Tensor) -> list[torch.Tensor]:
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    sum(gradient.pow(2).sum() for gradient in gradients).backward()  # type: ignore[union-attr]
    return [p.grad for p in model.parameters()]


def hook_on_several(model: Any, loss: torch.Tensor) -> list[torch.Tensor]:
    seen: list[Any] = []
    torch.autograd.graph.register_multi_grad_hook(list(model.parameters()), seen.extend)
    loss.backward()
    return seen


@pytest.mark.parametrize("ask", [inputs_of_a_backward, gradients_asked_for, penalty_on_gradients, hook_on_several])
@pytest.mark.parametrize("budgets", [{}, {"place": {"*": "host"}}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_graphs_have_parameters_by_their_names(ask: Any, budgets: dict[str, Any], dtype: torch.dtype) -> None:
    found = []
    for wrap in (False, True):
        torch.manual_seed(0)
        model: Any = Two().to(dtype)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if wrap:
            model, optimizer = castor.wrap(model, optimizer, **budgets)
        found.append([gradient.clone() for gradient in ask(model, model(torch.ones(3, 4, dtype=dtype)).float().pow(2).mean())])
    for plain, ours in zip(*found, strict=True):
        assert torch.allclose(plain, ours, rtol=1e-5 if dtype is torch.float32 else 3e-2, atol=1e-6)


@pytest.mark.parametrize("budgets", [{}, {"place": {"*": "host"}}])
def test_hooks_and_attributes_that_a_forward_gives_its_parameter_stay(budgets: dict[str, Any]) -> None:
    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))
            self.weight.calls = 0  # type: ignore[attr-defined]
            self.weight.gone = True  # type: ignore[attr-defined]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.weight.calls == 0:  # type: ignore[attr-defined]
                self.weight.register_hook(lambda gradient: 2 * gradient)
                del self.weight.gone  # type: ignore[attr-defined]
            self.weight.calls += 1  # type: ignore[attr-defined]
            return x @ self.weight

    model: Any = Hooked()
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **budgets)
    for step in range(3):
        model(torch.ones(1, 4)).sum().backward()
        assert torch.equal(castor.gradient(model.weight), torch.full((4, 4), 2.0))
        optimizer.step()
        assert model.weight.calls == step + 1 and not hasattr(model.weight, "gone")
