// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/host/cpu_quota.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace castor::internal {
namespace {

// Takes the number that `text` starts with off it; nothing for anything else,
// "max" and -1, which mean no limit, among it.
std::optional<int64_t> TakeNumber(std::string_view* text) {
  text->remove_prefix(std::min(text->find_first_not_of(" \t"), text->size()));
  uint32_t value = 0;
  const auto parsed =
      std::from_chars(text->data(), text->data() + text->size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(parsed.ptr - text->data()));
  return value;
}

std::optional<double> Ratio(std::optional<int64_t> quota,
                            std::optional<int64_t> period) {
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// Microseconds of processor time in each period.
std::optional<double> QuotaOf(const CgroupFolder& folder) {
  if (folder.version == 2) {
    const auto line = ReadFirstLine(folder.path + "/cpu.max");
    if (!line) return std::nullopt;
    std::string_view text = *line;
    const auto quota = TakeNumber(&text);
    return Ratio(quota, TakeNumber(&text));
  }
  const auto quota = ReadFirstLine(folder.path + "/cpu.cfs_quota_us");
  const auto period = ReadFirstLine(folder.path + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  std::string_view quota_text = *quota;
  std::string_view period_text = *period;
  return Ratio(TakeNumber(&quota_text), TakeNumber(&period_text));
}

}  // namespace

std::optional<double> ReadCpuQuota(const SystemPaths& paths) {
  std::optional<double> least;
  for (const CgroupFolder& folder : CgroupFolders(paths, "cpu")) {
    const std::optional<double> quota = QuotaOf(folder);
    if (quota && (!least || *quota < *least)) least = quota;
  }
  return least;
}

}  // namespace castor::internal
