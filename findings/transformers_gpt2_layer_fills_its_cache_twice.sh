#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# transformers 5.24.0: a layer that computes its forward again in the backward leaves a cache of keys and values out, so that no token comes twice. A layer
# of Llama does. A layer of GPT-2 does not: its argument has another name than those that GradientCheckpointingLayer looks for. Where layers are told one by
# one, as for selective checkpointing, the cache that a GPT-2 returns has every token twice behind the backward. Keys and values of all layers stay in
# memory from the forward on, which checkpointing was to save. Gradients are right. gradient_checkpointing_enable(), which tells the whole model,
# makes no cache in either model.
#
# Installs torch and transformers of PyPI (about 3 GB) into a temporary folder and counts tokens in the cache. Needs python3 (3.11) with venv, and the
# network. Exit: 0 while it is so, 1 if that has changed.

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 transformers==5.24.0 numpy==2.4.6
cd "$folder"
HF_HUB_OFFLINE=1 venv/bin/python - <<'PY'
import functools
import sys

import torch
import transformers
from torch.utils.checkpoint import checkpoint

TOKENS = 32


def tokens_in_cache(model, layer_by_layer):
    model.train()
    if layer_by_layer:
        for layer in model.modules():
            if any(kind.__name__ == "GradientCheckpointingLayer" for kind in type(layer).__mro__):
                layer.gradient_checkpointing = True
                layer._gradient_checkpointing_func = functools.partial(checkpoint, use_reentrant=False)
    ids = torch.arange(1, 1 + TOKENS).repeat(2, 1)
    result = model(input_ids=ids, labels=ids)
    before = result.past_key_values.get_seq_length()
    result.loss.backward()
    return before, result.past_key_values.get_seq_length()


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=3, n_embd=32, n_head=2, vocab_size=100, n_positions=64))


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2, vocab_size=100))


transformers.logging.set_verbosity_error()
print("transformers", transformers.__version__, "torch", torch.__version__)
found = {name: [tokens_in_cache(make(), told) for told in (False, True)] for name, make in (("GPT-2", gpt2), ("Llama", llama))}
for name, (plain, told) in found.items():
    print(f"{name}: {TOKENS} tokens; in the cache {plain[0]} and {plain[1]} before and behind the backward, {told[0]} and {told[1]} with each layer told")
as_found = {"GPT-2": [(TOKENS, TOKENS), (TOKENS, 2 * TOKENS)], "Llama": [(TOKENS, TOKENS), (0, 0)]}
if found != as_found:
    print("this has changed:", found)
    sys.exit(1)
PY
