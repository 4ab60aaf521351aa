#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Whether what `castor report` proposes holds on this machine: trains with a bottleneck that was put there, obeys the first proposal, and compares.

    bazel build //tools:castor //tools/examples:train_gpt && tools/bench/proposals_obeyed.py FOLDER

FOLDER is on a drive. Each run is made so many times, by turns; times are medians of steps, and of these the median and the spread.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TRAIN = [str(ROOT / "bazel-bin/tools/examples/train_gpt"), "--batch", "1", "--steps", "20"]
REPEATS = 5
PLANTED = {
    "a host budget of 96 MiB, little compute": ["--seq", "32", "--device-budget", "64MiB", "--host-budget", "96MiB"],
    "the same on two ranks": ["--seq", "32", "--ranks", "2", "--device-budget", "64MiB", "--host-budget", "64MiB"],
    "a device budget of 40 MiB": ["--seq", "16", "--device-budget", "40MiB", "--host-budget", "600MiB"],
    "bf16, a host budget of 64 MiB": ["--seq", "64", "--dtype", "bf16", "--device-budget", "48MiB", "--host-budget", "64MiB"],
    "four micro-batches, a host budget of 96 MiB": ["--seq", "32", "--accumulate", "4", "--device-budget", "64MiB", "--host-budget", "96MiB"],
}


def step_ms(flags: list[str], folder: Path) -> tuple[float, dict]:
    record = folder / "run.rec"
    subprocess.run([*TRAIN, *flags, "--nvme", str(folder), "--record", str(record)], check=True, capture_output=True)
    report = json.loads(subprocess.run([str(ROOT / "bazel-bin/tools/castor"), "report", str(record), "--json"], check=True, capture_output=True).stdout)
    return report["step_ns"]["median"] / 1e6, report


def main() -> None:
    folder = Path(sys.argv[1])
    for name, flags in PLANTED.items():
        _, report = step_ms(flags, folder)
        print(f"{name}: {report['headline']}")
        if not report["proposals"]:
            print(f"  nothing is proposed: {report['no_proposal']}")
            continue
        proposal = report["proposals"][0]
        wanted = dict(proposal["lines"])["command"].split()
        before, after = [], []
        for _ in range(REPEATS):
            before.append(step_ms(flags, folder)[0])
            after.append(step_ms([*(wanted if wanted[0] == "--place" else []), *without(flags, wanted[0]), *(wanted if wanted[0] != "--place" else [])], folder)[0])
        print(f"  {' '.join(wanted)}: {words(before)} to {words(after)} ms a step; simulated {report['simulated_step_ns'] / 1e6:.0f} to {proposal['step_ns'] / 1e6:.0f}")


def without(flags: list[str], flag: str) -> list[str]:
    if flag == "--place" or flag not in flags:
        return flags
    at = flags.index(flag)
    return flags[:at] + flags[at + 2 :]


def words(times: list[float]) -> str:
    return f"{statistics.median(times):.0f} ({min(times):.0f} to {max(times):.0f})"


if __name__ == "__main__":
    main()
