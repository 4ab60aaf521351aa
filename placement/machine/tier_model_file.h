// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_MACHINE_TIER_MODEL_FILE_H_
#define CASTOR_PLACEMENT_MACHINE_TIER_MODEL_FILE_H_

// The text of a tier model, as `castor probe` writes it and every other command
// reads it:
//
//   {
//     "schema": "castor.machine/1",
//     "links": {
//       "host_to_device": {
//         "bytes_per_second": 55000000000,
//         "latency_ns": 9000
//       }
//     },
//     "collectives": {
//       "all_gather": {
//         "bytes_per_second": 340000000000,
//         "step_latency_ns": 3400
//       }
//     },
//     "memory": {
//       "bytes_per_second": 190000000000
//     }
//   }
//
// Links are host_to_device, device_to_host, both with _duplex at the end for
// what they do while the other one is busy, nvme_read, nvme_write, nvme_mixed;
// collectives all_gather, reduce_scatter; rates, beside those two sections,
// memory and optimizer. Whatever is left out is unknown; what is there says all
// of its numbers. Pure functions, thread-safe. Part of the model of tiers
// (tier_model.h).

#include <cstdint>
#include <string>
#include <string_view>

#include "chunk/base/status.h"
#include "placement/tier_model.h"

namespace castor {

inline constexpr char kMachineSchema[] = "castor.machine/1";

// A longer file is refused.
inline constexpr uint64_t kMaxTierModelBytes = uint64_t{1} << 20;

// Malformed, naming the key and the byte, for anything that is not such a text:
// another schema, a key that is unknown (the nearest known one is named) or
// given twice, a number that is not whole or out of its limits.
Result<TierModel> ParseTierModel(std::string_view text);

// What ParseTierModel reads back as `model`, with a line's end. REQUIRES: its
// numbers are within the limits of tier_model.h.
std::string FormatTierModel(const TierModel& model);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_MACHINE_TIER_MODEL_FILE_H_
