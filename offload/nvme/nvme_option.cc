// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/nvme_option.h"

#include <cstdint>

#include "chunk/base/check.h"

namespace castor {

std::optional<Bytes> NvmeLimit(std::span<const NvmeOption> drives) {
  CASTOR_CHECK(!drives.empty());
  int64_t sum = 0;
  for (const NvmeOption& drive : drives) {
    if (!drive.size) return std::nullopt;
    const Bytes usable =
        drives.size() == 1 ? *drive.size : RoundDown(*drive.size, kNvmeStripe);
    if (__builtin_add_overflow(sum, usable.count(), &sum)) return std::nullopt;
  }
  return Bytes(sum);
}

}  // namespace castor
