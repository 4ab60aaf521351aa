// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_HOMES_HOMES_FILE_H_
#define CASTOR_PLACEMENT_HOMES_HOMES_FILE_H_

// Where each state of each chunk of one rank is at home, and why, as text for
// the record of a run:
//
//   {
//   "schema": "castor.homes/1",
//   "reasons": ["param on host by the budgets"],
//   "chunks": [{"param": ["host", 4096, 0], "exp_avg": ["nvme", 8192, 0]}]
//   }
//
// A state is a tier, its bytes on this rank, and the number of a reason. States
// that do not exist are left out. Values and pure functions, thread-safe.

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "placement/run_event.h"

namespace castor {

inline constexpr char kHomesSchema[] = "castor.homes/1";

struct StateHome {
  Tier tier = Tier::kDevice;
  Bytes bytes;
  std::string why;  // a sentence

  friend bool operator==(const StateHome&, const StateHome&) = default;
};

// By StateKind; empty where the state does not exist.
using HomesOfChunk = std::array<std::optional<StateHome>, kStateKinds>;

// Of chunks by ChunkId. ParseHomes reads it back as it was.
std::string WriteHomes(std::span<const HomesOfChunk> chunks,
                       const StateNames& names);

// Malformed, naming the chunk, for every text that is no such document, or has
// states by other names.
Result<std::vector<HomesOfChunk>> ParseHomes(std::string_view text,
                                             const StateNames& names);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_HOMES_HOMES_FILE_H_
