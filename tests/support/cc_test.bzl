# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Tests by their folders: a folder's *_test.cc files are one program, apart from what needs flags, tags or data of its own.

A test may include whatever its dependencies depend on, so a BUILD file names what is under test, not all that is included.
GoogleTest's headers are compiled once for all of them (compiled_headers/).
"""

load("@rules_cc//cc:defs.bzl", _cc_test = "cc_test")
load("//tools/workspace:library.bzl", "below", "castor_library", "files_left", "folder_library", "with_compiled_headers")

_BASE = [
    "//tests/support",
    "@system//:gtest",
]

# Commands and their pages. Libraries that they call have tests of their own under sanitizers (tools/measure, tools/models), and parsers are fuzzed.
_PRINTS = ["tests/tools/commands", "tests/tools/report", "tests/tools/zoo"]

# Sources of one program that are compiled as one: half of a test's time is what its headers make of their templates.
_MERGED = 6

def _merged(name, srcs):
    """The sources of a program as fewer files, where headers are compiled once too.

    Args:
      name: of the program.
      srcs: its sources.

    Returns:
      What its rule has as srcs.
    """
    if len(srcs) < 2 or [file for file in srcs if not file.endswith(".cc")]:
        return srcs
    count = (len(srcs) + _MERGED - 1) // _MERGED
    files = ["%s_merged/%d.cc" % (name, i) for i in range(count)]
    for i, file in enumerate(files):
        native.genrule(
            name = file.replace("/", "_").replace(".", "_"),
            testonly = True,
            srcs = srcs[i::count],
            outs = [file],
            cmd = "awk -f $(location //tests/support:merge_tests.awk) $(SRCS) >$@",
            tools = ["//tests/support:merge_tests.awk"],
        )
    return select({
        "//tools/workspace/compiled_headers:on": files,
        "//conditions:default": srcs,
    })

def cc_test(name, srcs = None, size = "small", deps = [], copts = [], tags = [], **kwargs):
    """As the native rule, for sources that include gtest.

    Args:
      name: of the program.
      srcs: as in cc_test, if not NAME.cc.
      size: as in cc_test.
      deps: as in cc_test. GoogleTest, tests/support and the folder's helpers are among them.
      copts: as in cc_test. A flag that changes code makes g++ read the headers again, and clang stop.
      tags: as in cc_test. Tests below _PRINTS get the tag `prints`.
      **kwargs: as in cc_test.
    """
    helpers = [":helpers"] if native.existing_rule("helpers") else []
    sources = srcs or [name + ".cc"]
    deps, copts = with_compiled_headers(sources, deps + _BASE + ["@system//:gtest_main"] + helpers, copts)
    _cc_test(
        name = name,
        srcs = _merged(name, sources),
        size = size,
        copts = copts,
        tags = tags + (["prints"] if below(native.package_name(), _PRINTS) else []),
        deps = deps,
        **kwargs
    )

def folder_tests(**kwargs):
    """What the folder's *_test.cc files hold as one program, FOLDER_tests, except what tests above have.

    Args:
      **kwargs: as in cc_test.
    """
    cc_test(
        name = native.package_name().split("/")[-1] + "_tests",
        srcs = files_left(["**/*_test.cc"]),
        **kwargs
    )

def test_library(name = "helpers", files = None, deps = [], **kwargs):
    """What tests share. A folder's own tests have its :helpers among their dependencies.

    Args:
      name: of the library.
      files: as in castor_library. By default what is left of the folder and is no test.
      deps: as in cc_library. GoogleTest and tests/support are among them.
      **kwargs: as in cc_library.
    """
    if files:
        castor_library(name = name, files = files, testonly = True, deps = deps + _BASE, **kwargs)
    else:
        folder_library(name = name, testonly = True, deps = deps + _BASE, **kwargs)
