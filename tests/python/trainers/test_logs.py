# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What Castor did in the logs of transformers' Trainer and of Lightning: names, sums over logs, and how to leave them out."""

from __future__ import annotations

import csv
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from castor.torch._counts import Counts

ALWAYS = {"castor_stall_s", "castor_device_peak_bytes", "castor_host_peak_bytes", "castor_host_to_device_bytes", "castor_device_to_host_bytes"}
OF_DRIVES = {"castor_nvme_read_bytes", "castor_nvme_written_bytes"}


def castors(log: dict[str, Any]) -> set[str]:
    return {name for name in log if name.startswith("castor_")}


class Data(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


def trained(folder: Path, budgets: dict[str, Any], report_to: str = "none") -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from castor.hf import CastorTrainer

    config = transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=3, n_head=2, bos_token_id=0, eos_token_id=0)
    arguments = transformers.TrainingArguments(output_dir=str(folder), report_to=report_to, use_cpu=True, disable_tqdm=True, max_steps=6, logging_steps=2,
                                               per_device_train_batch_size=2, save_strategy="no")
    trainer = CastorTrainer(model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=Data(), castor=budgets)
    trainer.train()
    return trainer


def test_the_history_has_what_castor_did_between_logs(tmp_path: Path) -> None:
    trainer = trained(tmp_path, {"device": "400KiB", "host": "64MiB"})
    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert len(logs) == 3 and all(castors(log) == ALWAYS for log in logs)
    assert not castors(trainer.state.log_history[-1]), "the summary has no loss of a step"
    stats = trainer.model._castor.engine.stats()
    assert 0 < sum(log["castor_host_to_device_bytes"] for log in logs) <= stats["host_to_device_bytes"]
    assert logs[1]["castor_host_to_device_bytes"] > 0 and logs[2]["castor_device_to_host_bytes"] > 0
    assert logs[1]["castor_host_to_device_bytes"] < logs[0]["castor_host_to_device_bytes"] + logs[2]["castor_host_to_device_bytes"], "of two steps each"
    assert sum(log["castor_stall_s"] for log in logs) == pytest.approx(stats["stall_ns"] / 1e9)
    assert logs[-1]["castor_device_peak_bytes"] == stats["device_peak_bytes"] <= 400 << 10


def test_drives_have_entries_and_the_argument_leaves_all_away(tmp_path: Path) -> None:
    drive = tmp_path / "drive"
    drive.mkdir()
    with_drive = trained(tmp_path, {"device": "400KiB", "host": "64MiB", "nvme": str(drive)})
    assert all(castors(log) == ALWAYS | OF_DRIVES for log in with_drive.state.log_history if "loss" in log)
    without = trained(tmp_path, {"device": "400KiB", "host": "64MiB", "log": False})
    assert not any(map(castors, without.state.log_history)) and without.state.log_history


def test_files_of_tensorboard_have_the_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    trained(tmp_path, {"device": "400KiB", "host": "64MiB"}, "tensorboard")
    found = accumulator.EventAccumulator(str(tmp_path / "events")).Reload()
    assert {f"train/{name}" for name in ALWAYS} <= set(found.Tags()["scalars"])
    assert [event.step for event in found.Scalars("train/castor_stall_s")] == [2, 4, 6]


def test_an_engine_that_is_made_anew_counts_from_zero() -> None:
    told = dict.fromkeys(("stall_ns", "device_peak_bytes", "host_peak_bytes", "host_to_device_bytes", "device_to_host_bytes", "wire_sent_bytes"), 10)
    engine = types.SimpleNamespace(stats=lambda: dict(told), several=True)
    model = types.SimpleNamespace(_castor=types.SimpleNamespace(engine=engine, opening=types.SimpleNamespace(folders=())))
    counts = Counts()
    first = counts.since_last(model)
    assert first["castor_sent_to_ranks_bytes"] == 10 and first["castor_stall_s"] == pytest.approx(1e-8)
    told["stall_ns"] = 3 * 10**9
    told["wire_sent_bytes"] = 25
    later = counts.since_last(model)
    assert later["castor_stall_s"] == pytest.approx(3)
    assert later["castor_sent_to_ranks_bytes"] == 15 and later["castor_host_to_device_bytes"] == 0 and later["castor_device_peak_bytes"] == 10
    told.update(wire_sent_bytes=4, host_to_device_bytes=3)
    anew = counts.since_last(model)
    assert anew["castor_sent_to_ranks_bytes"] == 4 and anew["castor_host_to_device_bytes"] == 3 and anew["castor_device_to_host_bytes"] == 10
    assert counts.since_last(torch.nn.Linear(2, 2)) == {}


@pytest.mark.parametrize("accumulated", [1, 2])
def test_lightnings_csv_has_the_entries(accumulated: int, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    from lightning.pytorch.loggers import CSVLogger

    from castor.lightning import CastorMonitor, CastorStrategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8)))

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.layers(batch).pow(2).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=6, log_every_n_steps=2, accumulate_grad_batches=accumulated, default_root_dir=tmp_path,
                                logger=CSVLogger(tmp_path), enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                                callbacks=[CastorMonitor()], strategy=CastorStrategy(device="128KiB", host="64MiB"))
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(torch.randn(48, 64), batch_size=4))
    with open(Path(trainer.logger.log_dir) / "metrics.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    mine = [row for row in rows if row["castor_stall_s"]]
    assert ALWAYS <= set(rows[0]) and [row["step"] for row in mine] == [row["step"] for row in rows if row["loss"]] == ["1", "3", "5"]
    moved = [int(row["castor_host_to_device_bytes"]) for row in mine]
    assert all(moved) and sum(moved) <= module._castor.engine.stats()["host_to_device_bytes"]
