#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# tools/setup.sh against a Debian of four programs that write down how they were called.

set -euo pipefail

setup=$PWD/tools/setup.sh
machine=$TEST_TMPDIR/machine
mkdir "$machine"
export PATH=$machine:/usr/bin:/bin

# The machine's state: files in $machine; calls are appended to $machine/calls.
cat >"$machine/dpkg-query" <<'END'
#!/bin/bash
[[ -e ${0%/*}/has_all || ${!#} != @(libfmt-dev|lld-19) ]] && echo installed
END
cat >"$machine/id" <<'END'
#!/bin/bash
cat "${0%/*}/uid"
END
cat >"$machine/sudo" <<'END'
#!/bin/bash
[[ -e ${0%/*}/sudoer ]] || exit 1
[[ $1 == -n ]] || { echo "sudo $*" >>"${0%/*}/calls"; exec "$@"; }
END
cat >"$machine/apt-get" <<'END'
#!/bin/bash
machine=${0%/*}
arguments=$*
case "$arguments" in
  update*) echo update >>"$machine/calls"; rm -f "$machine/stale" "$machine/no_lists" ;;
  *--assume-no*)
    if [[ -e $machine/no_lists || -e $machine/unknown ]]; then echo "E: Unable to locate package libfmt-dev"; exit 100; fi
    printf 'Need to get 1234 kB of archives.\nAfter this operation, 56 MB of additional disk space will be used.\nAbort.\n'
    exit 1 ;;
  *) echo "${arguments##*Use-Pty=0 }" >>"$machine/calls"; [[ ! -e $machine/stale ]] ;;
esac
END
chmod +x "$machine"/*

# try WORD STATE...: runs `setup.sh WORD` on a machine in those states; leaves rc, the messages and the calls.
try() {
  local word=$1 state
  shift
  rm -f "$machine"/{has_all,sudoer,stale,no_lists,unknown,calls}
  echo 0 >"$machine/uid"
  for state in "$@"; do
    if [[ $state == user ]]; then echo 1000 >"$machine/uid"; else touch "$machine/$state"; fi
  done
  touch "$machine/calls"
  rc=0
  "$setup" "$word" >"$TEST_TMPDIR/out" 2>&1 </dev/null || rc=$?
  calls=$(tr '\n' ';' <"$machine/calls")
}

# expect WHAT GOT WANTED: equal, or wanted is a pattern.
expect() {
  # shellcheck disable=SC2053
  if [[ $2 != $3 ]]; then
    echo "$1: got '$2', wanted '$3'. Messages:"
    cat "$TEST_TMPDIR/out"
    exit 1
  fi
}

try test has_all user
expect "nothing missing" "$rc $calls" "0 "
expect "nothing missing is silent" "$(cat "$TEST_TMPDIR/out")" ""

try test
expect "as root" "$rc $calls" "0 install -y --no-install-recommends libfmt-dev lld-19;"
expect "megabytes are named" "$(cat "$TEST_TMPDIR/out")" "*Need to get 1234 kB of archives. After this operation, 56 MB*"

try build
expect "build does without what only tests need" "$rc $calls" "0 install -y --no-install-recommends libfmt-dev;"

try test user sudoer
expect "through sudo" "$rc $calls" "0 sudo env DEBIAN_FRONTEND=noninteractive apt-get *;install *libfmt-dev lld-19;"

try test user
expect "without root" "$rc $calls" "5 "
expect "without root, the one command" "$(grep -c 'apt-get update && apt-get install -y --no-install-recommends libfmt-dev lld-19$' \
  "$TEST_TMPDIR/out")" 1

try test no_lists
expect "no package lists yet" "$rc $calls" "0 update;install *;"

try test unknown
expect "a package that Debian 12 has and this machine does not" "$rc $calls" "5 update;"
expect "apt's reason is shown" "$(cat "$TEST_TMPDIR/out")" "*E: Unable to locate package libfmt-dev*"

try test stale
expect "old package lists" "$rc $calls" "0 install *;update;install *;"

try everything
expect "usage" "$rc $calls" "2 "
