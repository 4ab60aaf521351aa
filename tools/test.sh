#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Installs what is missing, builds everything and runs every test with g++, and CUDA kernels where the toolkit is installed.
#
#   tools/test.sh                every test, once
#   tools/test.sh --sanitizers   that, then with clang-19: all tests but those tagged `long` or `prints` under AddressSanitizer and
#                                UndefinedBehaviorSanitizer, those tagged `concurrent` under ThreadSanitizer, and programs of
#                                another Bazel workspace that use this one
#   tools/test.sh --python       that, then the tests of the Python package, for which it makes .venv (tools/python.sh --setup); where
#                                .venv is there they run anyway
#
# Both may be given.
#
# The last line is "N passed, N failed": test cases, summed over these runs; each failure is named before this line. Exit: 0 if none
# failed, 1 if one did, 2 usage, 5 if this machine lacks something.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sanitizers=false
python=false
for argument in "$@"; do
  case "$argument" in
    --sanitizers) sanitizers=true ;;
    --python) python=true ;;
    *)
      echo "usage: tools/test.sh [--sanitizers] [--python]" >&2
      exit 2
      ;;
  esac
done

tools/setup.sh test

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
: >"$scratch/failures"
passed=0
failed=0
lasted=()

# run NAME ARGUMENT...: one `bazel test`, its failures as they come, then a line of counts.
run() {
  local name=$1 status=0 begin=$SECONDS
  shift
  echo "== $name: bazel test $*"
  # Debian's Bazel, whatever else is called bazel here.
  /usr/bin/bazel test --keep_going --build_event_json_file="$scratch/$name.json" --test_output=errors --test_summary=terse \
    --curses=no --color=no --show_progress_rate_limit=30 --show_result=0 --noshow_loading_progress \
    "$@" 2>&1 || status=$?
  read_counts "$name" "$scratch/$name.json"
  # A failure before any test began.
  if ((status != 0 && now[1] == 0)); then
    now[1]=1
    echo "failed: bazel test $*, exit $status" >>"$scratch/failures"
  fi
  count "$name" "$begin"
}

# read_counts NAME ARGUMENT...: reads passed, failed and skipped into `now`, and keeps each failure's words for the end.
read_counts() {
  local name=$1 counts=$scratch/$1.counts
  shift
  now=(0 0 0)
  if python3 tools/count_tests.py "$@" >"$counts"; then
    read -ra now <"$counts"
    tail -n +2 "$counts" | sed "s/^failed: /failed under $name: /" >>"$scratch/failures"
  fi
}

# count NAME BEGIN: a line of what ran since then, and the sums.
count() {
  lasted+=("$1 $((SECONDS - $2)) s")
  echo "== $1: ${now[0]} passed, ${now[1]} failed, ${now[2]} skipped in $((SECONDS - $2)) s"
  passed=$((passed + now[0]))
  failed=$((failed + now[1]))
}

if git rev-parse --git-dir >/dev/null 2>&1; then
  if ! git ls-files -z '*.h' '*.cc' '*.cu' | xargs -0 -n 64 -P 2 clang-format-14 --dry-run -Werror; then
    echo "== format: clang-format-14 -i changes the files above" | tee -a "$scratch/failures"
    failed=$((failed + 1))
  fi
fi

if git rev-parse --git-dir >/dev/null 2>&1 && ! tools/check_folders.py; then
  echo "== folders: the lines above say which to sort" | tee -a "$scratch/failures"
  failed=$((failed + 1))
fi

if ! tools/check_includes.py; then
  echo "== includes: the lines above need a dependency in their BUILD file, or another header" | tee -a "$scratch/failures"
  failed=$((failed + 1))
fi

if git rev-parse --git-dir >/dev/null 2>&1 && ! tools/check_std_includes.py; then
  echo "== std includes: the lines above need the header that they name" | tee -a "$scratch/failures"
  failed=$((failed + 1))
fi

run gcc --config=cuda //...
if $sanitizers; then
  run asan --config=asan --test_tag_filters=-long,-prints --build_tests_only //...
  run tsan --config=tsan --test_tag_filters=concurrent --build_tests_only //...
  echo "== consumer: programs of another Bazel workspace"
  if tests/tools/packages/bazel_consumer.sh "$scratch"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "failed: tests/tools/packages/bazel_consumer.sh" >>"$scratch/failures"
  fi
fi

if $python || [[ -x .venv/bin/python ]]; then
  echo "== python: pytest tests/python"
  begin=$SECONDS
  if tools/python.sh --setup >"$scratch/python.log" 2>&1; then
    # Long files first: else one of the two ends alone.
    .venv/bin/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --junit-xml="$scratch/python.xml" tests/python/machine \
      tests/python/trainers tests/python || true
    read_counts python --junit "$scratch/python.xml"
    # Without a report: pytest ended before its tests did.
    if ((now[0] + now[1] == 0)); then now=(0 1 0); fi
  else
    cat "$scratch/python.log"
    now=(0 1 0)
  fi
  count python "$begin"
fi

echo "== $SECONDS s in all: $(printf '%s, ' "${lasted[@]}")and what is around them"

cat "$scratch/failures"
echo "$passed passed, $failed failed"
((failed == 0))
