// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_VERIFY_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_VERIFY_H_

// Whether a checkpoint holds the bytes that were saved. Reads all of it, a few
// MiB at a time. Thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_reader.h"

namespace castor {

// Calls `on_piece` for elements [begin, begin + count) of a tensor, from the
// first to the last; each piece but the last ends with a block of 64 elements.
Status ForEachPiece(const CheckpointReader& reader, size_t param,
                    const SavedState& state,
                    const std::function<void(int64_t begin, int64_t count,
                                             const void* data)>& on_piece);

// What is not as it was saved.
struct CheckpointDamage {
  std::string file;
  std::string tensor;  // empty: what stands before the tensors, or a whole file
};

// Empty where nothing is damaged. IoError where something cannot be read.
Result<std::vector<CheckpointDamage>> FindDamage(
    const CheckpointReader& reader);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_VERIFY_H_
