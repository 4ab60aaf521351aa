# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A program whose backward was ended by an exception goes on, and ends as it would without Castor."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

# Processes of their own, which share the time that it takes to load torch.
FORKS = """
import json, os, sys
import torch._dynamo, castor.torch  # whichever optimizer is made loads torch._dynamo
program, cases, folder = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
codes = []
for number, case in enumerate(cases):
    child = os.fork()
    if child == 0:
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{folder}/{number}.{name}", os.O_WRONLY | os.O_CREAT), stream)
        sys.argv = ["program", *case]
        exec(compile(program, "program", "exec"), {"__name__": "__main__"})
        break
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    print(json.dumps(codes))
"""

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


def test_the_program_ends_as_it_would(tmp_path: Path) -> None:
    cases = [*product(["early", "late"], ["tensor", "post", "module"], ["goes on"]), *product(["early"], ["tensor", "module"], ["caught", "ends"])]
    ran = subprocess.run([sys.executable, "-c", FORKS, PROGRAM, json.dumps(cases), str(tmp_path)], capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    codes = json.loads(ran.stdout)
    assert len(codes) == len(cases)
    for number, (case, code) in enumerate(zip(cases, codes)):
        out, err = ((tmp_path / f"{number}.{name}").read_text() for name in ("out", "err"))
        if case[2] == "ends":
            assert code == 1 and "ValueError: of the script" in err, (case, code, err)
        else:
            assert (code, out) == (0, "came: of the script\ndone\n"), (case, code, out, err)
