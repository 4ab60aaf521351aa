#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Refuses folders that are an alphabet: more than 25 files directly in one. Circles among folders, which are libraries, Bazel refuses.

usage: check_folders.py

Prints a line for each such folder; exit 1 if there was one.
"""

import collections
import pathlib
import subprocess
import sys

MOST_FILES = 25


def main():
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
    folders = collections.Counter(pathlib.PurePosixPath(name).parent for name in listed.split("\0") if name)
    wrong = [(folder, files) for folder, files in sorted(folders.items()) if files > MOST_FILES]
    for folder, files in wrong:
        print(f"{folder} has {files} files, and a folder has at most {MOST_FILES}: sort them by subject")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
