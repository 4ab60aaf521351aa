#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Castor from nothing, without a GPU. Installs what is missing and builds; then, in about a minute: searches the chunk size of two models,
# trains a GPT of 28.6 million parameters on two ranks, each with 64 MiB on the device, 96 MiB in host memory and the rest on NVMe, reports
# where every chunk was, and shows that the weights are bit by bit those of a run that holds everything on the device.
#
#   tools/quickstart.sh
#
# The NVMe tier gets a new folder under $TMPDIR if that is set, else under .cache/ here; it is removed at the end, also after Ctrl-C. The
# record of the run and its page stay in .cache/quickstart/. Exit: 0 all went well, 1 a promise was broken, 2 usage, 5 this machine lacks something,
# 6 interrupted; otherwise that of the command that failed.

set -euo pipefail

if (($# > 0)); then
  echo "usage: tools/quickstart.sh (it takes no arguments)" >&2
  exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

castor=bazel-bin/tools/castor
keep=.cache/quickstart
parent=${TMPDIR:-$PWD/.cache}
digest_step=5
scratch=
child=
doing="starting"

say() { printf '\n== %s\n' "$*"; }

# fail CODE SENTENCE...
fail() {
  local code=$1
  shift
  echo "tools/quickstart.sh: $*" >&2
  exit "$code"
}

clean_up() {
  trap '' INT TERM HUP
  if [[ -n $child ]]; then
    # The trainer ends after the step under way.
    kill -TERM "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  if [[ -n $scratch ]]; then rm -rf "$scratch"; fi
}
trap clean_up EXIT
trap 'echo >&2; fail 6 "interrupted while $doing; run it again at any time"' INT TERM HUP

# run WHAT COMMAND...: as a child, so that a signal ends this script at once and the child with it, whichever of them got it.
run() {
  local status=0
  doing=$1
  shift
  "$@" &
  child=$!
  wait "$child" || status=$?
  child=
  if ((status != 0)); then fail "$status" "failed while $doing, with exit code $status; the reason is above. The command: $*"; fi
}

# train WHAT FLAG...: what both trainings have in common, and `WHAT` differ in. The summary goes to the standard output.
train() {
  local what=$1
  shift
  run "$what" bazel-bin/tools/examples/train_gpt --ranks 2 --batch 2 --seq 256 --stage 3 --digest-at "$digest_step" "$@"
}

# field PATTERN FILE: what follows PATTERN on the line that begins with it.
field() {
  local value
  value=$(sed -n "s/^$1//p" "$2")
  [[ -n $value ]] || fail 1 "the trainer's summary has no line that begins with '$1'; this script and train_gpt do not match"
  echo "$value"
}

# Not as a child in the background: sudo may ask for a password.
doing="installing packages"
tools/setup.sh build || fail $? "the packages that Castor is built with are not all there; see above"

say "bazel build //tools:castor //tools/examples:train_gpt (minutes the first time, seconds later)"
# Debian's Bazel, whatever else is called bazel here.
run "building" /usr/bin/bazel build --show_result=0 --noshow_loading_progress --ui_event_filters=-info \
  //tools:castor //tools/examples:train_gpt
began=$SECONDS

mkdir -p "$keep"
scratch=$(mktemp -d "$parent/castor-quickstart.XXXXXX") ||
  fail 5 "cannot create a folder in $parent; set TMPDIR to a folder on a drive where 1 GiB is free"
mkdir "$scratch/nvme"

for model in gpt2-xl llama-3-8b; do
  say "castor search tools/models/configs/$model"
  run "searching the chunk size of $model" "$castor" search "tools/models/configs/$model"
done

say "train_gpt: two ranks, each with 64 MiB on the device, 96 MiB in host memory, the rest in $scratch"
train "training under the budgets" --steps 30 --device-budget 64MiB --host-budget 96MiB --nvme "$scratch/nvme" \
  --record "$scratch/record" >"$scratch/tight"
cat "$scratch/tight"
mv "$scratch/record" "$keep/record"

say "castor report $keep/record"
run "reporting on the run" "$castor" report "$keep/record" --html "$keep/run.html"

say "train_gpt: the first $digest_step steps again, everything on the device"
train "training with everything on the device" --steps "$digest_step" >"$scratch/resident"
cat "$scratch/resident"

tight=$(field "weight digest after step $digest_step: " "$scratch/tight")
resident=$(field "weight digest after step $digest_step: " "$scratch/resident")
loss=$(field "mean loss " "$scratch/tight")

say "done in $((SECONDS - began)) s, building aside"
if [[ $tight != "$resident" ]]; then
  fail 1 "the weights after step $digest_step differ: digest $tight under the budgets, $resident with everything on the device. This is a" \
    "defect of Castor: please report it with $keep/record and the processor's name"
fi
echo "pictures of the run, for a browser: $PWD/$keep/run.html"
echo "weight digests after step $digest_step are equal: $tight under the budgets, $resident with everything on the device"
echo "mean loss $loss"
