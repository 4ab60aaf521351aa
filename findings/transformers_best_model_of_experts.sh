#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# transformers 5.24.0: Trainer(load_best_model_at_end=True) of a Mixtral ends with attention of the best checkpoint, and with the router and the
# experts of the last step. Two lines about missing and unexpected keys are all that is said.
#
# The model keeps experts as stacked tensors, and save_pretrained writes one matrix for each expert, under other names. from_pretrained converts the
# names back; the Trainer's way back to the best checkpoint reads the file as it is.
#
# Installs torch, transformers and accelerate of PyPI (about 3 GB) into a temporary folder, trains four steps of a tiny model on the CPU, and compares
# with both checkpoints. Needs python3 (3.11) with venv, and the network. Exit: 0 while it is so, 1 if that has changed.

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cd "$folder"
venv/bin/python - 2>log <<'PY'
import sys
import torch
import transformers

torch.manual_seed(0)
config = transformers.MixtralConfig(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                                    num_key_value_heads=2, num_local_experts=4, max_position_embeddings=32)
rows = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(8)]
scores = iter((2.0, 1.0))  # the first checkpoint is the best
arguments = transformers.TrainingArguments(
    output_dir="run", report_to="none", use_cpu=True, disable_tqdm=True, learning_rate=0.05, max_steps=4, save_steps=2, eval_steps=2,
    eval_strategy="steps", load_best_model_at_end=True, metric_for_best_model="score", greater_is_better=True, per_device_train_batch_size=1)
trainer = transformers.Trainer(model=transformers.MixtralForCausalLM(config), args=arguments, train_dataset=rows, eval_dataset=rows,
                               compute_metrics=lambda _: {"score": next(scores)})
trainer.train()
best, last = (transformers.MixtralForCausalLM.from_pretrained(f"run/checkpoint-{step}").state_dict() for step in (2, 4))
model = trainer.model.state_dict()
of_last = [name for name in model if torch.equal(model[name], last[name]) and not torch.equal(model[name], best[name])]
of_best = [name for name in model if torch.equal(model[name], best[name])]
print("transformers", transformers.__version__, "torch", torch.__version__)
print("of the last step, though checkpoint-2 is the best:", *of_last, sep="\n  ")
print("of the best checkpoint:", len(of_best), "of", len(model))
sys.exit(not (len(of_last) == 3 and all(".mlp." in name for name in of_last) and len(of_best) == len(model) - 3))
PY
