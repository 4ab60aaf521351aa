# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""installed_library: libraries with all that they need, as programs that are built without Bazel use them.

    NAME.a           one archive of Castor's own objects and of those that are linked statically
    NAME_headers.tar the headers of `deps` and those that these include
    NAME_linkopts    what else a program is linked with, in one line
"""

def _installed_library_impl(ctx):
    merged = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    archives = []
    flags = []
    for linked in merged.linking_context.linker_inputs.to_list():
        flags.extend([flag for flag in linked.user_link_flags if flag not in flags])
        for library in linked.libraries:
            archive = library.pic_static_library or library.static_library
            if archive and archive not in archives:
                archives.append(archive)
    headers = [header for header in merged.compilation_context.headers.to_list() if not header.owner.workspace_name]

    archive = ctx.actions.declare_file(ctx.label.name + ".a")
    script = ctx.actions.declare_file(ctx.label.name + ".mri")
    ctx.actions.write(
        script,
        "create %s\n" % archive.path + "".join(["addlib %s\n" % part.path for part in archives]) + "save\nend\n",
    )
    ctx.actions.run_shell(
        outputs = [archive],
        inputs = archives + [script],
        command = "ar -M <%s && ranlib -D %s" % (script.path, archive.path),
        mnemonic = "MergeArchives",
    )

    tar = ctx.actions.declare_file(ctx.label.name + "_headers.tar")
    names = ctx.actions.declare_file(ctx.label.name + "_headers")
    ctx.actions.write(names, "".join(sorted([header.path + "\n" for header in headers])))
    ctx.actions.run_shell(
        outputs = [tar],
        inputs = headers + [names],
        command = "tar -chf %s --owner=0 --group=0 --mode=a+r --mtime=@0 -T %s" % (tar.path, names.path),
        mnemonic = "CollectHeaders",
    )

    linkopts = ctx.actions.declare_file(ctx.label.name + "_linkopts")
    ctx.actions.write(linkopts, " ".join(flags) + "\n")
    files = [archive, tar, linkopts]
    return [DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files = files))]

installed_library = rule(
    implementation = _installed_library_impl,
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
    doc = "One archive, its headers and its link options.",
)
