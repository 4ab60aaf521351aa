#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Whether every line of C in docs/port_your_trainer.md is a line of the trainer that it walks through.

set -euo pipefail

page=docs/port_your_trainer.md
trainer=tools/examples/c/train_lm.c
lines=0
while IFS= read -r line; do
  grep -qxF -e "$line" "$trainer" || {
    echo "$page shows what $trainer has not: $line" >&2
    exit 1
  }
  lines=$((lines + 1))
done < <(sed -n '/^```c$/,/^```$/{/^```/!p}' "$page")
((lines >= 15))
