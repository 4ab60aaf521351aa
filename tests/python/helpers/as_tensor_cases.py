# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What scripts do with parameters outside their modules' forwards, and within, each as lines of a script that know nothing of Castor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Seen = list[Any]  # what a script has read
Lines = Callable[[Any, int, Seen], Any]  # of a model, in a step


class Access(NamedTuple):
    name: str
    lines: Lines
    make: Callable[[], nn.Module]
    between: bool = False  # backward and step; else before the forward


class Clamped(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.clamp_(-0.1, 0.1)
        return F.linear(x, self.weight, self.bias)


class ClampedData(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data.clamp_(-0.1, 0.1)
        return F.linear(x, self.weight, self.bias)


class Standardised(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.sub_(self.weight.mean(1, keepdim=True)).div_(self.weight.std(1, keepdim=True) * 8)
        return F.linear(x, self.weight, self.bias)


class Decays(nn.Module):
    """A module that writes to the weight of another before it calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.inner.weight.mul_(0.99)
        return self.inner(x)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.LayerNorm(16), nn.Linear(16, 16))


def around(inside: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(16, 16), inside(), nn.Tanh(), nn.Linear(16, 16))


def frozen() -> nn.Module:
    model: Any = plain()
    model[2].weight.requires_grad_(False)
    return model


ACCESSES: list[Access] = []


def access(make: Callable[[], nn.Module] = plain, between: bool = False, grad: bool = True) -> Callable[[Lines], Lines]:
    """`grad`: whether the lines run with gradients on."""

    def take(lines: Lines) -> Lines:
        def run(model: Any, step: int, seen: Seen) -> None:
            with torch.set_grad_enabled(grad):
                made = lines(model, step, seen)
            if made is not None:
                seen.append(made)

        ACCESSES.append(Access(lines.__name__, run, make, between))
        return lines

    return take


def no_grad(name: str, lines: Callable[[Any], Any], **more: Any) -> None:
    """One line on a weight, without gradients."""

    def run(model: Any, step: int, seen: Seen) -> None:
        with torch.no_grad():
            lines(model[0].weight)

    ACCESSES.append(Access(name, run, plain, **more))


def with_grad(name: str, lines: Callable[[Any], Any]) -> None:
    ACCESSES.append(Access(name, lambda model, step, seen: lines(model[0].weight), plain))


def read(name: str, lines: Callable[[Any], Any], grad: bool) -> None:
    def run(model: Any, step: int, seen: Seen) -> None:
        with torch.set_grad_enabled(grad):
            seen.append(lines(model[0].weight))

    ACCESSES.append(Access(name, run, plain))


# Reads.
for _grad in (False, True):
    _name = "with_gradients" if _grad else "without"
    read(f"item_{_name}", lambda w: w[0, 0].item(), _grad)
    read(f"data_{_name}", lambda w: w.data.clone(), _grad)
    read(f"detach_{_name}", lambda w: w.detach().clone(), _grad)
    read(f"norm_{_name}", lambda w: w.detach().norm().item(), _grad)
    read(f"tolist_{_name}", lambda w: w.tolist(), _grad)
    read(f"isnan_{_name}", lambda w: torch.isnan(w).any().item(), _grad)
    read(f"equal_{_name}", lambda w: torch.equal(w, w), _grad)
    read(f"format_{_name}", lambda w: float(f"{w.data[0, 0]:.3f}"), _grad)
read("cpu_clone", lambda w: w.cpu().clone(), False)
read("data_numpy", lambda w: w.data.float().numpy().sum().item(), False)
read("matmul", lambda w: (w @ w.t()).sum().item(), False)
read("functional", lambda w: F.linear(torch.ones(1, 16, dtype=w.dtype), weight=w).sum().item(), False)
read("keyword", lambda w: torch.sum(input=w).item(), False)
read("unbind", lambda w: [row.sum().item() for row in w.unbind(0)][:4], False)
read("split", lambda w: [part.sum().item() for part in w.split(8)], False)
read("stack", lambda w: torch.stack([w, w]).sum().item(), False)
read("shape_of_view", lambda w: tuple(w.data.view(-1).shape), False)

# Writes.
no_grad("mul_", lambda w: w.mul_(0.9))
no_grad("add_", lambda w: w.add_(0.01))
no_grad("imul", lambda w: w.__imul__(0.9))
no_grad("copy_", lambda w: w.copy_(torch.full_like(w, 0.02)))
no_grad("zero_a_row", lambda w: w[0].zero_())
no_grad("set_a_row", lambda w: w.__setitem__(1, 0.05))
no_grad("set_by_mask", lambda w: w.__setitem__(w > 0.1, 0.1))
no_grad("detach_mul_", lambda w: w.detach().mul_(0.9))
no_grad("view_mul_", lambda w: w.view(-1).mul_(0.9))
no_grad("transpose_add_", lambda w: w.t().add_(0.01))
no_grad("clamp_", lambda w: w.clamp_(-0.1, 0.1))
no_grad("lerp_", lambda w: w.lerp_(torch.zeros_like(w), 0.1))
no_grad("masked_fill_", lambda w: w.masked_fill_(w.abs() < 0.05, 0.0))
no_grad("out", lambda w: torch.mul(w, 0.9, out=w))
no_grad("foreach", lambda w: torch._foreach_mul_([w], 0.9))
no_grad("addcmul_", lambda w: w.addcmul_(torch.ones_like(w), torch.ones_like(w), value=0.01))
no_grad("renorm_", lambda w: w.renorm_(2, 0, 0.3))
no_grad("index_fill_", lambda w: w.index_fill_(0, torch.tensor([2]), 0.03))
no_grad("before_the_step", lambda w: w.mul_(0.99), between=True)
with_grad("data_mul_", lambda w: w.data.mul_(0.9))
with_grad("data_is_set", lambda w: setattr(w, "data", torch.full_like(w.data, 0.02)))
with_grad("data_add_before_view", lambda w: w.data.view(-1)[:5].add_(0.1))
with_grad("detach_add_", lambda w: w.detach().add_(0.01))
with_grad("numpy_of_data", lambda w: w.data.view(torch.int16 if w.dtype is torch.bfloat16 else torch.int32).numpy().__setitem__(0, 0))
with_grad("init_constant_", lambda w: nn.init.constant_(w, 0.03))
with_grad("init_orthogonal_", lambda w: nn.init.orthogonal_(w) if w.dtype is torch.float32 else nn.init.ones_(w))
with_grad("init_zeros_", lambda w: nn.init.zeros_(w))


@access(grad=False)
def foreach_over_all(model: Any, step: int, seen: Seen) -> None:
    torch._foreach_mul_(list(model.parameters()), 0.98)


@access(grad=False, between=True)
def weight_decay_by_hand(model: Any, step: int, seen: Seen) -> None:
    for p in model.parameters():
        p.mul_(1 - 0.05 * 0.1)


@access(between=True)
def weight_decay_by_data(model: Any, step: int, seen: Seen) -> None:
    for p in model.parameters():
        p.data.add_(p.data, alpha=-0.01)


@access(grad=False)
def ema_of_a_model(model: Any, step: int, seen: Seen) -> Any:
    if step == 0:
        model.__dict__["shadow"] = [p.detach().clone() for p in model.parameters()]
    for mean, p in zip(model.__dict__["shadow"], model.parameters()):
        mean.lerp_(p, 0.3)
    return sum(mean.float().sum().item() for mean in model.__dict__["shadow"])


@access(grad=False)
def ema_and_back(model: Any, step: int, seen: Seen) -> None:
    means = [p.detach().clone().mul_(0.5) for p in model.parameters()]
    for mean, p in zip(means, model.parameters()):
        p.copy_(mean)


@access()
def target_network(model: Any, step: int, seen: Seen) -> Any:
    if step == 0:
        model.__dict__["target"] = plain().to(next(model.parameters()).dtype)
    target = model.__dict__["target"]
    for mine, theirs in zip(target.parameters(), model.parameters()):
        mine.data.copy_(mine.data * 0 + theirs.data)
    return sum(p.sum().item() for p in target.parameters())


@access(grad=False)
def vector_and_back(model: Any, step: int, seen: Seen) -> Any:
    vector = parameters_to_vector(model.parameters())
    vector_to_parameters(vector * 0.98, model.parameters())
    return vector.sum().item()


@access()
def aliases_kept_over_steps(model: Any, step: int, seen: Seen) -> Any:
    if step == 0:
        model.__dict__["aliases"] = [p.detach() for p in model.parameters()]
    return sum(alias.float().sum().item() for alias in model.__dict__["aliases"])


@access()
def an_alias_written_in_each_step(model: Any, step: int, seen: Seen) -> Any:
    if step == 0:
        model.__dict__["alias"] = model[2].weight.data
    model.__dict__["alias"].mul_(0.95)
    return model[2].weight.detach().float().sum().item()


@access(grad=False)
def a_read_after_a_write(model: Any, step: int, seen: Seen) -> Any:
    model[0].bias.fill_(0.25)
    return model[0].bias.sum().item(), model[0].bias[1].item(), model[0].bias.data.mean().item()


@access()
def load_state_dict_of_a_part(model: Any, step: int, seen: Seen) -> None:
    model[2].load_state_dict({"weight": torch.full((16, 32), 0.01), "bias": torch.zeros(16)})


@access()
def ema_by_swapped_data(model: Any, step: int, seen: Seen) -> Any:
    """The much copied class: means in the parameters' places for an evaluation, and back."""
    if step == 0:
        model.__dict__["means"] = [p.data.clone() for p in model.parameters()]
    for index, p in enumerate(model.parameters()):
        model.__dict__["means"][index] = 0.5 * p.data + 0.5 * model.__dict__["means"][index]
    backup = []
    for mean, p in zip(model.__dict__["means"], model.parameters()):
        backup.append(p.data)
        p.data = mean
    with torch.no_grad():
        x = torch.ones(1, 16, dtype=next(model.parameters()).dtype)
        value = model(x).float().sum().item()
    for before, p in zip(backup, model.parameters()):
        p.data = before
    return value


@access()
def lookahead(model: Any, step: int, seen: Seen) -> None:
    """Slow weights take the parameters' places, and so follow the updates."""
    if step == 0:
        model.__dict__["slow"] = [p.data.clone() for p in model.parameters()]
    for slow, p in zip(model.__dict__["slow"], model.parameters()):
        slow.add_(p.data - slow, alpha=0.5)
        p.data = slow


@access()
def two_that_change_places(model: Any, step: int, seen: Seen) -> None:
    first, second = model[2].bias, model[4].bias
    kept = first.data
    first.data = second.data
    second.data = kept


@access()
def init_of_slices(model: Any, step: int, seen: Seen) -> None:
    nn.init.ones_(model[4].bias[:8])
    nn.init.constant_(model[0].weight[:4], 0.02)


@access()
def a_view_with_gradients_is_written_later(model: Any, step: int, seen: Seen) -> None:
    view = model[0].weight.view(-1)
    with torch.no_grad():
        view.mul_(0.9)


@access()
def data_of_a_view(model: Any, step: int, seen: Seen) -> None:
    model[0].weight[3].data.fill_(0.5)
    model[2].weight.t().detach().mul_(0.9)


class Late(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.weight.data.mul_(0.9)
        return F.linear(x, self.weight, self.bias)


@access(make=around(lambda: Late(16, 16)))
def data_in_the_own_forward_after_evaluations(model: Any, step: int, seen: Seen) -> None:
    if step == 0:
        model.eval()
        with torch.no_grad():
            for _ in range(3):
                model(torch.zeros(1, 16, dtype=next(model.parameters()).dtype))
        model.train()


def frozen_late() -> nn.Module:
    model: Any = around(lambda: Late(16, 16))()
    model[1].weight.requires_grad_(False)
    return model


@access(make=frozen_late)
def data_of_a_frozen_weight_in_its_forward(model: Any, step: int, seen: Seen) -> None:
    pass


@access(make=frozen)
def a_frozen_weight_with_gradients_on(model: Any, step: int, seen: Seen) -> None:
    model[2].weight.mul_(0.9)


@access(make=around(Scaled))
def float_of_a_scale(model: Any, step: int, seen: Seen) -> Any:
    value = float(model[1].scale)
    assert math.isfinite(value)
    return value


@access(make=around(lambda: Clamped(16, 16)))
def a_clamp_in_the_own_forward(model: Any, step: int, seen: Seen) -> None:
    pass


@access(make=around(lambda: ClampedData(16, 16)))
def a_clamp_of_data_in_the_own_forward(model: Any, step: int, seen: Seen) -> None:
    pass


@access(make=around(lambda: Standardised(16, 16)))
def standardisation_in_the_own_forward(model: Any, step: int, seen: Seen) -> None:
    pass


@access(make=around(Decays))
def a_write_to_another_in_a_forward(model: Any, step: int, seen: Seen) -> None:
    pass


def run(case: Access, dtype: torch.dtype, wrap: Optional[Callable[[Any, Any], Any]], steps: int = 3) -> dict[str, Any]:
    """What a script with these lines has seen, its losses, and its weights after the first lines and at the end."""
    torch.manual_seed(11)
    model: Any = case.make().to(dtype)
    optimizer: Any = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
    if wrap is not None:
        model, optimizer = wrap(model, optimizer)
    seen: Seen = []
    losses: list[float] = []
    first: Optional[dict[str, torch.Tensor]] = None

    def weights() -> dict[str, torch.Tensor]:
        return {name: values.detach().clone() for name, values in model.state_dict().items()}

    for step in range(steps):
        torch.manual_seed(step)
        if not case.between:
            case.lines(model, step, seen)
            first = weights() if first is None else first
        x = torch.randn(4, 16, generator=torch.Generator().manual_seed(step)).to(dtype)
        loss = model(x).float().pow(2).mean()
        loss.backward()
        if case.between:
            case.lines(model, step, seen)
            first = weights() if first is None else first
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"seen": seen, "losses": losses, "first": first, "last": weights()}
