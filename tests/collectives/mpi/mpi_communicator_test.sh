#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# mpi_communicator_test.sh PROGRAM [--large] WORLD...: runs the program's tests by mpirun, once with each number of ranks, and sums up what
# rank 0 reports, a case for each test and number; with --large those of transfers that take most of a machine's memory. Sanitizers see what they look for with three ranks soonest.

set -euo pipefail

program=$PWD/$1
shift
which=(--gtest_brief=1)
if [[ $1 == --large ]]; then
  which+=(--gtest_also_run_disabled_tests --gtest_filter='*MoreThanTwoGiB*')
  shift
elif [[ -n ${ASAN_OPTIONS-}${TSAN_OPTIONS-} ]]; then
  set -- 3
fi

# Open MPI keeps its sockets here, whose names may not be long.
scratch=$(mktemp -d /tmp/castor-mpi-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch
# Jobs whose process numbers are equal, as in sandboxes, would share what they keep in /dev/shm.
export OMPI_MCA_btl_vader_backing_directory=$scratch
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
  mpirun --oversubscribe -n "$world" "$program" "${which[@]}" --gtest_output="xml:$scratch/$world.xml" || failed=1
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
