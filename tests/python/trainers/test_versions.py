# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What docs/versions.md says of other libraries, shown on the versions that the page names. With another version the test is skipped."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from experts_trainer import CASTOR, trainer_of_experts


def of(package: str, version: str) -> pytest.MarkDecorator:
    """The test is of this version, or of its patches."""
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return pytest.mark.skip(reason=f"{package} is not installed")
    return pytest.mark.skipif(f"{found}.".find(f"{version}.") != 0, reason=f"{package} is {found}, and the page names {version}")


@of("transformers", "5.24")
def test_a_plain_resume_leaves_experts_and_routers_as_they_began_and_castors_does_not(tmp_path: Path) -> None:
    import transformers

    trainer_of_experts(tmp_path).train()
    checkpoint = str(tmp_path / "checkpoint-2")
    saved = transformers.MixtralForCausalLM.from_pretrained(checkpoint).state_dict()
    plain = trainer_of_experts(tmp_path)
    began = {name: values.clone() for name, values in plain.model.state_dict().items()}
    plain.train(resume_from_checkpoint=checkpoint)
    lost = {name for name, values in plain.model.state_dict().items() if torch.equal(values, began[name])}
    assert lost == {f"model.layers.0.mlp.{name}" for name in ("gate.weight", "experts.gate_up_proj", "experts.down_proj")}
    assert all(torch.equal(values, saved[name]) for name, values in plain.model.state_dict().items() if name not in lost)

    ours = trainer_of_experts(tmp_path, CASTOR)
    ours.train(resume_from_checkpoint=checkpoint)
    assert all(torch.equal(values, saved[name]) for name, values in ours.model.state_dict().items())


@of("torch", "2.15")
def test_to_ask_a_new_optimizer_for_its_state_steps_it() -> None:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    get_optimizer_state_dict(model, optimizer)
    assert optimizer.state[model.weight]["step"] == 1
    assert not optimizer.state[model.weight]["exp_avg"].any()


@of("torch", "2.15")
def test_an_error_of_torchs_checkpoints_passes_except_exception(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException

    dcp.save({"a": torch.ones(2)}, checkpoint_id=tmp_path)
    caught = False
    with pytest.raises(CheckpointException):
        try:
            dcp.load({"b": torch.ones(2)}, checkpoint_id=tmp_path)
        except Exception:
            caught = True
    assert not caught


@of("accelerate", "1.15")
def test_accelerate_launch_on_cpus_starts_a_process_that_knows_of_no_other(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from accelerate import Accelerator\nprint('processes:', Accelerator(cpu=True).num_processes)\n")
    several = ["--num_machines", "2", "--machine_rank", "0", "--main_process_ip", "127.0.0.1", "--main_process_port", "29511"]
    for more in (several, []):
        done = subprocess.run([sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", *more, str(script)],
                              capture_output=True, text=True, timeout=120, check=True, cwd=tmp_path)
        assert "processes: 1" in done.stdout


@of("accelerate", "1.15")
def test_a_break_out_of_an_inner_loop_moves_later_windows_of_accumulation(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import Accelerator
    from accelerate.state import GradientState

    def windows(breaks: bool) -> str:
        """S where a backward ends a window, in two epochs of five batches."""
        monkeypatch.setattr(GradientState, "_shared_state", {})
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model: Any = torch.nn.Linear(1, 1)
        model, train, other = accelerator.prepare(model, torch.utils.data.DataLoader(torch.ones(5, 1)), torch.utils.data.DataLoader(torch.ones(3, 1)))
        seen = ""
        for epoch in range(2):
            for index, x in enumerate(train):
                with accelerator.accumulate(model):
                    accelerator.backward(model(x).mean())
                    seen += "S" if accelerator.sync_gradients else "."
                if (epoch, index) == (0, 2):
                    for _ in other:
                        if breaks:
                            break
        return seen

    assert windows(False) == ".S.SS.S.SS"
    assert windows(True) == ".S.S.S.S.S"


class Scheduled:
    """A script of Lightning's that asks for a step of its scheduler at every third batch, and prints the rates."""

    script = """
import lightning, torch
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), []
    def training_step(self, batch, index):
        return self.layer(batch).mean()
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=8.0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step", "frequency": 3}}
    def on_train_batch_end(self, *_):
        self.seen.append(int(self.lr_schedulers().get_last_lr()[0]))
module = Module()
trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(module, torch.utils.data.DataLoader(torch.ones(4, 1)))
print("rates:", module.seen)
"""

    @classmethod
    def run(cls, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", cls.script], capture_output=True, text=True, timeout=120, check=False, env=os.environ | environment)


@of("lightning", "2.6")
def test_frequency_of_a_scheduler_of_lightning_begins_anew_in_each_epoch() -> None:
    done = Scheduled.run()
    assert "rates: [8, 8, 4, 4, 4, 4, 2, 2]" in done.stdout, done.stderr[-2000:]


@of("mpi4py", "4.1")
@of("lightning", "2.6")
def test_mpi4py_without_a_library_of_mpi_ends_lightnings_trainer() -> None:
    done = Scheduled.run(MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert done.returncode != 0
    assert "RuntimeError: cannot load MPI library" in done.stderr
    assert "accelerator_connector.py" in done.stderr


@of("safetensors", "0.8.0")
def test_numpy_writer_of_safetensors_stores_memory_whatever_its_order(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    from safetensors.numpy import load_file, save_file

    values = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    save_file({"turned": values.T, "copied": numpy.ascontiguousarray(values.T), "every second": numpy.arange(6)[::2]}, tmp_path / "file")
    found = load_file(tmp_path / "file")
    assert numpy.array_equal(found["turned"], values.reshape(3, 2)) and not numpy.array_equal(found["turned"], values.T)
    assert numpy.array_equal(found["every second"], [0, 1, 2])
    assert numpy.array_equal(found["copied"], values.T)


def test_tmpfs_takes_direct_io_on_newer_kernels() -> None:
    newer = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2]) >= (6, 6)
    kinds = [line.split()[2] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[1] == "/dev/shm"]
    if not newer or set(kinds) != {"tmpfs"}:
        pytest.skip(f"Linux is {platform.release()}, and /dev/shm is {kinds}: the page speaks of tmpfs on Linux 6.6 and later")
    path = Path("/dev/shm") / f"castor-versions-{os.getpid()}"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600))
    finally:
        path.unlink(missing_ok=True)
