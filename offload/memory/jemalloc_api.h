// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_JEMALLOC_API_H_
#define CASTOR_OFFLOAD_MEMORY_JEMALLOC_API_H_

// What of jemalloc the pinned arena calls, whichever jemalloc that is: the one
// linked into Castor's executables under names of its own
// (offload/memory/linked_jemalloc.h), or the host process's
// (offload/memory/host_jemalloc.h). The arguments are those of jemalloc(3),
// version 5. Values. Part of the arena for jemalloc (jemalloc_arena.h).

#include <cstddef>

namespace castor {

struct JemallocApi {
  void* (*mallocx)(size_t size, int flags) = nullptr;
  void (*dallocx)(void* data, int flags) = nullptr;
  size_t (*nallocx)(size_t size, int flags) = nullptr;
  int (*mallctl)(const char* name, void* old_value, size_t* old_size,
                 void* new_value, size_t new_size) = nullptr;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_MEMORY_JEMALLOC_API_H_
