# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A program whose backward was ended by an exception goes on, and ends as it would without Castor."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch, castor.torch as castor
from torch import nn
early, where, caught = sys.argv[1:]
model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(3)])
model, optimizer = castor.wrap(model, torch.optim.Adam(model.parameters()), device="64MiB", host="64MiB", update_in_backward=early == "early")
def train():
    optimizer.zero_grad()
    model(torch.randn(8, 32)).pow(2).mean().backward()
    optimizer.step()
train()
def bad(*_):
    raise ValueError("of the script")
handle = {"tensor": model[1].weight.register_hook, "post": model[1].weight.register_post_accumulate_grad_hook,
          "module": model[1].register_full_backward_hook}[where](bad)
if caught == "ends":
    train()
try:
    train()
except ValueError as error:
    print("came:", error)
if caught == "goes on":
    handle.remove()
    train()
print("done")
"""


@pytest.mark.parametrize("where", ["tensor", "post", "module"])
@pytest.mark.parametrize("early", ["early", "late"])
def test_the_program_ends_as_it_would(early: str, where: str) -> None:
    for caught in ("caught", "goes on", "ends"):
        ended = subprocess.run([sys.executable, "-c", PROGRAM, early, where, caught], capture_output=True, text=True, timeout=120, check=False)
        if caught == "ends":
            assert ended.returncode == 1 and "ValueError: of the script" in ended.stderr, ended
        else:
            assert (ended.returncode, ended.stdout) == (0, "came: of the script\ndone\n"), ended
