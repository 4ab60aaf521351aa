# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Checkpoints that a trainer with Castor takes, and those that trainers refuse with the reason."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from castor.errors import InvalidArgument  # noqa: E402
from castor.hf import CastorTrainer  # noqa: E402
from castor.torch._checkpoints import _on_disk as on_disk  # noqa: E402

SMALL = {"device": "600KiB", "host": "64MiB", "chunk": "16KiB"}


def trainer(folder: Path, castor: Any = SMALL, **more: Any) -> Any:
    """Plain where `castor` is None."""
    from hf_worker import Tokens
    from models import gpt2

    torch.manual_seed(0)
    arguments = transformers.TrainingArguments(**{
        "output_dir": str(folder), "max_steps": 4, "per_device_train_batch_size": 2, "logging_steps": 1, "report_to": [], "use_cpu": True,
        "disable_tqdm": True, "save_steps": 2, "learning_rate": 1e-3, **more})
    kind, beside = (transformers.Trainer, {}) if castor is None else (CastorTrainer, {"castor": castor})
    return kind(model=gpt2(), args=arguments, train_dataset=Tokens(), eval_dataset=Tokens(), **beside)


def losses(made: Any) -> list[float]:
    return [log["loss"] for log in made.state.log_history if "loss" in log]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 2 and 4, plain and with Castor."""
    folder = tmp_path_factory.mktemp("runs")
    trainer(folder / "plain", None).train()
    trainer(folder / "castor").train()
    return folder


def test_the_optimizer_file_has_the_moments_of_a_plain_trainer(runs: Path) -> None:
    mine, theirs = (torch.load(runs / kind / "checkpoint-4" / "optimizer.pt", weights_only=True) for kind in ("castor", "plain"))
    assert mine["state"].keys() == theirs["state"].keys()
    for number, state in theirs["state"].items():
        for name, value in state.items():
            torch.testing.assert_close(mine["state"][number][name], value, rtol=1e-3, atol=1e-6)


def test_states_pass_through_files_that_do_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Path) -> None:
    mapped = []
    plain = on_disk._file_of
    monkeypatch.setattr(on_disk, "_SMALL", 0)
    monkeypatch.setattr(on_disk, "_file_of", lambda value, folder: mapped.append(value.shape) or plain(value, folder))
    trainer(tmp_path, max_steps=2).train()
    assert len(mapped) >= 20
    saved, want = (torch.load(folder / "checkpoint-2" / "optimizer.pt", weights_only=True)["state"] for folder in (tmp_path, runs / "castor"))
    assert all(torch.equal(saved[number][name], value) for number, state in want.items() for name, value in state.items())
    assert {path.name for path in (tmp_path / "checkpoint-2").iterdir()} == {path.name for path in (runs / "castor" / "checkpoint-2").iterdir()}


def test_an_optimizer_of_its_own_code_crosses_both_ways(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "plain", None, optim="adagrad")
    whole.train()
    whole_with_castor = trainer(tmp_path / "castor", optim="adagrad")
    whole_with_castor.train()
    for begun, castor in (("plain", SMALL), ("castor", None)):
        resumed = trainer(tmp_path / "resumed", castor, optim="adagrad")
        resumed.train(resume_from_checkpoint=str(tmp_path / begun / "checkpoint-2"))
        assert losses(resumed) == pytest.approx(losses(whole), rel=1e-5), begun


def test_without_the_optimizer_file_a_plain_trainer_refuses(tmp_path: Path) -> None:
    made = trainer(tmp_path / "castor", {**SMALL, "optimizer_file": False})
    made.train()
    with pytest.raises(ValueError, match="parameter groups"):
        trainer(tmp_path / "plain", None).train(resume_from_checkpoint=str(tmp_path / "castor" / "checkpoint-2"))
    again = trainer(tmp_path / "again")
    again.train(resume_from_checkpoint=str(tmp_path / "castor" / "checkpoint-2"))
    assert losses(again) == losses(made)


@pytest.mark.parametrize(("gone", "there", "words"), [
    (["optimizer.pt", "scheduler.pt"], [], "it has no optimizer.pt and no scheduler.pt, as save_only_model=True leaves it"),
    (["scheduler.pt"], [], "it has no scheduler.pt"),
    ([], ["scaler.pt"], "its run had a GradScaler"),
    ([], ["global_step2"], "its states are DeepSpeed's"),
    ([], ["pytorch_model_fsdp_0"], "its states are FSDP's"),
])
def test_what_cannot_be_resumed_is_refused(gone: list[str], there: list[str], words: str, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "plain" / "checkpoint-2", tmp_path / "checkpoint-2")
    for name in gone:
        (tmp_path / "checkpoint-2" / name).unlink()
    for name in there:
        (tmp_path / "checkpoint-2" / name).touch()
    with pytest.raises(InvalidArgument, match=f"cannot be resumed under Castor: {words}"):
        trainer(tmp_path / "run").train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


@pytest.mark.parametrize(("change", "words"), [
    (lambda saved: saved["param_groups"][0]["params"].pop(), "its optimizer has groups of"),
    (lambda saved: saved["state"][0].pop("exp_avg"), "its optimizer keeps exp_avg_sq, and this one exp_avg, exp_avg_sq"),
    (lambda saved: saved["state"][0].update(exp_avg=torch.zeros(3)), "its parameter 0 has exp_avg of shape"),
])
def test_states_of_another_optimizer_are_refused(change: Any, words: str, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "plain" / "checkpoint-2", tmp_path / "checkpoint-2")
    saved = torch.load(tmp_path / "checkpoint-2" / "optimizer.pt", weights_only=True)
    change(saved)
    torch.save(saved, tmp_path / "checkpoint-2" / "optimizer.pt")
    with pytest.raises(InvalidArgument, match=words):
        trainer(tmp_path / "run").train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_a_state_of_another_shape_is_refused_by_the_optimizer() -> None:
    import castor.torch as castor

    model = torch.nn.Linear(8, 8)
    _, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="1MiB", host="1MiB")
    state = {"step": torch.tensor(1.0), "exp_avg": torch.zeros(2), "exp_avg_sq": torch.zeros(8, 8)}
    with pytest.raises(InvalidArgument, match=r"the state exp_avg of weight has the shape \[2\], and the parameter \[8, 8\]"):
        optimizer.load_state_dict({"state": {0: state}, "param_groups": optimizer.state_dict()["param_groups"]})


def test_the_best_of_checkpoints_of_weights_alone_comes_back(tmp_path: Path) -> None:
    from models import gpt2

    made = trainer(tmp_path, save_only_model=True, load_best_model_at_end=True, eval_strategy="steps", eval_steps=2, metric_for_best_model="eval_loss",
                   greater_is_better=True)
    made.train()
    best = Path(made.state.best_model_checkpoint)
    assert best.name == "checkpoint-2" and not (best / "optimizer.pt").exists() and not (best / "castor").exists()
    want = gpt2().from_pretrained(best).state_dict()
    made.model.save_pretrained(tmp_path / "saved")
    saved = gpt2().from_pretrained(tmp_path / "saved").state_dict()
    for name, value in want.items():
        assert torch.equal(made.model.state_dict()[name], value) and torch.equal(saved[name], value), name
