#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Tokens per second of the example trainer: under the quick start's budgets, with everything on the device, and without Castor
# (--reference), the model being that of the quick start. The machine's speed varies, so each round runs all of them one after the other,
# and what counts is the median over rounds of the ratio to the reference of the same round.
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

# measure NAME FLAG...: appends NAME and tokens per second to the results.
measure() {
  local name=$1
  shift
  bazel-bin/tools/examples/train_gpt --steps "$steps" --json "$@" >"$scratch/run.json" 2>"$scratch/log" || {
    cat "$scratch/log" >&2
    exit 1
  }
  python3 -c 'import json, sys; print(sys.argv[1], json.load(open(sys.argv[2]))["tokens_per_second"], sep="\t")' \
    "$name" "$scratch/run.json" >>"$scratch/results"
}

tight=(--device-budget 64MiB --host-budget 96MiB --nvme "$scratch")
for ((round = 1; round <= rounds; ++round)); do
  echo "round $round of $rounds" >&2
  measure "reference, 1 rank" --reference
  measure "resident, 1 rank" --ranks 1
  measure "tight, 1 rank" --ranks 1 "${tight[@]}"
  measure "resident, 2 ranks" --ranks 2
  measure "tight, 2 ranks" --ranks 2 "${tight[@]}"
done

python3 - "$scratch/results" <<'END'
import collections, statistics, sys

runs = collections.defaultdict(list)
for line in open(sys.argv[1]):
    name, rate = line.rstrip("\n").split("\t")
    runs[name].append(float(rate))
reference = runs["reference, 1 rank"]
print(f"{'':<20}{'tokens/s':>10}{'of reference':>14}   (medians of {len(reference)} rounds; lowest and highest ratio)")
for name, rates in runs.items():
    ratios = [rate / base for rate, base in zip(rates, reference)]
    print(f"{name:<20}{statistics.median(rates):>10.0f}{statistics.median(ratios):>14.2f}   {min(ratios):.2f} to {max(ratios):.2f}")
END
