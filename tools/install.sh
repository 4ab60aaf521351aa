#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Builds Castor and installs it under a prefix, which may be moved as a whole afterwards.
#
#   tools/install.sh PREFIX
#
#   bin/castor                       the command, with its pages of the manual and bash's completion under share/
#   lib/libcastor.so.0               for C and for languages that call C; include/castor.h, and castor_mpi.h for ranks of MPI
#   lib/libcastor_engine.a           for C++; headers under include/castor/
#   lib/pkgconfig/castor.pc          and castor-engine.pc
#   lib/cmake/Castor/                find_package(Castor): Castor::castor, Castor::engine
#
# Exit: 0 installed, 1 the build failed, 2 usage, 5 this machine lacks something.

set -euo pipefail

if (($# != 1)) || [[ -z $1 || $1 == -* ]]; then
  echo "usage: tools/install.sh PREFIX, for instance tools/install.sh ~/castor" >&2
  exit 2
fi
here=$(dirname "$(dirname "$(realpath "$0")")")
if ! mkdir -p "$1" || [[ ! -w $1 ]]; then
  echo "tools/install.sh: $1 cannot be written to: name a folder of yours, or run it as whoever owns that one" >&2
  exit 5
fi
prefix=$(realpath "$1")
cd "$here"

tools/setup.sh build
/usr/bin/bazel build --noshow_progress //tools:castor //collectives/c_api:libcastor.so //:castor_engine || exit 1

built=bazel-bin
castor=$built/tools/castor
version=$("$castor" --version | cut -d' ' -f2)
flags=$(cat $built/castor_engine_linkopts)

# As install does, for what is made here.
write() {
  mkdir -p "$prefix/$(dirname "$1")"
  cat >"$prefix/$1"
}

install -D "$castor" "$prefix/bin/castor"
install -D -m 755 $built/collectives/c_api/libcastor.so "$prefix/lib/libcastor.so.0"
ln -sf libcastor.so.0 "$prefix/lib/libcastor.so"
install -D -m 644 -t "$prefix/include" collectives/c_api/castor.h collectives/c_api/castor_mpi.h
install -D -m 644 $built/castor_engine.a "$prefix/lib/libcastor_engine.a"
rm -rf "$prefix/include/castor"
mkdir -p "$prefix/include/castor"
tar -xf $built/castor_engine_headers.tar -C "$prefix/include/castor"

write lib/pkgconfig/castor.pc <<END
prefix=\${pcfiledir}/../..

Name: Castor
Description: Chunks of a model on GPU, host memory and NVMe, and ZeRO over them, for C
Version: $version
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -lcastor
END
write lib/pkgconfig/castor-engine.pc <<END
prefix=\${pcfiledir}/../..

Name: Castor engine
Description: Chunks of a model on GPU, host memory and NVMe, and ZeRO over them, for C++
Version: $version
Cflags: -std=c++20 -I\${prefix}/include/castor
Libs: -L\${prefix}/lib -lcastor_engine $flags
END

write lib/cmake/Castor/CastorConfig.cmake <<END
# Castor::castor is libcastor.so, for C and C++; Castor::engine the engine in C++20, as a static library.
get_filename_component(_castor_prefix "\${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET Castor::castor)
  add_library(Castor::castor SHARED IMPORTED)
  set_target_properties(Castor::castor PROPERTIES
    IMPORTED_LOCATION "\${_castor_prefix}/lib/libcastor.so.0"
    IMPORTED_SONAME "libcastor.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "\${_castor_prefix}/include")
endif()
if(NOT TARGET Castor::engine)
  add_library(Castor::engine STATIC IMPORTED)
  set_target_properties(Castor::engine PROPERTIES
    IMPORTED_LOCATION "\${_castor_prefix}/lib/libcastor_engine.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES "CXX"
    INTERFACE_COMPILE_FEATURES "cxx_std_20"
    INTERFACE_INCLUDE_DIRECTORIES "\${_castor_prefix}/include/castor"
    INTERFACE_LINK_LIBRARIES "$flags")
endif()
unset(_castor_prefix)
END
write lib/cmake/Castor/CastorConfigVersion.cmake <<END
set(PACKAGE_VERSION "$version")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
END

"$castor" help --man | write share/man/man1/castor.1
for command in $("$castor" help --completion bash | sed -n "s/^    \*:1) words='\(.*\) help --version'.*/\1/p"); do
  "$castor" help --man "$command" | write "share/man/man1/castor-$command.1"
done
"$castor" help --completion bash | write share/bash-completion/completions/castor

cat <<END
Castor $version is in $prefix:
  C      cc main.c \$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs castor)
  C++    c++ main.cc \$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs castor-engine)
  CMake  find_package(Castor), with -DCMAKE_PREFIX_PATH=$prefix
  Bazel  local_repository(name = "castor", path = "$here"), and what tools/workspace/repositories.bzl says
Programs that are linked with libcastor.so find it by -Wl,-rpath,$prefix/lib or LD_LIBRARY_PATH=$prefix/lib.
END
