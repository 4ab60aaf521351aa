#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Writes compile_commands.json at the repository's root, which clangd and clang-tidy read.

usage: tools/compile_commands.py [BAZEL OPTION...], for instance --config=cuda

It asks Bazel how every C++ source is compiled and compiles nothing. Generated headers exist once `bazel build //...` has run.
"""

import json
import os
import subprocess
import sys

BAZEL = "/usr/bin/bazel"
SOURCES = (".cc", ".cpp", ".c")


def bazel(*arguments):
    return subprocess.run([BAZEL, *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8").stdout


def entries(answer, root, execution_root):
    """One entry for each compiled source of this repository, of what `bazel aquery --output=jsonproto` said."""
    inside = ("external/", "bazel-out/")
    prefixes = ("", "-I", "-iquote", "-isystem")

    def absolute(argument):
        for prefix in prefixes:
            for folder in inside:
                if argument.startswith(prefix + folder):
                    return prefix + os.path.join(execution_root, argument[len(prefix):])
        return argument

    seen = set()
    for action in json.loads(answer).get("actions", []):
        arguments = action.get("arguments", [])
        source = arguments[arguments.index("-c") + 1] if "-c" in arguments else ""
        if not source.endswith(SOURCES) or source.startswith(inside) or source in seen:
            continue
        seen.add(source)
        yield {"directory": root, "file": source, "arguments": [absolute(argument) for argument in arguments]}


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    options = sys.argv[1:]
    try:
        # No compiled headers: clangd reads those of no other compiler.
        answer = bazel("aquery", "--output=jsonproto", "--include_artifacts=false", "--define=castor_compiled_headers=off", *options,
                       'mnemonic("CppCompile", //...)')
        execution_root = bazel("info", "execution_root").strip()
    except (OSError, subprocess.CalledProcessError) as error:
        print(getattr(error, "stderr", None) or error, file=sys.stderr)
        return 1
    commands = sorted(entries(answer, os.getcwd(), execution_root), key=lambda entry: entry["file"])
    with open("compile_commands.json", "w", encoding="utf-8") as file:
        json.dump(commands, file, indent=1)
        file.write("\n")
    print("compile_commands.json: %d sources" % len(commands))
    return 0


if __name__ == "__main__":
    sys.exit(main())
