// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_NVME_OPTION_H_
#define CASTOR_OFFLOAD_NVME_NVME_OPTION_H_

// A drive as a user gives it to Castor. Value.

#include <filesystem>
#include <optional>
#include <span>

#include "chunk/base/units.h"

namespace castor {

// What one of several drives gets before it is the next one's turn, unless the
// store is told otherwise.
inline constexpr Bytes kNvmeStripe = MiB(1);

struct NvmeOption {
  std::filesystem::path directory;  // must exist; jobs may share it
  // The most Castor may write there; empty: what is needed.
  std::optional<Bytes> size;
};

// The most that may be written to all of `drives`, of several in whole stripes
// of each; empty: what is needed, as soon as one of them says so, or where the
// sum is more than can be counted. REQUIRES: drives are given, and no size is
// negative.
std::optional<Bytes> NvmeLimit(std::span<const NvmeOption> drives);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_NVME_OPTION_H_
