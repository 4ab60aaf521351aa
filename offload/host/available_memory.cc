// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/host/available_memory.h"

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
  const std::optional<std::string> line = ReadFirstLine(path);
  return line ? ParseNumber(*line) : std::nullopt;
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

// What the group of `folder` still allows.
void AddGroup(const std::string& folder, const Names& names,
              Smallest& smallest) {
  const auto limit = ReadNumber(folder + std::string(names.limit));
  const auto usage = ReadNumber(folder + std::string(names.usage));
  if (!limit || !usage) return;
  int64_t cache = 0;  // the kernel gives it up before it kills
  for (const std::string_view key : names.cache) {
    cache += ReadField(folder + "/memory.stat", key).value_or(0);
  }
  const int64_t held = std::max<int64_t>(*usage - cache, 0);
  smallest.Add(*limit - held, folder + std::string(names.limit));
}

}  // namespace

std::optional<AvailableMemory> ReadAvailableMemory(const SystemPaths& paths) {
  Smallest smallest;
  const std::string meminfo = paths.proc + "/meminfo";
  if (const auto kib = ReadField(meminfo, "MemAvailable:")) {
    smallest.Add(*kib * 1024, "MemAvailable in " + meminfo);
  }

  for (const CgroupFolder& folder : CgroupFolders(paths, "memory")) {
    AddGroup(folder.path, folder.version == 1 ? kVersion1 : kVersion2,
             smallest);
  }
  return std::move(smallest).found();
}

std::optional<AvailableMemory> ReadSpareMemory(const SystemPaths& paths) {
  std::optional<AvailableMemory> available = ReadAvailableMemory(paths);
  if (available) {
    available->bytes = std::max(available->bytes - kBesideSlabs, Bytes(0));
  }
  return available;
}

std::optional<Bytes> ReadPeakResident(const SystemPaths& paths) {
  const std::optional<int64_t> kib =
      ReadField(paths.proc + "/self/status", "VmHWM:");
  if (!kib) return std::nullopt;
  return KiB(*kib);
}

}  // namespace castor::internal
