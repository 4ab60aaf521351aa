#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Runs the core of tests/python under other versions of torch: for each version an environment of its own outside the tree, and the wheel that
# tools/python.sh --setup left in .venv/wheels. CI does not run this script: an environment with CUDA's libraries is about 6 GB.
#
#   tools/torch_versions.sh                              torch 2.6.0
#   tools/torch_versions.sh 2.6.0 newest                 these versions; "newest" is the newest that PyPI has
#   tools/torch_versions.sh --python python3.12 2.6.0    another Python than python3
#   tools/torch_versions.sh --folder DIR 2.6.0           environments in DIR, not in ${TMPDIR:-/var/tmp}/castor_torch; a later run takes them again
#
# Exit: 0 all passed, 1 a test failed or none ran, 2 usage, 5 this machine lacks something.

set -euo pipefail

usage() {
  echo "usage: tools/torch_versions.sh [--folder DIR] [--python PYTHON] [VERSION ...]" >&2
  exit 2
}

# What needs torch, numpy and transformers alone: no lightning, trl, peft or accelerate.
core=(
  autograd
  checkpoints
  machine/test_join.py
  optimizers
  package/test_choices.py
  package/test_handlers.py
  package/test_imports.py
  package/test_torch_internals.py
  parameters
  training/test_default_device.py
  training/test_groups.py
  training/test_interrupts.py
  training/test_not_finite.py
  training/test_phases.py
  training/test_threads.py
  training/test_training.py
  training/test_unusual_steps.py
  training/test_update_in_backward.py
)

folder=${TMPDIR:-/var/tmp}/castor_torch
python=python3
versions=()
while (($#)); do
  case "$1" in
    --folder | --python)
      if [[ -z ${2-} || $2 == -* ]]; then usage; fi
      if [[ $1 == --folder ]]; then folder=$2; else python=$2; fi
      shift
      ;;
    newest) versions+=("$1") ;;
    *)
      [[ $1 =~ ^[0-9]+\.[0-9]+(\.[0-9]+)?$ ]] || usage
      versions+=("$1")
      ;;
  esac
  shift
done
((${#versions[@]})) || versions=(2.6.0)

lacks() {
  echo "tools/torch_versions.sh: $*" >&2
  exit 5
}
say() { printf '== %s\n' "$*"; }

folder=$(realpath -m "$folder")
cd "$(dirname "$(dirname "$(realpath "$0")")")"
case "$folder/" in
  "$PWD"/*)
    echo "tools/torch_versions.sh: $folder is inside the tree: name a folder outside with --folder" >&2
    exit 2
    ;;
esac
shopt -s nullglob
wheels=(.venv/wheels/castor_offload-*.whl)
((${#wheels[@]})) || lacks "there is no wheel in .venv/wheels: run tools/python.sh --setup first"
newest=${wheels[0]}
for wheel in "${wheels[@]}"; do
  if [[ $wheel -nt $newest ]]; then newest=$wheel; fi
done
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || lacks "$python is no Python from 3.10 on: name one with --python"

# The fifth transformers calls torch.compiler.is_exporting, which torch 2.6 does not have.
transformers_for() {
  if [[ $1 != newest && $(printf '%s\n' 2.7 "$1" | sort -V | head -n 1) != 2.7 ]]; then echo "transformers<5"; else echo transformers; fi
}

failed=false
results=()
for version in "${versions[@]}"; do
  environment=$folder/$version
  packages=("torch==$version" numpy pytest "$(transformers_for "$version")")
  if [[ $version == newest ]]; then packages[0]=torch; fi
  if ! "$environment/bin/python" -c '' 2>/dev/null; then
    say "torch $version: a download of about 3 GB to $environment, minutes on a fast line"
    mkdir -p "$folder"
    "$python" -m venv "$environment" || lacks "$python makes no virtual environment in $environment"
  fi
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "${packages[@]}" ||
    lacks "pip did not install ${packages[*]} for $("$environment/bin/python" --version)"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$newest"
  has=$("$environment/bin/python" -c 'import torch; print(torch.__version__)') || lacks "torch $version is installed in $environment and cannot be imported"

  say "torch $has: the core of tests/python"
  report=$environment/junit.xml
  rm -f "$report"
  status=0
  "$environment/bin/python" -m pytest -q -p no:cacheprovider -rfEs --junit-xml="$report" "${core[@]/#/tests/python/}" || status=$?
  # The exit counts too: pytest that collects nothing has failed no test.
  if ((status)); then failed=true; fi
  read -ra counts < <(python3 tools/count_tests.py --junit "$report") || true
  if ((${#counts[@]} != 3)); then
    counts=(0 1 0)
    failed=true
  fi
  results+=("torch $has, $("$environment/bin/python" --version): ${counts[0]} passed, ${counts[1]} failed, ${counts[2]} skipped")
done

printf '== %s\n' "${results[@]}"
! $failed
