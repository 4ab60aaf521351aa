// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_LINKED_JEMALLOC_H_
#define CASTOR_OFFLOAD_MEMORY_LINKED_JEMALLOC_H_

// The jemalloc inside Castor's executables. Every symbol of it, internal ones
// too, begins with castor_je_ (tools/workspace/jemalloc.bzl), so it is never
// the process's malloc and never meets another jemalloc. For executables only:
// its thread-local storage cannot be loaded by dlopen. Thread-safe.

#include "offload/memory/jemalloc_api.h"

namespace castor {

const JemallocApi& LinkedJemalloc();

}  // namespace castor

#endif  // CASTOR_OFFLOAD_MEMORY_LINKED_JEMALLOC_H_
