#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# For people who live in PyTorch: makes .venv with PyTorch and Castor's wheel, then trains GPT-2 at a small size, plainly and under a
# fifth of the memory that its states take.
#
#   tools/python.sh                      that
#   tools/python.sh --torch installed    the same with the torch of this machine's python3, and nothing of PyTorch downloaded
#   tools/python.sh --setup              the environment alone, with what the tests need
#
# The wheel alone: tools/wheel.sh FOLDER. Exit: 0 done, 1 the example failed, 2 usage, 5 this machine lacks something.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

example=true
installed=false
while (($#)); do
  case "$1:${2-}" in
    --setup:*) example=false ;;
    --torch:installed)
      installed=true
      shift
      ;;
    *)
      echo "usage: tools/python.sh [--setup] [--torch installed]" >&2
      exit 2
      ;;
  esac
  shift
done

say() { printf '== %s\n' "$*"; }

if $installed && ! python3 -c 'import torch' 2>/dev/null; then
  echo "tools/python.sh: $(command -v python3 || echo python3) has no torch. Activate the environment that has one, or leave --torch installed away." >&2
  exit 5
fi
tools/setup.sh python

if [[ ! -x .venv/bin/python ]]; then
  # Packages of the environment that is there, where it is itself a virtual one too.
  python3 -m venv .venv
  if $installed; then
    there=$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))')
    echo "$there" >"$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/castor_torch_installed.pth"
  fi
fi
packages=(torch transformers accelerate lightning numpy)
$example || packages+=(bitsandbytes peft pytest pytest-xdist trl)
modules=("${packages[@]/pytest-xdist/xdist}")
if ! .venv/bin/python -c "import ${modules[*]/%/,} sys" 2>/dev/null; then
  if .venv/bin/python -c 'import torch' 2>/dev/null; then
    say "PyPI: ${packages[*]}; torch is there already"
  else
    say "PyPI: ${packages[*]}. A download of about 3 GB, 5.7 GB in .venv with CUDA's libraries: minutes on a fast line"
  fi
  .venv/bin/pip install --disable-pip-version-check --progress-bar "$([[ -t 1 ]] && echo on || echo off)" "${packages[@]}"
fi
tools/wheel.sh .venv/wheels
.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall .venv/wheels/castor_offload-*.whl
if $example; then
  say "gpt2.py --small: plainly, then under a fifth of its states' memory"
  .venv/bin/python tools/examples/torch/gpt2.py --small
  say "done: .venv/bin/python runs scripts of yours; tools/examples/torch/first_script.py is a first one"
else
  /usr/bin/bazel build --noshow_loading_progress --show_result=0 --config=cuda //tests/python:libcastor_fake_gpu.so
  install -m 755 bazel-bin/tests/python/libcastor_fake_gpu.so .venv/
fi
