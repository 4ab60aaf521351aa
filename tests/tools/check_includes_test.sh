#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# tools/check_includes.py on a small tree: what it refuses, and what not.

set -euo pipefail

check=$PWD/tools/check_includes.py
mkdir -p "$TEST_TMPDIR/tree/a" "$TEST_TMPDIR/tree/b" "$TEST_TMPDIR/tree/tests/b"
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
  <rule class="cc_binary" name="//b:program">
    <list name="srcs"><label value="//b:program.cc"/></list>
    <list name="deps"><label value="//a:middle"/></list>
  </rule>
  <rule class="cc_test" name="//tests/b:test">
    <list name="srcs"><label value="//tests/b:test.cc"/></list>
    <list name="deps"><label value="//a:middle"/></list>
  </rule>
</query>
END
echo '#include <vector>' >a/low.h
printf '#include <fmt/format.h>\n#include "a/low.h"\n' >a/middle.h
echo '#include "a/middle.h"' >a/middle.cc
echo '#include "a/low.h"' >a/middle_rest.cc
echo '#include "a/middle.h"' >b/kernels.cu
printf '#include <map>\n#include "a/middle.h"\n' >b/program.cc
# A test may include what its dependencies depend on.
echo '#include "a/low.h"' >tests/b/test.cc

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
printf '#include "a/middle.h"\n\n  #  include "a/low.h"\n' >b/program.cc
refuses 'b/program.cc:3: //b:program includes a/low.h, of //a:low, which is no direct dependency'
# The system's libraries neither, also in brackets.
echo '#include <fmt/format.h>' >b/program.cc
refuses 'b/program.cc:1: //b:program includes fmt/format.h, of @system//:fmt, which is no direct dependency'
echo '#include "a/nowhere.h"' >b/program.cc
refuses 'b/program.cc:1: //b:program includes a/nowhere.h, of no target, which is no direct dependency'
echo '#include "a/middle.h"' >b/program.cc

# In every file of a target, and for the device.
echo '#include "b/program.cc"' >a/middle_rest.cc
echo '#include "a/low.h"' >b/kernels.cu
refuses 'a/middle_rest.cc:1: //a:middle includes b/program.cc, of no target, which is no direct dependency' \
  'b/kernels.cu:1: //b:kernels_objects includes a/low.h, of //a:low, which is no direct dependency'

# The graph has an arrow for what nothing else implies, and a page that shows another is refused.
cat >graph.xml <<'END'
<query version="2">
  <rule class="cc_library" name="//chunk/base:base"/>
  <rule class="cc_library" name="//chunk:chunk"><list name="deps"><label value="//chunk/base:base"/></list></rule>
  <rule class="cc_library" name="//placement:placement"><list name="deps"><label value="//chunk:chunk"/></list></rule>
  <rule class="cc_library" name="//offload:memory_manager">
    <list name="deps"><label value="//chunk:chunk"/><label value="//placement:placement"/></list>
  </rule>
</query>
END
printf '%s\n' 'graph TD' '    offload/memory_manager --> placement' '    placement --> chunk' >expected
"$check" --graph graph.xml | diff expected -
printf '%s\n' 'A page.' '```mermaid' "$(cat expected)" '```' >CONTRIBUTING.md
"$check" graph.xml
sed -i 's/--> chunk/--> offload/' CONTRIBUTING.md
if "$check" graph.xml >said; then
  echo "a page that shows another graph passes" >&2
  exit 1
fi
grep -q 'CONTRIBUTING.md shows another graph' said
rm CONTRIBUTING.md

# An answer without targets is no answer.
echo '<query version="2"/>' >answer.xml
refuses 'only 0 targets were found, which cannot be all'
