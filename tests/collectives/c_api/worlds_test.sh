#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# worlds_test.sh CALLBACKS MPI_RANKS: four ranks that are threads, processes over sockets and processes of MPI train to the same bits. The
# first program checks the first two against each other, and prints the digest of the weights; the second one is checked against that.

set -euo pipefail

# Open MPI keeps its sockets here, whose names may not be long.
scratch=$(mktemp -d /tmp/castor-mpi-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# As tests/collectives/mpi/mpi_communicator_test.sh has it.
export OMPI_MCA_btl_vader_backing_directory=$TMPDIR
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"
export TSAN_OPTIONS="${TSAN_OPTIONS-}:ignore_noninstrumented_modules=1:detect_deadlocks=0"
unset XML_OUTPUT_FILE TEST_PREMATURE_EXIT_FILE

digest=$("$PWD/$1")
[[ $digest =~ ^[0-9a-f]{16}$ ]] || {
  echo "$1 prints no digest: $digest" >&2
  exit 1
}
mpirun --oversubscribe -n 4 "$PWD/$2" "$digest"
mpirun --oversubscribe -n 1 "$PWD/$2" serialized
# And does not pass where bits differ.
if mpirun --oversubscribe -n 4 "$PWD/$2" 0123456789abcdef 2>/dev/null; then
  echo "$2 takes any digest" >&2
  exit 1
fi
