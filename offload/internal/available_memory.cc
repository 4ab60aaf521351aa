// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/internal/available_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace castor::internal {
namespace {

// The number that `text` starts with, after blanks.
std::optional<int64_t> ParseNumber(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return std::nullopt;
  text.remove_prefix(start);
  uint64_t value = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec == std::errc::invalid_argument) return std::nullopt;
  // Some kernels write "no limit" as a number near 2^64.
  if (parsed.ec != std::errc() || value > INT64_MAX) return INT64_MAX;
  return static_cast<int64_t>(value);
}

// A file that holds one number; "max" is none.
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return ParseNumber(line);
}

// The number after `key` at the start of a line.
std::optional<int64_t> ReadField(const std::string& path,
                                 std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) {
      return ParseNumber(std::string_view(line).substr(key.size()));
    }
  }
  return std::nullopt;
}

// How the two generations of cgroups name the same things.
struct Names {
  std::string_view limit;
  std::string_view usage;
  std::initializer_list<std::string_view> cache;  // in memory.stat
};
const Names kVersion1 = {"/memory.limit_in_bytes",
                         "/memory.usage_in_bytes",
                         {"total_inactive_file ", "total_active_file "}};
const Names kVersion2 = {
    "/memory.max", "/memory.current", {"inactive_file ", "active_file "}};

class Smallest {
 public:
  void Add(int64_t bytes, std::string source) {
    bytes = std::max<int64_t>(bytes, 0);
    if (found_ && found_->bytes <= Bytes(bytes)) return;
    found_ = {Bytes(bytes), std::move(source)};
  }
  std::optional<AvailableMemory> found() && { return std::move(found_); }

 private:
  std::optional<AvailableMemory> found_;
};

// A limit binds all that is below it, so every folder from `group` up to the
// root of `mount` counts. Inside a container the upper part of `group` is often
// missing, and the root of the mount is the container's own group.
void AddGroups(const std::string& mount, std::string group, const Names& names,
               Smallest& smallest) {
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    const std::string folder = mount + group;
    const auto limit = ReadNumber(folder + std::string(names.limit));
    const auto usage = ReadNumber(folder + std::string(names.usage));
    if (limit && usage) {
      int64_t cache = 0;  // the kernel gives it up before it kills
      for (const std::string_view key : names.cache) {
        cache += ReadField(folder + "/memory.stat", key).value_or(0);
      }
      const int64_t held = std::max<int64_t>(*usage - cache, 0);
      smallest.Add(*limit - held, folder + std::string(names.limit));
    }
    if (group.empty()) return;
    group.erase(group.rfind('/'));
  }
}

bool HasMemoryController(std::string_view controllers) {
  for (;;) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "memory") return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
}

}  // namespace

std::optional<AvailableMemory> ReadAvailableMemory(
    const AvailableMemoryPaths& paths) {
  Smallest smallest;
  const std::string meminfo = paths.proc + "/meminfo";
  if (const auto kib = ReadField(meminfo, "MemAvailable:")) {
    smallest.Add(*kib * 1024, "MemAvailable in " + meminfo);
  }

  // Lines "4:memory:/group" for version 1, "0::/group" for version 2.
  std::ifstream file(paths.proc + "/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (!group.starts_with('/')) continue;
    if (HasMemoryController(controllers)) {
      AddGroups(paths.cgroup + "/memory", group, kVersion1, smallest);
    } else if (controllers.empty()) {
      AddGroups(paths.cgroup, group, kVersion2, smallest);
    }
  }
  return std::move(smallest).found();
}

}  // namespace castor::internal
