# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Optimizers with a state_dict and a load_state_dict of their own, alone and among several."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import castor.torch as castor
from test_any_optimizer import Weighted, expect_same, trained, values_of
from test_as_scripts_write_them import Own


class Momentum(Own):
    def move(self, p: Any, state: Any, group: Any) -> None:
        m = state.setdefault("m", torch.zeros_like(p))
        m.lerp_(p.grad, 0.1)
        p.sub_(m, alpha=group["lr"])


class SavesAList(Momentum):
    """Of what the state of each parameter has; and the state under another name."""

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["state"] = {number: {"mean": of["m"]} for number, of in state["state"].items()}
        return state | {"means": [self.state[p]["m"].mean() for group in self.param_groups for p in group["params"]], "t": self.t}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        means, self.t = state.pop("means"), state.pop("t")
        state["state"] = {number: {"m": of["mean"]} for number, of in state["state"].items()}
        assert len(means) == len(state["state"])
        super().load_state_dict(state)


class SavesTags(Momentum):
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"tags": [p.tag for group in self.param_groups for p in group["params"]]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        assert state.pop("tags") == [p.tag for group in self.param_groups for p in group["params"]]
        super().load_state_dict(state)


class SavesShapes(Momentum):
    """Asks of parameters what no value is needed for."""

    def state_dict(self) -> dict[str, Any]:
        params = [p for group in self.param_groups for p in group["params"]]
        return super().state_dict() | {"shapes": [(p.shape, p.numel(), p.dtype, p.data.dim(), p.detach().size(), torch.zeros_like(p).sum()) for p in params]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "shapes"})


class SavesValues(Momentum):
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"at": [p.detach().clone() for group in self.param_groups for p in group["params"]]}


def copies(p: torch.Tensor) -> None:
    with torch.no_grad():
        p.copy_(torch.ones(p.shape))


def replaces(p: torch.Tensor) -> None:
    p.data = torch.ones(p.shape)


def fills_the_data(p: torch.Tensor) -> None:
    p.data.fill_(1)


class LoadsValues(Momentum):
    write: Callable[[torch.Tensor], None]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            for p in group["params"]:
                type(self).write(p)


def tagged(model: Weighted) -> list[torch.Tensor]:
    params = list(model.params.values())
    for number, p in enumerate(params):
        p.tag = number  # type: ignore[attr-defined]
    return params


@pytest.mark.parametrize("kind", [SavesAList, SavesTags, SavesShapes])
@pytest.mark.parametrize("several", [False, True], ids=["alone", "of several"])
def test_what_is_saved_is_loaded(kind: type, several: bool) -> None:
    def wrapped() -> tuple[Any, Any]:
        model = Weighted()
        params = tagged(model)
        return castor.wrap(model, [torch.optim.NAdam(params[:2]), kind(params[2:])] if several else kind(params))

    model, optimizer = wrapped()
    plain = Weighted()
    theirs = kind(tagged(plain)[2:] if several else tagged(plain))
    trained(model, optimizer, 3)
    trained(plain, theirs, 3)
    saved = copy.deepcopy(optimizer.state_dict())
    expect_same(saved["own"][1] if several else saved, theirs.state_dict())
    back, of_back = wrapped()
    back.load_state_dict(values_of(model))
    of_back.load_state_dict(saved)
    expect_same(of_back.state_dict(), saved)
    for one, its in ((model, optimizer), (back, of_back)):
        trained(one, its, 5, first=3)
    expect_same(values_of(back), values_of(model))


def test_values_of_parameters_are_not_saved_as_zeros() -> None:
    model = Weighted()
    model, optimizer = castor.wrap(model, SavesValues(model.parameters()))  # type: ignore[assignment]
    with pytest.raises(castor.FailedPrecondition, match="SavesValues saves or loads values of parameters in its own state_dict"):
        optimizer.state_dict()


@pytest.mark.parametrize("write", [copies, replaces, fills_the_data])
def test_values_of_parameters_are_not_lost_in_a_load(write: Callable[[torch.Tensor], None]) -> None:
    kind = type("Writes", (LoadsValues,), {"write": staticmethod(write)})
    model = Weighted()
    model, optimizer = castor.wrap(model, kind(model.parameters()))  # type: ignore[assignment]
    trained(model, optimizer, 1)
    before, saved = values_of(model), optimizer.state_dict()
    with pytest.raises(castor.FailedPrecondition, match="Writes saves or loads values of parameters"):
        optimizer.load_state_dict(saved)
    expect_same(values_of(model), before)
    trained(model, optimizer, 2, first=1)


def test_nothing_keeps_the_states_that_were_saved() -> None:
    model = Weighted()
    model, optimizer = castor.wrap(model, SavesAList(model.parameters()))  # type: ignore[assignment]
    trained(model, optimizer, 1)
    saved = optimizer.state_dict()
    alive = weakref.ref(saved["state"][0]["mean"])
    assert alive() is not None
    del saved
    gc.collect()
    assert alive() is None
