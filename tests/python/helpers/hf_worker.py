# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A rank of transformers' Trainer: plain, by CastorTrainer, and by that from a checkpoint on. Rank 0 writes losses as JSON.

``castor-from-plain`` and ``plain-from-castor`` go on from the other's checkpoint of step 3. ``castor-best`` trains adapters and goes back to the checkpoint of step 3: the losses of evaluations at step 3, at the end, and then.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)

import transformers  # noqa: E402

from castor.hf import CastorTrainer  # noqa: E402
from models import gpt2  # noqa: E402


class Tokens(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


def main() -> None:
    what, folder, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    torch.manual_seed(0)
    model = gpt2()  # with dropout
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / what), max_steps=6, per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=1,
        report_to=[], use_cpu=True, max_grad_norm=0.5, save_strategy="steps", save_steps=3, eval_strategy="steps", eval_steps=3, disable_tqdm=True,
        ddp_backend="gloo" if "RANK" in os.environ else None, learning_rate=1e-3,
        **({"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": True} if what == "castor-best" else {}),
    )
    if what == "castor-best":
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["c_attn"], r=4, init_lora_weights=False))
    kind: Any = transformers.Trainer
    more: dict[str, Any] = {}
    if not what.startswith("plain"):
        kind, more = CastorTrainer, {"castor": {"device": "5MiB" if "RANK" in os.environ else "600KiB", "host": "64MiB", "chunk": "16KiB"}}
    trainer = kind(model=model, args=arguments, train_dataset=Tokens(), eval_dataset=Tokens(), **more)
    begun = {"castor-resumed": "castor", "plain-from-castor": "castor", "castor-from-plain": "plain"}.get(what)
    trainer.train(resume_from_checkpoint=None if begun is None else str(folder / begun / "checkpoint-3"))
    if what == "castor-best":
        evaluated = [log["eval_loss"] for log in trainer.state.log_history if "eval_loss" in log]
        again = trainer.evaluate()["eval_loss"]
        if trainer.is_world_process_zero():
            out.write_text(json.dumps([*evaluated, again]))
        return
    trainer.save_model(str(folder / "model"))
    if trainer.is_world_process_zero():
        seen = [(log["step"], log.get("loss", log.get("eval_loss")), log.get("grad_norm")) for log in trainer.state.log_history[:-1]]
        out.write_text(json.dumps(seen))
    if what.startswith("plain"):
        sys.stdout.flush()
        # DDP keeps gloo's threads to the end of the process, where the last tensors they let go of abort it now and then.
        os._exit(0)


if __name__ == "__main__":
    main()
