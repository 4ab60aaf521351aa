# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The tutorials' scripts, at a small size, on one rank and on two."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "tools" / "examples" / "torch"


def run(script: str, ranks: int, *arguments: str, by_torchrun: bool = True) -> str:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 and by_torchrun else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *launcher, str(EXAMPLES / script), *arguments], capture_output=True, text=True, timeout=240, check=False, env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_the_language_model_learns_is_saved_and_goes_on(tmp_path: Path) -> None:
    ranks = 2
    small = ("--layers", "2", "--width", "32", "--save", str(tmp_path / "saved"))
    ends = []
    for stage in (1, 2):
        out = run("language_model.py", ranks, *small[:4], "--steps", "31", "--stage", str(stage))
        losses = [float(loss) for loss in re.findall(r"step \d+: loss (\S+)", out)]
        assert losses[-1] < losses[0] - 1, out
        ends.append(re.findall(r"ranks: loss (\S+)", out))
    assert ends[0] == ends[1]
    run("language_model.py", ranks, *small, "--steps", "20")
    out = run("language_model.py", ranks, *small, "--steps", "31")
    assert "step 10:" not in out
    assert re.findall(r"ranks: loss (\S+)", out) == ends[0], "a training that goes on is the one that was not interrupted"
    transformers = pytest.importorskip("transformers")
    saved = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved" / "model")
    assert saved.config.n_layer == 2


def test_stages_give_the_same_weights_and_evaluate() -> None:
    said = {re.sub(r"stage \d", "", run("stages.py", ranks, "--stage", str(stage), "--steps", "20")) for ranks in (1,) for stage in (1, 2, 3)}
    assert len(said) == 1, said
    two = {re.sub(r"stage \d", "", run("stages.py", 2, "--stage", str(stage), "--steps", "20")) for stage in (1, 3)}
    assert len(two) == 1, two
    if shutil.which("mpirun"):
        by_mpi = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, str(EXAMPLES / "stages.py"), "--steps", "20"]
        done = subprocess.run(by_mpi, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr[-4000:]
        assert {re.sub(r"stage \d", "", done.stdout)} == two


@pytest.mark.parametrize("ranks", [1, 2])
def test_gpt2_is_built_lazily_and_trained(ranks: int) -> None:
    out = run("gpt2.py", ranks, "--layers", "2", "--width", "64", "--tokens", "32", "--batch", "2", "--steps", "4")
    assert re.search(r"losses \d+\.\d+ to \d+\.\d+, \d+ tokens/s", out), out


def test_the_classifier_learns_by_name_and_by_config(tmp_path: Path) -> None:
    ranks = 2
    config = tmp_path / "zero.json"
    config.write_text(json.dumps({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": 32}))
    small = ("--devices", str(ranks), "--width", "32", "--layers", "1", "--pieces", "240", "--epochs", "4")
    seen = []
    for more in ((), ("--config", str(config))):
        out = run("classifier.py", ranks, *small, *more, by_torchrun=False)
        found = re.search(r"validation accuracy (\S+), test accuracy (\S+),", out)
        assert found, out
        assert float(found[1]) > 0.65 and float(found[2]) > 0.65  # chance is 0.5
        seen.append(found.groups())
    assert seen[0] == seen[1]


def test_the_first_script_prints_where_memory_is(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(EXAMPLES / "first_script.py")], capture_output=True, text=True, timeout=240, check=False, env=environment,
                          cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    said = done.stdout.splitlines()
    assert 0.5 < float(said[0].removeprefix("loss ")) < 1
    page = (EXAMPLES.parents[2] / "README.md").read_text()
    shown = page[page.index("tier        budget") :].split("```")[0].splitlines()
    assert [re.sub(r"[\d.]+", "#", line) for line in said[1:]] == [re.sub(r"[\d.]+", "#", line) for line in shown]
    assert not list(tmp_path.iterdir()), "what nvme= held is gone"
