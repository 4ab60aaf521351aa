# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What a script does to ``optimizer.param_groups`` after wrap is obeyed, as with plain PyTorch, or refused before anything moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor

BUDGETS: dict[str, dict[str, Any]] = {
    "resident": {"device": "64MiB", "host": "64MiB"}, "a third": {"device": "16KiB", "host": "64MiB"}, "nvme": {"device": "16KiB", "host": "32KiB"},
}


def make() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(32, 32) for _ in range(3)])


def train(model: Any, optimizer: Any, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 32)).pow(2).mean().backward()
        optimizer.step()


def made(kind: Any, budgets: dict[str, Any]) -> tuple[Any, Any]:
    model: Any = make()
    optimizer = kind([{"params": list(layer.parameters()), "lr": 1e-2} for layer in model])
    return castor.wrap(model, optimizer, chunk=4 << 10, **budgets) if budgets else (model, optimizer)


def reversed_rates(optimizer: Any) -> None:
    optimizer.param_groups.reverse()
    optimizer.param_groups[0]["lr"] = 0.0


def inserted(optimizer: Any) -> None:
    optimizer.param_groups.insert(0, optimizer.param_groups.pop(2))
    optimizer.param_groups[1]["lr"] = 0.0


def merged(optimizer: Any) -> None:
    groups = optimizer.param_groups
    groups[0]["params"] += groups.pop(1)["params"]
    groups[0]["lr"] = 1e-3


def added_again(optimizer: Any) -> None:
    params = optimizer.param_groups.pop(1)["params"]
    optimizer.add_param_group({"params": params, "lr": 1e-3})


def one_taken_out(optimizer: Any) -> None:
    del optimizer.param_groups[1]["params"][0]


def parted(optimizer: Any) -> None:
    groups = optimizer.param_groups
    groups[0]["params"].append(groups[1]["params"].pop())
    groups[0]["lr"] = 0.0


def a_generator(optimizer: Any) -> None:
    params = optimizer.param_groups.pop(0)["params"]
    optimizer.add_param_group({"params": (p for p in params), "lr": 5e-3})


EDITS: dict[str, Callable[[Any], Any]] = {
    "pop": lambda optimizer: optimizer.param_groups.pop(1),
    "emptied": lambda optimizer: optimizer.param_groups[1].update(params=[]),
    "all emptied": lambda optimizer: optimizer.param_groups.clear(),
    "assigned": lambda optimizer: setattr(optimizer, "param_groups", optimizer.param_groups[::2]),
    "copied": lambda optimizer: setattr(optimizer, "param_groups", [{**group, "lr": 1e-3} for group in optimizer.param_groups]),
    "reversed": reversed_rates,
    "inserted": inserted,
    "merged": merged,
    "added again": added_again,
    "one taken out": one_taken_out,
    "a generator": a_generator,
    "parted": parted,
}


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop])
@pytest.mark.parametrize("edit", EDITS)
def test_groups_are_obeyed(edit: str, kind: Any, budget: str, tmp_path: Any) -> None:
    budgets = dict(BUDGETS[budget], **({"nvme": str(tmp_path)} if budget == "nvme" else {}))
    ends = []
    for wrap in ({}, budgets):
        model, optimizer = made(kind, wrap)
        torch.manual_seed(1)
        train(model, optimizer, 3)
        EDITS[edit](optimizer)
        train(model, optimizer, 3)
        ends.append({name: values.clone() for name, values in model.state_dict().items()})
    plain, ours = ends
    for name, values in plain.items():
        torch.testing.assert_close(ours[name], values, rtol=1e-5, atol=1e-6)
    # Plain PyTorch's own fails where a state's parameter is in no group.
    assert [len(group["params"]) for group in optimizer.state_dict()["param_groups"]] == [len(group["params"]) for group in optimizer.param_groups]


def test_a_checkpoint_has_the_numbers_of_the_groups_that_there_were(tmp_path: Any) -> None:
    model, optimizer = made(torch.optim.Adam, BUDGETS["a third"])
    train(model, optimizer, 2)
    optimizer.param_groups.reverse()
    optimizer.param_groups[0]["lr"] = 7e-3  # of the last layer
    train(model, optimizer, 1)
    castor.save(str(tmp_path), model)
    other, theirs = made(torch.optim.Adam, BUDGETS["resident"])
    castor.load(str(tmp_path), other)
    assert [group["lr"] for group in theirs.param_groups] == [1e-2, 1e-2, 7e-3]


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "strange": (lambda model, optimizer: optimizer.param_groups[0]["params"].append(nn.Parameter(torch.ones(2))), r"a parameter of shape \(2,\) was put into"),
    "strange group": (lambda model, optimizer: optimizer.param_groups.append({"params": [nn.Parameter(torch.ones(2))]}), r"a parameter of shape \(2,\)"),
    "twice": (lambda model, optimizer: optimizer.param_groups[0]["params"].append(model[1].weight), "1.weight is in param_groups twice"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_obeyed_is_refused_before_anything_moves(what: str) -> None:
    model, optimizer = made(torch.optim.Adam, BUDGETS["a third"])
    train(model, optimizer, 2)
    before = {name: values.clone() for name, values in model.state_dict().items()}
    groups = [{**group, "params": list(group["params"])} for group in optimizer.param_groups]
    edit, words = REFUSED[what]
    edit(model, optimizer)
    with pytest.raises(castor.FailedPrecondition, match=words):
        train(model, optimizer, 1)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    optimizer.param_groups = groups
    train(model, optimizer, 1)
    assert not torch.equal(model.state_dict()["1.weight"], before["1.weight"])


def test_what_is_taken_out_is_refused_where_the_backward_updates() -> None:
    model: Any = make()
    optimizer = torch.optim.Adam([{"params": layer.parameters()} for layer in model])
    model, optimizer = castor.wrap(model, optimizer, update_in_backward=True, **BUDGETS["resident"])
    train(model, optimizer, 1)
    optimizer.param_groups.pop(1)
    with pytest.raises(castor.FailedPrecondition, match="1.weight was taken out of param_groups, and update_in_backward=True"):
        train(model, optimizer, 1)
