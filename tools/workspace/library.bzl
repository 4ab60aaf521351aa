# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Libraries and programs by their folders: a BUILD file says what is special, and whom a folder knows.

Each may include chunk/base, for nobody does without it, and fmt. The headers that most include are compiled once (compiled_headers/).
"""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")

_EVERYONE = ["//visibility:public"]

# Who may depend on the libraries below a top-level folder, beside that folder itself.
_ABOVE = {
    "chunk": "//:above_chunk",
    "collectives": "//:above_collectives",
    "offload": "//:above_offload",
    "placement": "//:above_placement",
    "tools": "//tests:__subpackages__",
}

_HEADERS = "//tools/workspace/compiled_headers:"
_TEST_HEADERS = "//tests/support/compiled_headers:"

# Folders that steer more than they compute, and those among them that compute: sanitizers' builds leave the former unoptimised, since
# optimising takes longer than what it saves.
_STEERS = ["collectives", "offload", "tools"]
_COMPUTES = [
    "collectives/checkpoint",
    "collectives/memory",
    "collectives/world",
    "offload/kernels",
    "tools/bench",
    "tools/examples",
]

# Kernels switch targets by pragmas: with the compiled header and -O0, g++ 12.2 refused their prefetches, as if it optimised.
_NO_COMPILED_HEADERS = ["offload/kernels"]

# Tests are not optimised, and the libraries of tests that compute are, but for sanitizers (.bazelrc).
_TESTS_THAT_COMPUTE = ["tests/support/fakes", "tests/support/toys"]

def below(package, folders):
    """Whether a package is one of these folders, or below one of them."""
    return bool([folder for folder in folders if (package + "/").startswith(folder + "/")])

def _include(label):
    """Flags to read a header that is compiled once: its label is the rule's, then the header's name."""
    header = Label(label)
    return ["-include", "$(BINDIR)/" + "/".join([part for part in [header.workspace_root, header.package, header.name] if part])]

def with_compiled_headers(srcs, deps, copts, folder = None):
    """What sources are compiled with, beyond their own.

    Args:
      srcs: the sources.
      deps: as in cc_library.
      copts: as in cc_library.
      folder: whose sources they are; by default this package's.

    Returns:
      deps and copts, with the headers that are compiled once.
    """
    package = folder or native.package_name()
    if not [file for file in srcs if file.endswith(".cc")] or below(package, _NO_COMPILED_HEADERS):
        return deps, copts
    header = _HEADERS + "library_headers"
    flags = _include(_HEADERS + "compiled/library_headers.h")
    checked_header, checked_flags = header, flags
    if below(package, ["tests"]):
        checked_header = _TEST_HEADERS + "compiled_headers"
        checked_flags = _include(_TEST_HEADERS + "compiled/compiled_headers.h")
        if not below(package, _TESTS_THAT_COMPUTE):
            header, flags = checked_header, checked_flags
    elif below(package, _STEERS) and not below(package, _COMPUTES):
        checked_header += "_unoptimised"
        checked_flags = ["-O0"] + _include(_HEADERS + "compiled_unoptimised/library_headers.h")
    on = _HEADERS + "on"
    return deps + select({
        on: [header],
        on + "_for_sanitizers": [checked_header],
        "//conditions:default": [],
    }), copts + select({
        on: flags,
        on + "_for_sanitizers": checked_flags,
        "//conditions:default": [],
    })

def _base_deps(deps):
    base = [] if native.package_name() == "chunk/base" else ["//chunk/base"]
    return deps + [dep for dep in base + ["@system//:fmt"] if dep not in deps]

def files_left(patterns, exclude = []):
    """Files of this package that no rule above has.

    Args:
      patterns: as in glob.
      exclude: as in glob.

    Returns:
      Their names.
    """
    taken = {}
    for rule in native.existing_rules().values():
        for attribute in ["srcs", "hdrs", "textual_hdrs"]:
            value = rule.get(attribute)
            if type(value) in ["list", "tuple"]:
                taken.update({label.lstrip(":"): True for label in value})
    return [file for file in native.glob(patterns, exclude = exclude, allow_empty = True) if file not in taken]

def _library(name, files, srcs, public, deps, copts = [], **kwargs):
    textual = [file for file in files if file.endswith("-inl.h")]
    top = native.package_name().split("/")[0]
    visibility = ["//%s:__subpackages__" % top] + ([_ABOVE[top]] if top in _ABOVE else [])
    sources = [file for file in files if file.endswith(".cc")] + srcs
    deps, copts = with_compiled_headers(sources, _base_deps(deps), copts)
    cc_library(
        name = name,
        srcs = sources,
        hdrs = [file for file in files if file.endswith(".h") and file not in textual],
        textual_hdrs = textual,
        visibility = _EVERYONE if public else visibility,
        copts = copts,
        deps = deps,
        **kwargs
    )

def castor_library(name, files = None, srcs = [], public = False, deps = [], **kwargs):
    """A library of some files of a folder: a door, or what needs flags or packages of its own.

    Args:
      name: of the library.
      files: names, or patterns, of its files without .h and .cc. By default the library's name.
      srcs: what is made by a rule.
      public: whether programs outside this repository may depend on it.
      deps: as in cc_library; chunk/base and fmt are among them.
      **kwargs: as in cc_library.
    """
    found = native.glob([file + end for file in files or [name] for end in [".cc", ".h"]])
    _library(name, found, srcs, public, deps, **kwargs)

def folder_library(name = None, srcs = [], public = False, deps = [], exclude = [], **kwargs):
    """A folder's files, with those of subfolders that have no BUILD file, as one library, except tests and what rules above have.

    Args:
      name: by default the folder's.
      srcs: as in castor_library.
      public: as in castor_library.
      deps: as in castor_library.
      exclude: as in glob.
      **kwargs: as in cc_library.
    """
    _library(
        name or native.package_name().split("/")[-1],
        files_left(["**/*.cc", "**/*.h"], exclude + ["**/*_test.cc"]),
        srcs,
        public,
        deps,
        **kwargs
    )

def sources_library(name, srcs, deps = [], copts = [], folder = None, **kwargs):
    """As cc_library, for a library whose headers are its own alone.

    Args:
      name: of the library.
      srcs: its sources and their headers.
      deps: as in cc_library.
      copts: as in cc_library.
      folder: whose sources they are, where they are made from those of another one.
      **kwargs: as in cc_library.
    """
    deps, copts = with_compiled_headers(srcs, deps, copts, folder)
    cc_library(
        name = name,
        srcs = srcs,
        copts = copts,
        deps = deps,
        **kwargs
    )

def castor_binary(name, srcs = None, deps = [], copts = [], **kwargs):
    """A program of NAME.cc.

    Args:
      name: of the program.
      srcs: as in cc_binary, if not NAME.cc.
      deps: as in castor_library.
      copts: as in cc_binary.
      **kwargs: as in cc_binary.
    """
    sources = srcs or [name + ".cc"]
    deps, copts = with_compiled_headers(sources, _base_deps(deps), copts)
    cc_binary(
        name = name,
        srcs = sources,
        copts = copts,
        deps = deps,
        **kwargs
    )
