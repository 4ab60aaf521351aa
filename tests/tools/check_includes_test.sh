#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# tools/check_includes.py on a small tree: what it refuses, and what not.

set -euo pipefail

check=$PWD/tools/check_includes.py
mkdir -p "$TEST_TMPDIR/tree/a" "$TEST_TMPDIR/tree/b"
cd "$TEST_TMPDIR/tree"

cat >answer.xml <<'END'
<query version="2">
  <rule class="cc_library" name="@system//:fmt">
    <list name="includes"><string value="fmt"/></list>
    <list name="hdrs"><label value="@system//:fmt/fmt/format.h"/></list>
  </rule>
  <rule class="cc_library" name="@system//:fmt_all">
    <list name="deps"><label value="@system//:fmt"/></list>
  </rule>
  <rule class="cc_library" name="//a:low">
    <list name="hdrs"><label value="//a:low.h"/></list>
  </rule>
  <rule class="cc_library" name="//a:middle">
    <list name="srcs"><label value="//a:middle.cc"/><label value="//a:middle_rest.cc"/><label value="//a:made.cc"/></list>
    <list name="hdrs"><label value="//a:middle.h"/></list>
    <list name="deps"><label value="//a:low"/><label value="@system//:fmt_all"/></list>
  </rule>
  <rule class="genrule" name="//a:make">
    <rule-output name="//a:made.cc"/>
  </rule>
  <rule class="_cuda_objects" name="//b:kernels_objects">
    <list name="srcs"><label value="//b:kernels.cu"/></list>
    <list name="deps"><label value="//a:middle"/></list>
  </rule>
  <rule class="cc_test" name="//b:test">
    <list name="srcs"><label value="//b:test.cc"/></list>
    <list name="deps"><label value="//a:middle"/></list>
  </rule>
</query>
END
echo '#include <vector>' >a/low.h
printf '#include <fmt/format.h>\n#include "a/low.h"\n' >a/middle.h
echo '#include "a/middle.h"' >a/middle.cc
echo '#include "a/low.h"' >a/middle_rest.cc
echo '#include "a/middle.h"' >b/kernels.cu
printf '#include <map>\n#include "a/middle.h"\n' >b/test.cc

# refuses LINE...: what the tree above is now refused for.
refuses() {
  local got
  if got=$("$check" answer.xml); then
    echo "nothing is refused where it should be: $*" >&2
    exit 1
  fi
  if [[ $got != "$(printf '%s\n' "$@")" ]]; then
    printf '%s\n' "refused:" "$got" "instead of:" "$@" >&2
    exit 1
  fi
}

"$check" answer.xml

# What a dependency depends on is not one's own.
printf '#include "a/middle.h"\n\n  #  include "a/low.h"\n' >b/test.cc
refuses 'b/test.cc:3: //b:test includes a/low.h, of //a:low, which is no direct dependency'
# The system's libraries neither, also in brackets.
echo '#include <fmt/format.h>' >b/test.cc
refuses 'b/test.cc:1: //b:test includes fmt/format.h, of @system//:fmt, which is no direct dependency'
echo '#include "a/nowhere.h"' >b/test.cc
refuses 'b/test.cc:1: //b:test includes a/nowhere.h, of no target, which is no direct dependency'
echo '#include "a/middle.h"' >b/test.cc

# In every file of a target, and for the device.
echo '#include "b/test.cc"' >a/middle_rest.cc
echo '#include "a/low.h"' >b/kernels.cu
refuses 'a/middle_rest.cc:1: //a:middle includes b/test.cc, of no target, which is no direct dependency' \
  'b/kernels.cu:1: //b:kernels_objects includes a/low.h, of //a:low, which is no direct dependency'

# An answer without targets is no answer.
echo '<query version="2"/>' >answer.xml
refuses 'only 0 targets were found, which cannot be all'
