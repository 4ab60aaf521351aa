# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""torch.func next to plain PyTorch: over inputs, over parameters that are given as they are or detached, and inside a model's forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import castor.torch as castor

BUDGETS: dict[str, dict[str, Any]] = {
    "on the device": {},
    "on the host": {"place": {"*": "host"}},
    "in small chunks": {"device": "8KiB", "host": "1MiB", "chunk": "512B", "config": {"poison": True}},
}
X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
Y = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))


def parameters(model: Any) -> dict[str, Tensor]:
    return dict(model.named_parameters())


def detached(model: Any) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in model.named_parameters()}


def loss_of(model: Any) -> Callable[..., Tensor]:
    return lambda params, x, y: (functional_call(model, params, (x,)) - y).pow(2).mean()


def maml(model: Any) -> list[Tensor]:
    """A step on one task, whose loss on another is the outer loss."""

    def outer(params: dict[str, Tensor]) -> Tensor:
        inner = grad(loss_of(model))(params, X, Y)
        return loss_of(model)({name: p - 0.1 * inner[name] for name, p in params.items()}, X.flip(0), Y)

    return [*grad(outer)(parameters(model)).values()]


def outer_backward(model: Any) -> list[Tensor]:
    """Torch's own backward through a transform."""
    inner = grad(loss_of(model))(parameters(model), X, Y)
    sum(gradient.pow(2).sum() for gradient in inner.values()).backward()  # type: ignore[union-attr]
    return [p.grad.clone() for p in model.parameters()]


CASES: dict[str, Callable[[Any], Any]] = {
    "grad": lambda model: [*grad(loss_of(model))(parameters(model), X, Y).values()],
    "grad of detached": lambda model: [*grad(loss_of(model))(detached(model), X, Y).values()],
    "grad of inputs": lambda model: [grad(lambda x: model(x).pow(2).sum())(X)],
    "vjp": lambda model: [*vjp(lambda params: functional_call(model, params, (X,)), parameters(model))[1](Y)[0].values()],
    "vjp of inputs": lambda model: [*vjp(lambda x: model(x), X)[1](Y)],
    "jvp": lambda model: [*jvp(lambda params: functional_call(model, params, (X,)), (parameters(model),),
                               ({name: torch.ones_like(p) for name, p in model.named_parameters()},))],
    "jvp of inputs": lambda model: [*jvp(lambda x: model(x), (X,), (X,))],
    "vmap": lambda model: [vmap(lambda row: model(row))(X)],
    "vmap of a weight": lambda model: [vmap(lambda row: row.sum())(model[0].weight)],
    "vmap over models": lambda model: [vmap(lambda params, x: functional_call(model, params, (x,)), in_dims=(0, None))(
        {name: torch.stack([p, 2 * p]) for name, p in model.named_parameters()}, X)],
    "per sample": lambda model: [*vmap(grad(loss_of(model)), in_dims=(None, 0, 0))(parameters(model), X[:, None], Y[:, None]).values()],
    "jacrev": lambda model: [jacrev(lambda x: model(x))(X)],
    "jacfwd": lambda model: [jacfwd(lambda x: model(x))(X)],
    "hessian": lambda model: [hessian(lambda row: model(row).pow(2).sum())(X[0])],
    "functional_call": lambda model: [functional_call(model, parameters(model), (X,))],
    "maml": maml,
    "outer backward": outer_backward,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("budgets", BUDGETS)
def test_transforms_give_what_they_give_of_a_plain_model(case: str, budgets: str) -> None:
    def found(wrap: bool, steps: int) -> list[Tensor]:
        torch.manual_seed(0)
        model: Any = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4))
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if wrap:
            model, optimizer = castor.wrap(model, optimizer, **BUDGETS[budgets])
        for _ in range(steps):
            model(X).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        seen = [tensor.detach().clone() for tensor in CASES[case](model)]
        optimizer.zero_grad()
        model(X).pow(2).mean().backward()  # training goes on
        optimizer.step()
        return [*seen, model(X).detach()]

    for steps in (0, 2):
        for ours, plain in zip(found(True, steps), found(False, steps), strict=True):
            assert torch.allclose(ours, plain, rtol=1e-4, atol=1e-6), steps


class Forces(nn.Module):
    """A forward with a transform inside, whose result is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        return vmap(grad(lambda row: self.energy(row).sum()))(x)


@pytest.mark.parametrize("budgets", BUDGETS)
def test_a_transform_may_be_inside_a_forward(budgets: str) -> None:
    def losses(wrap: bool) -> list[float]:
        torch.manual_seed(0)
        model: Any = Forces()
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if wrap:
            model, optimizer = castor.wrap(model, optimizer, **BUDGETS[budgets])
        seen = []
        for _ in range(3):
            loss = (model(X) - X).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append(loss.item())
        return seen

    assert losses(True) == pytest.approx(losses(False), rel=1e-5)
