#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# The second step of tools/gpu_check.sh with scripts in the place of its programs: its rows on a machine without a GPU, on one with,
# where something fails, and where it is killed. The programs themselves are built and run by whoever has a GPU.

set -euo pipefail

directory=$TEST_TMPDIR/carried
mkdir -p "$directory" "$TEST_TMPDIR/bin"
cp tools/gpu_check.sh "$directory/"

# Reads $directory/mode: without, with, slow, broken, bare or hangs.
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
# benchmark PROGRAM COUNTERS LINE...: the header, then the lines, unless there is no GPU.
benchmark() {
  local -r header='name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,error_occurred,error_message'
  {
    echo '#!/bin/bash'
    echo 'mode=$(cat "${0%/*}/mode"); ratio=0.99; [[ $mode != slow ]] || ratio=0.5; [[ $mode != hangs ]] || sleep 60'
    echo "[[ \$mode != without ]] || { echo '$header'; echo '\"BM_None\",,,,,,,,true,\"unavailable: no CUDA device\"'; exit; }"
    echo "echo '$header,$2'"
    printf 'echo %q"$ratio"\n' "${@:3}"
  } >"$directory/$1"
}
benchmark copy_benchmark '"bare_B/s","castor_B/s","of_bare"' \
  '"BM_Copy/MiB:64/direction:2/iterations:11/manual_time",11,1.5,1,ms,,,,,,100e9,99e9,'
benchmark cuda_optimizer_benchmark '"copy_B/s","kernel_B/s","of_copy"' \
  '"BM_Optimizer/adamw/iterations:11/manual_time",11,1,1,ms,,,,,,4000e9,3800e9,'
benchmark engine_benchmark '"B/s","per_call","link_use"' \
  '"BM_Acquire/adopted:1/gathered:0/iterations:100/manual_time",100,1,1,ms,,,,,,4e9,2e-6,'
benchmark optimizer_benchmark '"of_triad"' '"adamw/threads:16/iterations:15/manual_time",15,1,1,ms,,,,,,'
chmod +x "$directory"/*
# A wheel, and what is measured with it.
mkdir -p "$directory/torch" "$TEST_TMPDIR/torches"
echo "there = True" >"$TEST_TMPDIR/castor_stub.py"
(cd "$TEST_TMPDIR" && python3 -m zipfile -c "$directory/torch/castor.whl" castor_stub.py)
cat >"$directory/torch/torch_gpu.py" <<'EOF'
import pathlib
import sys

import castor_stub

assert castor_stub.there
print("a library's own line")
print(f"{sys.argv[-1]}|ok|bits equal", flush=True)
if sys.argv[1] == "small" and (pathlib.Path(__file__).parents[1] / "mode").read_text() == "broken\n":
    sys.exit("no memory")
EOF
touch "$TEST_TMPDIR/torches/torch.py" "$TEST_TMPDIR/torches/transformers.py"
# No torch, wherever this machine may have one.
mkdir -p "$TEST_TMPDIR/no_torch"
echo "raise ImportError" >"$TEST_TMPDIR/no_torch/torch.py"
export PYTHONPATH=$TEST_TMPDIR/no_torch
# No compute-sanitizer, wherever this machine may have one.
export CUDA_HOME=$TEST_TMPDIR/none
export CASTOR_NCCL_LIBRARY=/my/libnccl.so.2

fail() {
  echo "$*"
  cat "$TEST_TMPDIR/out"
  exit 1
}
# check MODE EXIT ARGUMENT...: runs it, its output in $TEST_TMPDIR/out.
check() {
  local status=0
  echo "$1" >"$directory/mode"
  rm -f "$directory/gpu_rows.txt"
  "$directory/gpu_check.sh" run "$directory" "${@:3}" >"$TEST_TMPDIR/out" 2>&1 || status=$?
  ((status == $2)) || fail "$1: exit $status instead of $2"
}
says() { grep -Eq -- "$1" "$TEST_TMPDIR/out" || fail "it does not say: $1"; }
silent() { ! grep -Eq -- "$1" "$TEST_TMPDIR/out" || fail "it says: $1"; }

check without 5
says '^unavailable: no CUDA device can be used'
silent '^[0-9]+ [a-z]+, expected'

check without 0 --dry
says '^6 copies, expected: 50 GB/s'
says '^CUDA suites +not run +1 skipped'
says '^None +not run +unavailable: no CUDA device'
says '^NCCL contract, 4 ranks +'
silent 'FAILED'

check with 0
says '^kernels, lazy +ok +1 passed, 1 skipped'
says '^kernels, eager +ok'
says '^CUDA suites +ok +1 passed, 1 skipped'
says '^memcheck +not run +compute-sanitizer is not installed'
says '^NCCL contract, 4 ranks +ok +1 passed, 0 skipped, on each of 4 ranks'
says '^NCCL engine steps, 2 ranks +ok +1 passed'
says '^Copy/MiB:64/both +ok +of_bare 0.99 \(goal: 0.95\), bare_B/s 100.00 G, castor_B/s 99.00 G, 1.5 ms'
says '^Optimizer/adamw +ok +of_copy 0.99 \(goal: 0.85\), copy_B/s 4000.00 G'
says '^Acquire/adopted:1/gathered:0 +ok +per_call 2.00 u \(goal: below 6.00 u\)'
says '^host, adamw/threads:16 +ok +of_triad 0.99'
says '^8 connections, Acquire'
says "^torch +not run +this machine's python3 has no torch and transformers"
cmp <(grep -v '^rank' "$TEST_TMPDIR/out") "$directory/gpu_rows.txt" || fail "the file has other rows"

check with 0 --only 6,11
says '^Copy/MiB:64/both'
says '^Optimizer/adamw'
silent '^CUDA suites'
check with 2 --only copies

PYTHONPATH=$TEST_TMPDIR/torches check with 0 --only 4-5,10
says '^right, right +ok +bits equal'
says '^xl plain, plain +ok +bits equal'
says '^seven, seven +ok'
silent "a library's own line"
PYTHONPATH=$TEST_TMPDIR/torches check broken 1 --only 4-5
says '^small +FAILED +exit 1'
says '^no memory'
says '^seven, seven +ok'
PYTHONPATH=$TEST_TMPDIR/torches check without 0 --dry --only 4
says '^right, cpu +ok'

check slow 1
says '^Copy/MiB:64/both +below +of_bare 0.5'

check broken 1
says '^CUDA suites +FAILED +1 passed, 1 failed, 1 skipped \(exit 1\)'
says '^rank 1 has other bits'
says '^NCCL contract, 2 ranks +FAILED +1 of 2 ranks failed, the first passed 1'
says '^NCCL contract, 4 ranks +ok'

check bare 0
says '^NCCL contract, 1 ranks +not run +unavailable: there is no NCCL'

# A run that is killed keeps its rows, and another goes on behind them.
echo hangs >"$directory/mode"
rm -f "$directory/gpu_rows.txt"
timeout -s KILL 8 setsid "$directory/gpu_check.sh" run "$directory" --only 3,6 >"$TEST_TMPDIR/out" 2>&1 || true
grep -q '^CUDA suites *ok' "$directory/gpu_rows.txt" || fail "the rows are gone"
grep -q '^6 copies, expected' "$directory/gpu_rows.txt" || fail "the row under way is not told"
echo with >"$directory/mode"
"$directory/gpu_check.sh" run "$directory" --only 3,6 --resume >"$TEST_TMPDIR/out" 2>&1 || fail "it cannot go on"
silent '^CUDA suites'
says '^Copy/MiB:64/both +ok'

# A program that hangs ends with its row, and says where its threads are.
status=0
echo hangs >"$directory/mode"
GPU_CHECK_LIMIT_S=2 "$directory/gpu_check.sh" run "$directory" --only 6 >"$TEST_TMPDIR/out" 2>&1 || status=$?
((status == 1)) || fail "a hanging program: exit $status"
says '^copy_benchmark +FAILED +exit 124'
says '^-- process [0-9]+ is at its limit: .*copy_benchmark'

rm "$directory/cuda_test"
check with 2
says 'cuda_test is missing'
