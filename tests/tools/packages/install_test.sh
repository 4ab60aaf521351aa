#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# tools/install.sh, and programs in C and C++ that are built from what it installed, outside the tree: by pkg-config, by CMake and by
# plain flags. The prefix is moved in between. Bazel is a stand-in here: what it would build is this test's own input.

set -euo pipefail

fail() {
  echo "$0: $*" >&2
  exit 1
}

runfiles=$PWD
clone=$TEST_TMPDIR/clone
mkdir -p "$clone/tools" "$clone/collectives/c_api" "$clone/bazel-bin"
sed "s|/usr/bin/bazel|$clone/bazel|" tools/install.sh >"$clone/tools/install.sh"
printf '#!/bin/bash\necho "$*" >>bazel_calls\n' >"$clone/bazel"
printf '#!/bin/bash\n' >"$clone/tools/setup.sh"
chmod +x "$clone/tools/install.sh" "$clone/tools/setup.sh" "$clone/bazel"
cp collectives/c_api/castor{,_mpi}.h "$clone/collectives/c_api/"
for file in castor_engine.a castor_engine_headers.tar castor_engine_linkopts collectives tools; do
  ln -s "$runfiles/$file" "$clone/bazel-bin/$file"
done

for arguments in "" "a b" "--help"; do
  # shellcheck disable=SC2086
  "$clone/tools/install.sh" $arguments 2>/dev/null && fail "took the arguments '$arguments'"
  (($? == 2)) || fail "'$arguments' is no usage error"
done
touch "$TEST_TMPDIR/file"
code=0
"$clone/tools/install.sh" "$TEST_TMPDIR/file/prefix" 2>"$TEST_TMPDIR/refusal" || code=$?
((code == 5)) || fail "a prefix that cannot be made ends with $code"
grep -q "cannot be written to" "$TEST_TMPDIR/refusal" || fail "does not say what is wrong: $(cat "$TEST_TMPDIR/refusal")"
# As Bazel ends on an error of its own.
mv "$clone/bazel" "$clone/sound"
printf '#!/bin/bash\nexit 37\n' >"$clone/bazel"
chmod +x "$clone/bazel"
code=0
"$clone/tools/install.sh" "$TEST_TMPDIR/unbuilt" || code=$?
((code == 1)) || fail "a build that fails ends with $code"
[[ ! -e $TEST_TMPDIR/unbuilt/lib ]] || fail "installs what was not built"
mv "$clone/sound" "$clone/bazel"

"$clone/tools/install.sh" "$TEST_TMPDIR/first" >"$TEST_TMPDIR/said"
grep -qF "local_repository(name = \"castor\", path = \"$clone\")" "$TEST_TMPDIR/said" || fail "does not say how Bazel has it"
# Once more, over itself.
"$clone/tools/install.sh" "$TEST_TMPDIR/first" >/dev/null
grep -q "libcastor.so" "$clone/bazel_calls" || fail "does not build the library"
prefix=$TEST_TMPDIR/moved/here
mkdir "$TEST_TMPDIR/moved"
mv "$TEST_TMPDIR/first" "$prefix"

# Not by grep -q at a pipe: what writes after grep has ended fails, and the pipe with it.
[[ $(objdump -p "$prefix/lib/libcastor.so.0") =~ SONAME\ +libcastor\.so\.0$'\n' ]] || fail "libcastor.so.0 has another soname"
[[ $("$prefix/bin/castor" --version) == "castor "* ]] || fail "castor does not run"
for page in castor castor-search castor-plan; do
  grep -q "^\.SH NAME" "$prefix/share/man/man1/$page.1" || fail "$page.1 is no page"
done
(($(ls "$prefix/share/man/man1" | wc -l) == 10)) || fail "pages: $(ls "$prefix/share/man/man1")"
# As bash would: the flags of search that begin with --mi.
completed=$(bash -c "source '$prefix/share/bash-completion/completions/castor'
  COMP_WORDS=(castor search --mi) COMP_CWORD=2; _castor; echo \${COMPREPLY[*]}
  COMP_WORDS=(castor pl) COMP_CWORD=1; _castor; echo \${COMPREPLY[*]}")
[[ $completed == $'--min\nplan' ]] || fail "completes to $completed"

work=$TEST_TMPDIR/work
mkdir "$work"
cp tools/examples/c/train_lm.c tests/tools/packages/engine_consumer.cc tests/tools/packages/CMakeLists.txt "$work"
cd "$work"
printf 'the quick brown fox jumps over the lazy dog; %.0s' {1..40} >text

check_c() {
  [[ $("$1" text 20 | tail -1) =~ ^weight\ digest\ after\ step\ 20:\ [0-9a-f]{16}$ ]] || fail "$1 does not train"
}
check_engine() {
  [[ $("$1") =~ ^[0-9a-f]{16}$ ]] || fail "$1 does not train"
}

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
# shellcheck disable=SC2046
gcc -std=c11 -Wall -Wextra -Werror train_lm.c -o by_pkg_config $(pkg-config --cflags --libs castor) -lm -Wl,-rpath,"$prefix/lib"
check_c ./by_pkg_config
# shellcheck disable=SC2046
g++ -Wall -Wextra -Werror engine_consumer.cc -o engine_by_pkg_config $(pkg-config --cflags --libs castor-engine)
check_engine ./engine_by_pkg_config

cmake -S . -B build -DCMAKE_PREFIX_PATH="$prefix" >cmake.log || fail "cmake: $(cat cmake.log)"
cmake --build build >>cmake.log || fail "cmake: $(cat cmake.log)"
check_c build/c_consumer
check_engine build/engine_consumer

gcc train_lm.c -o by_flags -I"$prefix/include" -L"$prefix/lib" -lcastor -lm
LD_LIBRARY_PATH=$prefix/lib check_c ./by_flags
mapfile -t flags < <(tr ' ' '\n' <"$runfiles/castor_engine_linkopts")
g++ -std=c++20 engine_consumer.cc -o engine_by_flags -I"$prefix/include/castor" -L"$prefix/lib" -lcastor_engine "${flags[@]}"
check_engine ./engine_by_flags

# Ranks of MPI: a world of one.
cat >mpi_world.c <<'END'
#include <castor_mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int provided = 0;
  castor_world* world = NULL;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  const int32_t made = castor_world_create_mpi(MPI_COMM_WORLD, NULL, &world);
  printf("%s\n", made == CASTOR_OK ? "a world" : castor_last_error());
  castor_world_destroy(world);
  MPI_Finalize();
  return 0;
}
END
# shellcheck disable=SC2046
mpicc -std=c11 -Wall -Wextra -Werror mpi_world.c -o mpi_world $(pkg-config --cflags --libs castor) -Wl,-rpath,"$prefix/lib"
said=$(TMPDIR=/tmp OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ./mpi_world)
[[ $said == "a world" ]] || fail "a program of MPI says: $said"

# As docs/port_your_trainer.md says it, but for the place.
mkdir -p tools/examples/c
cp train_lm.c tools/examples/c
cp text README.md
page=$(sed -n 's/^\$ //p' "$runfiles/docs/port_your_trainer.md" | grep -v install.sh)
(($(wc -l <<<"$page") == 2)) || fail "the page has other commands: $page"
eval "$(sed "s|~/castor|$prefix|g; s|\$HOME/castor|$prefix|g" <<<"$page")" | tail -1 >said
grep -q "^weight digest after step 100" said || fail "the page's commands print $(cat said)"

# The example goes on where it was saved.
"$work/by_pkg_config" text 40 | tail -1 >whole
"$work/by_pkg_config" text 20 folder >/dev/null
"$work/by_pkg_config" text 40 folder | tail -1 | cmp - whole || fail "the example resumes to other weights"
"$work/by_pkg_config" absent 2>/dev/null && fail "the example reads what is not there"
echo "installed, moved, and seven programs built"
