// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/nvme_flag.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "chunk/base/quote.h"
#include "tools/cli/size_text.h"

namespace castor {
namespace {

Status BadValue(const std::string& value, std::string_view why) {
  return InvalidArgument(fmt::format("--nvme {}: {}", Quoted(value), why));
}

Result<NvmeOption> ParseDrive(const std::string& value) {
  NvmeOption drive;
  const size_t colon = value.rfind(':');
  std::error_code ignored;
  if (colon == std::string::npos ||
      std::filesystem::is_directory(value, ignored)) {
    if (value.empty()) return BadValue(value, "it names no directory");
    drive.directory = value;
    return drive;
  }
  if (colon == 0) {
    return BadValue(value, "no directory stands before the colon");
  }
  drive.directory = value.substr(0, colon);
  const Result<Bytes> size = ParseSize(value.substr(colon + 1));
  if (!size.ok()) {
    return BadValue(
        value, fmt::format("there is no such directory, so a size is expected "
                           "after the last colon: {}",
                           size.status().message()));
  }
  if (*size == Bytes(0)) {
    return BadValue(value,
                    "a drive that may hold nothing is of no use: give it a "
                    "size, or leave the size away for what is needed");
  }
  drive.size = *size;
  return drive;
}

}  // namespace

Result<std::vector<NvmeOption>> ParseNvmeFlag(
    const std::vector<std::string>& values) {
  std::vector<NvmeOption> drives;
  std::vector<std::filesystem::path> seen;
  for (const std::string& value : values) {
    CASTOR_ASSIGN_OR_RETURN(NvmeOption drive, ParseDrive(value));
    std::error_code ignored;
    std::filesystem::path real =
        std::filesystem::weakly_canonical(drive.directory, ignored);
    if (std::find(seen.begin(), seen.end(), real) != seen.end()) {
      return BadValue(value,
                      "this directory was given before: give each drive once, "
                      "with all that may go there");
    }
    seen.push_back(std::move(real));
    drives.push_back(std::move(drive));
  }
  return drives;
}

}  // namespace castor
