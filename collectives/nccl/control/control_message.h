// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_CONTROL_CONTROL_MESSAGE_H_
#define CASTOR_COLLECTIVES_NCCL_CONTROL_CONTROL_MESSAGE_H_

// What ranks say to rank 0 and what it answers, beside NCCL. Values, and their
// bytes: a length of four bytes, then fixed fields, then two texts and a
// payload, each with its length. Little-endian, as every host of one job.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/world/collective_call.h"

namespace castor::internal {

enum class ControlKind : uint8_t {
  kHello,    // to rank 0: `text` holds the token and the facts of the rank
  kWelcome,  // from it: all ranks are there
  kReady,    // to it: the rank's lane has come to operation `position`
  kGo,       // from it: all ranks have
  kEnd,      // both ways: the world ends, with `status`
  kQuiet,    // to it: the rank's device touches no buffer any more, after an
             // end; from it: no rank's does
  kLeave,    // both ways: the rank will come to nothing from `position` on
};

struct ControlMessage {
  ControlKind kind = ControlKind::kHello;
  int rank = 0;  // of whom it is: kHello, kLeave
  int64_t position = 0;
  CollectiveCall call = {};             // of kReady, its purpose apart
  std::string text = {};                // the purpose, or as above
  Status status = {};                   // of kEnd
  std::vector<std::byte> payload = {};  // host data of kReady and kGo

  // `call`, with the purpose that lies in this message.
  CollectiveCall Call() const {
    CollectiveCall whole = call;
    whole.tag.purpose = text;
    return whole;
  }
};

// No message is longer: broadcasts of host data are what is large.
inline constexpr uint32_t kLongestMessage = uint32_t{1} << 30;
inline constexpr size_t kLengthBytes = 4;

// With its length before it.
std::vector<std::byte> Encode(const ControlMessage& message);
// Of what follows the length. Malformed where it is none.
Result<ControlMessage> Decode(std::span<const std::byte> bytes);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_NCCL_CONTROL_CONTROL_MESSAGE_H_
