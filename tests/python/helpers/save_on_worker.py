# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A script that trains and saves when SIGTERM comes, as docs/pytorch.md shows one (checkpoints/test_save_on.py)."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).parent))

import torch  # noqa: E402

import castor.torch as castor  # noqa: E402
from castor.torch._checkpoints import _save_on  # noqa: E402
from models import PLAIN  # noqa: E402

CASE = PLAIN[0]
TIGHT: dict[str, Any] = {"device": "64KiB", "host": "64MiB", "chunk": "8KiB"}


def digest(model: torch.nn.Module) -> str:
    text = hashlib.sha256()
    for values in castor.weights(model):
        text.update(values[1].detach().contiguous().numpy().tobytes())
    return text.hexdigest()


def train(folder: Optional[str], steps: int, inside: Callable[[int], None] = lambda _: None, seed: int = 7, before_saved: Callable[[], None] = lambda: None,
          **wrap: Any) -> str:
    """The weights' digest behind all steps. `inside`: called between the forward and the backward of each. `before_saved`: ahead of a signal's save."""
    torch.manual_seed(7)
    model: Any = CASE.make()
    model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-2), timeout_s=60, **(wrap or TIGHT))
    torch.manual_seed(seed)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    step = -1
    if folder and os.path.isdir(folder):
        extra = castor.load(folder, model)
        step = extra["step"]
        scheduler.load_state_dict(extra["scheduler"])
        scheduler.step()  # which the saved run had yet to call

    def rest() -> dict[str, Any]:
        before_saved()
        return {"step": step, "scheduler": scheduler.state_dict()}

    on = castor.save_on(folder, model, extra=rest) if folder else None
    for step in range(step + 1, steps):
        optimizer.zero_grad()
        loss = CASE.loss(model, step) * (1 + torch.rand(()))  # of a random state
        inside(step)
        loss.backward()
        optimizer.step()
        scheduler.step()
    if on is not None:
        on.close()
    return digest(model)


def wait_for_signal(step: int) -> None:
    """Step 2 lasts until the parent process has written a line."""
    if step == 2:
        if os.environ.get("RANK", "0") == "0":
            print("step 2", flush=True)
        while not Path(os.environ["CASTOR_TEST_GO"]).exists():
            time.sleep(0.01)


def say_and_sleep() -> None:
    print("saving", flush=True)
    time.sleep(60)


if __name__ == "__main__":
    torch.set_num_threads(1)
    _save_on._AGREE_S = 0.0  # ranks agree at each step, however short
    what, to = sys.argv[1:]
    rank, _ = castor.join()
    if what == "resumed":
        print(train(to, 5), flush=True)
    elif what == "second":
        train(to, 5, wait_for_signal, before_saved=say_and_sleep)
    else:
        if what == "first":
            print(train(None, 5), flush=True)
        train(to, 5, wait_for_signal, seed=7 + rank, **({"stage": 3, "device": "16MiB", "host": "64MiB"} if what == "ranks" else {}))
