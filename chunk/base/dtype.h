// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_DTYPE_H_
#define CASTOR_CHUNK_BASE_DTYPE_H_

// Element types, named as safetensors names them. A size is in bits because
// some types are smaller than a byte. The last two are of optimizer states in
// memory alone: blocks of 128 values, each a float32 scale and a byte a value
// (offload/kernels/numbers/block_codes.h). No file has them. Values.

#include <cstdint>
#include <optional>
#include <string_view>

#include "chunk/base/units.h"

namespace castor {

enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF6E2M3,
  kF6E3M2,
  kF4,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kC64,
  kBlocks8,          // values of either sign
  kBlocks8Positive,  // values of which none is negative
};

// REQUIRES: the type is not one of blocks.
int DTypeBits(DType dtype);

// Values that share a scale. A shard is a multiple of 128 elements, so no
// border of shards cuts a block of a parameter that begins at such a multiple.
inline constexpr Elements kScaleBlock{128};
constexpr bool IsBlocks8(DType dtype) {
  return dtype == DType::kBlocks8 || dtype == DType::kBlocks8Positive;
}

// "F32", "BF16", ... as in a safetensors header; "8bit" for types of blocks.
std::string_view DTypeName(DType dtype);

// Case-insensitive; also accepts the names trainers use ("float32",
// "bfloat16", "half", ...). Empty for anything else, types of blocks too.
std::optional<DType> ParseDType(std::string_view name);

// REQUIRES: `count` elements of `dtype` end on a byte, or with a block.
Bytes BytesOf(Elements count, DType dtype);

// The same, rounded up to whole bytes or blocks where they end inside one.
Bytes BytesToHold(Elements count, DType dtype);

}  // namespace castor

#endif  // CASTOR_CHUNK_BASE_DTYPE_H_
