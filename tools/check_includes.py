#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Refuses every #include of a header whose target is not a direct dependency, so that BUILD files say who knows whom.

Tests are let off: they may include whatever their dependencies depend on, and the compilers refuse the rest.

usage: check_includes.py [--graph] [ANSWER], a file with what `bazel query --output=xml` said, in place of asking; sources are then read from here.

With --graph it prints which library of chunk/, placement/, offload/ and collectives/ stands on which, as CONTRIBUTING.md shows it; without, it
refuses a CONTRIBUTING.md that shows something else.
It asks Bazel for the targets and reads the sources, which takes seconds: the compilers' own check (clang's layering_check) reads a map of modules
per dependency for each source, and finds the same. Prints a line for each such #include; exit 1 if there was one.
"""

import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
SOURCES = (".h", ".cc", ".c", ".cu", ".cuh")
# Rules whose sources are compiled; the second is that of tools/workspace/cuda.bzl.
COMPILES = re.compile(r"cc_.*|_cuda_objects")
# Fewer targets than this are not the project: then something is wrong with the question.
FEWEST_TARGETS = 70


def path_of(label):
    """The file's path from its repository's root."""
    package, _, name = label.partition("//")[2].partition(":")
    return package + "/" + name if package else name


TOPS = ("chunk", "placement", "offload", "collectives")
# Everyone's, so drawn nowhere.
BASE = "//chunk/base:base"
# What is on the page is between these lines.
PAGE = "CONTRIBUTING.md"
BEGIN, END = "```mermaid\n", "```\n"


class Targets:
    """What Bazel's answer to a query, as XML, says of targets."""

    def __init__(self, xml):
        root = ElementTree.fromstring(xml)
        self.rules = {rule.get("name"): rule for rule in root.iter("rule")}
        self.generated = {out.get("name") for rule in self.rules.values() for out in rule.findall("rule-output")}
        self.headers = {}  # of target -> the names by which #include may ask for them
        for name, rule in self.rules.items():
            roots = [value.get("value") for value in rule.findall("list[@name='includes']/string")]
            paths = [path_of(label) for label in self.labels(name, "hdrs") + self.labels(name, "textual_hdrs")]
            self.headers[name] = set(paths).union(
                path[len(root) + 1:] for path in paths for root in roots if path.startswith(root + "/"))

    def labels(self, name, attribute):
        if name not in self.rules:
            return []
        return [label.get("value") for label in self.rules[name].findall("list[@name='%s']/label" % attribute)]

    def offered(self, name):
        """What the headers of a dependency are called; a library of the system offers those of its parts too."""
        parts = self.labels(name, "deps") if name.startswith("@system") else []
        return self.headers.get(name, set()).union(*(self.offered(part) for part in parts))

    def sources(self, name):
        """The C++ files of the target that people wrote."""
        files = [label for attribute in ("srcs", "hdrs", "textual_hdrs") for label in self.labels(name, attribute)]
        return [file for file in files if file.startswith("//") and file.endswith(SOURCES) and file not in self.generated]


def check(targets):
    """How many targets were looked at, and lines that say what is wrong with them."""
    owners = {}
    checked = 0
    for name, headers in targets.headers.items():
        for header in headers:
            owners.setdefault(header, []).append(name)
    wrong = []
    for name, rule in targets.rules.items():
        if not (name.startswith("//") and COMPILES.fullmatch(rule.get("class"))) or name.startswith("//tests/"):
            continue
        checked += 1
        sources = targets.sources(name)
        known = {path_of(source) for source in sources}.union(
            *(targets.offered(dependency) for dependency in targets.labels(name, "deps")))
        for source in sources:
            with open(path_of(source), encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    match = INCLUDE.match(line)
                    if not match or match.group(2) in known:
                        continue
                    owner = owners.get(match.group(2))
                    if owner is None and match.group(1) == "<":
                        continue  # the compiler's, or the system's
                    wrong.append("%s:%d: %s includes %s, of %s, which is no direct dependency" %
                                 (path_of(source), number, name, match.group(2), " or ".join(owner or ["no target"])))
    return checked, wrong


def drawn(label):
    """A library as the graph calls it: //chunk/layout:layout is chunk/layout."""
    folder, _, name = label[2:].partition(":")
    return folder if folder.split("/")[-1] == name else folder + "/" + name


def graph(targets):
    """The libraries of TOPS in Mermaid's language: arrows for dependencies that no other implies."""
    edges = {
        name: {dep for dep in targets.labels(name, "deps") if dep.split("/")[2].split(":")[0] in TOPS and dep != BASE}
        for name, rule in targets.rules.items()
        if rule.get("class") == "cc_library" and name.startswith("//") and name.split("/")[2].split(":")[0] in TOPS
    }

    def below(name, seen):
        for other in edges.get(name, ()):
            if other not in seen:
                seen.add(other)
                below(other, seen)
        return seen

    lines = ["graph TD"]
    for name in sorted(edges, key=drawn):
        implied = set().union(*(below(other, set()) for other in edges[name]))
        others = sorted(drawn(other) for other in edges[name] - implied)
        lines += ["    %s --> %s" % (drawn(name), " & ".join(others))] if others else []
    return "".join(line + "\n" for line in lines)


def main():
    arguments = sys.argv[1:]
    draw = arguments[:1] == ["--graph"]
    if draw:
        arguments.pop(0)
    if len(arguments) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    if arguments:
        fewest = 1
        with open(arguments[0], "rb") as answer:
            xml = answer.read()
    else:
        fewest = FEWEST_TARGETS
        os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
        query = "kind('cc_.* rule|_cuda_objects rule|genrule rule', //... + @system//...)"
        xml = subprocess.run(["/usr/bin/bazel", "query", "--output=xml", "--noshow_progress", query], check=True,
                             stdout=subprocess.PIPE).stdout
    targets = Targets(xml)
    if draw:
        print(graph(targets), end="")
        return 0
    checked, wrong = check(targets)
    page = pathlib.Path(PAGE)
    if page.exists() and page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0] != graph(targets):
        wrong.append("%s shows another graph of libraries than check_includes.py --graph" % PAGE)
    for line in sorted(set(wrong)):
        print(line)
    if checked < fewest:
        print("only %d targets were found, which cannot be all" % checked)
    return 1 if wrong or checked < fewest else 0


if __name__ == "__main__":
    sys.exit(main())
