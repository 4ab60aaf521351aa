#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Programs of another Bazel workspace, which names a clone of this repository as a local_repository. Part of tools/test.sh --sanitizers.
#
# A chunk-size search is built and run. Trainers in C++ and C are compiled alone: to build the engine once more takes five minutes, since paths
# are other paths there, and install_test.sh runs the same trainers.
#
#   tests/tools/packages/bazel_consumer.sh SCRATCH

set -euo pipefail

scratch=$(realpath "$1")
here=$(dirname "$(dirname "$(dirname "$(dirname "$(realpath "$0")")")")")
git clone --quiet "$here" "$scratch/castor"
mkdir "$scratch/consumer"
cd "$scratch/consumer"
cp "$here/tests/tools/packages/"{engine,search}_consumer.cc "$here/tools/examples/c/train_lm.c" .
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
    name = "search_consumer",
    srcs = ["search_consumer.cc"],
    deps = ["@castor//chunk:chunk_size_search"],
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
build=(/usr/bin/bazel --batch build --copt=-O0 --curses=no --noshow_progress --show_result=0)
# Every door may be named; what is behind those of hardware is not built here.
"${build[@]}" --nobuild //:doors
"${build[@]}" --output_groups=compilation_outputs //:engine_consumer //:train_lm
compiled=$(find -L bazel-bin/_objs -name '*.o' | wc -l)
((compiled == 2)) || { echo "2 trainers are to be compiled, and $compiled were" >&2; exit 1; }
"${build[@]}" //:search_consumer
[[ $(bazel-bin/search_consumer) == [1-9]*" chunks" ]]
/usr/bin/bazel --batch clean --expunge
