#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Searches for input that breaks a parser: builds the target with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer and runs it
# from its kept inputs. New ones, and what breaks the parser, go to a folder outside the tree, which is named.
#
#   tests/fuzz/run.sh config_json 600
#   tests/fuzz/run.sh all 600          # each in turn
#
# Exit: 0 where nothing broke, 1 where something did, 2 for wrong arguments.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

mapfile -t known < <(find tests/fuzz/corpus -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort)
if (($# != 2)) || [[ ! $2 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: tests/fuzz/run.sh TARGET|all SECONDS; targets are ${known[*]}" >&2
  exit 2
fi
targets=("$1")
if [[ $1 == all ]]; then targets=("${known[@]}"); fi
if [[ ! " ${known[*]} " == *" ${targets[0]} "* ]]; then
  echo "unknown target $1; targets are ${known[*]}" >&2
  exit 2
fi

labels=()
for target in "${targets[@]}"; do labels+=("//tests/fuzz:${target}_fuzzer"); done
/usr/bin/bazel build --config=fuzz "${labels[@]}"
bin=$(/usr/bin/bazel info --config=fuzz bazel-bin 2>/dev/null)/tests/fuzz
broken=0
for target in "${targets[@]}"; do
  found=${TMPDIR:-/tmp}/castor-fuzz/$target
  mkdir -p "$found"
  echo "== $target: $2 s, new inputs in $found"
  UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=external_symbolizer_path=/usr/bin/addr2line \
    "$bin/${target}_fuzzer" -max_total_time="$2" -max_len=16384 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$found/broken-" "$found" "tests/fuzz/corpus/$target" 2>"$found.log" || {
    broken=1
    echo "== $target: BROKEN, see $found.log; keep the input as tests/fuzz/corpus/$target/NAME"
  }
  grep -E 'stat::number_of_executed_units|stat::slowest_unit|^Done|ERROR|SUMMARY' "$found.log" || true
done
exit "$broken"
