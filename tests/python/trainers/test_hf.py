# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""transformers' Trainer with Castor in it, next to the plain one, on one rank and on two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
WORKER = Path(__file__).parents[1] / "helpers" / "hf_worker.py"


def run(what: str, ranks: int, folder: Path) -> Any:
    out = folder / f"{what}.json"
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    done = subprocess.run([sys.executable, *launcher, str(WORKER), what, str(folder), str(out)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(out.read_text())


def test_the_trainer_trains_saves_and_goes_on(tmp_path: Path) -> None:
    ranks = 2
    want = run("plain", ranks, tmp_path)
    got = run("castor", ranks, tmp_path)
    for (step, mine, norm), (_, theirs, their_norm) in zip(got, want, strict=True):
        assert mine == pytest.approx(theirs, rel=2e-4), step  # logs are rounded
        assert (norm is None) == (their_norm is None)
        if norm is not None:
            assert norm == pytest.approx(their_norm, rel=2e-3)
    rest = run("castor-resumed", ranks, tmp_path)
    assert rest == got, "from the checkpoint on the same steps are made"
    for how in ("castor-from-plain", "plain-from-castor"):
        rest = run(how, ranks, tmp_path)
        assert [step for step, _, _ in rest] == [step for step, _, _ in want]
        assert [loss for _, loss, _ in rest] == pytest.approx([loss for _, loss, _ in want], rel=1e-5), f"{how}, random states and moments included"


def test_the_best_checkpoint_of_adapters_comes_back_on_every_rank(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    best, last, again = run("castor-best", 2, tmp_path)
    assert best > last and again == pytest.approx(best, rel=1e-5)


def test_the_best_checkpoint_of_experts_comes_back_whole(tmp_path: Path) -> None:
    """Of which the files of weights have other names than the model."""
    import torch
    import transformers

    from castor.hf import CastorTrainer
    from hf_worker import Tokens

    torch.manual_seed(0)
    config = transformers.MixtralConfig(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                                        num_local_experts=4, max_position_embeddings=32)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), report_to=[], use_cpu=True, disable_tqdm=True, learning_rate=0.05, max_steps=4, save_steps=2, eval_steps=2,
        eval_strategy="steps", load_best_model_at_end=True, metric_for_best_model="score", greater_is_better=True, per_device_train_batch_size=1,
    )
    scores = iter((2.0, 1.0))
    trainer = CastorTrainer(model=transformers.MixtralForCausalLM(config), args=arguments, train_dataset=Tokens(), eval_dataset=Tokens(),
                            castor={"device": "1MiB", "host": "1MiB"}, compute_metrics=lambda _: {"score": next(scores)})
    trainer.train()
    saved = {step: transformers.MixtralForCausalLM.from_pretrained(tmp_path / f"checkpoint-{step}").state_dict() for step in (2, 4)}
    assert Path(trainer.state.best_model_checkpoint).name == "checkpoint-2"
    for name, values in trainer.model.state_dict().items():
        assert torch.equal(values, saved[2][name]), name
    assert any(not torch.equal(saved[2][name], saved[4][name]) for name in saved[2] if "experts" in name)


def test_the_log_counts_steps_that_were_not_finite(tmp_path: Path) -> None:
    import torch
    import transformers

    from castor.hf import CastorTrainer
    from hf_worker import Tokens
    from models import gpt2

    class Diverging(transformers.TrainerCallback):
        """Of the second step's loss."""

        def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
            model.diverges = state.global_step == 1

    torch.manual_seed(0)
    model: Any = gpt2()
    model.transformer.ln_f.register_forward_hook(lambda _module, _inputs, output: output * (float("inf") if getattr(model, "diverges", False) else 1.0))
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=2, logging_steps=1, report_to=[], use_cpu=True,
                                               save_strategy="no", disable_tqdm=True, logging_nan_inf_filter=False)
    trainer = CastorTrainer(model=model, args=arguments, train_dataset=Tokens(), callbacks=[Diverging()])
    trainer.train()
    assert [log.get("skipped_steps", 0) for log in trainer.state.log_history if "loss" in log] == [0, 1, 1]
