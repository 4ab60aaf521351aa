#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# DeepSpeed: a config that does not say gradient_clipping trains unclipped with 0.19.0, and clipped at a norm of 1.0 with 0.19.8.
#
# Two releases of one minor version give one config two meanings, without a message. A config that is to mean the same in both says
# "gradient_clipping": 0.0, or the norm.
#
# Downloads both source archives from PyPI into a temporary folder, and runs the default and the reader of config keys of each.
# Needs python3 with venv, and the network. Exit: 0 while it is so, 1 if that has changed.

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
# pip asks the archives for their names, by setuptools and wheel.
python3 -m venv venv
venv/bin/pip install --quiet setuptools wheel

clipping_of() {
  venv/bin/pip download --quiet --no-deps --no-build-isolation --no-binary :all: --dest . "deepspeed==$1" >/dev/null
  tar xzf "deepspeed-$1.tar.gz"
  python3 - "deepspeed-$1/deepspeed/runtime" <<'PY'
import ast, sys
folder = sys.argv[1]
scope = {}
# Of both files what is needed alone: the rest imports torch and pydantic.
for file, names in (("constants.py", {"GRADIENT_CLIPPING", "GRADIENT_CLIPPING_DEFAULT"}), ("config_utils.py", {"get_scalar_param"})):
    tree = ast.parse(open(f"{folder}/{file}").read())
    wanted = [node for node in tree.body if getattr(node, "name", None) in names or isinstance(node, ast.Assign) and node.targets[0].id in names]
    exec(compile(ast.Module(wanted, []), file, "exec"), scope)
config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
print(scope["get_scalar_param"](config, scope["GRADIENT_CLIPPING"], scope["GRADIENT_CLIPPING_DEFAULT"]))
PY
}

older=$(clipping_of 0.19.0)
newer=$(clipping_of 0.19.8)
echo "a config without gradient_clipping: deepspeed 0.19.0 clips at $older (0: not), deepspeed 0.19.8 at $newer"
[[ $older == 0.0 && $newer == 1.0 ]]
