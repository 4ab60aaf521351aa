#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# tools/check_folders.py on a small tree: what it refuses, and what not.

set -euo pipefail

check=$PWD/tools/check_folders.py
mkdir -p "$TEST_TMPDIR/tree/many/below"
cd "$TEST_TMPDIR/tree"
export HOME=$PWD
git init -q .

fail() {
  echo "$1" >&2
  exit 1
}

for i in $(seq 25); do touch "many/$i" "many/below/$i"; done
git add .
python3 "$check" || fail "a tree in order is refused"

touch many/26
git add .
python3 "$check" >said && fail "a folder of 26 files passes"
[[ $(cat said) == 'many has 26 files'* ]] || fail "it does not say which folder: $(cat said)"
