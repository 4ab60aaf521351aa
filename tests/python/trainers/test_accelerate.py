# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Scripts of accelerate's with a wrapped model: prepared, saved and loaded, on one rank and on two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import castor.torch as castor

pytest.importorskip("accelerate")
from accelerate_worker import prepared, steps  # noqa: E402

WORKER = Path(__file__).parents[1] / "helpers" / "accelerate_worker.py"
WHERE: dict[str, dict[str, Any]] = {
    "on the device": {"device": "64MiB", "host": "64MiB"},
    "on the host": {"device": "64MiB", "host": "64MiB", "place": {"*": "host"}},
}


@pytest.mark.parametrize("where", WHERE)
def test_a_run_goes_on_as_if_it_was_not_interrupted(where: str, tmp_path: Path) -> None:
    want = steps(*prepared(None), 0, 6)
    there = prepared(WHERE[where])
    got = steps(*there, 0, 3)
    there[0].save_state(str(tmp_path))
    got += steps(*there, 3, 6)
    assert got == pytest.approx(want, rel=1e-6, abs=1e-6)
    again = prepared(WHERE[where])
    steps(*again, 0, 1)
    again[0].load_state(str(tmp_path))
    assert steps(*again, 3, 6) == got[6:]
    plain = prepared(None)
    plain[0].load_state(str(tmp_path))
    assert steps(*plain, 3, 6) == pytest.approx(want[6:], rel=1e-6, abs=1e-6), "accelerate's own files have everything too"
    again[0].save_state(str(tmp_path))
    there[0].load_state(str(tmp_path))
    assert castor.checkpoints(str(tmp_path / "castor")) == [6], "an earlier save's states do not stay"


def test_masters_in_float32_and_moments_are_kept(tmp_path: Path) -> None:
    """Accelerate's own files have bfloat16."""
    wrap = {**WHERE["on the device"], "dtype": torch.bfloat16}
    there = prepared(wrap)
    steps(*there, 0, 3)
    there[0].save_state(str(tmp_path))
    saved = [castor.exact(p) for p in there[1].parameters()]
    want = steps(*there, 3, 6)
    again = prepared(wrap)
    again[0].load_state(str(tmp_path))
    assert all(torch.equal(castor.exact(p), values) for p, values in zip(again[1].parameters(), saved))
    assert steps(*again, 3, 6) == want


def test_checkpoints_of_accelerates_own_naming_and_of_several_models(tmp_path: Path) -> None:
    from accelerate.utils import ProjectConfiguration

    accelerator, model, optimizer, scheduler = prepared(WHERE["on the device"])
    accelerator.project_configuration = ProjectConfiguration(str(tmp_path), automatic_checkpoint_naming=True)
    other = torch.nn.Linear(8, 8)
    other, trainer = accelerator.prepare(other, torch.optim.SGD(other.parameters(), lr=0.1))
    steps(accelerator, model, optimizer, scheduler, 0, 2)
    accelerator.save_state()
    weights = other.weight.detach().clone()
    want = steps(accelerator, model, optimizer, scheduler, 2, 4)
    with torch.no_grad():
        other.weight.zero_()
    accelerator.load_state()
    assert steps(accelerator, model, optimizer, scheduler, 2, 4) == want
    assert torch.equal(other.weight, weights)
    accelerator._models.append(model)
    with pytest.raises(castor.InvalidArgument, match="has no castor_2, where accelerator.save_state"):
        accelerator.load_state()


def test_what_comes_before_wrap_is_refused() -> None:
    accelerator, model, optimizer, _ = prepared(None)
    with pytest.raises(castor.FailedPrecondition, match=r"the optimizer is accelerate's.*: call castor.wrap\(model, optimizer\) first, and then accelerator.prepare"):
        castor.wrap(model, optimizer)
    model, optimizer = castor.wrap(model, optimizer.optimizer, **WHERE["on the device"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accelerator, "scaler", torch.amp.GradScaler("cpu"))
        with pytest.raises(castor.FailedPrecondition, match="GradScaler"):
            accelerator.prepare(optimizer)
    with pytest.MonkeyPatch.context() as patch:
        from accelerate.utils import DistributedType

        patch.setattr(type(accelerator), "distributed_type", DistributedType.FSDP)
        with pytest.raises(castor.FailedPrecondition, match="accelerate is set to FSDP, which parts states too"):
            accelerator.prepare(model)


def test_accelerate_may_be_imported_after_wrap() -> None:
    script = """
import sys, torch, castor.torch as castor
model = torch.nn.Linear(4, 4)
model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="64MiB", host="64MiB")
assert "accelerate" not in sys.modules
from accelerate import Accelerator
assert Accelerator.save_state._castor and Accelerator.prepare_model._castor
assert [type(one).__name__ for one in sys.meta_path].count("_Finder") == 0
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def test_two_ranks_train_save_and_go_on_as_by_ddp(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(WORKER), str(tmp_path), str(out)],
                          capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(out.read_text())
    assert not found["ddp"]
    assert found["castor"] == pytest.approx(found["plain"], rel=1e-5, abs=1e-6)
    assert found["from castor"] == found["castor"][6:] == found["prepared after castor.load"]
    assert found["from plain"] == pytest.approx(found["plain"][6:], rel=1e-5, abs=1e-6)
    assert "inside DistributedDataParallel, as accelerator.prepare makes it: call castor.wrap" in found["after prepare"]
