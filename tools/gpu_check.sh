#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Shows on a GPU what no other test can, within half an hour. The rows that decide most come first. Each row says what was expected, before it is
# run, and is printed and written to DIR/gpu_rows.txt as soon as it is measured. So a run that is killed keeps its rows, and `--resume` goes on
# behind them. A row has a limit of its own: a program that reaches the limit says where its threads are, and ends.
#
#    1 machine       driver, PCIe, C library, NUMA
#    2 kernels       a kernel of each type, loaded lazily and eagerly; streams that wait for the host
#    3 suites        the device contract and everything else of the CUDA suites
#    4 torch         the PyTorch package: the plain script's losses, the same bits wherever chunks live, memory within budgets
#    5 seven         a model of 7B parameters in bf16, 28 GiB of the device
#    6 copies        1 to 512 MiB, next to the bare runtime
#    7 calls         a hop to the host, the issue of a copy, the acquire of what is there
#    8 step          training steps of a billion bf16 parameters whose states are on the host
#    9 nccl          1, 2 and 4 ranks on one GPU: the communicator contract, and engine steps to the bits of in-process ranks
#   10 peers         GPT-2 XL next to plain PyTorch and FSDP2; a budget that the first step measures
#   11 updates       optimizers and conversions, next to the device's own copy
#   12 pin           1, 16 and 64 GiB of pinned memory
#   13 connections   row 8 with CUDA_DEVICE_MAX_CONNECTIONS of 1, 2, 8 and 32
#   14 sanitizer     compute-sanitizer's memcheck and racecheck
#
#   tools/gpu_check.sh build DIR           builds (Bazel, CUDA toolkit) and puts all that is needed into DIR: at most 50 MiB
#   DIR/gpu_check.sh run DIR [--only ROWS] [--resume] runs it on a machine that needs a GPU and its driver, and neither Bazel nor a network;
#                                          ROWS: numbers and ranges, such as 1-7,9; --resume: those that gpu_rows.txt lacks
#   DIR/gpu_check.sh run DIR --dry         without a GPU: what each row expects, and every program as far as its first call of CUDA
#   tools/gpu_check.sh                     build and run, on one machine; the rows are in gpu_rows.txt of the repository
#
# NCCL is the one that $CASTOR_NCCL_LIBRARY names, or of this machine's Python, or the loader's. Exit: 0 all rows hold, 1 one does not,
# 2 usage, 5 nothing could be run: no GPU, or no toolkit to build with.

set -euo pipefail

readonly TARGETS=(
  //tests/tools/workspace:cuda_test
  //tests/offload/cuda:cuda_hardware_test
  //tests/collectives/nccl:nccl_hardware_test
  //tools/bench:copy_benchmark
  //tools/bench:engine_benchmark
  //tools/bench:cuda_optimizer_benchmark
  //tools/bench:optimizer_benchmark
)
readonly LIMIT_MIB=50
readonly ROWS=(machine kernels suites torch seven copies calls step nccl peers updates pin connections sanitizer)
readonly LIMITS=(20 60 60 240 480 60 30 90 200 300 30 60 90 60) # seconds of a row, half an hour in all

usage() {
  sed -n '/^#    1/,/^# 2 usage/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

build() {
  local directory=$1 bin library target name size
  if [[ ! -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc ]]; then
    echo "no nvcc in ${CUDA_HOME:-/usr/local/cuda}/bin: install the CUDA toolkit, or set CUDA_HOME" >&2
    exit 5
  fi
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  # DT_RPATH, which also holds for the libraries of libraries.
  local -r flags=(--config=cuda '--linkopt=-Wl,-rpath,$ORIGIN,--disable-new-dtags')
  /usr/bin/bazel build "${flags[@]}" --color=no --curses=no --show_result=0 --noshow_loading_progress \
    "${TARGETS[@]}"
  bin=$(/usr/bin/bazel info "${flags[@]}" bazel-bin 2>/dev/null)
  mkdir -p "$directory"
  install -m 755 tools/gpu_check.sh "$directory/gpu_check.sh"
  for target in "${TARGETS[@]}"; do
    name=${target#//}
    name=${name/:/\/}
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
  mkdir -p "$directory/torch/tests"
  rm -f "$directory"/torch/*.whl
  tools/wheel.sh "$directory/torch" >/dev/null
  install -m 644 tools/bench/torch/torch_gpu.py "$directory/torch/"
  install -m 644 tests/python/helpers/models.py tests/python/helpers/harness.py "$directory/torch/tests/"
  size=$(du -sm "$directory" | cut -f1)
  if ((size > LIMIT_MIB)); then
    echo "$directory holds $size MiB, more than the $LIMIT_MIB MiB that can be carried" >&2
    exit 1
  fi
  echo "$directory holds $size MiB; on the machine with the GPU: $directory/gpu_check.sh run $directory"
}

failed=0
ran=0
below=0
dry=false
# say TEXT: a line for people and for the file.
say() {
  printf '%s\n' "$1" | tee -a "$file"
}
# row CHECK VERDICT FIGURES...
row() {
  say "$(printf '%-34s %-8s %s' "$1" "$2" "${*:3}")"
  case $2 in
    FAILED) failed=1 ran=1 ;;
    "not run") ;;
    below) below=1 ran=1 ;;
    *) ran=1 ;;
  esac
}

# Where the threads of a process are, as far as this machine can tell.
stacks() {
  local task
  echo "-- process $1 is at its limit: $(tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null)"
  if command -v gdb >/dev/null; then
    timeout -k 2 20 gdb -p "$1" -batch -ex 'thread apply all backtrace 12' 2>/dev/null | grep -E '^(Thread|#)' || true
    return
  fi
  for task in "/proc/$1/task"/*; do
    echo "thread ${task##*/} ($(cat "$task/comm" 2>/dev/null)): $(cat "$task/wchan" 2>/dev/null), system call $(cut -d' ' -f1 "$task/syscall" 2>/dev/null)"
  done
}

# limited COMMAND...: runs it within what is left of the row's time. One that reaches the limit tells its stacks into $scratch/stacks, and a Python
# program its own to the standard error; exit 124.
limited() {
  local pid children naps=0 status=0
  "$@" &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    if ((SECONDS >= row_limit_s)); then
      stacks "$pid" >>"$scratch/stacks" 2>&1
      children=$(pgrep -P "$pid" || true)
      kill -ABRT "$pid" 2>/dev/null || true
      sleep 1
      # shellcheck disable=SC2086
      kill -KILL "$pid" $children 2>/dev/null || true
      wait "$pid" 2>/dev/null || true
      return 124
    fi
    if ((++naps < 50)); then sleep 0.02; else sleep 0.2; fi
  done
  wait "$pid" || status=$?
  return "$status"
}

# suite CHECK PROGRAM ARGUMENT...: one row for a run of GoogleTest.
suite() {
  local check=$1 passed skipped bad status=0
  shift
  limited "$@" >"$scratch/suite.log" 2>&1 || status=$?
  passed=$(grep -c '^\[       OK \]' "$scratch/suite.log" || true)
  skipped=$(grep -c '^\[  SKIPPED \] .*ms)' "$scratch/suite.log" || true)
  bad=$(sed -n 's/^ *\([0-9]*\) FAILED TESTS\{0,1\}$/\1/p' "$scratch/suite.log")
  if ((status != 0)); then
    grep -v '^\[ RUN\|^\[       OK' "$scratch/suite.log" | tail -40
    grep '^\[ RUN' "$scratch/suite.log" | tail -1 || true
    row "$check" FAILED "$passed passed, ${bad:-?} failed, $skipped skipped (exit $status)"
  elif ((passed == 0)); then
    row "$check" "not run" "$skipped skipped"
  else
    row "$check" ok "$passed passed, $skipped skipped"
  fi
}

# measure CHECK PROGRAM FILTER COUNTER GOAL: a row for each benchmark that the filter takes, as it ends. COUNTER is to be GOAL at least, or
# below N where GOAL is <N; without a goal the row only says what was measured.
measure() {
  local check=$1 program=$2 filter=$3 counter=$4 goal=$5 name verdict figures
  echo 0 >"$scratch/status"
  while IFS='|' read -r name verdict figures; do
    row "${check:+$check, }$name" "$verdict" "$figures"
  done < <({
    limited "$directory/$program" --benchmark_format=csv "--benchmark_filter=$filter" 2>"$scratch/bench.log" ||
      echo $? >"$scratch/status"
  } | awk -F, -v counter="$counter" -v goal="$goal" '
    function plain(text) { gsub(/"/, "", text); return text }
    function short(x) {
      if (x >= 1e9) return sprintf("%.2f G", x / 1e9)
      if (x >= 1e6) return sprintf("%.2f M", x / 1e6)
      if (x >= 0.01 || x == 0) return sprintf("%.4g", x)
      if (x >= 1e-3) return sprintf("%.2f m", x * 1e3)
      return sprintf("%.2f u", x * 1e6)
    }
    plain($1) == "name" { n = NF; for (i = 1; i <= NF; ++i) { title[i] = plain($i); column[title[i]] = i }; next }
    !n { next }
    {
      name = plain($1); sub(/^BM_/, "", name); sub(/\/iterations:.*/, "", name)
      sub(/direction:0/, "to", name); sub(/direction:1/, "from", name); sub(/direction:2/, "both", name)
      if (plain($column["error_occurred"]) == "true") { print name "|not run|" plain($column["error_message"]); fflush(); next }
      verdict = "measured"; wanted = ""
      if (goal != "") {
        value = $column[counter] + 0
        holds = goal ~ /^</ ? value < substr(goal, 2) + 0 : value >= goal + 0
        verdict = holds ? "ok" : "below"
        wanted = goal ~ /^</ ? " (goal: below " short(substr(goal, 2) + 0) ")" : " (goal: " short(goal + 0) ")"
      }
      figures = ""
      if (counter in column) figures = counter " " short($column[counter] + 0) wanted ", "
      for (i = column["error_message"] + 1; i <= n; ++i) {
        if (title[i] != counter && $i != "") figures = figures title[i] " " short($i + 0) ", "
      }
      printf "%s|%s|%s%.4g %s\n", name, verdict, figures, $column["real_time"], $column["time_unit"]
      fflush()
    }')
  if [[ $(cat "$scratch/status") != 0 ]]; then
    tail -5 "$scratch/bench.log"
    row "${check:+$check, }$program" FAILED "exit $(cat "$scratch/status")"
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
      limited "$directory/nccl_hardware_test" "--gtest_filter=$filter" >"$files/log.$rank" 2>&1 &
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
  suite "$2" "$tool" --tool "$1" --error-exitcode 3 "$directory/cuda_hardware_test" "--gtest_filter=$3"
}

# Below, a function for each row, and what is expected of it on an H100: PCIe 5 x16, 3.35 TB/s.

machine_expects="PCIe 5 x16, glibc 2.36 or newer"
machine() {
  local gpu=none
  if command -v nvidia-smi >/dev/null; then
    gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.current --format=csv,noheader || true)
  fi
  row "GPU, driver, memory, PCIe, width" measured "$gpu"
  row "C library" measured "$(ldd --version 2>&1 | head -1)"
  row "processors, NUMA nodes" measured "$(nproc), $(find /sys/devices/system/node -maxdepth 1 -name 'node[0-9]*' | wc -l)"
  row "memory, lock limit" measured "$(awk '/MemAvailable/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo), $(ulimit -l) KiB"
}

kernels_expects="each within its limit, lazily and eagerly; nothing hangs"
kernels() {
  suite toolchain "$directory/cuda_test"
  local loading
  for loading in LAZY EAGER; do
    CUDA_MODULE_LOADING=$loading suite "kernels, ${loading,,}" "$directory/cuda_hardware_test" \
      '--gtest_filter=*FirstLaunch*:*LateCopy*:*ToTheHosts*:*HostEvent*:*FailedWait*:*Capture*'
  done
}

suites_expects="all pass"
suites() { suite "CUDA suites" "$directory/cuda_hardware_test"; }

copies_expects="50 GB/s from 64 MiB on, one way; 95 % of the bare runtime at every size"
copies() { measure "" copy_benchmark BM_Copy of_bare 0.95; }

pin_expects="3 GB/s or more: 64 GiB in 20 s"
pin() { measure "" engine_benchmark BM_Pin B/s 3e9; }

updates_expects="85 % of the bytes per second of a copy within the device, which has 2.8 TB/s"
updates() { measure "" cuda_optimizer_benchmark . of_copy 0.85; }

calls_expects="a hop under 60 us, the issue of a copy under 5 us, an acquire under 6 us"
calls() {
  measure "" engine_benchmark BM_HostHop per_call "<60e-6"
  measure "" engine_benchmark BM_IssueCopy per_call "<5e-6"
  measure "" engine_benchmark 'BM_Acquire/.*/gathered:0' per_call "<6e-6"
}

step_expects="80 % of the link at 64 MiB, 60 % at 16 MiB; 85 % of the host's memory bandwidth by AdamW"
step() {
  measure "" engine_benchmark BM_EngineStep/MiB:16 link_use 0.6
  measure "" engine_benchmark BM_EngineStep/MiB:64 link_use 0.8
  measure "" engine_benchmark BM_EngineStep/MiB:256 link_use 0.8
  # Threads as the host has processors; in a dry run there is nothing to see.
  $dry || measure host optimizer_benchmark ^adamw/threads of_triad 0.85
}

connections_expects="80 % of the link from 8 connections on, and no hang at 1"
connections() {
  local count
  for count in 1 2 8 32; do
    export CUDA_DEVICE_MAX_CONNECTIONS=$count
    measure "$count connections" engine_benchmark BM_EngineStep/MiB:64/adopted:1/recorded:0 link_use \
      "$( ((count < 8)) || echo 0.8)"
  done
  unset CUDA_DEVICE_MAX_CONNECTIONS
}

nccl_expects="all pass, bits of in-process ranks"
nccl() {
  CASTOR_NCCL_LIBRARY=$(nccl_library)
  export CASTOR_NCCL_LIBRARY
  local world
  for world in 1 2 4; do
    ranks "NCCL contract, $world ranks" "$world" '*CommunicatorContract*:*SaysWhatItIs*'
    ranks "NCCL engine steps, $world ranks" "$world" '*EngineSteps*'
  done
}

# of_torch SUBJECT...: rows of the PyTorch package, from torch_gpu.py.
of_torch() {
  local what name verdict figures
  if ! python3 -c 'import torch, transformers' 2>/dev/null; then
    row torch "not run" "this machine's python3 has no torch and transformers"
    return
  fi
  [[ -d $scratch/site ]] || python3 -m zipfile -e "$directory"/torch/*.whl "$scratch/site"
  # cuBLAS gives the same bits each time with this, and torch asks for it.
  local -r settings=(CUBLAS_WORKSPACE_CONFIG=:4096:8 PYTHONFAULTHANDLER=1 "PYTHONPATH=$scratch/site${PYTHONPATH:+:$PYTHONPATH}")
  for what in "$@"; do
    echo 0 >"$scratch/status"
    while IFS='|' read -r name verdict figures; do
      row "$what, $name" "$verdict" "$figures"
    done < <({
      # shellcheck disable=SC2086
      limited env "${settings[@]}" python3 "$directory/torch/torch_gpu.py" $what $($dry && echo --device cpu) 2>"$scratch/torch.log" ||
        echo $? >"$scratch/status"
    } | grep '|')
    if [[ $(cat "$scratch/status") != 0 ]]; then
      tail -40 "$scratch/torch.log"
      row "$what" FAILED "exit $(cat "$scratch/status")"
    fi
  done
}

torch_expects="losses of the plain script, whatever else it does, equal bits wherever chunks live, memory within budgets"
torch() { of_torch right ways small; }

seven_expects="trains within 28 GiB of the device and 80 GiB of host memory, once 6.7 billion weights are drawn"
seven() { of_torch seven; }

peers_expects="GPT-2 XL offloaded at half of resident's speed or more; resident at 90 % of plain's"
peers() { of_torch auto "xl plain" "xl resident" "xl offloaded" "xl fsdp2"; }

sanitizer_expects="no error"
sanitizer() {
  sanitized memcheck memcheck '*ToTheHosts*:*AnyAddress*:CudaHardwareTest.*-*ALargeSum*'
  sanitized racecheck racecheck '*ToTheHosts*'
}

# chosen NUMBER LIST: whether LIST, of numbers and ranges, has NUMBER.
chosen() {
  local part
  for part in ${2//,/ }; do
    if (($1 >= ${part%-*} && $1 <= ${part#*-})); then return 0; fi
  done
  return 1
}

run() {
  directory=$(cd "$1" && pwd)
  shift
  local only=1-${#ROWS[@]} target number name expects resume=false
  while (($#)); do
    case $1 in
      --dry) dry=true ;;
      --only) shift && only=${1-} ;;
      --resume) resume=true ;;
      *) usage ;;
    esac
    shift
  done
  [[ $only =~ ^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$ ]] || usage
  for target in "${TARGETS[@]}"; do
    if [[ ! -x $directory/${target##*:} ]]; then
      echo "$directory/${target##*:} is missing: make the folder with tools/gpu_check.sh build $directory" >&2
      exit 2
    fi
  done
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  file=${GPU_ROWS:-$directory/gpu_rows.txt}
  if ! $dry; then
    # One test tells whether there is a GPU: it is skipped, and says why.
    timeout -k 5 60 "$directory/cuda_hardware_test" --gtest_filter='*SaysWhatItIs*' >"$scratch/probe.log" 2>&1 || true
    if ! grep -q '^\[       OK \]' "$scratch/probe.log"; then
      grep -m1 -i 'cuda' <(grep -v '^\[\|^Note' "$scratch/probe.log") || tail -1 "$scratch/probe.log"
      exit 5
    fi
  fi
  for ((number = 1; number <= ${#ROWS[@]}; ++number)); do
    chosen "$number" "$only" || continue
    name=${ROWS[number - 1]}
    if $resume && grep -q "^$number $name took" "$file" 2>/dev/null; then continue; fi
    expects=${name}_expects
    say "$number $name, expected: ${!expects}"
    SECONDS=0
    row_limit_s=${GPU_CHECK_LIMIT_S:-${LIMITS[number - 1]}}
    : >"$scratch/stacks"
    "$name"
    if [[ -s $scratch/stacks ]]; then say "$(cat "$scratch/stacks")"; fi
    say "$number $name took $SECONDS s"
  done
  if ((failed || below)); then exit 1; fi
  if ((!ran)); then exit 5; fi
}

case ${1-} in
  build) (($# == 2)) || usage && build "$(realpath -m "$2")" ;;
  run) (($# >= 2)) || usage && run "${@:2}" ;;
  "")
    both=$(mktemp -d)
    build "$both"
    status=0
    GPU_ROWS=$PWD/gpu_rows.txt "$both/gpu_check.sh" run "$both" || status=$?
    rm -rf "$both"
    exit "$status"
    ;;
  *) usage ;;
esac
