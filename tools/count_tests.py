#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Prints how many test cases passed, failed and were skipped in one run of `bazel test`, then the name and words of each failure.

usage: count_tests.py EVENTS, a file that --build_event_json_file wrote; or count_tests.py --junit XML, of one pytest run.
A target that could not be built, and a test that failed though none of its cases did (a leak found at exit, say), count as one failed.
A failed case prints the first lines of its message; a test without a failed case prints the last lines of its log.
"""

import json
import sys
import urllib.parse
import xml.etree.ElementTree

_LINES = 12  # of a message or a log, so that the end of a long run still shows each failure


class Outcome:
    """What one test, or one run of pytest, gave: the counts, and a block of text for each failure."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []

    def fail(self, name, lines):
        self.failed += 1
        self.failures.append("\n".join([f"failed: {name}", *("  " + line for line in lines)]))

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures


def read_cases(path, of):
    """Returns the Outcome of a test.xml as GoogleTest, Bazel or pytest writes it; `of` is the label that holds the cases."""
    outcome = Outcome()
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        broken = [*case.iter("failure"), *case.iter("error")]
        if broken:
            words = broken[0].get("message") or broken[0].text or ""
            outcome.fail(" ".join(filter(None, [of, f"{case.get('classname', '')}.{case.get('name')}"])), words.splitlines()[:_LINES])
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            outcome.skipped += 1
        else:
            outcome.passed += 1
    return outcome


def local_path(output):
    return urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)


def last_lines(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            return [line.rstrip("\n") for line in log][-_LINES:]
    except OSError:
        return []


def read_test(label, result):
    """Returns the Outcome of a testResult event."""
    good = result["status"] == "PASSED"
    outcome = Outcome()
    files = {output["name"]: local_path(output) for output in result.get("testActionOutput", [])}
    if "test.xml" in files:
        try:
            outcome = read_cases(files["test.xml"], label)
        except (OSError, xml.etree.ElementTree.ParseError):
            pass  # Killed while it wrote: the status decides.
    if good and outcome.passed + outcome.failed + outcome.skipped == 0:
        outcome.passed = 1
    if not good and outcome.failed == 0:
        outcome.fail(f"{label} {result['status']}", last_lines(files.get("test.log", "")))
    return outcome


def read_events(path):
    tests = {}  # (label, run, shard): the outcome of its last attempt
    broken = set()
    with open(path, encoding="utf-8") as file:
        for line in file:
            event = json.loads(line)
            if "testResult" in event["id"]:
                key = event["id"]["testResult"]
                tests[key["label"], key.get("run"), key.get("shard")] = read_test(key["label"], event["testResult"])
            elif "targetCompleted" in event["id"]:
                skipped = event.get("aborted", {}).get("reason") == "SKIPPED"
                if not skipped and not event.get("completed", {}).get("success"):
                    broken.add(event["id"]["targetCompleted"]["label"])
    outcome = Outcome()
    for test in tests.values():
        outcome.add(test)
    for label in sorted(broken):
        outcome.fail(f"{label} could not be built", [])
    return outcome


if __name__ == "__main__":
    total = read_cases(sys.argv[2], "") if sys.argv[1] == "--junit" else read_events(sys.argv[1])
    print(total.passed, total.failed, total.skipped)
    for failure in total.failures:
        print(failure)
