# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""@system: the libraries that Debian installs, one target each.

A library that is not installed breaks only the targets that use it, and says which package to install. The headers are linked into the
repository, so that a package upgrade rebuilds what includes them.
"""

# name: what to find and how to use it.
#   package   the Debian package that brings it
#   headers   files or folders, sought in /usr/include and /usr/include/<multiarch>; a pair renames: (where it is, how it is included)
#   folder    where else the headers are
#   data      they are no headers, but files that a rule reads
#   deps, defines, linkopts   as in cc_library
# {multiarch} in a folder or a linkopt is the machine's, as x86_64-linux-gnu.
_LIBRARIES = {
    "benchmark": struct(
        package = "libbenchmark-dev",
        headers = ["benchmark"],
        linkopts = ["-lbenchmark", "-pthread"],
    ),
    "cli11": struct(
        package = "libcli11-dev",
        headers = ["CLI"],
    ),
    "d3": struct(
        package = "node-d3",
        folder = "/usr/share/nodejs/d3/dist",
        headers = ["d3.min.js"],
        data = True,
    ),
    "fmt": struct(
        package = "libfmt-dev",
        headers = ["fmt"],
        # Not FMT_HEADER_ONLY, which costs seconds in every file that includes it.
        linkopts = ["-lfmt"],
    ),
    "gtest": struct(
        package = "libgmock-dev",
        headers = ["gtest", "gmock"],
        linkopts = ["-lgmock", "-lgtest", "-pthread"],
    ),
    "gtest_main": struct(
        package = "libgmock-dev",
        headers = [],
        deps = [":gtest"],
        linkopts = ["-lgmock_main"],
    ),
    "highway": struct(
        package = "libhwy-dev",
        headers = ["hwy"],
        defines = ["HWY_SHARED_DEFINE"],
        linkopts = ["-lhwy"],
    ),
    "hwloc": struct(
        package = "libhwloc-dev",
        headers = ["hwloc.h", "hwloc"],
        linkopts = ["-lhwloc"],
    ),
    # The library itself is @jemalloc, for executables.
    "jemalloc_headers": struct(
        package = "libjemalloc-dev",
        headers = ["jemalloc"],
    ),
    "json": struct(
        package = "nlohmann-json3-dev",
        headers = ["nlohmann"],
    ),
    "lemon": struct(
        package = "liblemon-dev",
        headers = ["lemon"],
    ),
    "liburing": struct(
        package = "liburing-dev",
        headers = ["liburing.h", "liburing"],
        linkopts = ["-luring"],
    ),
    # The C interface of Open MPI; the C++ one is gone from MPI.
    "mpi": struct(
        package = "libopenmpi-dev",
        folder = "/usr/lib/{multiarch}/openmpi/include",
        headers = ["mpi.h", "mpi_portable_platform.h"],
        defines = ["OMPI_SKIP_MPICXX"],
        linkopts = ["-L/usr/lib/{multiarch}/openmpi/lib", "-lmpi"],
    ),
    "openblas": struct(
        package = "libopenblas-pthread-dev",
        headers = [
            ("openblas-pthread/cblas.h", "cblas.h"),
            ("openblas-pthread/openblas_config.h", "openblas_config.h"),
        ],
        # Its users open the library when they run.
        linkopts = [],
    ),
    "sqlite3": struct(
        package = "libsqlite3-dev",
        headers = ["sqlite3.h"],
        linkopts = ["-lsqlite3"],
    ),
    "xxhash": struct(
        package = "libxxhash-dev",
        headers = ["xxhash.h", "xxh3.h"],
        defines = ["XXH_INLINE_ALL"],
    ),
    "zstd": struct(
        package = "libzstd-dev",
        headers = ["zstd.h", "zstd_errors.h", "zdict.h"],
        linkopts = ["-lzstd"],
    ),
}

_HEADER = """load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])
"""

_FOUND = """
cc_library(
    name = "{name}",
    hdrs = glob(["{name}/**"], allow_empty = True),
    includes = {includes},
    defines = {defines},
    linkopts = {linkopts},
    deps = {deps},
)
"""

_DATA = """
filegroup(
    name = "{name}",
    srcs = glob(["{name}/**"]),
)
"""

_MISSING = """
genrule(
    name = "{name}_is_missing",
    outs = ["{name}_is_missing.h"],
    cmd = "echo 'This needs the Debian package {package}, which is not installed: run tools/setup.sh test, or sudo apt-get " +
          "install {package}.' >&2; exit 1",
)

{rule}(
    name = "{name}",
    {files} = ["{name}_is_missing.h"],
)
"""

def _find(repository_ctx, folders, header):
    for folder in folders:
        path = repository_ctx.path(folder + "/" + header)
        if path.exists:
            return path
    return None

def _system_libraries_impl(repository_ctx):
    multiarch = repository_ctx.execute(["uname", "-m"]).stdout.strip() + "-linux-gnu"
    build = _HEADER
    for name, library in _LIBRARIES.items():
        folders = ["/usr/include", "/usr/include/" + multiarch]
        if hasattr(library, "folder"):
            folders = [library.folder.replace("{multiarch}", multiarch)]
        found = {}
        for header in library.headers:
            sought, included = (header, header) if type(header) == "string" else header
            found[included] = _find(repository_ctx, folders, sought)
        if None in found.values():
            build += _MISSING.format(
                name = name,
                package = library.package,
                rule = "filegroup" if hasattr(library, "data") else "cc_library",
                files = "srcs" if hasattr(library, "data") else "hdrs",
            )
            continue
        for included, path in found.items():
            repository_ctx.symlink(path, name + "/" + included)
        if hasattr(library, "data"):
            build += _DATA.format(name = name)
            continue
        build += _FOUND.format(
            name = name,
            includes = repr([name] if found else []),
            defines = repr(getattr(library, "defines", [])),
            linkopts = repr([
                option.replace("{multiarch}", multiarch)
                for option in getattr(library, "linkopts", [])
            ]),
            deps = repr(getattr(library, "deps", [])),
        )
    repository_ctx.file("BUILD", build)

system_libraries = repository_rule(
    implementation = _system_libraries_impl,
    doc = "Makes one cc_library or filegroup for each library of _LIBRARIES. Looks again whenever Bazel starts anew.",
    local = True,
)
