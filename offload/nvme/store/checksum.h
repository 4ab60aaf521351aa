// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_STORE_CHECKSUM_H_
#define CASTOR_OFFLOAD_NVME_STORE_CHECKSUM_H_

// What an NVMe store remembers of each piece that it writes. Pure function,
// thread-safe. Part of the store (nvme_store.h).

#include <cstddef>
#include <cstdint>
#include <span>

namespace castor {

// XXH3, 64 bits.
uint64_t Checksum(std::span<const std::byte> data);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_STORE_CHECKSUM_H_
