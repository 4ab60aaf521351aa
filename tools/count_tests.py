#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Prints how many test cases passed, failed and were skipped in one run of `bazel test`.

usage: count_tests.py EVENTS, a file that --build_event_json_file wrote; or count_tests.py --junit XML, of one pytest run.
A target that could not be built, and a test that failed though none of its cases did (a leak found at exit, say), count as one failed.
"""

import json
import sys
import urllib.parse
import xml.etree.ElementTree


def count_cases(path):
    """Returns [passed, failed, skipped] of a test.xml as GoogleTest or Bazel writes it."""
    passed = failed = skipped = 0
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            skipped += 1
        else:
            passed += 1
    return [passed, failed, skipped]


def count_test(result):
    """Returns [passed, failed, skipped] of a testResult event."""
    good = result["status"] == "PASSED"
    counts = [0, 0, 0]
    for output in result.get("testActionOutput", []):
        if output["name"] == "test.xml":
            try:
                counts = count_cases(urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path))
            except (OSError, xml.etree.ElementTree.ParseError):
                pass  # Killed while it wrote: the status decides.
    if good and sum(counts) == 0:
        counts[0] = 1
    if not good and counts[1] == 0:
        counts[1] = 1
    return counts


def main(events):
    tests = {}  # (label, run, shard): the counts of its last attempt
    broken = set()
    with open(events, encoding="utf-8") as file:
        for line in file:
            event = json.loads(line)
            if "testResult" in event["id"]:
                key = event["id"]["testResult"]
                tests[key["label"], key.get("run"), key.get("shard")] = count_test(event["testResult"])
            elif "targetCompleted" in event["id"]:
                skipped = event.get("aborted", {}).get("reason") == "SKIPPED"
                if not skipped and not event.get("completed", {}).get("success"):
                    broken.add(event["id"]["targetCompleted"]["label"])
    counts = [sum(column) for column in zip(*tests.values())] or [0, 0, 0]
    counts[1] += len(broken)
    print(*counts)


if __name__ == "__main__":
    if sys.argv[1] == "--junit":
        print(*count_cases(sys.argv[2]))
    else:
        main(sys.argv[1])
