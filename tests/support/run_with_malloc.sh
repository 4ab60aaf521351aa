#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# run_with_malloc.sh plain|jemalloc PROGRAM ARGUMENT...: runs the program, with Debian's jemalloc as its malloc where that is asked for.

set -euo pipefail

malloc=$1
shift
for file in "$@"; do
  # A sanitizer's allocator must be the process's first.
  if [[ -f $file ]] && grep -q '__[at]san_init' "$file"; then
    echo "skipped: $file is built with a sanitizer"
    exit 0
  fi
done
if [[ $malloc == jemalloc ]]; then
  library=/usr/lib/$(uname -m)-linux-gnu/libjemalloc.so.2
  if [[ ! -e $library ]]; then
    echo "no $library: run tools/setup.sh test" >&2
    exit 1
  fi
  export LD_PRELOAD=$library
fi
exec "$@"
