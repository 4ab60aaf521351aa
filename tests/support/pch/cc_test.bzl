# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Rules for sources that see gtest_pch.h already compiled: a third of the time that compiling a test takes."""

load("@rules_cc//cc:defs.bzl", _cc_library = "cc_library", _cc_test = "cc_test")
load("//tools/pch:cc_library.bzl", "joined")
load(":flags.bzl", "TEST_COPTS", "TEST_OPTIMISATION")

_COPTS = ["-include", "$(BINDIR)/tests/support/pch/compiled/gtest_pch.h"] + TEST_COPTS
_DEPS = ["//tests/support/pch:gtest_pch"]

# Each file's `namespace castor` gets one of its own inside, so that what two files call alike does not meet.
_JOIN = """
for file in $(SRCS); do
  echo "#line 1 \\"$$file\\""
  sed -E "s/^(namespace castor[a-z_:]*) \\{$$/\\1::$$(basename $$file .cc) {/" $$file
done > $@
"""

def cc_test(deps = [], copts = [], exceptions = False, **kwargs):
    """As the native rule, for sources that include gtest.

    Args:
      deps: as in cc_test.
      copts: as in cc_test.
      exceptions: whether a source throws or catches; it is then compiled as by the native rule.
      **kwargs: as in cc_test.
    """
    if exceptions:
        _cc_test(deps = deps, copts = copts, **kwargs)
    else:
        _cc_test(deps = deps + _DEPS, copts = _COPTS + copts, **kwargs)

def cc_tests(name, srcs, **kwargs):
    """Test files of one subject as one test, compiled as one source: what gtest instantiates for one file serves the next.

    Args:
      name: as in cc_test; NAME.cc is the source.
      srcs: test files. To run one of them alone, give its suites to --test_filter.
      **kwargs: as in cc_test.
    """
    native.genrule(
        name = name + "_source",
        testonly = True,
        srcs = srcs,
        outs = [name + ".cc"],
        cmd = _JOIN,
    )

    # .bazelrc knows by their folder what is compiled like this, and this source is elsewhere.
    cc_test(name = name, srcs = [name + ".cc"], copts = TEST_OPTIMISATION, **kwargs)

def cc_test_library(name, srcs = [], deps = [], **kwargs):
    """As cc_library, testonly, for sources that include gtest: what several tests share. They are compiled as one.

    Args:
      name: as in cc_library.
      srcs: as in cc_library.
      deps: as in cc_library.
      **kwargs: as in cc_library.
    """
    _cc_library(
        name = name,
        srcs = joined(name, srcs, testonly = True),
        deps = deps + _DEPS,
        copts = _COPTS + TEST_OPTIMISATION,
        testonly = True,
        **kwargs
    )
