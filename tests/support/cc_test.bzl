# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""cc_test, which --config=fast gives GoogleTest's headers already compiled."""

load("@rules_cc//cc:defs.bzl", _cc_test = "cc_test")

_FAST = "//tests/support/compiled_headers:fast"

def cc_test(deps = [], copts = [], **kwargs):
    """As the native rule, for sources that include gtest.

    Args:
      deps: as in cc_test.
      copts: as in cc_test. A flag that changes code makes g++ read the headers again, and clang stop.
      **kwargs: as in cc_test.
    """
    _cc_test(
        copts = copts + select({
            _FAST: ["-include", "$(BINDIR)/tests/support/compiled_headers/compiled/compiled_headers.h"],
            "//conditions:default": [],
        }),
        deps = deps + select({
            _FAST: ["//tests/support/compiled_headers:compiled_headers"],
            "//conditions:default": [],
        }),
        **kwargs
    )
