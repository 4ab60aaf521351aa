#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# For people who live in PyTorch: sets up .venv with PyTorch and Castor's wheel, then trains GPT-2 at a small size, plainly and under a
# fifth of the memory that its states take.
#
#   tools/python.sh            that
#   tools/python.sh --setup    the environment alone, with what the tests need
#
# Needs network for PyPI the first time. Exit: 0 done, 1 the example failed, 2 usage, 5 this machine lacks something.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "$#:${1-}" in
  0:) example=true ;;
  1:--setup) example=false ;;
  *)
    echo "usage: tools/python.sh [--setup]" >&2
    exit 2
    ;;
esac

tools/setup.sh python
[[ -x .venv/bin/python ]] || python3 -m venv .venv
.venv/bin/python -c 'import torch, transformers, accelerate, lightning, peft, pytest' 2>/dev/null ||
  .venv/bin/pip install --quiet --disable-pip-version-check torch transformers accelerate lightning peft numpy pytest
wheel=$(tools/wheel.sh .venv/wheels | tail -n 1)
.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
if $example; then
  .venv/bin/python tools/examples/torch/gpt2.py --small
else
  /usr/bin/bazel build --noshow_progress --config=cuda //tests/python:libcastor_fake_gpu.so
  install -m 755 bazel-bin/tests/python/libcastor_fake_gpu.so .venv/
fi
