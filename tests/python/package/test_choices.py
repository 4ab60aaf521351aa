# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What a script may choose about memory: it changes where things lie and when they move, and no bit."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

import castor.torch as castor
from castor import _command, simulate
from harness import train
from models import gpt2, language

BUDGETS: dict[str, Any] = {"device": "600KiB", "host": "64MiB", "chunk": "16KiB"}


def trained(folder: Path, **more: Any) -> Any:
    return train(gpt2, language, BUDGETS | {"nvme": str(folder)} | more, steps=4)


def test_places_policies_and_prefetches_change_no_bit(tmp_path: Path) -> None:
    want = trained(tmp_path)
    chosen = {
        "all on nvme": {"place": {"*": "nvme"}},
        "one state on nvme": {"place": {"*.h.*": {"exp_avg": "nvme", "master": "host"}}},
        "planned": {"policy": "planned"},
        "no prefetch": {"config": {"prefetch": 0}},
        "far prefetch": {"config": {"prefetch": 9}},
        "gradients in fp32": {"reduce_dtype": torch.float32},
    }
    for what, more in chosen.items():
        got = trained(tmp_path, **more)
        assert got.losses == want.losses, what
        assert all(torch.equal(values, want.weights[name]) for name, values in got.weights.items()), what
        if "nvme" in what:
            assert got.stats["nvme_peak_bytes"] > want.stats["nvme_peak_bytes"], what
        if what == "no prefetch":
            assert got.stats["prefetched_gathers"] == 0 < want.stats["prefetched_gathers"]


def test_wrong_choices_are_named(tmp_path: Path) -> None:
    for more, said in (
        ({"policy": "best"}, "best"),
        ({"place": {"*": "gpu"}}, "gpu"),
        ({"place": {"*": {"momentum": "nvme"}}}, "momentum"),
        ({"reduce_dtype": torch.float64}, "float64"),
        ({"config": {"prefetc": 1}}, "did you mean prefetch"),
    ):
        with pytest.raises(castor.InvalidArgument, match=said):
            trained(tmp_path, **more)


def test_gradients_of_low_precision_are_added_in_fp32_where_asked() -> None:
    def gradients(**wrap: Any) -> torch.Tensor:
        torch.manual_seed(0)
        model: Any = torch.nn.Linear(16, 16).bfloat16()
        parts = [torch.randn(4, 16, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in range(3)]
        if not wrap:
            total = torch.zeros(16, 16)
            for part in parts:
                total += torch.autograd.grad(model(part).float().pow(2).sum(), model.weight)[0].float()
            return total
        model, _ = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="64MiB", host="64MiB", **wrap)
        for part in parts:
            model(part).float().pow(2).sum().backward()
        return castor.gradient(model.weight)

    exact = gradients()
    assert torch.equal(gradients(reduce_dtype=torch.float32), exact)
    assert not torch.equal(gradients(reduce_dtype=None), exact)


def test_a_record_shows_the_steps_made_inside(tmp_path: Path) -> None:
    file = tmp_path / "run.rec"
    with castor.record(file):
        train(gpt2, language, BUDGETS, steps=3)
        gc.collect()
        with pytest.raises(castor.FailedPrecondition, match="being recorded"), castor.record(file):
            pass
    report = _command.ask(["report", str(file)])
    assert report["complete_steps"] == 3
    assert not (tmp_path / "run.rec.2").exists()


def test_a_second_model_is_recorded_to_a_file_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "run.rec"
    with castor.record(file):
        train(gpt2, language, BUDGETS, steps=2)
        torch.manual_seed(0)
        alive = gpt2()
        alive, optimizer = castor.wrap(alive, torch.optim.SGD(alive.parameters(), lr=0.1), **BUDGETS)
        language(alive, 0).backward()
        optimizer.step()
    language(alive, 1).backward()
    optimizer.step()  # in no record, though the model is still there
    reports = [_command.ask(["report", str(path)]) for path in (file, tmp_path / "run.rec.2")]
    assert [report["complete_steps"] for report in reports] == [2, 1]
    assert all(report["record"]["complete"] for report in reports)


def test_a_record_begins_with_the_first_model_that_is_not_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.rec"
    with castor.record(file):
        for _ in range(2):
            with pytest.raises(castor.DoesNotFit):
                train(gpt2, language, {**BUDGETS, "device": 1000}, steps=1)
        train(gpt2, language, BUDGETS, steps=3)
        gc.collect()
    assert _command.ask(["report", str(file)])["complete_steps"] == 3
    assert simulate(str(file)).fits
    assert [path.name for path in tmp_path.iterdir()] == ["run.rec"]


def test_a_record_around_a_model_that_was_wrapped_before_is_refused(tmp_path: Path) -> None:
    model: Any = torch.nn.Linear(4, 2)
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with castor.record(tmp_path / "run.rec"), pytest.raises(castor.FailedPrecondition, match="wrapped before it, and would record nothing"):
        model(torch.ones(2, 4))
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


def test_models_outside_a_record_leave_none(tmp_path: Path) -> None:
    file = tmp_path / "run.rec"
    with castor.record(file):
        pass
    train(gpt2, language, BUDGETS, steps=1)
    assert not list(tmp_path.iterdir())
