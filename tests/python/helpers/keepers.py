# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Who keeps what of a parameter between a forward and its backward: cells of a matrix, each a small training that Castor's is compared with.

A cell says whose code gets the parameter, which hooks and checkpoints are around it, what is kept, whether the parameter is trained, frozen or tied,
where its states live, and in which type.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import checkpoint as checkpoints

import castor.torch as castor

N, ROWS = 16, 6
DOES_NOT_FIT = "does not fit"
Byte: Any = ctypes.c_byte
Parameters = dict[str, tuple[int, ...]]  # shapes by name


def _function(keep: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor], on_ctx: bool = False) -> Callable[..., Tensor]:
    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            kept = keep(w)
            if on_ctx:
                ctx.w = kept
                ctx.save_for_backward(x)
            else:
                ctx.save_for_backward(x, kept)
            return x @ w.t()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            x, *saved = ctx.saved_tensors
            w = back(ctx.w if on_ctx else saved[0])
            return g @ w.to(g.dtype), g.t() @ x

    return Saves.apply


class _Gives(torch.autograd.Function):
    """An output that is over the parameter's memory."""

    @staticmethod
    def forward(ctx: Any, w: Tensor) -> Tensor:
        return w.view_as(w)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


def _lstm(x: Tensor, w_ih: Tensor, w_hh: Tensor) -> Tensor:
    zeros = x.new_zeros(1, 1, N)
    return torch._VF.lstm(x[:, None], (zeros, zeros), [w_ih, w_hh], False, 1, 0.0, True, False, False)[0][:, 0]  # type: ignore[attr-defined]


def _attention(x: Tensor, w_in: Tensor, w_out: Tensor) -> Tensor:
    return F.multi_head_attention_forward(x[:, None], x[:, None], x[:, None], N, 2, w_in, None, None, None, False, 0.0, w_out, None, need_weights=False)[0][:, 0]


def _other(w: Tensor) -> torch.dtype:
    return torch.float32 if w.dtype is torch.bfloat16 else torch.bfloat16


class What(NamedTuple):
    """An operation of an input and parameters, by what the backward needs of them."""

    shapes: Parameters
    call: Callable[..., Tensor]


_SQUARE, _VECTOR = {"w": (N, N)}, {"w": (N,)}
WHATS: dict[str, What] = {
    "raw": What(_SQUARE, _function(lambda w: w, lambda w: w)),
    "view": What(_SQUARE, _function(lambda w: w.view(-1), lambda w: w.view(N, N))),
    "transpose": What(_SQUARE, _function(lambda w: w.t(), lambda w: w.t())),
    "cast": What(_SQUARE, _function(lambda w: w.to(_other(w)), lambda w: w)),
    "on_ctx": What(_SQUARE, _function(lambda w: w, lambda w: w, on_ctx=True)),
    "output": What(_SQUARE, lambda x, w: F.linear(x, _Gives.apply(w)) + x * w.view(-1)[:N]),
    "linear": What(_SQUARE, lambda x, w: F.linear(x, w)),
    "elementwise": What(_VECTOR, lambda x, w: x * w),
    "clamp": What(_VECTOR, lambda x, w: torch.clamp(x, max=w)),
    "minimum": What(_VECTOR, lambda x, w: torch.minimum(x, w)),
    "layer_norm": What({"w": (N,), "b": (N,)}, lambda x, w, b: F.layer_norm(x, (N,), w, b)),
    "rms_norm": What(_VECTOR, lambda x, w: F.rms_norm(x, (N,), w)),
    "lstm": What({"w_ih": (4 * N, N), "w_hh": (4 * N, N)}, _lstm),
    "attention": What({"w_in": (3 * N, N), "w_out": (N, N)}, _attention),
    "convolution": What({"w": (1, 1, 3)}, lambda x, w: F.conv1d(x[:, None], w, padding=1)[:, 0]),
    "embedding": What({"w": (ROWS, N)}, lambda x, w: x + F.embedding(torch.arange(x.shape[0]) % ROWS, w)),
}


class Keeper(nn.Module):
    def __init__(self, what: What) -> None:
        super().__init__()
        self.what = what
        for name, shape in what.shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(shape) * 0.3))

    def own(self) -> list[Tensor]:
        return [getattr(self, name) for name in self.what.shapes]

    def forward(self, x: Tensor) -> Tensor:
        return self.what.call(x, *self.own())


@contextlib.contextmanager
def _raw_hooks() -> Iterator[None]:
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda kept: kept):
        yield


def _selective(function: Callable[..., Any], *arguments: Any) -> Any:
    kept = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
    contexts = functools.partial(checkpoints.create_selective_checkpoint_contexts, kept)
    return checkpoints.checkpoint(function, *arguments, use_reentrant=False, context_fn=contexts)


def _checkpoint(function: Callable[..., Any], *arguments: Any, reentrant: bool = False) -> Any:
    return checkpoints.checkpoint(function, *arguments, use_reentrant=reentrant)


def _inside(context: Callable[[], Any]) -> Callable[..., Any]:
    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        with context():
            return function(*arguments)

    return call


# How the model calls the part that keeps.
AROUND: dict[str, Callable[..., Any]] = {
    "nothing": lambda function, *arguments: function(*arguments),
    "checkpoint": _checkpoint,
    "reentrant": functools.partial(_checkpoint, reentrant=True),
    "nested": lambda function, *arguments: _checkpoint(lambda *inner: _checkpoint(function, *inner), *arguments),
    "selective": _selective,
    "save_on_cpu": _inside(torch.autograd.graph.save_on_cpu),
    "raw_hooks": _inside(_raw_hooks),
}
# What is around the call of the model.
OUTSIDE: dict[str, Callable[[], Any]] = {
    "raw_hooks_outside": _raw_hooks,
    "save_on_cpu_outside": torch.autograd.graph.save_on_cpu,
    "offload_activations": functools.partial(castor.offload_activations, "1MiB", least=1),
}
COMPILED = "compile"
AROUNDS = [*AROUND, *OUTSIDE, COMPILED]
WHOSE = ["own", "parent", "elsewhere"]  # module's forward; elsewhere: behind the model's
KINDS = ["trained", "frozen", "tied"]
PLACES = ["resident", "a third", "nvme"]
TYPES = [torch.float32, torch.bfloat16]


class Model(nn.Module):
    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell
        self.first, self.last = nn.Linear(N, N), nn.Linear(N, N)
        what = WHATS[cell.what]
        self.keeper = Keeper(what)
        if cell.kind == "tied":
            self.again = Keeper(what)
            for name in what.shapes:
                setattr(self.again, name, getattr(self.keeper, name))
        if cell.kind == "frozen":
            self.keeper.requires_grad_(False)
        if cell.around == COMPILED:
            self.part: Callable[[Tensor], Tensor] = torch.compile(self._part, backend="aot_eager")
        else:
            self.part = self._part

    def _part(self, x: Tensor) -> Tensor:
        if self.cell.whose == "own":
            x = self.keeper(x)
        else:
            x = self.keeper.what.call(x, *self.keeper.own())
        if self.cell.kind == "tied":
            x = self.again(torch.tanh(x))
        return x

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        if self.cell.whose != "elsewhere":
            x = AROUND.get(self.cell.around, AROUND["nothing"])(self.part, x)
        return self.last(torch.tanh(x))


class Cell(NamedTuple):
    whose: str
    around: str
    what: str
    kind: str
    place: str
    dtype: torch.dtype

    def __str__(self) -> str:
        return "/".join([*self[:-1], str(self.dtype).removeprefix("torch.")])


def every_cell() -> Iterator[Cell]:
    return itertools.starmap(Cell, itertools.product(WHOSE, AROUNDS, WHATS, KINDS, PLACES, TYPES))


def cells(count: int) -> list[Cell]:
    """So many of them, at random by the seed of CASTOR_TEST_SEED; with CASTOR_TEST_EVERY_CELL all. Few are compiled, which takes a second each."""
    every = list(every_cell())
    if os.environ.get("CASTOR_TEST_EVERY_CELL"):
        return every
    seed = int(os.environ.get("CASTOR_TEST_SEED", "1"))
    print(f"cells of seed {seed}")
    random.Random(seed).shuffle(every)
    compiled = [cell for cell in every if cell.around == COMPILED]
    return [cell for cell in every if cell.around != COMPILED][:count] + compiled[: count // 60]


class Seen(NamedTuple):
    losses: list[float]
    gradients: dict[str, Tensor]  # of weights in the first step, and of inputs in each
    skipped: int


def budgets(cell: Cell, folder: str, several: bool) -> dict[str, Any]:
    """`several`: buffers between ranks take 4 MiB of the device."""
    poison: dict[str, Any] = {"chunk": "1KiB", "config": {"poison": True}}
    if cell.place == "resident":
        return {"device": "64MiB", "host": "64MiB"}
    more = (4 << 20) + (512 << 10) if several else 0
    return poison | {"device": (24 << 10) + more, **({"host": "4MiB"} if cell.place == "a third" else {"host": (16 << 10) + more // 4, "nvme": folder})}


def train(cell: Cell, wrap: Optional[dict[str, Any]], steps: int = 3) -> Seen:
    torch.manual_seed(0)
    if cell.around == COMPILED:
        torch._dynamo.reset()
    model: Any = Model(cell).to(cell.dtype)
    optimizer: Any = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.02)
    if wrap is not None:
        model, optimizer = castor.wrap(model, optimizer, **wrap)
    seen = Seen([], {}, 0)
    for step in range(steps):
        x = torch.randn(4, N, generator=torch.Generator().manual_seed(step)).to(cell.dtype).requires_grad_()
        with OUTSIDE.get(cell.around, contextlib.nullcontext)():
            out = model(x)
            if cell.whose == "elsewhere":
                out = AROUND.get(cell.around, AROUND["nothing"])(model.part, out)
            loss = out.float().pow(2).mean()
        loss.backward()
        assert x.grad is not None
        seen.gradients[f"input {step}"] = x.grad
        if step == 0:
            seen.gradients.update((name, p.grad.detach().clone()) for name, p in model.named_parameters() if p.grad is not None)
        optimizer.step()
        optimizer.zero_grad()
        seen.losses.append(loss.item())
    return seen._replace(skipped=getattr(optimizer, "skipped", 0))


@functools.lru_cache(maxsize=None)
def plain(cell: Cell) -> Seen:
    """Of a cell whose place does not matter."""
    return train(cell, None)


def difference(cell: Cell, wrap: dict[str, Any]) -> str:
    """What is other than in plain PyTorch; "" where nothing is. DOES_NOT_FIT where Castor says so."""
    want = plain(cell._replace(place="resident"))
    try:
        got = train(cell, wrap)
    except castor.DoesNotFit:
        return DOES_NOT_FIT
    except Exception as error:  # which is told with the cell, beside others'
        return f"{type(error).__name__}: {error}"
    if got.skipped:
        return f"{got.skipped} steps skipped"
    if want.gradients.keys() != got.gradients.keys():
        return f"gradients of {want.gradients.keys() ^ got.gradients.keys()}"
    # Plain bf16 has no masters, so later steps differ by rounding.
    exact = cell.dtype is torch.float32
    for name, gradient in want.gradients.items():
        if exact or not name.startswith("input") or name == "input 0":
            if not torch.allclose(gradient, got.gradients[name], rtol=1e-5 if exact else 2e-2, atol=1e-6 if exact else 1e-3):
                return f"gradient of {name}: {got.gradients[name].flatten()[:3].tolist()} and not {gradient.flatten()[:3].tolist()}"
    for step, (mine, theirs) in enumerate(zip(got.losses, want.losses)):
        if not abs(mine - theirs) <= (1e-5 if exact else 2e-2) * abs(theirs):
            return f"loss of step {step}: {mine} and not {theirs}"
    return ""
