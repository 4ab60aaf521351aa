#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# torch 2.15.0: a forward of fake tensors on device 'cpu' tells less than autograd keeps in a real forward on the CPU, for two operators that real
# models have. An LSTM is told without the workspace that its CPU kernel hands to the backward, most of what the kernel keeps: the fake kernel gives
# the workspace no bytes. A layer norm of bfloat16 rows with float32 weights is told with means and deviations of 2 bytes a row each, where the CPU's
# kernel keeps 4. Linear layers and GELU are told to the byte. A plan of memory by fake tensors is short by that much.
#
# Installs torch of PyPI (about 3 GB) into a temporary folder and counts the storages that saved_tensors_hooks see. Needs python3 (3.11) with venv, and
# the network. Exit: 0 while it is so, 1 if that has changed.

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PY'
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import layer_norm


def saved(function):
    """Bytes that autograd keeps for the backward, each storage once."""
    sizes = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        sizes[storage._cdata] = storage.nbytes()
        kept.append(storage)
        return tensor

    kept = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = function()
    del result
    return sum(sizes.values())


def lstm():
    model = torch.nn.LSTM(32, 32)
    inputs = torch.ones(16, 4, 32)
    return lambda: model(inputs)


def norm():
    weight, bias = torch.ones(32, requires_grad=True), torch.zeros(32, requires_grad=True)
    inputs = torch.ones(64, 32, dtype=torch.bfloat16)
    return lambda: layer_norm(inputs, (32,), weight, bias)


def linear():
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Linear(32, 32))
    inputs = torch.ones(64, 32)
    return lambda: model(inputs)


print("torch", torch.__version__)
found = {}
for make in (lstm, norm, linear):
    real = saved(make())
    with FakeTensorMode():
        fake = saved(make())
    found[make.__name__] = real - fake
    print(f"{make.__name__}: autograd keeps {real} bytes in a real forward on the CPU, and {fake} in a forward of fake tensors on device 'cpu'")
sys.exit(not (found["lstm"] > 0 and found["norm"] > 0 and found["linear"] == 0))
PY
