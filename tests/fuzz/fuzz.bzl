# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""A parser under random input, in two programs from one file."""

load("@rules_cc//cc:defs.bzl", "cc_binary")
load("//tests/support:cc_test.bzl", "cc_test")

def fuzz_target(name, deps):
    """Declares what NAME_fuzz.cc drives.

    NAME_fuzz_test runs its kept inputs in corpus/NAME, and random damage to
    them, in every configuration. NAME_fuzzer searches on with libFuzzer: built
    by name and with --config=fuzz only, as run.sh does.

    Args:
      name: of the parser.
      deps: what NAME_fuzz.cc includes.
    """
    cc_test(
        name = name + "_fuzz_test",
        size = "small",
        srcs = [name + "_fuzz.cc"],
        data = native.glob(["corpus/" + name + "/*"]),
        deps = deps + [":replay"],
    )
    cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        srcs = [name + "_fuzz.cc"],
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = deps,
    )
