#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Installs the Debian packages that Castor is built with, those that are missing and no others.
#
#   tools/setup.sh build   what the castor command and the trainer are built with
#   tools/setup.sh test    that, and what the tests and benchmarks need
#   tools/setup.sh python  what the Python package is built and tried with
#
# Touches the network only when something is missing, and names the megabytes first. Exit: 0 everything is there, 2 usage, 5 this
# machine lacks something; the message then holds the one command to run as root.

set -euo pipefail

# Bazel brings g++, a JDK and python3 along.
build_packages=(
  bazel-bootstrap
  bazel-rules-java # Bazel 4.2.3 asks for it by name, and its package does not depend on it
  libcli11-dev
  libfmt-dev
  libhwloc-dev
  libhwy-dev
  libjemalloc-dev
  liblemon-dev
  libopenblas-pthread-dev
  liburing-dev
  libxxhash-dev
  nlohmann-json3-dev
  node-d3 # draws the pages of castor report --html
)
test_packages=(
  "${build_packages[@]}"
  clang-19
  clang-format-14
  cmake # with pkg-config: programs built from what tools/install.sh installs
  libbenchmark-dev
  libclang-rt-19-dev # the sanitizers
  libgmock-dev
  libopenmpi-dev # ranks that are processes: collectives/mpi
  lld-19
  openmpi-bin # mpirun
  pkg-config
)

case "$#:${1-}" in
  1:build) wanted=("${build_packages[@]}") ;;
  1:test) wanted=("${test_packages[@]}") ;;
  1:python) wanted=(python3-venv) ;;
  *)
    echo "usage: tools/setup.sh build|test|python" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "tools/setup.sh: this machine has no apt-get. Castor is built with these packages of Debian 12: ${wanted[*]}" >&2
  exit 5
fi

missing=()
for package in "${wanted[@]}"; do
  # One line per architecture that has the package.
  if ! dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed; then
    missing+=("$package")
  fi
done
((${#missing[@]})) || exit 0

command=(apt-get install -y --no-install-recommends "${missing[@]}")
if (($(id -u) == 0)); then
  as_root=(env)
elif command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
  as_root=(sudo env)
else
  echo "tools/setup.sh: ${#missing[@]} Debian packages are missing, and installing them needs root, which sudo does not give here." >&2
  echo "Run this as root, then the same command again: apt-get update && ${command[*]}" >&2
  exit 5
fi
as_root+=(DEBIAN_FRONTEND=noninteractive)

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Prints apt-get's own sentences on the size of what it would install; fails if it does not know a package.
sizes() {
  # Answering no, it fails either way.
  { LC_ALL=C apt-get install --assume-no --no-install-recommends -o Debug::NoLocking=1 "${missing[@]}" 2>&1 </dev/null || true; } |
    tr '\n' ' ' | grep -o 'Need to get .* disk space will be [a-z]*\.'
}

update() {
  echo "Updating the package lists (about 10 MB)." >&2
  "${as_root[@]}" apt-get update -qq >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    echo "tools/setup.sh: apt-get update failed: check the network and /etc/apt, then run this again." >&2
    exit 5
  }
}

install() {
  "${as_root[@]}" "${command[0]}" -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "${command[@]:1}" >"$log" 2>&1 </dev/null
}

if ! size=$(sizes); then
  update
  if ! size=$(sizes); then
    apt-get install --assume-no --no-install-recommends -o Debug::NoLocking=1 "${missing[@]}" 2>&1 </dev/null | grep '^E:' >&2 || true
    echo "tools/setup.sh: apt-get cannot install these packages, which Debian 12 has: ${missing[*]}" >&2
    exit 5
  fi
fi
echo "Installing ${#missing[@]} missing Debian packages and what they depend on: ${missing[*]}" >&2
echo "$size" >&2
# Lists that are old name files that the mirror no longer has: once more with new ones.
if ! install && ! { update && install; }; then
  tail -n 20 "$log" >&2
  echo "tools/setup.sh: apt-get could not install them. As root: ${command[*]}" >&2
  exit 5
fi
