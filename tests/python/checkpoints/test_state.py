# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Values of a wrapped model: read, written, saved, loaded."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from castor.torch._checkpoints import _state
from models import PLAIN, gpt2, language

CASE = PLAIN[0]
ROOMY: dict[str, Any] = {"device": "64MiB", "host": "64MiB"}
TIGHT: dict[str, Any] = {"device": "64KiB", "host": "64MiB", "chunk": "8KiB"}


def wrapped(**wrap: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(7)
    model = CASE.make()
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-2), **(wrap or TIGHT))


def steps(model: nn.Module, optimizer: Any, first: int, last: int) -> list[float]:
    losses = []
    for step in range(first, last):
        optimizer.zero_grad()
        loss = CASE.loss(model, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_state_dicts_go_to_and_from_the_plain_model() -> None:
    model, optimizer = wrapped()
    steps(model, optimizer, 0, 3)
    plain = CASE.make()
    plain.load_state_dict(model.state_dict())
    plain_optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    plain_optimizer.load_state_dict(optimizer.state_dict())
    want = steps(plain, plain_optimizer, 3, 6)

    other, other_optimizer = wrapped(**ROOMY)
    other.load_state_dict(model.state_dict())
    other_optimizer.load_state_dict(optimizer.state_dict())
    assert steps(model, optimizer, 3, 6) == pytest.approx(want, rel=1e-5)
    assert steps(other, other_optimizer, 3, 6) == pytest.approx(want, rel=1e-5)


def test_gathered_shows_and_keeps_whole_values() -> None:
    model, _ = wrapped()
    torch.manual_seed(7)
    plain = CASE.make()
    with castor.gathered(model):
        for (name, mine), theirs in zip(model.named_parameters(), plain.parameters()):
            assert torch.equal(mine, theirs), name
    average = copy.deepcopy(plain)  # as EMA does
    with castor.gathered(model), torch.no_grad():
        for mean, now in zip(average.parameters(), model.parameters()):
            mean.lerp_(now, 0.5)
    with castor.gathered(model.parameters(), write=True), torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    for name, values in model.state_dict().items():
        assert torch.equal(values, plain.state_dict()[name] * 2), name


@pytest.mark.parametrize("where", [{}, {"place": {"*": "host"}}])
def test_what_is_computed_inside_gathered_goes_backward_outside(where: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    plain = copy.deepcopy(model)
    model, _ = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **where)
    with castor.gathered(model):
        penalty = sum(p.pow(2).sum() for p in model.parameters()) + model(torch.ones(2, 4)).sum()
    penalty.backward()
    (sum(p.pow(2).sum() for p in plain.parameters()) + plain(torch.ones(2, 4)).sum()).backward()
    for mine, theirs in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(castor.gradient(mine), theirs.grad)


def test_training_goes_on_from_a_checkpoint_bit_by_bit(tmp_path: Path) -> None:
    model, optimizer = wrapped()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    losses = []
    for step in range(8):
        losses += steps(model, optimizer, step, step + 1)
        scheduler.step()
        if step == 3:
            castor.save(str(tmp_path), model, extra={"scheduler": scheduler.state_dict(), "position": 4})
    assert castor.checkpoints(str(tmp_path)) == [4]

    again, optimizer = wrapped(**ROOMY, stage=1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    extra = castor.load(str(tmp_path), again)
    scheduler.load_state_dict(extra["scheduler"])
    for step in range(extra["position"], 8):
        assert steps(again, optimizer, step, step + 1) == [losses[step]]
        scheduler.step()
    for name, values in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], values), name


def test_random_states_that_an_earlier_castor_saved_come_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of rank 0 alone, and none of numpy's."""
    model, _ = wrapped()
    torch.manual_seed(5)
    random.seed(5)
    monkeypatch.setattr(_state, "states_of_ranks", lambda _: {"torch": torch.get_rng_state(), "python": random.getstate(), "device": None})
    castor.save(str(tmp_path), model)
    drawn = torch.rand(3), random.random()
    castor.load(str(tmp_path), model)
    assert torch.equal(torch.rand(3), drawn[0])
    assert random.random() == drawn[1]


def test_a_refused_checkpoint_changes_nothing(tmp_path: Path) -> None:
    """Whatever is refused, the run goes on as one that never tried."""
    path = str(tmp_path)

    def parted() -> tuple[nn.Module, Any]:
        torch.manual_seed(7)
        model = CASE.make()
        params = list(model.parameters())
        return castor.wrap(model, torch.optim.AdamW([{"params": params[:2]}, {"params": params[2:]}], lr=1e-2), **TIGHT)

    def expect_refused(model: nn.Module, words: str) -> None:
        with pytest.raises(castor.InvalidArgument, match=words):
            castor.load(path, model)

    model, optimizer = wrapped()
    model.register_buffer("late", torch.zeros(3))
    steps(model, optimizer, 0, 1)
    castor.save(path, model)
    untouched, its_optimizer = parted()
    tried, optimizer = parted()
    for m, o in ((untouched, its_optimizer), (tried, optimizer)):
        steps(m, o, 5, 7)
    expect_refused(tried, "buffer late of shape .* none of that name")
    tried.register_buffer("late", torch.zeros(4))
    expect_refused(tried, r"buffer late of shape \[3\], and the model has one of \[4\]")
    tried.late = torch.ones(3)
    expect_refused(tried, "with 1 parameter groups, and there are 2: .* Nothing has changed")
    assert torch.equal(tried.late, torch.ones(3))
    assert steps(tried, optimizer, 7, 9) == steps(untouched, its_optimizer, 7, 9)


def test_a_checkpoint_of_another_optimizer_changes_nothing(tmp_path: Path) -> None:
    """Two whose states have the same names, and mean something else."""

    def of(kind: type[torch.optim.Optimizer]) -> tuple[nn.Module, Any]:
        torch.manual_seed(7)
        model = CASE.make()
        return castor.wrap(model, kind(model.parameters(), lr=1e-3), **TIGHT)  # type: ignore[call-arg]

    model, optimizer = of(torch.optim.NAdam)
    steps(model, optimizer, 0, 1)
    castor.save(str(tmp_path), model)
    tried, optimizer = of(torch.optim.RAdam)
    untouched, its_optimizer = of(torch.optim.RAdam)
    for m, o in ((tried, optimizer), (untouched, its_optimizer)):
        steps(m, o, 5, 7)
    with pytest.raises(castor.InvalidArgument, match="of NAdam, and the optimizer is RAdam"):
        castor.load(str(tmp_path), tried)
    assert steps(tried, optimizer, 7, 9) == steps(untouched, its_optimizer, 7, 9)


def test_a_checkpoint_of_another_trainer_gives_its_weights(tmp_path: Path) -> None:
    model, optimizer = wrapped()
    steps(model, optimizer, 0, 1)
    optimizer.runtime.steps.settle()
    saved = {name: values.clone() for name, values in model.state_dict().items()}
    optimizer.runtime.engine.save(str(tmp_path), b"position 7")
    losses = steps(model, optimizer, 1, 3)

    again, its_optimizer = wrapped()
    with pytest.raises(castor.InvalidArgument, match="it cannot be read.* castor.load_weights"):
        castor.load(str(tmp_path), again)
    assert steps(again, its_optimizer, 0, 3)[1:] == losses
    castor.load_weights(again, str(tmp_path))
    for name, values in again.state_dict().items():
        assert torch.equal(values, saved[name]), name


def test_a_checkpoint_whose_extra_cannot_be_read_is_never_half_taken(tmp_path: Path) -> None:
    """Buffers lie beside `extra`, so weights without them would be another model."""

    class Gone:
        pass

    Gone.__qualname__ = "Gone"
    setattr(_state, "Gone", Gone)
    Gone.__module__ = _state.__name__
    model, optimizer = wrapped()
    castor.save(str(tmp_path), model, extra=Gone())
    delattr(_state, "Gone")
    before = {name: values.clone() for name, values in model.state_dict().items()}
    steps(model, optimizer, 0, 1)
    after = {name: values.clone() for name, values in model.state_dict().items()}
    assert any(not torch.equal(after[name], values) for name, values in before.items())
    for take in (lambda: castor.load(str(tmp_path), model), lambda: castor.load_weights(model, str(tmp_path))):
        with pytest.raises(castor.InvalidArgument, match="cannot be read .*Gone.* classes in its extra= can be imported"):
            take()
    for name, values in model.state_dict().items():
        assert torch.equal(values, after[name]), name


def test_weights_come_from_safetensors_that_others_wrote(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(1)
    theirs = gpt2()
    theirs.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    torch.manual_seed(2)
    model = gpt2()
    model, _ = castor.wrap(model, torch.optim.AdamW(model.parameters()), **ROOMY)
    castor.load_weights(model, str(tmp_path))
    with torch.no_grad():
        assert torch.equal(language(model.eval(), 0), language(theirs.eval(), 0))
    with pytest.raises(castor.CastorError, match="nothing"):
        castor.load_weights(model, str(tmp_path / "nothing"))


@pytest.mark.parametrize("weights_only", [False, True])
@pytest.mark.parametrize("kind", ["AdamW", "SGD", "NAdam"])
def test_a_learning_rate_that_a_scheduler_set_holds_after_a_load(kind: str, weights_only: bool, tmp_path: Path) -> None:
    """The engine loads the rate of the last step before the checkpoint, and the scheduler had set another one since."""
    torch.manual_seed(3)
    model: Any = nn.Linear(8, 4)
    optimizer: Any = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
    model, optimizer = castor.wrap(model, optimizer, **ROOMY)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 8)).pow(2).mean().backward()
        optimizer.step()

    step()
    optimizer.param_groups[0]["lr"] = 0.0
    castor.save(str(tmp_path), model)
    saved = castor.exact(model.weight)
    step()
    castor.load(str(tmp_path), model, weights_only=weights_only)
    assert optimizer.param_groups[0]["lr"] == 0.0
    step()
    assert torch.equal(castor.exact(model.weight), saved)


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "NAdam", "Adagrad", "Adafactor"])
def test_torchs_own_checkpoints_go_to_and_from_the_plain_model(kind: str, tmp_path: Path) -> None:
    """torch.distributed.checkpoint asks the model and the optimizer for states, before a first step too, and gives them new ones."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def made(wraps: bool) -> tuple[Any, Any]:
        torch.manual_seed(3)
        model: Any = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
        optimizer: Any = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))
        return castor.wrap(model, optimizer, device="8MiB", host="32MiB") if wraps else (model, optimizer)

    def step(model: Any, optimizer: Any) -> None:
        model(torch.ones(2, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def saved(name: str, model: Any, optimizer: Any) -> None:
        weights, states = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": states}, checkpoint_id=tmp_path / name)

    def loaded(name: str, model: Any, optimizer: Any) -> None:
        before = {name: values.clone() for name, values in model.state_dict().items()}
        weights, states = get_state_dict(model, optimizer)
        assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items()), "to ask moves nothing"
        into = {"model": weights, "optimizer": states}
        dcp.load(into, checkpoint_id=tmp_path / name)
        set_state_dict(model, optimizer, model_state_dict=into["model"], optim_state_dict=into["optimizer"])

    first = made(False)
    for _ in range(3):
        step(*first)
    saved("plain", *first)
    ours, again = made(True), made(False)
    loaded("plain", *ours)
    step(*ours)
    saved("ours", *ours)
    loaded("ours", *again)
    step(*first)
    for one in (ours, again):
        for name, values in one[0].state_dict().items():
            torch.testing.assert_close(values, first[0].state_dict()[name])
    step(*first)
    for one in (ours, again):
        step(*one)
        for name, values in one[0].state_dict().items():
            torch.testing.assert_close(values, first[0].state_dict()[name])
