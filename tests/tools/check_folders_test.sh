#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# tools/check_folders.py on a small tree: what it refuses, and what not.

set -euo pipefail

check=$PWD/tools/check_folders.py
mkdir -p "$TEST_TMPDIR/tree"
cd "$TEST_TMPDIR/tree"
export HOME=$PWD
git init -q .
mkdir -p chunk/layout chunk/search offload/copies many

fail() {
  echo "$1" >&2
  exit 1
}

# A door's own rest may include the door, and the door its rest.
echo '#include "chunk/layout/b.h"' >chunk/layout/a.h
echo '#include "chunk/a_door.h"' >chunk/layout/b.h
echo '#include "chunk/layout/a.h"' >chunk/search/c.cc
echo '' >chunk/a_door.h
echo '#include "offload/copies/rest.h"' >offload/memory_manager.cc
echo '#include "offload/memory_manager.h"' >offload/copies/rest.h
echo '' >offload/memory_manager.h
for i in $(seq 25); do touch "many/$i"; done
git add .
python3 "$check" || fail "a tree in order is refused"
python3 "$check" --graph | grep -qx 'chunk/search: chunk/layout' || fail "the graph lacks a folder"

touch many/26
git add .
python3 "$check" >said && fail "a folder of 26 files passes"
grep -q '^many has 26 files' said || fail "it does not say which folder"
git rm -q --cached many/26

echo '#include "chunk/search/d.h"' >>chunk/layout/a.h
echo '#include "chunk/layout/b.h"' >chunk/search/d.h
git add .
python3 "$check" >said && fail "a circle passes"
grep -q 'chunk/layout/a.h includes chunk/search/d.h' said || fail "it does not name the include: $(cat said)"
