# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A rank of a host of its own, by name, that trains till one rank ends as the arguments say (test_named_ends.py, hosts/)."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time

import torch

_HOST = f"node{os.environ['RANK']}"
socket.gethostname = lambda: _HOST  # so ranks are on several hosts, and talk by gloo

import castor.torch as castor  # noqa: E402


def end(way: str) -> None:
    """What the rank does instead of its next step; the caller reads the moment."""
    print(json.dumps({"ends": time.time()}), flush=True)
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif way == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif way == "raise":
        raise ValueError("the data of this rank is gone")
    elif way == "exit":
        sys.exit(3)
    elif way == "sleep":
        time.sleep(60)
    elif way == "cut":  # of a host that is a namespace; the rank trains on
        subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)


def main(way: str, victim: int, timeout_s: float) -> None:
    """`way`: of `victim`'s end, in a step; with ``timer``, at any moment after the first one."""
    torch.set_num_threads(1)
    rank, _ = castor.join(timeout_s=60)
    made = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
    model, optimizer = castor.wrap(made, torch.optim.AdamW(made.parameters()), device="16MiB", host="16MiB", timeout_s=timeout_s)
    way, _, at_any = way.partition(" ")
    if at_any:
        signal.signal(signal.SIGALRM, lambda *_: end(way))
    try:
        for number in range(100_000):
            if number == 3 and rank == victim:
                if at_any:
                    signal.setitimer(signal.ITIMER_REAL, random.random() * 2)
                else:
                    end(way)
            model(torch.randn(4, 16)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    except castor.CastorError as error:
        print(json.dumps({"caught": time.time(), "words": str(error)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
