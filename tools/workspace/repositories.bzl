# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""castor_repositories(): every repository that Castor names, for its own WORKSPACE and for those of its users.

    local_repository(name = "castor", path = "/path/to/castor")
    load("@castor//tools/workspace:repositories.bzl", "castor_repositories")
    castor_repositories()

Castor is built with --cxxopt=-std=c++20 and --copt=-ffp-contract=off, which a user's .bazelrc says. Nothing is fetched: what is here is
on the machine already.
"""

load(":cuda_toolkit.bzl", "cuda_toolkit")
load(":jemalloc.bzl", "renamed_jemalloc")
load(":system.bzl", "system_libraries")

_THIS = Label("//tools/workspace:repositories.bzl")

def _stand_in_impl(repository_ctx):
    folder = repository_ctx.path(_THIS).dirname.get_child(repository_ctx.name)
    for entry in folder.readdir():
        repository_ctx.symlink(entry, entry.basename)

_stand_in = repository_rule(
    implementation = _stand_in_impl,
    doc = "The folder of its name beside this file, as a repository, wherever Castor lies.",
    local = True,
)

def castor_repositories():
    """Declares the repositories that the WORKSPACE has not declared before.

    Bazel 4.2.3, as Debian 12 ships it, asks for rules_cc and remote_coverage_tools by name; two stand-ins of Castor's answer. Debian's
    bazel-rules-cc does not load in that Bazel.
    """
    for name, rule, attributes in [
        ("rules_cc", _stand_in, {}),
        ("remote_coverage_tools", _stand_in, {}),
        ("rules_java", native.local_repository, {"path": "/usr/share/bazel/rules/java"}),
        ("system", system_libraries, {}),
        ("jemalloc", renamed_jemalloc, {}),
        ("cuda", cuda_toolkit, {}),
    ]:
        if not native.existing_rule(name):
            rule(name = name, **attributes)
