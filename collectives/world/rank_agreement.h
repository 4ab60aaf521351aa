// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_WORLD_RANK_AGREEMENT_H_
#define CASTOR_COLLECTIVES_WORLD_RANK_AGREEMENT_H_

// What ranks ask of each other around work that each does for itself, such as
// writing its part of a checkpoint. All ranks call the same, in the same order,
// on a lane for their collectives; each call blocks until all have come to it.
// Fails as the communicator does. One rank alone asks nobody. Owner thread of
// the communicator only.

#include <cstdint>
#include <span>
#include <string_view>

#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "offload/lane.h"

namespace castor::internal {

// The first failure among ranks, by rank, on every rank, which names the rank;
// InvalidArgument where none failed and `same` is not the same on all.
// `purpose`: a literal, what they do.
Status AgreeOn(Communicator& comm, Lane& lane, const Status& own, uint64_t same,
               std::string_view purpose);

// Adds up every one of `sums` over all ranks, in 64 bits.
Status SumOverRanks(Communicator& comm, Lane& lane, std::span<uint64_t> sums,
                    std::string_view purpose);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_WORLD_RANK_AGREEMENT_H_
