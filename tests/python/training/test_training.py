# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Training under Castor is training: losses, gradients and weights are those of the plain script, wherever chunks live."""

from __future__ import annotations

import gc
import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from harness import adamw, close, train
from models import PLAIN, Case, of_transformers, squares
from older_torch import tells_no_hooks

CASES = PLAIN + (of_transformers() if importlib.util.find_spec("transformers") else [])
ROOMY: dict[str, Any] = {"device": "256MiB", "host": "256MiB"}


def tight(nvme: Path) -> dict[str, Any]:
    """A device that holds a part of the model, a host that holds a part of the rest."""
    return {"device": "512KiB", "host": "768KiB", "nvme": str(nvme), "chunk": "8KiB", "config": {"poison": True}}


def sgd(params: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.01)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_losses_are_those_of_the_plain_script(case: Case, tmp_path: Path) -> None:
    want = train(case.make, case.loss, steps=50)
    resident = train(case.make, case.loss, ROOMY, steps=50)
    close(resident, want, case.relative)
    offloaded = train(case.make, case.loss, tight(tmp_path), steps=50)
    close(offloaded, want, case.relative)
    assert offloaded.losses == resident.losses
    for name, values in resident.weights.items():
        assert torch.equal(offloaded.weights[name], values), name


@pytest.mark.parametrize("case", [case for case in CASES if "checkpointed" in case.name], ids=lambda case: case.name)
def test_checkpointing_where_torch_does_not_tell_its_hooks(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tells_no_hooks(monkeypatch)
    want = train(case.make, case.loss, steps=6)
    got = train(case.make, case.loss, tight(tmp_path), steps=6)
    close(got, want, case.relative)


def test_casts_of_weights_by_autocast_are_not_kept_until_the_backward() -> None:
    def halves() -> int:
        return sum(type(o) is torch.Tensor and o.dtype is torch.bfloat16 and o.numel() == 64 * 64 for o in gc.get_objects())

    def forward(model: nn.Module) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(torch.ones(2, 64)).float().sum()

    gc.collect()  # what other tests left is not this one's
    others = halves()
    torch.manual_seed(0)
    plain = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
    model, optimizer = castor.wrap(model, sgd(model.parameters()), place={"*": "host"}, check=True)  # which shows what C++ keeps
    for unsure in (0, 3):  # how often a device says that it does not know yet, as a GPU does
        asked: list[int] = []

        def truth(flag: torch.Tensor) -> Any:
            known = bool(flag)
            return lambda: asked.append(0) or (known if len(asked) > unsure else None)

        model._castor.device.truth = truth  # type: ignore[union-attr]
        loss = forward(model)
        assert halves() - others <= (1 if unsure else 0)
        loss.backward()
        forward(plain).backward()
        for mine, theirs in zip(model.parameters(), plain.parameters()):
            assert torch.equal(castor.gradient(mine), theirs.grad)  # type: ignore[arg-type]
        optimizer.zero_grad()
        plain.zero_grad()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_micro_batches_are_summed_up(case: Case, tmp_path: Path) -> None:
    want = train(case.make, case.loss, steps=4, micro_batches=3, optimizer=sgd)
    got = train(case.make, case.loss, tight(tmp_path), steps=4, micro_batches=3, optimizer=sgd)
    close(got, want, max(case.relative, 2e-5))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradients_of_the_first_step_are_bit_equal(case: Case) -> None:
    torch.manual_seed(7)
    plain = case.make()
    torch.manual_seed(7)
    mine = case.make()
    mine, optimizer = castor.wrap(mine, adamw([p for p in mine.parameters() if p.requires_grad]), **ROOMY)
    for model in (plain, mine):
        torch.manual_seed(100)
        case.loss(model, 0).backward()
    mine.clip_grad_norm_(1e9)  # which has all gradients reduced, of chunks too that lack one
    wanted = dict(plain.named_parameters())
    for name, p in mine.named_parameters():
        if p.requires_grad and wanted[name].grad is not None:
            assert torch.equal(castor.gradient(p), wanted[name].grad), name
    optimizer.step()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_garbage_collection_at_random_changes_nothing(case: Case, tmp_path: Path) -> None:
    kept: list[Any] = []

    def around(model: nn.Module, step: int) -> None:
        # Cycles that only the collector finds hold whatever the step before left in them.
        chance = random.Random(step)
        kept[:] = [one for one in kept if chance.random() < 0.5]
        cycle: list[Any] = [p.detach() for p in model.parameters() if chance.random() < 0.5]
        cycle.append(cycle)
        kept.append(cycle)
        if chance.random() < 0.3:
            gc.collect()

    gc.disable()
    try:
        want = train(case.make, case.loss, steps=6, around=around)
        got = train(case.make, case.loss, tight(tmp_path) | {"device": "1MiB"}, steps=6, around=around)
    finally:
        gc.enable()
        kept.clear()
    close(got, want, case.relative)


def test_clipping_is_that_of_torch_by_either_way() -> None:
    case = PLAIN[0]

    def clipped(model: nn.Module, step: int) -> torch.Tensor:
        return case.loss(model, step) * 50

    norms: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {}
    for way in ("plain", "torch", "model", "wrap"):
        torch.manual_seed(7)
        model = case.make()
        optimizer = sgd(model.parameters())
        if way != "plain":
            model, optimizer = castor.wrap(model, optimizer, **ROOMY, max_norm=0.5 if way == "wrap" else 0.0)
        norms[way], losses[way] = [], []
        for step in range(5):
            optimizer.zero_grad()
            loss = clipped(model, step)
            loss.backward()
            if way == "wrap":
                optimizer.step()
                norms[way].append(optimizer.grad_norm)
            else:
                clip = model.clip_grad_norm_ if way == "model" else lambda most: torch.nn.utils.clip_grad_norm_(model.parameters(), most)
                norms[way].append(float(clip(0.5)))
                optimizer.step()
            losses[way].append(loss.item())
    for way in ("torch", "model", "wrap"):
        assert norms[way] == pytest.approx(norms["plain"], rel=1e-5)
        assert losses[way] == pytest.approx(losses["plain"], rel=1e-5)


def test_schedulers_move_every_number() -> None:
    case = PLAIN[0]
    losses = []
    for wrap in (None, ROOMY):
        torch.manual_seed(7)
        model = case.make()
        halves = list(model.parameters())
        optimizer = torch.optim.AdamW([{"params": halves[:4], "weight_decay": 0.1}, {"params": halves[4:], "lr": 3e-3}], lr=1e-3)
        if wrap is not None:
            model, optimizer = castor.wrap(model, optimizer, **wrap)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=12)
        seen = []
        for step in range(12):
            optimizer.zero_grad()
            loss = case.loss(model, step)
            loss.backward()
            optimizer.step()
            scheduler.step()
            seen.append(loss.item())
        losses.append(seen)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_keeps_masters(dtype: torch.dtype, tmp_path: Path) -> None:
    case = PLAIN[1]

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(step)
        return model(torch.randn(2, 5, 16, generator=generator).to(dtype)).float().pow(2).mean()

    resident = train(case.make, loss, ROOMY | {"dtype": dtype}, steps=8)
    offloaded = train(case.make, loss, tight(tmp_path) | {"dtype": dtype}, steps=8)
    assert resident.losses == offloaded.losses
    assert resident.losses[-1] < resident.losses[0]
    plain = train(case.make, squares(2, 5, 16), steps=8)
    close(resident, plain, 0.05)


def test_loss_scaling_is_undone() -> None:
    case = PLAIN[1]
    want = train(case.make, case.loss, steps=5)
    torch.manual_seed(7)
    model = case.make()
    model, optimizer = castor.wrap(model, adamw(model.parameters()), **ROOMY, initial_scale=2.0**5)
    losses = []
    for step in range(5):
        optimizer.zero_grad()
        loss = case.loss(model, step)
        assert optimizer.scale(loss).item() == pytest.approx(32 * loss.item())
        optimizer.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert losses == pytest.approx(want.losses, rel=1e-5)


def test_teacher_and_student_each_have_budgets_of_their_own() -> None:
    torch.manual_seed(1)
    teacher = nn.Linear(8, 4)
    student = nn.Linear(8, 4)
    want = teacher.weight.detach().clone()
    teacher, teaching = castor.wrap(teacher, torch.optim.SGD(teacher.parameters(), lr=0.1), **ROOMY)
    student, learning = castor.wrap(student, torch.optim.SGD(student.parameters(), lr=0.3), device="8MiB", host="8MiB")
    for step in range(60):
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
        with torch.no_grad():
            target = teacher(x)
        learning.zero_grad()
        loss = (student(x) - target).pow(2).mean()
        loss.backward()
        learning.step()
    assert loss.item() < 0.01
    assert torch.equal(teacher.state_dict()["weight"], want)


def test_a_unit_has_all_its_parameters_from_its_boundary_on(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "transformer_encoder")
    want = train(case.make, case.loss, steps=6)
    active: list[bool] = []

    def make() -> nn.Module:
        model = case.make()
        layer = model.layers[0]
        layer.self_attn.register_forward_pre_hook(lambda *_: active.append(all(type(p) is nn.Parameter for p in layer.parameters())))
        return model

    for units in ([nn.TransformerEncoderLayer], []):
        active.clear()
        close(train(make, case.loss, tight(tmp_path) | {"units": units}, steps=6), want)
        assert all(active) == bool(units)
