#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# The second step of tools/gpu_check.sh with scripts in the place of its programs: its table on a machine without a GPU, on one with, and
# where something fails. The programs themselves are built and run by whoever has a GPU.

set -euo pipefail

directory=$TEST_TMPDIR/carried
mkdir -p "$directory" "$TEST_TMPDIR/bin"
cp tools/gpu_check.sh "$directory/"

# Reads $directory/mode: without, with, slow or broken.
cat >"$directory/cuda_hardware_test" <<'END'
#!/bin/bash
mode=$(cat "${0%/*}/mode")
echo "Running main() from gmock_main.cc"
if [[ $mode == without ]]; then
  echo "unavailable: no CUDA device can be used: cudaErrorInsufficientDriver"
  echo "[  SKIPPED ] Gpu/DeviceContract.SaysWhatItIs/Cuda0 (0 ms)"
  exit 0
fi
echo "[       OK ] Gpu/DeviceContract.SaysWhatItIs/Cuda0 (1 ms)"
echo "[  SKIPPED ] Gpu/DeviceContract.ABrokenDevice/Cuda0 (1 ms)"
if [[ $mode == broken && $* != *SaysWhatItIs* ]]; then
  echo " 1 FAILED TEST"
  exit 1
fi
END
cat >"$directory/cuda_test" <<'END'
#!/bin/bash
echo "[       OK ] CudaTest.Runs (1 ms)"
END
# Without NCCL where mode is bare; the second of two ranks fails where it is broken.
cat >"$directory/nccl_hardware_test" <<'END'
#!/bin/bash
mode=$(cat "${0%/*}/mode")
if [[ $mode == bare ]]; then
  echo "unavailable: there is no NCCL: libnccl.so.2: cannot open shared object file"
  echo "[  SKIPPED ] NcclHardwareTest.SaysWhatItIs (0 ms)"
  exit 0
fi
[[ $NCCL_HOSTID == castor-$CASTOR_TEST_RANK && -d ${CASTOR_TEST_ID_FILE%/*} && $CASTOR_NCCL_LIBRARY == /my/libnccl.so.2 ]] || exit 3
if [[ $mode == broken && $CASTOR_TEST_RANK-$CASTOR_TEST_WORLD == 1-2 ]]; then
  echo "rank 1 has other bits"
  exit 1
fi
echo "[       OK ] Nccl/CommunicatorContract.Barriers/Exact (1 ms)"
END
header='name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,error_occurred,error_message'
cat >"$directory/cuda_copy_benchmark" <<END
#!/bin/bash
echo '$header,"bare_B/s","castor_B/s","of_bare"'
ratio=0.99
[[ \$(cat "\${0%/*}/mode") != slow ]] || ratio=0.5
echo '"BM_Copy/MiB:64/direction:2/iterations:11/manual_time",11,1,1,ms,,,,,,100e9,99e9,'\$ratio
END
cat >"$directory/cuda_optimizer_benchmark" <<END
#!/bin/bash
echo '$header,"copy_B/s","kernel_B/s","of_copy"'
echo '"BM_Optimizer/adamw/iterations:11/manual_time",11,1,1,ms,,,,,,4000e9,3800e9,0.95'
END
chmod +x "$directory"/cuda_* "$directory"/nccl_*
# No compute-sanitizer, wherever this machine may have one.
export CUDA_HOME=$TEST_TMPDIR/none
export CASTOR_NCCL_LIBRARY=/my/libnccl.so.2

fail() {
  echo "$*"
  cat "$TEST_TMPDIR/out"
  exit 1
}
# check MODE EXIT: runs it, its output in $TEST_TMPDIR/out.
check() {
  local status=0
  echo "$1" >"$directory/mode"
  "$directory/gpu_check.sh" run "$directory" >"$TEST_TMPDIR/out" 2>&1 || status=$?
  ((status == $2)) || fail "$1: exit $status instead of $2"
}
says() { grep -Eq -- "$1" "$TEST_TMPDIR/out" || fail "it does not say: $1"; }

check without 5
says '^memcheck +not run +unavailable: no CUDA device can be used'
says '^kernels +not run'
says '^NCCL +not run +unavailable: no CUDA device can be used'

check with 0
says '^CUDA suites +ok +1 passed, 1 skipped'
says '^memcheck +not run +compute-sanitizer is not installed'
says '^GPU and CPU bits +ok +1 passed'
says '^NCCL contract, 4 ranks +ok +1 passed, 0 skipped, on each of 4 ranks'
says '^NCCL engine steps, 2 ranks +ok +1 passed'
says '^Copy/MiB:64/both +ok +99.0 GB/s, 99.0% of 100.0 GB/s \(goal 95%\)'
says '^Optimizer/adamw +ok +3800.0 GB/s, 95.0% of 4000.0 GB/s'

check slow 1
says '^Copy/MiB:64/both +below +99.0 GB/s, 50.0%'

check broken 1
says '^CUDA suites +FAILED +1 passed, 1 failed, 1 skipped \(exit 1\)'
says '^rank 1 has other bits'
says '^NCCL contract, 2 ranks +FAILED +1 of 2 ranks failed, the first passed 1'
says '^NCCL contract, 4 ranks +ok'

check bare 0
says '^NCCL contract, 1 ranks +not run +unavailable: there is no NCCL'

rm "$directory/cuda_test"
check with 2
says 'cuda_test is missing'
