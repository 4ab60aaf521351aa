#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# tools/quickstart.sh in a clone whose programs are scripts that write down how they were called: what it runs, how it fails, and what
# it leaves behind. The real programs are run by CI.

set -euo pipefail

clone=$TEST_TMPDIR/clone
mkdir -p "$clone/tools" "$clone/bazel-bin/tools/examples" "$TEST_TMPDIR/drive"
# A test cannot put a Bazel of its own in the place of Debian's.
sed "s|/usr/bin/bazel|$clone/bazel|" tools/quickstart.sh >"$clone/tools/quickstart.sh"

# Each stub appends to $clone/calls; a file named after what should go wrong makes it so.
cat >"$clone/tools/setup.sh" <<'END'
#!/bin/bash
echo "setup $*" >>calls
[[ ! -e no_packages ]] || exit 5
END
cat >"$clone/bazel" <<'END'
#!/bin/bash
echo "bazel $1" >>calls
END
cat >"$clone/bazel-bin/tools/castor" <<'END'
#!/bin/bash
echo "castor $*" >>calls
[[ ! -e no_$1 ]] || exit 4
[[ $1 != report || -s $2 ]]
END
cat >"$clone/bazel-bin/tools/examples/train_gpt" <<'END'
#!/bin/bash
where=resident
while (($#)); do
  case $1 in
    --nvme) where=tight nvme=$2 ;;
    --record) record=$2 ;;
    --steps) steps=$2 ;;
  esac
  shift
done
echo "train $where $steps" >>calls
if [[ $where == tight ]]; then
  echo bytes >"$nvme/bytes"
  echo record >"$record"
fi
if [[ -e hangs ]]; then
  trap 'echo "train was stopped" >>calls; exit 6' TERM
  touch started
  for ((i = 0; i < 600; ++i)); do sleep 0.1; done
fi
[[ ! -e train_fails ]] || exit 3
echo "mean loss of the first 5 steps 5.5, of the last 5 2.5"
[[ -e no_digest ]] || echo "weight digest after step 5: $([[ -e differs ]] && echo "$where" || echo 0123)"
END
chmod +x "$clone/tools/"*.sh "$clone/bazel" "$clone/bazel-bin/tools/castor" "$clone/bazel-bin/tools/examples/train_gpt"

prepare() {
  rm -rf "$clone"/{no_packages,no_search,no_report,hangs,train_fails,no_digest,differs,started,calls,.cache}
  local state
  for state in "$@"; do touch "$clone/$state"; done
  touch "$clone/calls"
}

# try STATE...: runs the script from another folder; leaves rc, the output and the calls.
try() {
  prepare "$@"
  rc=0
  (cd / && TMPDIR=$TEST_TMPDIR/drive "$clone/tools/quickstart.sh") >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err" </dev/null || rc=$?
  calls=$(tr '\n' ';' <"$clone/calls")
}

# expect WHAT GOT WANTED: equal, or wanted is a pattern.
expect() {
  # shellcheck disable=SC2053
  if [[ $2 != $3 ]]; then
    echo "$1: got '$2', wanted '$3'. Output:"
    cat "$TEST_TMPDIR/out" "$TEST_TMPDIR/err"
    exit 1
  fi
}

expect_nothing_left() {
  expect "$1: the drive is as it was" "$(ls "$TEST_TMPDIR/drive")" ""
}

try
expect "all goes well" "$rc" 0
expect "what is run" "$calls" "setup build;bazel build;castor search */gpt2-xl;castor search */llama-3-8b;train tight 30;\
castor report .cache/quickstart/record --html .cache/quickstart/run.html;train resident 5;"
expect "the digests are shown" "$(tail -n 2 "$TEST_TMPDIR/out" | head -n 1)" "weight digests after step 5 are equal: 0123*"
expect "the last line" "$(tail -n 1 "$TEST_TMPDIR/out")" "mean loss of the first 5 steps 5.5, of the last 5 2.5"
expect "where the drive's folder is" "$(cat "$TEST_TMPDIR/out")" "*$TEST_TMPDIR/drive/castor-quickstart.*"
expect "the record stays" "$(cat "$clone/.cache/quickstart/record")" record
expect_nothing_left "all goes well"

try differs
expect "weights differ" "$rc $(cat "$TEST_TMPDIR/err")" "1 *digest tight under the budgets, resident with everything*"
expect_nothing_left "weights differ"

try no_digest
expect "a trainer that prints no digest" "$rc $(cat "$TEST_TMPDIR/err")" "1 *no line that begins with 'weight digest after step 5: '*"

try train_fails
expect "the training fails" "$rc $(cat "$TEST_TMPDIR/err")" "3 *failed while training under the budgets, with exit code 3;*"
expect_nothing_left "the training fails"

try no_packages
expect "packages are missing" "$rc $calls" "5 setup build;"

try no_search
expect "a search fails" "$rc $calls" "4 *search */gpt2-xl;"

try no_report
expect "the report fails" "$rc $calls" "4 *;castor report *;"
expect_nothing_left "the report fails"

rc=0
TMPDIR=$TEST_TMPDIR/nowhere "$clone/tools/quickstart.sh" >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err" || rc=$?
expect "no such folder" "$rc $(cat "$TEST_TMPDIR/err")" "5 *cannot create a folder in $TEST_TMPDIR/nowhere*"

rc=0
"$clone/tools/quickstart.sh" now 2>"$TEST_TMPDIR/err" || rc=$?
expect "arguments" "$rc" 2

# Job control, or a child of this script would ignore SIGINT.
set -m
for signal in INT TERM HUP; do
  prepare hangs
  TMPDIR=$TEST_TMPDIR/drive "$clone/tools/quickstart.sh" >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/err" </dev/null &
  for ((i = 0; i < 300; ++i)); do
    [[ ! -e $clone/started ]] || break
    sleep 0.1
  done
  kill -s "$signal" $!
  rc=0
  wait $! || rc=$?
  expect "SIG$signal" "$rc $(cat "$TEST_TMPDIR/err")" "6 *interrupted while training under the budgets*"
  expect "SIG$signal reaches the trainer" "$(tail -n 1 "$clone/calls")" "train was stopped"
  expect_nothing_left "SIG$signal"
done
