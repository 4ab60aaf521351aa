#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""AdamW on the host: Castor, torch's fused AdamW and DeepSpeed's CPUAdam, in turns in one run.

Each optimizer updates 16 Mi parameters whose states are in fp32. In the bf16 rows the gradient comes in bf16 and the parameter leaves
in bf16 too: Castor does both in its pass, the others copy the gradient before and the parameter after. Processors vary from second to
second, so the ratio is the median of those of each round; less than 1: Castor is faster.

  bazel build //tools/bench:optimizer_benchmark
  pip install torch deepspeed setuptools ninja && tools/bench/optimizer_comparison.py [--rounds N]

DeepSpeed is left out where it is not installed. Prints a Markdown table.
"""

import argparse
import os
import statistics
import subprocess
import time

import torch

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BENCHMARK = os.path.join(ROOT, "bazel-bin", "tools", "bench", "optimizer_benchmark")
ELEMENTS = 1 << 24
PASSES = {"fp32": "adamw/fp32", "bf16": "adamw"}


class Castor:
    name = "Castor"

    def __init__(self, dtype, threads):
        self.process = subprocess.Popen([BENCHMARK, "--turns", PASSES[dtype], str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=0)

    def step(self):
        self.process.stdin.write("\n")
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Peer:
    """An optimizer of fp32 tensors, with the copies around it that bf16 needs."""

    def __init__(self, dtype, threads):
        torch.set_num_threads(threads)
        self.master = torch.ones(ELEMENTS, requires_grad=True)
        self.master.grad = torch.full((ELEMENTS,), 0.01)
        self.low = torch.ones(ELEMENTS, dtype=torch.bfloat16) if dtype == "bf16" else None
        self.grad = torch.full((ELEMENTS,), 0.01, dtype=torch.bfloat16) if dtype == "bf16" else None
        self.optimizer = self.create([self.master])

    def step(self):
        begin = time.perf_counter()
        if self.grad is not None:
            self.master.grad.copy_(self.grad)
        self.optimizer.step()
        if self.low is not None:
            self.low.copy_(self.master.detach())
        return time.perf_counter() - begin

    def close(self):
        pass


class Torch(Peer):
    name = "torch fused"

    def create(self, params):
        return torch.optim.AdamW(params, lr=1e-3, weight_decay=0.01, fused=True)


class DeepSpeed(Peer):
    name = "DeepSpeed CPUAdam"

    def create(self, params):
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        return DeepSpeedCPUAdam(params, lr=1e-3, weight_decay=0.01, adamw_mode=True)


def turn(run):
    # Threads of the one before may still spin for work.
    time.sleep(0.05)
    return run.step()


def peers():
    try:
        import deepspeed.ops.adam  # noqa: F401
    except ImportError:
        return [Torch]
    return [Torch, DeepSpeed]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, len(os.sched_getaffinity(0))}))
    parser.add_argument("--dtypes", nargs="+", default=list(PASSES))
    options = parser.parse_args()
    print("| gradients and parameters | threads | Castor ms | beside | its ms | Castor's time over its | lowest and highest |")
    print("|---|---:|---:|---|---:|---:|---:|")
    for dtype in options.dtypes:
        for threads in options.threads:
            runs = [kind(dtype, threads) for kind in [Castor] + peers()]
            for run in runs:
                for _ in range(3):
                    run.step()
            rounds = [[turn(run) for run in runs] for _ in range(options.rounds)]
            for run in runs:
                run.close()
            castor = [seconds[0] for seconds in rounds]
            for i, run in enumerate(runs[1:], 1):
                ratios = [seconds[0] / seconds[i] for seconds in rounds]
                print(f"| {dtype} | {threads} | {1e3 * statistics.median(castor):.1f} | {run.name} | "
                      f"{1e3 * statistics.median(seconds[i] for seconds in rounds):.1f} | {statistics.median(ratios):.2f} | "
                      f"{min(ratios):.2f} to {max(ratios):.2f} |", flush=True)


if __name__ == "__main__":
    main()
