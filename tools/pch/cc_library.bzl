# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""cc_library whose sources see std_pch.h already compiled: most of what they include takes no time then."""

load("@rules_cc//cc:defs.bzl", _cc_library = "cc_library")

def cc_library(srcs = [], deps = [], copts = [], **kwargs):
    """As the native rule, for C++ sources.

    Args:
      srcs: as in cc_library.
      deps: as in cc_library.
      copts: as in cc_library; with any, the sources are compiled as by the native rule, because the compiled header has other flags.
      **kwargs: as in cc_library.
    """
    if srcs and not copts:
        copts = ["-include", "$(BINDIR)/tools/pch/compiled/std_pch.h"]
        deps = deps + ["//tools/pch:std_pch"]
    _cc_library(
        srcs = srcs,
        copts = copts,
        deps = deps,
        **kwargs
    )
