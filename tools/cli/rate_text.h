// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/quantity_text.h"
#include "placement/tier_model.h"
namespace castor {
inline Result<int64_t> ParseBandwidth(std::string_view t) {
  return ParseBandwidth(t, kMaxBytesPerSecond);
}
inline Result<int64_t> ParseLatency(std::string_view t) {
  return ParseTime(t, kMaxLatencyNs);
}
}  // namespace castor
