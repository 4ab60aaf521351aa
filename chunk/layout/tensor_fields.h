// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_LAYOUT_TENSOR_FIELDS_H_
#define CASTOR_CHUNK_LAYOUT_TENSOR_FIELDS_H_

// The fields that every description of a tensor shares, read from untrusted
// text. Pure functions, thread-safe.

#include <cstdint>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/strict_json.h"

namespace castor {

// More dimensions than any tensor library handles.
inline constexpr size_t kMaxRank = 64;

enum class DTypeSpelling {
  kExact,    // as safetensors writes it: "BF16"
  kLenient,  // in any case, and as trainers write it: "bfloat16"
};

// Malformed with the nearest known name.
Result<DType> ReadDType(std::string_view name, DTypeSpelling spelling);

// Adds the dimension that `scalar` must be: a whole number from 0 to 2^63 - 1.
Status AppendDim(const JsonScalar& scalar, std::vector<int64_t>* shape);

// The size of a tensor in memory. Malformed where the shape overflows, or where
// elements smaller than a byte do not end on one.
Result<Bytes> TensorBytes(const std::vector<int64_t>& shape, DType dtype);

}  // namespace castor

#endif  // CASTOR_CHUNK_LAYOUT_TENSOR_FIELDS_H_
