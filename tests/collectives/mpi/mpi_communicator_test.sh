#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# mpi_communicator_test.sh PROGRAM WORLD...: runs the program's tests by mpirun, once with each number of ranks, and sums up what
# rank 0 reports, a case for each test and number. Sanitizers see what they look for with three ranks soonest.

set -euo pipefail

program=$PWD/$1
shift
[[ -z ${ASAN_OPTIONS-}${TSAN_OPTIONS-} ]] || set -- 3

# Open MPI keeps its sockets here, whose names may not be long.
scratch=$(mktemp -d /tmp/castor-mpi-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Open MPI leaks, and unloads its modules before that is looked for, so that no suppression finds their names.
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"
export TSAN_OPTIONS="${TSAN_OPTIONS-}:ignore_noninstrumented_modules=1:detect_deadlocks=0"
# Each rank would write it.
report=${XML_OUTPUT_FILE-}
unset XML_OUTPUT_FILE TEST_PREMATURE_EXIT_FILE

failed=0
mpirun --oversubscribe -n 1 "$program" --few-threads || failed=1
for world in "$@"; do
  echo "== $world ranks"
  mpirun --oversubscribe -n "$world" "$program" --gtest_brief=1 --gtest_output="xml:$scratch/$world.xml" || failed=1
done
if [[ -n $report ]]; then
  {
    echo '<?xml version="1.0" encoding="UTF-8"?>'
    echo '<testsuites>'
    for world in "$@"; do
      [[ ! -e $scratch/$world.xml ]] || tail -n +2 "$scratch/$world.xml"
    done
    echo '</testsuites>'
  } >"$report"
fi
exit "$failed"
