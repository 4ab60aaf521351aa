# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What a script writes into the tensors of a state dictionary, or of ``optimizer.state``, is kept, as with plain PyTorch."""

from __future__ import annotations

import copy
import io
import pickle
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor

BUDGETS: dict[str, dict[str, Any]] = {
    "resident": {"device": "64MiB", "host": "64MiB"}, "a third": {"device": "4KiB", "host": "64MiB"}, "nvme": {"device": "4KiB", "host": "16KiB"},
}
OTHER = {name: 2 * values for name, values in nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).state_dict().items()}


def make() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def train(model: Any, optimizer: Any, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()


def outcome(edit: Callable[[Any, Any], None], kind: Any, **budgets: Any) -> dict[str, torch.Tensor]:
    """Weights after two steps, the edit, and three more."""
    model: Any = make()
    optimizer = kind(model.parameters(), lr=1e-2)
    if budgets:
        model, optimizer = castor.wrap(model, optimizer, chunk=1 << 10, **budgets)
    torch.manual_seed(1)
    train(model, optimizer, 2)
    edit(model, optimizer)
    train(model, optimizer, 3)
    return {name: values.clone() for name, values in model.state_dict().items()}


def load_by_name(model: Any, _: Any) -> None:
    own = model.state_dict()
    for name, values in OTHER.items():
        own[name].copy_(values)


def write_dropped_copies(model: Any, _: Any) -> None:
    """Nobody has the tensor by the time its memory is written to."""
    model.state_dict()["0.weight"].data.mul_(0.5)
    model.state_dict()["0.weight"][0].zero_()
    model.state_dict()["2.bias"].numpy()[1] = 3.0
    model.state_dict()["2.weight"].view(-1)[:3] = torch.tensor([1.0, 2.0, 3.0])


def keep_one(model: Any, optimizer: Any) -> None:
    """The one that is kept is written to after other steps."""
    kept = model.state_dict()["0.bias"]
    train(model, optimizer, 1)
    kept.fill_(0.25)


def first(model: Any, optimizer: Any) -> Any:
    return optimizer.state[model[0].weight]


def reset_all(_: Any, optimizer: Any) -> None:
    for state in optimizer.state.values():
        state["exp_avg"].zero_()


def by_items(_: Any, optimizer: Any) -> None:
    assert len(optimizer.state) == len(list(optimizer.state)) == 4
    for p, state in optimizer.state.items():
        assert p in optimizer.state
        state["exp_avg_sq"].fill_(float(p.numel()))


def start_anew(_: Any, optimizer: Any) -> None:
    optimizer.state = defaultdict(dict)


def put_in(model: Any, optimizer: Any) -> None:
    optimizer.state[model[0].weight] = {**first(model, optimizer), "exp_avg": torch.ones(16, 8)}


EDITS: dict[str, Callable[[Any, Any], Any]] = {
    "load_by_name": load_by_name,
    "write_dropped_copies": write_dropped_copies,
    "keep_one": keep_one,
    "zero": lambda model, optimizer: first(model, optimizer)["exp_avg"].zero_(),
    "reset_all": reset_all,
    "by_items": by_items,
    "set": lambda model, optimizer: first(model, optimizer).update(exp_avg_sq=torch.full((16, 8), 0.5)),
    "step": lambda model, optimizer: first(model, optimizer)["step"].zero_(),
    "clear": lambda model, optimizer: optimizer.state.clear(),
    "pop": lambda model, optimizer: optimizer.state.pop(model[0].weight),
    "clear_one": lambda model, optimizer: first(model, optimizer).clear(),
    "start_anew": start_anew,
    "put_in": put_in,
}


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.NAdam])
@pytest.mark.parametrize("edit", EDITS)
def test_writes_are_kept(edit: str, kind: Any, budget: str, tmp_path: Any) -> None:
    budgets = dict(BUDGETS[budget], **({"nvme": str(tmp_path)} if budget == "nvme" else {}))
    plain = outcome(EDITS[edit], kind)
    ours = outcome(EDITS[edit], kind, **budgets)
    for name, values in plain.items():
        torch.testing.assert_close(ours[name], values, rtol=1e-5, atol=1e-6)


def test_low_precision_keeps_masters_of_what_is_not_written() -> None:
    model, optimizer = castor.wrap(*((m := make()), torch.optim.Adam(m.parameters(), lr=1e-4)), dtype=torch.bfloat16, **BUDGETS["a third"])
    train(model, optimizer, 3)
    before = castor.exact(model[0].weight).clone()
    model.state_dict()["0.weight"][0].fill_(0.5)
    after = castor.exact(model[0].weight)
    assert bool((after[0] == 0.5).all()) and torch.equal(after[1:], before[1:])


def test_copies_are_plain_where_they_leave() -> None:
    model, optimizer = castor.wrap(*((m := make()), torch.optim.Adam(m.parameters())), **BUDGETS["resident"])
    train(model, optimizer, 1)
    state = model.state_dict()
    text = io.BytesIO()
    torch.save({"model": state, "optimizer": optimizer.state_dict(), "one": first(model, optimizer)}, text)
    text.seek(0)
    read = torch.load(text, weights_only=True)
    for values in (read["model"], copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert all(type(tensor) is torch.Tensor and torch.equal(tensor, state[name]) for name, tensor in values.items())
    assert type(read["optimizer"]["state"][0]["exp_avg"]) is torch.Tensor and type(copy.deepcopy(first(model, optimizer))["exp_avg"]) is torch.Tensor
    assert type(state["0.weight"] + 1) is torch.Tensor and repr(state["0.bias"]) == repr(read["model"]["0.bias"])


def test_a_snapshot_that_is_loaded_again_is_what_it_was() -> None:
    model, optimizer = castor.wrap(*((m := make()), torch.optim.Adam(m.parameters())), **BUDGETS["a third"])
    best = {name: values.clone() for name, values in model.state_dict().items()}
    kept = model.state_dict()
    train(model, optimizer, 2)
    model.load_state_dict(best)
    assert all(torch.equal(values, best[name]) for name, values in model.state_dict().items())
    assert all(torch.equal(values, best[name]) for name, values in kept.items())


def test_copies_are_forgotten_when_nobody_has_them() -> None:
    model, optimizer = castor.wrap(*((m := make()), torch.optim.Adam(m.parameters())), **BUDGETS["a third"])
    kept = model.state_dict()["0.weight"]
    train(model, optimizer, 1)
    assert len(model._castor.values.given._watches) == 1
    del kept
    train(model, optimizer, 1)
    assert not model._castor.values.given


def test_what_cannot_be_kept_is_refused_by_name() -> None:
    model, optimizer = castor.wrap(*((m := make()), torch.optim.Adam(m.parameters())), **BUDGETS["a third"])
    train(model, optimizer, 1)
    with pytest.raises(castor.FailedPrecondition, match="a state of 0.weight cannot go alone"):
        first(model, optimizer).pop("exp_avg")
    with pytest.raises(castor.FailedPrecondition, match=r"a tensor of shape \(3,\) is no trained parameter"):
        optimizer.state[torch.zeros(3)] = {"exp_avg": torch.zeros(3)}
    model(torch.ones(1, 8)).sum().backward()
    kept = model.state_dict()
    with pytest.raises(castor.FailedPrecondition, match="a step is half done, with gradients of the old values of 0.weight"):
        kept["0.weight"].zero_()
        kept["0.bias"].zero_()
        optimizer.step()
    # The refusal is of all of these writes, and copies that are kept are watched as before.
    optimizer.step()
    assert bool(model.state_dict()["0.bias"].any())
    kept["0.bias"].zero_()
    assert not bool(model.state_dict()["0.bias"].any())
