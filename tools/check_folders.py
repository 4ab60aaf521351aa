#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Refuses folders that are an alphabet, and circles among those of the library.

usage: check_folders.py [--graph]

A folder has at most 25 files directly in it. The folders of chunk/, placement/, offload/ and collectives/ include each other without a circle; the
doors on top of these four, and the headers of chunk/base, stand for themselves, with the folder that is the rest of a door. Prints a line for each
that does not; exit 1 if there was one. With --graph it prints which folder includes which.
"""

import collections
import graphlib
import pathlib
import re
import subprocess
import sys

MOST_FILES = 25
TOPS = ("chunk", "placement", "offload", "collectives")
# The rest of a door: its sources and headers of its own.
REST = {"collectives/engine": "collectives/zero_engine", "offload/copies": "offload/memory_manager"}
# One library with parts, over doors of its own.
WHOLE = ("collectives/c_api", "offload/cuda")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
    return [pathlib.PurePosixPath(name) for name in listed.split("\0") if name]


def node_of(path):
    """The folder of a source, or the door that it is or belongs to."""
    folder = str(path.parent)
    for whole in WHOLE:
        if folder == whole or folder.startswith(whole + "/"):
            return whole
    if folder in TOPS or folder == "chunk/base":
        return f"{folder}/{path.stem}"
    return REST.get(folder, folder)


def graph_of(paths):
    """Which node includes which, with an example for each pair."""
    sources = {str(path) for path in paths if path.parts[0] in TOPS and path.suffix in (".h", ".cc", ".cu", ".cuh")}
    graph = collections.defaultdict(dict)
    for source in sorted(sources):
        own = node_of(pathlib.PurePosixPath(source))
        graph[own]  # has a place, though it may include nothing
        for header in INCLUDE.findall(pathlib.Path(source).read_text(encoding="utf-8")):
            if header in sources and (other := node_of(pathlib.PurePosixPath(header))) != own:
                graph[own].setdefault(other, f"{source} includes {header}")
    return graph


def main():
    paths = tracked()
    graph = graph_of(paths)
    if "--graph" in sys.argv[1:]:
        for node, others in sorted(graph.items()):
            print(f"{node}: {' '.join(sorted(others))}")
        return 0
    wrong = []
    for folder, files in sorted(collections.Counter(path.parent for path in paths).items()):
        if files > MOST_FILES:
            wrong.append(f"{folder} has {files} files, and a folder has at most {MOST_FILES}: sort them by subject")
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as circle:
        nodes = circle.args[1]
        for before, after in zip(nodes[1:], nodes):
            wrong.append(f"a circle of folders: {graph[before].get(after, '')}")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
