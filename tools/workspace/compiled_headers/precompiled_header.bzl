# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""A header compiled once per configuration, for many sources.

The compiler looks for `HEADER.gch` (g++) or `HEADER.pch` (clang) beside the header that -include names, which is TARGET/HEADER. It takes that file
only if header and source were compiled with the same flags. Where the flags differ, clang stops with an error and g++ reads the header itself.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    clang = "clang" in toolchain.compiler_executable
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        # Their flags name the target that a source belongs to, and this is none.
        unsupported_features = ctx.disabled_features + ["module_maps"],
    )
    context = ctx.attr.dep[CcInfo].compilation_context
    flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts
    if clang:
        flags = flags + ["-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp"]
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = flags,
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
        use_pic = True,
        add_legacy_cxx_options = True,
    )
    command = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = "c++-compile",
        variables = variables,
    )
    environment = cc_common.get_environment_variables(
        feature_configuration = features,
        action_name = "c++-compile",
        variables = variables,
    )
    header = ctx.actions.declare_file(ctx.label.name + "/" + ctx.file.header.basename)
    compiled = ctx.actions.declare_file(ctx.label.name + "/" + header.basename + (".pch" if clang else ".gch"))
    ctx.actions.expand_template(template = ctx.file.header, output = header, substitutions = {})
    ctx.actions.run(
        executable = toolchain.compiler_executable,
        arguments = command + ["-x", "c++-header", header.path, "-o", compiled.path],
        env = environment,
        inputs = depset([header], transitive = [context.headers, toolchain.all_files]),
        outputs = [compiled],
        mnemonic = "CppPrecompile",
        # clang writes the header's absolute path into its result and looks for it there: the path must outlive the action.
        execution_requirements = {"no-sandbox": "1", "no-cache": "1"} if clang else {},
        progress_message = "Compiling %s" % ctx.file.header.short_path,
    )
    return [DefaultInfo(files = depset([header, compiled]))]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "copts": attr.string_list(doc = "what the sources are compiled with beyond the flags of all"),
        "dep": attr.label(providers = [CcInfo]),
        "header": attr.label(allow_single_file = [".h"]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
