# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Castor in scripts with Lightning's Fabric, on one rank and on two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lightning", reason="lightning is not installed")
from fabric_worker import castor as strategy  # noqa: E402
from fabric_worker import run  # noqa: E402
from lightning.fabric import Fabric  # noqa: E402

from castor.errors import FailedPrecondition, InvalidArgument  # noqa: E402
from castor.lightning import CastorFabricStrategy, CastorStrategy  # noqa: E402

WORKER = Path(__file__).parents[1] / "helpers" / "fabric_worker.py"


def compare(found: dict[str, Any]) -> None:
    assert found["castor"] == pytest.approx(found["plain"], rel=1e-5, abs=1e-6)
    assert found["castor from castor"] == pytest.approx(found["castor"][6:], rel=1e-6)
    assert found["castor from plain"] == pytest.approx(found["plain"][6:], rel=1e-5, abs=1e-6)


def test_one_rank_trains_accumulates_clips_saves_and_goes_on_as_plainly(tmp_path: Path) -> None:
    compare(run(tmp_path, 1, "auto"))


def test_two_ranks_train_accumulate_clip_save_and_go_on_as_by_ddp(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(WORKER), str(tmp_path), str(out)],
                          capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    compare(json.loads(out.read_text()))


def fabric_of(chosen: Any) -> Any:
    fabric = Fabric(accelerator="cpu", devices=1, strategy=chosen)
    fabric.launch()
    return fabric


def test_fabric_takes_the_strategy_by_its_name_and_puts_the_model_into_chunks() -> None:
    fabric = fabric_of("castor_stage_2")
    assert isinstance(fabric.strategy, CastorFabricStrategy)
    module = torch.nn.Linear(4, 4)
    model, optimizer = fabric.setup(module, torch.optim.SGD(module.parameters(), lr=0.1))
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert "chunks of" in str(module.memory_summary())


def test_one_rank_loads_in_the_order_of_the_script() -> None:
    loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(3))
    want = [batch.tolist() for batch in loader]
    loader.generator.manual_seed(3)
    assert [batch.tolist() for batch in fabric_of(strategy()).setup_dataloaders(loader)] == want


def test_a_model_without_an_optimizer_stays_plain() -> None:
    module = torch.nn.Linear(4, 4)
    model = fabric_of(strategy()).setup_module(module)
    assert type(module.weight) is torch.nn.Parameter
    assert torch.equal(model(torch.ones(1, 4)), module(torch.ones(1, 4)))


def test_several_optimizers_and_one_without_its_model_are_refused() -> None:
    fabric, module = fabric_of(strategy()), torch.nn.Linear(4, 4)
    with pytest.raises(InvalidArgument, match="fabric.setup got 2 optimizers, and Castor trains with one"):
        fabric.setup(module, torch.optim.SGD([module.weight], lr=0.1), torch.optim.SGD([module.bias], lr=0.1))
    with pytest.raises(FailedPrecondition, match=r"an optimizer is set up without its model.*: call fabric.setup\(model, optimizer\)"):
        fabric.setup_optimizers(torch.optim.SGD(module.parameters(), lr=0.1))


def test_the_strategy_of_the_trainer_names_that_of_fabric_and_the_other_way_round() -> None:
    from lightning.pytorch import Trainer

    with pytest.raises(ValueError, match="Fabric takes castor.lightning.CastorFabricStrategy"):
        Fabric(accelerator="cpu", devices=1, strategy=CastorStrategy())
    with pytest.raises(ValueError, match="Trainer takes castor.lightning.CastorStrategy"):
        Trainer(accelerator="cpu", devices=1, strategy=strategy(), logger=False)
