#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Shows on a GPU what no other test can: the CUDA suites on hardware, compute-sanitizer, copies against the bare runtime's, kernels
# against the device's own copy, that GPU and CPU compute the same bits, and NCCL with one, two and four ranks on one GPU: the communicator
# contract, and engine steps against in-process ranks. NCCL is the one that $CASTOR_NCCL_LIBRARY names, or of this machine's Python, or
# the loader's. Ends with one table; a row of what was refused or missing says "not run" and why.
#
#   tools/gpu_check.sh build DIR   builds (Bazel, CUDA toolkit) and puts all that is needed into DIR, with this script: at most 64 MiB
#   DIR/gpu_check.sh run DIR       runs it on a machine that needs a GPU and its driver, and neither Bazel nor a network
#   tools/gpu_check.sh             both, on one machine
#
# Exit: 0 all rows hold, 1 one does not, 2 usage, 5 nothing could be run: no GPU, or no toolkit to build with.

set -euo pipefail

readonly PROGRAMS=(cuda_test cuda_hardware_test nccl_hardware_test cuda_copy_benchmark cuda_optimizer_benchmark)
readonly COPY_GOAL=0.95 KERNEL_GOAL=0.90 LIMIT_MIB=64

usage() {
  sed -n '5,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

build() {
  local directory=$1 bin library name size
  if [[ ! -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc ]]; then
    echo "no nvcc in ${CUDA_HOME:-/usr/local/cuda}/bin: install the CUDA toolkit, or set CUDA_HOME" >&2
    exit 5
  fi
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  # DT_RPATH, which also holds for the libraries of libraries.
  local -r flags=(--config=cuda '--linkopt=-Wl,-rpath,$ORIGIN,--disable-new-dtags')
  /usr/bin/bazel build "${flags[@]}" --color=no --curses=no --show_result=0 --noshow_loading_progress \
    //tests/tools/workspace:cuda_test //tests/offload/cuda:cuda_hardware_test //tests/collectives/nccl:nccl_hardware_test \
    //tools/bench:cuda_copy_benchmark //tools/bench:cuda_optimizer_benchmark
  bin=$(/usr/bin/bazel info "${flags[@]}" bazel-bin 2>/dev/null)
  mkdir -p "$directory"
  install -m 755 tools/gpu_check.sh "$directory/gpu_check.sh"
  for name in tests/tools/workspace/cuda_test tests/offload/cuda/cuda_hardware_test tests/collectives/nccl/nccl_hardware_test \
    tools/bench/cuda_{copy,optimizer}_benchmark; do
    install -m 755 "$bin/$name" "$directory/${name##*/}"
    strip "$directory/${name##*/}"
    # Everything but the C library, which belongs to the machine's loader.
    while read -r library; do
      case ${library##*/} in
        libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | ld-linux*) ;;
        *) install -m 644 "$library" "$directory/" ;;
      esac
    done < <(ldd "$bin/$name" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }')
  done
  size=$(du -sm "$directory" | cut -f1)
  if ((size > LIMIT_MIB)); then
    echo "$directory holds $size MiB, more than the $LIMIT_MIB MiB that can be carried" >&2
    exit 1
  fi
  echo "$directory holds $size MiB; on the machine with the GPU: $directory/gpu_check.sh run $directory"
}

rows=()
failed=0
ran=0
# row CHECK VERDICT FIGURES...
row() {
  rows+=("$(printf '%-34s %-8s %s' "$1" "$2" "${*:3}")")
  case $2 in
    FAILED) failed=1 ran=1 ;;
    "not run") ;;
    *) ran=1 ;;
  esac
}

# suite CHECK PROGRAM ARGUMENT...: one row for a run of GoogleTest.
suite() {
  local check=$1 passed skipped bad status=0
  shift
  "$@" >"$scratch/suite.log" 2>&1 || status=$?
  passed=$(grep -c '^\[       OK \]' "$scratch/suite.log" || true)
  skipped=$(grep -c '^\[  SKIPPED \] .*ms)' "$scratch/suite.log" || true)
  bad=$(sed -n 's/^ *\([0-9]*\) FAILED TESTS\{0,1\}$/\1/p' "$scratch/suite.log")
  if ((status != 0)); then
    grep -v '^\[ RUN\|^\[       OK' "$scratch/suite.log" | tail -40
    row "$check" FAILED "$passed passed, ${bad:-?} failed, $skipped skipped (exit $status)"
  elif ((passed == 0)); then
    row "$check" "not run" "$skipped skipped"
  else
    row "$check" ok "$passed passed, $skipped skipped"
  fi
}

# The NCCL to load: named, or of this machine's Python (PyTorch brings one). Nothing where neither is; the loader may have one yet.
nccl_library() {
  if [[ -n ${CASTOR_NCCL_LIBRARY-} ]]; then
    echo "$CASTOR_NCCL_LIBRARY"
  elif command -v python3 >/dev/null; then
    python3 -c '
import glob, os, site, sys
folders = sys.path + site.getsitepackages() + [site.getusersitepackages()]
found = [f for d in folders for f in glob.glob(os.path.join(d, "nvidia", "nccl", "lib", "libnccl.so.2"))]
print(found[0] if found else "")' 2>/dev/null || true
  fi
}

# ranks CHECK WORLD FILTER: one row for a run of GoogleTest by WORLD processes that share the GPU. NCCL_HOSTID has NCCL take them for
# hosts of their own: it refuses two ranks of one host on one GPU.
ranks() {
  local check=$1 world=$2 filter=$3 rank status=0 passed skipped bad=0 pids=()
  local -r files=$(mktemp -d "$scratch/ranks.XXXXXX")
  for ((rank = 0; rank < world; ++rank)); do
    NCCL_HOSTID="castor-$rank" CASTOR_TEST_RANK=$rank CASTOR_TEST_WORLD=$world CASTOR_TEST_ID_FILE=$files/id \
      timeout 600 "$directory/nccl_hardware_test" "--gtest_filter=$filter" >"$files/log.$rank" 2>&1 &
    pids+=($!)
  done
  for ((rank = 0; rank < world; ++rank)); do
    status=0
    wait "${pids[rank]}" || status=$?
    if ((status != 0)); then
      bad=$((bad + 1))
      echo "rank $rank of $world:"
      grep -v '^\[ RUN\|^\[       OK' "$files/log.$rank" | tail -40
    fi
  done
  passed=$(grep -c '^\[       OK \]' "$files/log.0" || true)
  skipped=$(grep -c '^\[  SKIPPED \] .*ms)' "$files/log.0" || true)
  if ((bad > 0)); then
    row "$check" FAILED "$bad of $world ranks failed, the first passed $passed"
  elif ((passed == 0)); then
    row "$check" "not run" "$(grep -v '^\[\|^Note\|^Running' "$files/log.0" | grep -m1 -i 'unavailable\|no \|see' || echo "$skipped skipped")"
  else
    row "$check" ok "$passed passed, $skipped skipped, on each of $world ranks"
  fi
}

# sanitized TOOL CHECK FILTER
sanitized() {
  local tool
  if ! tool=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null); then
    row "$2" "not run" "compute-sanitizer is not installed"
    return
  fi
  suite "$2" timeout 900 "$tool" --tool "$1" --error-exitcode 3 "$directory/cuda_hardware_test" "--gtest_filter=$3"
}

# benchmark PROGRAM RATIO OURS THEIRS GOAL: one row per benchmark, from the counters named.
benchmark() {
  local line name verdict figures
  if ! "$directory/$1" --benchmark_format=csv >"$scratch/bench.csv" 2>"$scratch/bench.log"; then
    tail -5 "$scratch/bench.log"
    row "$1" FAILED "it ended with an error"
    return
  fi
  while IFS='|' read -r name verdict figures; do
    row "$name" "$verdict" "$figures"
  done < <(awk -F, -v ratio="$2" -v ours="$3" -v theirs="$4" -v goal="$5" '
    function plain(text) { gsub(/"/, "", text); return text }
    plain($1) == "name" { for (i = 1; i <= NF; ++i) column[plain($i)] = i; begun = 1; next }
    !begun { next }
    {
      name = plain($1); sub(/^BM_/, "", name); sub(/\/iterations:.*/, "", name)
      sub(/direction:0/, "to", name); sub(/direction:1/, "from", name); sub(/direction:2/, "both", name)
      if (plain($column["error_occurred"]) == "true") { print name "|not run|" plain($column["error_message"]); next }
      value = $column[ratio] + 0
      printf "%s|%s|%.1f GB/s, %.1f%% of %.1f GB/s (goal %.0f%%)\n", name, (value >= goal ? "ok" : "below"),
        $column[ours] / 1e9, 100 * value, $column[theirs] / 1e9, 100 * goal
    }' "$scratch/bench.csv")
}

run() {
  directory=$(cd "$1" && pwd)
  local program reason
  for program in "${PROGRAMS[@]}"; do
    if [[ ! -x $directory/$program ]]; then
      echo "$directory/$program is missing: make the folder with tools/gpu_check.sh build $1" >&2
      exit 2
    fi
  done
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT

  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
  fi
  # One test tells whether there is a GPU: it is skipped, and says why.
  "$directory/cuda_hardware_test" --gtest_filter='*SaysWhatItIs*' >"$scratch/probe.log" 2>&1 || true
  if ! grep -q '^\[       OK \]' "$scratch/probe.log"; then
    reason=$(grep -m1 -i 'cuda' <(grep -v '^\[\|^Note' "$scratch/probe.log") || tail -1 "$scratch/probe.log")
    echo "$reason"
    for check in "toolchain" "CUDA suites" "memcheck" "racecheck" "GPU and CPU bits" "NCCL" "copies" "kernels"; do
      row "$check" "not run" "${reason%%. *}"
    done
  else
    suite "toolchain" "$directory/cuda_test"
    suite "CUDA suites" "$directory/cuda_hardware_test"
    sanitized memcheck memcheck '*ToTheHosts*:*AnyAddress*:CudaHardwareTest.*-*ALargeSum*'
    sanitized racecheck racecheck '*ToTheHosts*'
    suite "GPU and CPU bits" "$directory/cuda_hardware_test" '--gtest_filter=*ToTheHosts*:*TheHostsDigits*'
    CASTOR_NCCL_LIBRARY=$(nccl_library)
    export CASTOR_NCCL_LIBRARY
    for world in 1 2 4; do
      ranks "NCCL contract, $world ranks" "$world" '*CommunicatorContract*:*SaysWhatItIs*'
      ranks "NCCL engine steps, $world ranks" "$world" '*EngineSteps*'
    done
    benchmark cuda_copy_benchmark of_bare castor_B/s bare_B/s "$COPY_GOAL"
    benchmark cuda_optimizer_benchmark of_copy kernel_B/s copy_B/s "$KERNEL_GOAL"
  fi

  printf '\n%-34s %-8s %s\n' check result figures
  printf '%s\n' "${rows[@]}"
  if ((failed)); then exit 1; fi
  if ((!ran)); then exit 5; fi
  if printf '%s\n' "${rows[@]}" | grep -q '^.\{34\} below'; then exit 1; fi
}

case ${1-} in
  build) (($# == 2)) || usage && build "$(realpath -m "$2")" ;;
  run) (($# == 2)) || usage && run "$2" ;;
  "")
    both=$(mktemp -d)
    build "$both"
    status=0
    "$both/gpu_check.sh" run "$both" || status=$?
    rm -rf "$both"
    exit "$status"
    ;;
  *) usage ;;
esac
