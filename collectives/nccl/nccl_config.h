// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_NCCL_CONFIG_H_
#define CASTOR_COLLECTIVES_NCCL_NCCL_CONFIG_H_

// Part of the calls of NCCL (nccl_calls.h).
//
// How a communicator of NCCL is asked for: ncclConfig_t as it was in NCCL 2.14.
// Later versions append to it, read `size` bytes of it and know by `version`
// which of them mean something. A value.

#include <cstddef>

namespace castor {

// What is required of NCCL: non-blocking communicators.
inline constexpr int kOldestNccl = 21400;

struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = kOldestNccl;
  int blocking = 0;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_NCCL_NCCL_CONFIG_H_
