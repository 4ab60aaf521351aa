# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""@cuda: the CUDA toolkit, sought in $CUDA_HOME, by default /usr/local/cuda.

    @cuda//:cudart      the runtime, static, and its headers (NVTX among them)
    @cuda//:toolkit.bzl NVCC, the compiler's path, or None where there is no toolkit

Without a toolkit the repository is there all the same, and everything that needs no CUDA builds.
"""

_FOUND = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

# Changes with the toolkit, so that a new one compiles every kernel again.
exports_files(["version"])

cc_library(
    name = "cudart",
    srcs = ["libcudart_static.a"],
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/crt/**",
        "include/nvtx3/**",
    ]),
    includes = ["include"],
    linkopts = ["-ldl", "-lrt", "-pthread"],
)
"""

_MISSING = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

exports_files(["version"])

cc_library(
    name = "cudart",
    target_compatible_with = ["@castor//tools/workspace:cuda_is_off"],
)
"""

def _cuda_toolkit_impl(repository_ctx):
    environ = repository_ctx.os.environ
    home = environ.get("CUDA_HOME") or "/usr/local/cuda"
    nvcc = repository_ctx.path(home + "/bin/nvcc")
    if nvcc.exists:
        repository_ctx.symlink(home + "/include", "include")
        repository_ctx.symlink(home + "/lib64/libcudart_static.a", "libcudart_static.a")
        repository_ctx.file("version", repository_ctx.execute([nvcc, "--version"]).stdout)
        repository_ctx.file("toolkit.bzl", "NVCC = %s\n" % repr(str(nvcc)))
        repository_ctx.file("BUILD", _FOUND)
        return
    if environ.get("CASTOR_CUDA") == "on":
        print("no %s/bin/nvcc, so CUDA targets are left out. If the CUDA toolkit is elsewhere, set CUDA_HOME." % home)
    repository_ctx.file("version", "none")
    repository_ctx.file("toolkit.bzl", "NVCC = None\n")
    repository_ctx.file("BUILD", _MISSING)

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    doc = "Finds the CUDA toolkit. Looks again whenever Bazel starts anew.",
    environ = ["CASTOR_CUDA", "CUDA_HOME"],
    local = True,
)
