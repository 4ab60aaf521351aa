// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/linked_jemalloc.h"

extern "C" {

void* castor_je_mallocx(size_t size, int flags);
void castor_je_dallocx(void* data, int flags);
size_t castor_je_nallocx(size_t size, int flags);
int castor_je_mallctl(const char* name, void* old_value, size_t* old_size,
                      void* new_value, size_t new_size);

// What jemalloc goes by, over MALLOC_CONF, which is meant for others: nobody
// uses it but for arenas made by name, so none for each processor, no caches of
// threads, and nothing kept for later.
extern const char* castor_je_malloc_conf_2_conf_harder;
const char* castor_je_malloc_conf_2_conf_harder =
    "narenas:1,tcache:false,retain:false,dirty_decay_ms:0,muzzy_decay_ms:0,"
    "background_thread:false,prof:false,junk:false,stats_print:false";

// jemalloc's opt.cache_oblivious, which gives large buffers a page more than
// they ask for. Version 5.3.0 has the option and forgot its name in the string
// above, so it is set here, before jemalloc's own constructor reads it.
extern bool castor_je_je_opt_cache_oblivious;

__attribute__((constructor(101))) static void TurnOffCacheOblivious() {
  castor_je_je_opt_cache_oblivious = false;
}

}  // extern "C"

namespace castor {

const JemallocApi& LinkedJemalloc() {
  static constexpr JemallocApi kLinked = {
      .mallocx = &castor_je_mallocx,
      .dallocx = &castor_je_dallocx,
      .nallocx = &castor_je_nallocx,
      .mallctl = &castor_je_mallctl,
  };
  return kLinked;
}

}  // namespace castor
