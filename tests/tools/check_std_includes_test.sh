#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# tools/check_std_includes.py on a small tree: what it refuses, and what not.

set -euo pipefail

check=$PWD/tools/check_std_includes.py
mkdir -p "$TEST_TMPDIR/tree"
cd "$TEST_TMPDIR/tree"

fail() {
  echo "$1" >&2
  exit 1
}

printf '#include <vector>\n#include <string>\n' >a.h
printf '#include "a.h"\n' >b.h
printf '#include "b.h"\nstd::vector<std::string_view> v;  // not a std::map\n' >good.cc
python3 "$check" good.cc || fail "what headers of ours include is refused"

printf '#include "b.h"\n\nstd::vector<std::span<int>> v;\n' >bad.cc
python3 "$check" good.cc bad.cc >said && fail "a name without its header passes"
[[ $(cat said) == 'bad.cc:3: std::span without <span>' ]] || fail "it says something else: $(cat said)"

printf '#include <algorithm>\nvoid f() { std::ranges::stable_sort(v); }\n' >refused.cc
python3 "$check" good.cc refused.cc >said && fail "a sort that clang 19 refuses passes"
[[ $(cat said) == 'refused.cc:2: std::stable_sort: '* ]] || fail "it says something else: $(cat said)"
