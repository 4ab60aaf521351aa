// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/host_jemalloc.h"

#include <dlfcn.h>

#include <cstdlib>

#include "offload/memory/jemalloc_arena.h"

namespace castor {
namespace {

constexpr long kLeastVersion = 5;

template <typename Function>
bool Find(const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  return *function != nullptr;
}

}  // namespace

std::optional<JemallocApi> HostJemalloc() {
  JemallocApi api;
  if (!Find("mallocx", &api.mallocx) || !Find("dallocx", &api.dallocx) ||
      !Find("nallocx", &api.nallocx) || !Find("mallctl", &api.mallctl)) {
    return std::nullopt;
  }
  const char* version = nullptr;
  size_t size = sizeof(version);
  if (api.mallctl("version", &version, &size, nullptr, 0) != 0) {
    return std::nullopt;
  }
  // "5.3.0-0-g54eaed1d".
  if (std::strtol(version, nullptr, 10) < kLeastVersion) return std::nullopt;
  return api;
}

Result<std::unique_ptr<PinnedArena>> MakeHostPinnedArena(
    const PinnedArenaOptions& options) {
  if (const std::optional<JemallocApi> host = HostJemalloc()) {
    return MakeJemallocArena(*host, options);
  }
  return MakePinnedArena(options);
}

}  // namespace castor
