# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""cuda_library: kernels compiled by nvcc, linked like any cc_library.

They are built with --config=cuda where the toolkit is found, and left out of `//...` everywhere else. A cc_library or cc_test that uses
one says `target_compatible_with = requires_cuda()`.
"""

load("@cuda//:toolkit.bzl", "NVCC")
load("@rules_cc//cc:defs.bzl", "cc_library")

# Machine code for A100 and H100, and PTX for what comes after them.
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
]

# As in .bazelrc: no fused multiply-add, on either side, and warnings are errors.
_FLAGS = [
    "-std=c++20",
    "-O3",
    "-fmad=false",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-ffp-contract=off,-Wall,-Wextra,-Werror",
    "-DNDEBUG",
]

def requires_cuda():
    """The target_compatible_with of everything that needs the CUDA toolkit to build."""
    off = ["//tools/workspace:cuda_is_off"]
    if not NVCC:
        return off
    return select({
        "//tools/workspace:with_cuda": [],
        "//conditions:default": off,
    })

def if_cuda(with_cuda, without_cuda = []):
    """One of two lists: `with_cuda` where requires_cuda() is met, for what builds either way."""
    if not NVCC:
        return without_cuda
    return select({
        "//tools/workspace:with_cuda": with_cuda,
        "//conditions:default": without_cuda,
    })

def _cuda_objects_impl(ctx):
    compilation = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    arguments = ctx.actions.args()
    arguments.add_all(_FLAGS + _ARCHITECTURES)
    arguments.add_all(compilation.defines, format_each = "-D%s")
    arguments.add_all([".", ctx.bin_dir.path], before_each = "-I")
    arguments.add_all(compilation.includes, before_each = "-I")
    arguments.add_all(compilation.system_includes, before_each = "-isystem")
    objects = []
    for source in ctx.files.srcs:
        result = ctx.actions.declare_file("%s/%s.o" % (ctx.label.name, source.basename))
        compile = ctx.actions.args()
        compile.add("-c", source)
        compile.add("-o", result)
        ctx.actions.run(
            executable = NVCC,
            arguments = [arguments, compile],
            inputs = depset(
                [source] + ctx.files.hdrs + [ctx.file._version],
                transitive = [compilation.headers],
            ),
            outputs = [result],
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s" % source.short_path,
            use_default_shell_env = True,
        )
        objects.append(result)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_version": attr.label(
            allow_single_file = True,
            default = "@cuda//:version",
        ),
    },
)

def cuda_library(name, srcs, hdrs = [], textual_hdrs = [], deps = [], **kwargs):
    """Like cc_library, with .cu sources. Needs --config=cuda.

    Args:
      name: the library.
      srcs: .cu files.
      hdrs: headers that callers include; no CUDA type in those that leave offload/cuda.
      textual_hdrs: headers for .cu sources only.
      deps: libraries whose headers the sources include; the CUDA runtime is added.
      **kwargs: as in cc_library, for example visibility.
    """
    deps = deps + ["@cuda//:cudart"]
    _cuda_objects(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs + textual_hdrs,
        deps = deps,
        target_compatible_with = requires_cuda(),
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = [name + "_objects"],
        hdrs = hdrs,
        deps = deps,
        linkstatic = True,
        target_compatible_with = requires_cuda(),
        **kwargs
    )
