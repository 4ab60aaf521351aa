#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Tokens per second of the example trainer: under the quick start's budgets, with everything on the device, and without Castor
# (--reference, which knows one rank only), the model being that of the quick start. The machine's speed varies, so each round runs all of
# them one after the other, and what counts is the median over rounds of the ratio to the reference of the same round. CPU seconds per step
# (start and end of the run included) vary less on a machine that others use too.
#
#   tools/bench/trainer_throughput.sh [ROUNDS [STEPS]]     (5 and 10)
#
# The NVMe tier's files go into a new folder under $TMPDIR if that is set, else under .cache/ here.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

rounds=${1:-5}
steps=${2:-10}
if (($# > 2)) || [[ ! "$rounds $steps" =~ ^[1-9][0-9]*\ [1-9][0-9]*$ ]]; then
  echo "usage: tools/bench/trainer_throughput.sh [ROUNDS [STEPS]]" >&2
  exit 2
fi
# Debian's Bazel, whatever else is called bazel here.
/usr/bin/bazel build --show_result=0 --ui_event_filters=-info //tools/examples:train_gpt

parent=${TMPDIR:-$PWD/.cache}
mkdir -p "$parent"
scratch=$(mktemp -d "$parent/castor-throughput.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 6' INT TERM

python3 - "$rounds" "$steps" "$scratch" <<'END'
import json, resource, statistics, subprocess, sys

rounds, steps, scratch = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
tight = ["--device-budget", "64MiB", "--host-budget", "96MiB", "--nvme", scratch]
kinds = {
    "reference, 1 rank": ["--reference"],
    "resident, 1 rank": ["--ranks", "1"],
    "tight, 1 rank": ["--ranks", "1", *tight],
    "resident, 2 ranks": ["--ranks", "2"],
    "tight, 2 ranks": ["--ranks", "2", *tight],
}


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


rates = {name: [] for name in kinds}
cpu = {name: [] for name in kinds}
for number in range(1, rounds + 1):
    print(f"round {number} of {rounds}", file=sys.stderr)
    for name, flags in kinds.items():
        before = cpu_seconds()
        command = ["bazel-bin/tools/examples/train_gpt", "--steps", str(steps), "--json", *flags]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(run.stderr)
        rates[name].append(json.loads(run.stdout)["tokens_per_second"])
        cpu[name].append((cpu_seconds() - before) / steps)

base = rates["reference, 1 rank"]
print(f"{'':<20}{'tokens/s':>10}{'of reference':>14}{'(from':>8}{'to)':>6}{'CPU s/step':>12}   medians of {rounds} rounds of {steps} steps")
for name in kinds:
    ratios = [rate / of for rate, of in zip(rates[name], base)]
    print(
        f"{name:<20}{statistics.median(rates[name]):>10.0f}{statistics.median(ratios):>14.2f}"
        f"{min(ratios):>8.2f}{max(ratios):>6.2f}{statistics.median(cpu[name]):>12.2f}"
    )
END
