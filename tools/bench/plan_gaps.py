#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""How far plans of whole models may be from the cheapest: what `castor plan --policy planned` says of the models in tools/models/configs.

    plan_gaps.py bazel-bin/tools/castor tools/models/configs [MODEL ...]

Half of a rank's parameters are at home in host memory and half on NVMe, so that fetches have two prices, and the device has room for some
copies and not for all: its budget is a part of the model in bf16. With several ranks slots hold copies of shards where that pays. In half
of the plans every parameter with a 1 in its name (the layers 1, 10 to 19, 21, ...) is frozen: copies of those are kept from step to step,
which makes a circle of the problem. What does not fit is counted. Prints a line for each model, and the medians.
"""

import json
import math
import os
import statistics
import subprocess
import sys

WORLDS = (2, 8)
MICRO_BATCHES = (1, 4)
PARTS = (0.15, 0.3, 0.6)
FROZEN = ((), ("--freeze", "*1*"))


def plan(castor, config, *more):
    """The command's answer; None where it does not fit."""
    command = [castor, "plan", config, "--json", "--policy", "planned", "--dtype", "bf16", "--limit", "param@host=50%", *more]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode not in (0, 3):
        sys.exit(f"{' '.join(command)}: exit {run.returncode}: {run.stderr}")
    return json.loads(run.stdout) if run.returncode == 0 else None


def gaps_of(castor, config):
    """(gap, kept shards, frozen) of every plan that fits, and how many do not."""
    plenty = ("--host-budget", "32TiB", "--nvme", "64TiB")
    size = plan(castor, config, *plenty, "--world", "64")["model"]["elements"] * 2
    found, refused = [], 0
    for world in WORLDS:
        for micro_batches in MICRO_BATCHES:
            for part in PARTS:
                for frozen in FROZEN:
                    answer = plan(castor, config, *plenty, *frozen, "--world", str(world), "--micro-batches", str(micro_batches),
                                  "--device-budget", f"{int(size * part) >> 20}MiB")
                    if answer is None:
                        refused += 1
                        continue
                    proof = answer["certificate"]
                    gap = proof["gap"] if proof["gap"] is not None else math.inf
                    found.append((gap, proof["shards"], bool(frozen)))
    return found, refused


def percent(share):
    return f"{share * 100:.2f} %"


def main():
    castor, configs = sys.argv[1:3]
    models = sys.argv[3:] or sorted(os.listdir(configs))
    everything = []
    print("| model | plans | do not fit | keep shards | shards kept, most | gap, median | gap, most |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for model in models:
        found, refused = gaps_of(castor, os.path.join(configs, model, "config.json"))
        everything += found
        gaps = [gap for gap, _, _ in found]
        kept = [shards for _, shards, _ in found if shards > 0]
        print(f"| {model} | {len(found)} | {refused} | {len(kept)} | {max(kept, default=0)} | {percent(statistics.median(gaps))} | "
              f"{percent(max(gaps))} |", flush=True)
    for what, chosen in (("all", everything), ("that keep shards", [row for row in everything if row[1] > 0]),
                         ("with frozen parameters", [row for row in everything if row[2]]),
                         ("with a gap", [row for row in everything if row[0] > 0])):
        gaps = [row[0] for row in chosen]
        print(f"{len(gaps)} plans {what}: median {percent(statistics.median(gaps)) if gaps else '-'}")


main()
