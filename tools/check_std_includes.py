#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Refuses a source that names what a header of the standard library declares, where neither it nor a header of ours that it includes has that header.
Refuses a name, too, that one of the two compilers does not take.

The compiler does not tell: it reads the headers of tools/workspace/compiled_headers first, and other builds do without these.

usage: check_std_includes.py [FILE...], by default all C++ files that git knows. Prints a line for each name; exit 1 if there was one.
"""

import os
import re
import subprocess
import sys

# Of each header, names of std that need the header.
DECLARES = {
    "algorithm": "sort find_if find any_of all_of none_of fill max min clamp ranges transform lower_bound upper_bound max_element "
                 "min_element remove_if unique reverse equal count_if for_each",
    "array": "array",
    "atomic": "atomic",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "condition_variable": "condition_variable",
    "deque": "deque",
    "filesystem": "filesystem",
    "functional": "function hash less greater",
    "limits": "numeric_limits",
    "map": "map",
    "memory": "unique_ptr shared_ptr make_unique make_shared weak_ptr",
    "mutex": "mutex lock_guard unique_lock scoped_lock call_once once_flag",
    "numeric": "accumulate iota gcd lcm reduce",
    "optional": "optional nullopt",
    "set": "set",
    "span": "span",
    "string": "string to_string stoi getline",
    "string_view": "string_view",
    "system_error": "error_code system_error generic_category",
    "thread": "thread jthread this_thread",
    "tuple": "tuple tie make_tuple",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "variant": "variant visit holds_alternative get_if",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in DECLARES.items() for name in names.split()}
# What the standard library declares by another header of its own: std::string has conversions.
ALONG = {"string": {"string_view"}}
# GCC 12's headers ask a deprecated function for a buffer, which clang 19 refuses under -Werror.
REFUSED = dict.fromkeys(("stable_sort", "stable_partition", "inplace_merge"), "clang 19 refuses what GCC 12's allocates (chunk/base/stable_sort.h sorts)")

NAMED = re.compile(r"\b(?:std|ranges)::(?=(\w+))")
STANDARD = re.compile(r"^\s*#\s*include\s+<([^>]+)>", re.MULTILINE)
OURS = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def standard_headers(path, known):
    """The standard headers that a file includes, itself and by headers of ours. `known`: the answers so far, by path."""
    if path not in known:
        known[path] = set()  # a header that includes itself adds nothing
        with open(path, encoding="utf-8") as file:
            text = file.read()
        headers = set(STANDARD.findall(text)).union(*(standard_headers(ours, known) for ours in OURS.findall(text) if os.path.exists(ours)))
        known[path] = headers.union(*(ALONG.get(header, set()) for header in headers))
    return known[path]


def main():
    files = sys.argv[1:]
    if not files:
        os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
        files = subprocess.run(["git", "ls-files", "*.cc", "*.h"], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout.split()
    known = {}
    wrong = 0
    for path in files:
        headers = standard_headers(path, known)
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                for name in NAMED.findall(line.partition("//")[0]):
                    if name in REFUSED:
                        print("%s:%d: std::%s: %s" % (path, number, name, REFUSED[name]))
                        wrong += 1
                    if name in HEADER_OF and HEADER_OF[name] not in headers:
                        print("%s:%d: std::%s without <%s>" % (path, number, name, HEADER_OF[name]))
                        wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
