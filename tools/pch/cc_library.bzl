# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""cc_library whose sources see std_pch.h already compiled: most of what they include takes no time then."""

load("@rules_cc//cc:defs.bzl", _cc_library = "cc_library")

# What computes for longer than it takes to compile, also in tests. The rest is not optimised where a sanitizer watches.
_COMPUTING = [
    "chunk",
    "chunk/base",
    "collectives/internal",
    "offload/kernels",
    "placement",
    "tools/bench",
    "tools/examples/gpt",
]

_OPTIMISED_COPTS = ["-include", "$(BINDIR)/tools/pch/compiled/std_pch.h"]
_UNOPTIMISED_COPTS = ["-include", "$(BINDIR)/tools/pch/unoptimised/std_pch.h", "-O0"]

def cc_library(srcs = [], deps = [], copts = [], computes = None, **kwargs):
    """As the native rule, for C++ sources.

    Args:
      srcs: as in cc_library.
      deps: as in cc_library.
      copts: as in cc_library; with any, the sources are compiled as by the native rule, because the compiled header has other flags.
      computes: whether sanitizers' builds optimise it; unless given, by its package.
      **kwargs: as in cc_library.
    """
    if computes == None:
        computes = native.package_name() in _COMPUTING
    if srcs and not copts and computes:
        copts = _OPTIMISED_COPTS
        deps = deps + ["//tools/pch:std_pch"]
    elif srcs and not copts:
        copts = select({
            "//tools/pch:sanitizer": _UNOPTIMISED_COPTS,
            "//conditions:default": _OPTIMISED_COPTS,
        })
        deps = deps + select({
            "//tools/pch:sanitizer": ["//tools/pch:unoptimised_std_pch"],
            "//conditions:default": ["//tools/pch:std_pch"],
        })
    _cc_library(
        srcs = srcs,
        copts = copts,
        deps = deps,
        **kwargs
    )
