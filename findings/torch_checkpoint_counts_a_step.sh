#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# torch 2.15.0: torch.distributed.checkpoint's get_state_dict, asked of an optimizer that has made no step, changes the training that follows. AdamW
# begins at step 2, so its corrections of moments are those of another step. A script that saves before its first step, or loads into a fresh
# optimizer and finds no checkpoint there, trains other weights than one that did not ask.
#
# To learn which states there will be, the function makes a step whose gradients and learning rate are zero, and leaves the count at 1. SGD with
# dampening keeps a first momentum of zeros likewise, where its own first step would have copied the gradient.
#
# Installs torch of PyPI (about 3 GB) into a temporary folder and trains a linear layer for three steps on the CPU, with the question and without.
# Needs python3 (3.11) with venv, and the network. Exit: 0 while it is so, 1 if that has changed.

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PY'
import sys

import torch
from torch.distributed.checkpoint.state_dict import get_state_dict


def trained(kind, asks, **numbers):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = kind(model.parameters(), lr=0.1, **numbers)
    if asks:
        get_state_dict(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).pow(2).mean().backward()
        optimizer.step()
    return model.weight.detach(), optimizer.state[model.weight]


print("torch", torch.__version__)
same = []
for kind, numbers in ((torch.optim.AdamW, {}), (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5})):
    (plain, state), (asked, after) = trained(kind, False, **numbers), trained(kind, True, **numbers)
    counts = f"; the count after three steps is {state['step'].item():.0f}, and {after['step'].item():.0f} with it" if "step" in state else ""
    print(f"{kind.__name__} {numbers}: weights differ by up to {(plain - asked).abs().max().item():.4f} where get_state_dict was called first{counts}")
    same.append(torch.equal(plain, asked))
sys.exit(any(same))
PY
