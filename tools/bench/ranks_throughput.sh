#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# What ranks cost and what they hide, by the example trainer, the model being that of the quick start:
#
#   stages    seconds per step of ZeRO's stages 0 to 3 on two ranks, threads and processes, with everything on the device; and what
#             processes take of threads' time
#   weak      one rank and two processes, each rank with the same work: what part of the step's speed is left
#   overlap   of the time in which chunks were gathered, and gradients reduced, how much passed while no rank waited: from the
#             record of two ranks under the quick start's budgets, with prefetch and without
#
#   tools/bench/ranks_throughput.sh [ROUNDS [STEPS]]     (5 and 10)
#
# The machine's speed varies, so each round runs all of them one after the other; medians over rounds, and ratios within a round. The first
# step, which plans, is left out. The NVMe tier's files and the records go into a new folder under $TMPDIR if that is set, else under
# .cache/ here.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

rounds=${1:-5}
steps=${2:-10}
if (($# > 2)) || [[ ! "$rounds $steps" =~ ^[1-9][0-9]*\ [1-9][0-9]*$ ]] || ((steps < 2)); then
  echo "usage: tools/bench/ranks_throughput.sh [ROUNDS [STEPS]], of two steps at least" >&2
  exit 2
fi
# Debian's Bazel, whatever else is called bazel here.
/usr/bin/bazel build --show_result=0 --ui_event_filters=-info //tools:castor //tools/examples:train_gpt //tools/examples:train_gpt_mpi

parent=${TMPDIR:-$PWD/.cache}
mkdir -p "$parent"
scratch=$(mktemp -d "$parent/castor-ranks.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 6' INT TERM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

python3 - "$rounds" "$steps" "$scratch" <<'END'
import json, os, statistics, subprocess, sys

rounds, steps, scratch = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
TRAIN, CASTOR = "bazel-bin/tools/examples/train_gpt", "bazel-bin/tools/castor"
# Open MPI keeps its sockets here, whose names may not be long.
MPI = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"]
TIGHT = ["--device-budget", "64MiB", "--host-budget", "96MiB", "--nvme", scratch]
record = os.path.join(scratch, "run.rec")


def output(command, **more):
    run = subprocess.run(command, capture_output=True, text=True, **more)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def train(*flags, processes=False):
    """Two ranks, or as many as `flags` say."""
    command = [TRAIN, "--steps", str(steps), "--json", "--record", record, *flags]
    if processes:
        command = MPI + command
    elif "--ranks" not in flags:
        command += ["--ranks", "2"]
    output(command, env={**os.environ, "TMPDIR": "/tmp"})


def report(processes=False):
    file = record + ".0" if processes else record
    return output([CASTOR, "report", file, "--steps", f"2-{steps}", "--json"])


def step_seconds(data):
    return data["step_ns"]["median"] * 1e-9


def hidden(data, name):
    links = [link for link in data["links"] if link["link"] == name]
    return 1 - links[0]["unhidden_ns"] / links[0]["busy_ns"] if links and links[0]["busy_ns"] else 0


seconds, shares = {}, {}
for number in range(1, rounds + 1):
    print(f"round {number} of {rounds}", file=sys.stderr)
    for stage in range(4):
        for processes in (False, True):
            train("--stage", str(stage), processes=processes)
            seconds.setdefault(("processes" if processes else "threads", stage), []).append(step_seconds(report(processes)))
    train("--ranks", "1")
    seconds.setdefault(("alone", 3), []).append(step_seconds(report()))
    for prefetch in ("3", "0"):
        train(*TIGHT, "--prefetch", prefetch)
        data = report()
        for name in ("all-gather", "reduce-scatter"):
            shares.setdefault((name, prefetch), []).append(hidden(data, name))
        seconds.setdefault(("tight", prefetch), []).append(step_seconds(data))


def row(name, values, of=None):
    ratios = [value / base for value, base in zip(values, of or values)]
    text = f"{name:<34}{statistics.median(values):>10.3f}"
    print(text + (f"{statistics.median(ratios):>10.2f}{min(ratios):>8.2f}{max(ratios):>8.2f}" if of else ""))


print(f"medians of {rounds} rounds of {steps - 1} steps\n\n{'':<34}{'s/step':>10}{'of first':>10}{'(from':>8}{'to)':>8}")
for kind in ("threads", "processes"):
    for stage in range(4):
        row(f"two {kind}, stage {stage}", seconds[kind, stage], seconds[kind, 0])
for stage in range(4):
    row(f"processes to threads, stage {stage}", seconds["processes", stage], seconds["threads", stage])
print()
row("one rank", seconds["alone", 3], seconds["alone", 3])
row("two processes, twice the work", seconds["processes", 3], seconds["alone", 3])
row("two threads, twice the work", seconds["threads", 3], seconds["alone", 3])
print()
row("tight budgets, --prefetch 3", seconds["tight", "3"], seconds["tight", "3"])
row("tight budgets, --prefetch 0", seconds["tight", "0"], seconds["tight", "3"])
print(f"\n{'hidden behind computing':<34}{'share':>10}")
for (name, prefetch), values in shares.items():
    row(f"{name}, --prefetch {prefetch}", values)
END
