# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""@jemalloc: Debian's libjemalloc_pic.a with castor_je_ before every symbol it defines, internal ones too.

So it is never a program's malloc, never meets another jemalloc in the process, and a program that links it by mistake under its own names
does not link. It holds thread-local storage that dlopen cannot give room to, so it is for executables; the shared library has none.
"""

_PACKAGE = "libjemalloc-dev"

_FOUND = """
load("@rules_cc//cc:defs.bzl", "cc_library")

# Objects that interpose operator new have no place in it at all.
genrule(
    name = "renamed",
    srcs = ["libjemalloc_pic.a"],
    outs = ["libcastor_jemalloc.a"],
    cmd = "nm --defined-only --extern-only --portability $< | " +
          "awk 'NF >= 3 && !/:$$/ {{ print $$1, \\"castor_je_\\" $$1 }}' | LC_ALL=C sort -u > $(@D)/symbols && " +
          "test $$(wc -l < $(@D)/symbols) -gt 500 && " +
          "objcopy --redefine-syms=$(@D)/symbols $< $@ && " +
          "ar d $@ jemalloc_cpp.pic.o && rm $(@D)/symbols",
)

cc_library(
    name = "jemalloc",
    srcs = ["libcastor_jemalloc.a"],
    linkopts = ["-ldl", "-lm", "-pthread"],
    visibility = ["//visibility:public"],
)
"""

_MISSING = """
load("@rules_cc//cc:defs.bzl", "cc_library")

genrule(
    name = "jemalloc_is_missing",
    outs = ["jemalloc_is_missing.h"],
    cmd = "echo 'This needs the Debian package {package}, which is not installed: run tools/setup.sh build, or sudo apt-get " +
          "install {package}.' >&2; exit 1",
)

cc_library(
    name = "jemalloc",
    hdrs = ["jemalloc_is_missing.h"],
    visibility = ["//visibility:public"],
)
"""

def _renamed_jemalloc_impl(repository_ctx):
    machine = repository_ctx.execute(["uname", "-m"]).stdout.strip()
    archive = repository_ctx.path("/usr/lib/%s-linux-gnu/libjemalloc_pic.a" % machine)
    if archive.exists:
        repository_ctx.symlink(archive, "libjemalloc_pic.a")
    text = _FOUND if archive.exists else _MISSING
    repository_ctx.file("BUILD", text.format(package = _PACKAGE))

renamed_jemalloc = repository_rule(
    implementation = _renamed_jemalloc_impl,
    doc = "Finds jemalloc's static library. Looks again whenever Bazel starts anew.",
    local = True,
)
