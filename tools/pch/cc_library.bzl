# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""cc_library and cc_binary whose sources see a header of many headers already compiled: most of what they include takes no time then."""

load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library")
load(":flags.bzl", "PLAIN_COPTS")

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

# What base_pch.h is made of sees std_pch.h.
_BASE = "chunk/base"

def _copts(header, how):
    return ["-include", "$(BINDIR)/tools/pch/{0}_{1}/{0}.h".format(header, how)]

def _dep(header, how):
    return "//tools/pch:{}_{}_library".format(header, how)

def _copts_of(header, computes):
    if computes:
        return _copts(header, "optimised")
    return select({
        "//tools/pch:sanitizer": _copts(header, "plain") + PLAIN_COPTS,
        # Nobody waits for what reads, prints and asks: a quarter of what compiling it takes.
        "//conditions:default": _copts(header, "optimised") + (["-O1"] if native.package_name().startswith("tools/") else []),
    })

def _deps_of(header, computes):
    if computes:
        return [_dep(header, "optimised")]
    return select({
        "//tools/pch:sanitizer": [_dep(header, "plain")],
        "//conditions:default": [_dep(header, "optimised")],
    })

_JOIN = """
for file in $(SRCS); do
  echo "#line 1 \\"$$file\\""
  cat $$file
done > $@
"""

def joined(name, srcs, testonly = False):
    """The sources of one target as one: what they all include is read once.

    Args:
      name: of the target; NAME_joined.cc is the source.
      srcs: as in cc_library.
      testonly: as in cc_library.
    Returns:
      what to compile in their place.
    """
    if type(srcs) != "list":  # a select
        return srcs
    sources = [file for file in srcs if file.endswith(".cc")]
    if len(sources) < 2:
        return srcs
    native.genrule(
        name = name + "_joined",
        srcs = sources,
        outs = [name + "_joined.cc"],
        cmd = _JOIN,
        testonly = testonly,
    )
    return [file for file in srcs if not file.endswith(".cc")] + [name + "_joined.cc"]

def cc_library(name, srcs = [], deps = [], copts = [], computes = None, joins = True, **kwargs):
    """As the native rule, for C++ sources.

    Args:
      name: as in cc_library.
      srcs: as in cc_library.
      deps: as in cc_library.
      copts: as in cc_library; with any, the sources are compiled as by the native rule, because the compiled header has other flags.
      computes: whether sanitizers' builds optimise it; unless given, by its package.
      joins: whether the sources are compiled as one, which wants different names of what they do not share.
      **kwargs: as in cc_library.
    """
    if computes == None:
        computes = native.package_name() in _COMPUTING
    if joins and not copts:
        srcs = joined(name, srcs, testonly = kwargs.get("testonly", False))
    header = "std_pch" if native.package_name() == _BASE else "base_pch"
    if srcs and not copts:
        copts = _copts_of(header, computes)
        deps = deps + _deps_of(header, computes)
    _cc_library(
        name = name,
        srcs = srcs,
        copts = copts,
        deps = deps,
        **kwargs
    )

def cc_binary(name, deps = [], **kwargs):
    """As the native rule, for C++ sources without flags of their own.

    Args:
      name: as in cc_binary.
      deps: as in cc_binary.
      **kwargs: as in cc_binary.
    """
    computes = native.package_name() in _COMPUTING
    _cc_binary(
        name = name,
        copts = _copts_of("base_pch", computes),
        deps = deps + _deps_of("base_pch", computes),
        **kwargs
    )
