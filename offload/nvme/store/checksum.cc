// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/store/checksum.h"

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace castor {

uint64_t Checksum(std::span<const std::byte> data) {
  return XXH3_64bits(data.data(), data.size());
}

}  // namespace castor
