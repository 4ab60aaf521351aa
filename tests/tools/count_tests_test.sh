#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# tools/count_tests.py on the events of one run that has each kind of end.

set -euo pipefail

xml=$TEST_TMPDIR/with%20space
mkdir "$TEST_TMPDIR/with space"

# A leak: every case passed, the process did not.
cat >"$TEST_TMPDIR/with space/leak.xml" <<'END'
<testsuites><testsuite name="A"><testcase classname="A" name="One" status="run" result="completed"/></testsuite></testsuites>
END
# Two passed, one failed, one skipped, one disabled.
cat >"$TEST_TMPDIR/with space/mixed.xml" <<'END'
<testsuites><testsuite name="A">
  <testcase classname="A" name="One" status="run" result="completed"/>
  <testcase classname="A" name="Two" status="run" result="completed"/>
  <testcase classname="A" name="Three" status="run" result="completed"><failure message="x"/><failure message="y"/></testcase>
  <testcase classname="A" name="Four" status="run" result="skipped"><skipped message="no device"/></testcase>
  <testcase classname="A" name="DISABLED_Five" status="notrun" result="suppressed"/>
</testsuite></testsuites>
END
printf 'ran\nwas killed\n' >"$TEST_TMPDIR/with space/log"
printf '<testsuites><testsuite' >"$TEST_TMPDIR/with space/cut.xml"

# result LABEL SHARD STATUS XML: a testResult event.
result() {
  printf '{"id":{"testResult":{"label":"%s","run":1,"shard":%d}},"testResult":{"status":"%s","testActionOutput":[%s]}}\n' \
    "$1" "$2" "$3" '{"name":"test.log","uri":"file://'"$xml/log"'"},{"name":"test.xml","uri":"file://'"$xml/$4"'"}'
}
{
  echo '{"id":{"targetCompleted":{"label":"//a:mixed"}},"completed":{"success":true}}'
  echo '{"id":{"targetCompleted":{"label":"//a:does_not_compile"}},"completed":{}}'
  echo '{"id":{"targetCompleted":{"label":"//a:needs_cuda"}},"aborted":{"reason":"SKIPPED"}}'
  result //a:mixed 1 FAILED mixed.xml
  result //a:mixed 2 FAILED leak.xml
  result //a:cut 1 TIMEOUT cut.xml
  result //a:retried 1 FAILED mixed.xml
  result //a:retried 1 PASSED leak.xml
} >"$TEST_TMPDIR/events"

# expect WANTED GOT: both texts are the same.
expect() {
  if [[ $2 != "$1" ]]; then
    printf 'got:\n%s\nwanted:\n%s\n' "$2" "$1"
    exit 1
  fi
}

# Passed: 2 + 1 + 1. Failed: does_not_compile, Three, the leak, the one cut short. Skipped: Four and DISABLED_Five.
expect "4 4 2
failed: //a:mixed A.Three
  x
failed: //a:mixed FAILED
  ran
  was killed
failed: //a:cut TIMEOUT
  ran
  was killed
failed: //a:does_not_compile could not be built" "$(python3 tools/count_tests.py "$TEST_TMPDIR/events")"

# Of one run of pytest.
expect "2 1 2
failed: A.Three
  x" "$(python3 tools/count_tests.py --junit "$TEST_TMPDIR/with space/mixed.xml")"
