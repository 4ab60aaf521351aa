// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_MANIFEST_CHECK_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_MANIFEST_CHECK_H_

// What must hold of a manifest as a whole, once its text was read: the inside
// of ParseManifest.

#include <cstdint>

#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_manifest.h"

namespace castor::internal {

// Of one file, and of all together.
inline constexpr int64_t kMostBytes = int64_t{1} << 62;

// Malformed where files or parameters are listed twice, a parameter has no
// weights, or its states do not fit the files that they are said to be in.
// REQUIRES: no file has more than kMostBytes, and none a negative index.
Status CheckManifest(const CheckpointManifest& manifest);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_CHECKPOINT_MANIFEST_CHECK_H_
