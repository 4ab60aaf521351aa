# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Libraries and programs by their folders: a BUILD file says what is special, and whom a folder knows.

Each may include chunk/base, for nobody does without it, and fmt.
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

def _library(name, files, srcs, public, deps, **kwargs):
    textual = [file for file in files if file.endswith("-inl.h")]
    top = native.package_name().split("/")[0]
    visibility = ["//%s:__subpackages__" % top] + ([_ABOVE[top]] if top in _ABOVE else [])
    cc_library(
        name = name,
        srcs = [file for file in files if file.endswith(".cc")] + srcs,
        hdrs = [file for file in files if file.endswith(".h") and file not in textual],
        textual_hdrs = textual,
        visibility = _EVERYONE if public else visibility,
        deps = _base_deps(deps),
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

def castor_binary(name, srcs = None, deps = [], **kwargs):
    """A program of NAME.cc.

    Args:
      name: of the program.
      srcs: as in cc_binary, if not NAME.cc.
      deps: as in castor_library.
      **kwargs: as in cc_binary.
    """
    cc_binary(
        name = name,
        srcs = srcs or [name + ".cc"],
        deps = _base_deps(deps),
        **kwargs
    )
