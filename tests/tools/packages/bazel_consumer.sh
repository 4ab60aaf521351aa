#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Builds and runs programs of another Bazel workspace, which names a clone of this repository as a local_repository. Part of
# tools/test.sh --sanitizers: it builds the engine once more, since paths are other ones there.
#
#   tests/tools/packages/bazel_consumer.sh SCRATCH

set -euo pipefail

scratch=$(realpath "$1")
here=$(dirname "$(dirname "$(dirname "$(dirname "$(realpath "$0")")")")")
git clone --quiet "$here" "$scratch/castor"
mkdir "$scratch/consumer"
cd "$scratch/consumer"
cp "$here/tests/tools/packages/engine_consumer.cc" "$here/tools/examples/c/train_lm.c" .
cat >WORKSPACE <<END
workspace(name = "consumer")

local_repository(name = "castor", path = "$scratch/castor")

load("@castor//tools/workspace:repositories.bzl", "castor_repositories")

castor_repositories()
END
cat >BUILD <<'END'
load("@castor//tools/workspace:doors.bzl", "ENGINE_DOORS", "HARDWARE_DOORS")

cc_library(
    name = "doors",
    tags = ["manual"],
    deps = ["@castor" + door for door in ENGINE_DOORS + HARDWARE_DOORS],
)

cc_binary(
    name = "engine_consumer",
    srcs = ["engine_consumer.cc"],
    deps = ["@castor//:engine"],
)

cc_binary(
    name = "train_lm",
    srcs = ["train_lm.c"],
    linkopts = ["-lm", "-pthread"],
    deps = ["@castor//:castor"],
)
END
cat >.bazelrc <<'END'
build --nosandbox_debug --strategy=CppCompile=local --strategy=CppArchive=local --define=castor_compiled_headers=on
build --cxxopt=-std=c++20 --host_cxxopt=-std=c++20 --copt=-ffp-contract=off
END
# Every door may be named; what is behind those of hardware is not built here.
/usr/bin/bazel --batch build --nobuild --curses=no --noshow_progress --show_result=0 //:doors
# Optimizing takes twice the time, and it is not this that is tried here.
/usr/bin/bazel --batch build --copt=-O0 --curses=no --noshow_progress --show_result=0 //...
[[ $(bazel-bin/engine_consumer) =~ ^[0-9a-f]{16}$ ]]
[[ $(bazel-bin/train_lm "$here/README.md" 20 | tail -1) == "weight digest after step 20: "* ]]
/usr/bin/bazel --batch clean --expunge
