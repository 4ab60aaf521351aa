#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# tools/compile_commands.py on an answer of Bazel: sources of the repository once each, paths that any folder can resolve.

set -euo pipefail

PYTHONPATH=tools PYTHONDONTWRITEBYTECODE=1 python3 - <<'END'
import compile_commands
import json

def compiled(*arguments):
    return {"arguments": ["/usr/bin/gcc", *arguments]}

answer = json.dumps({"actions": [
    compiled("-iquote", ".", "-iquote", "bazel-out/k8-opt/bin", "-isystem", "external/system/include", "-Iexternal/x", "-c", "chunk/a.cc", "-o", "o"),
    compiled("-DAGAIN", "-c", "chunk/a.cc"),
    compiled("-c", "external/foreign/b.cc"),
    compiled("-c", "bazel-out/k8-opt/bin/generated.cc"),
    compiled("-c", "chunk/a.h"),
    {"arguments": []},
]})
found = list(compile_commands.entries(answer, "/root_of_it", "/cache/execroot"))
assert found == [{
    "directory": "/root_of_it",
    "file": "chunk/a.cc",
    "arguments": ["/usr/bin/gcc", "-iquote", ".", "-iquote", "/cache/execroot/bazel-out/k8-opt/bin", "-isystem",
                  "/cache/execroot/external/system/include", "-I/cache/execroot/external/x", "-c", "chunk/a.cc", "-o", "o"],
}], found
assert list(compile_commands.entries("{}", "/r", "/e")) == []
END
