// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/dtype.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace castor {
namespace {

struct DTypeInfo {
  DType dtype;
  int bits;
  std::string_view name;
};

constexpr std::array<DTypeInfo, 24> kInfos = {{
    {DType::kF64, 64, "F64"},
    {DType::kF32, 32, "F32"},
    {DType::kF16, 16, "F16"},
    {DType::kBF16, 16, "BF16"},
    {DType::kF8E4M3, 8, "F8_E4M3"},
    {DType::kF8E5M2, 8, "F8_E5M2"},
    {DType::kF8E8M0, 8, "F8_E8M0"},
    {DType::kF8E4M3Fnuz, 8, "F8_E4M3FNUZ"},
    {DType::kF8E5M2Fnuz, 8, "F8_E5M2FNUZ"},
    {DType::kF6E2M3, 6, "F6_E2M3"},
    {DType::kF6E3M2, 6, "F6_E3M2"},
    {DType::kF4, 4, "F4"},
    {DType::kI64, 64, "I64"},
    {DType::kI32, 32, "I32"},
    {DType::kI16, 16, "I16"},
    {DType::kI8, 8, "I8"},
    {DType::kU64, 64, "U64"},
    {DType::kU32, 32, "U32"},
    {DType::kU16, 16, "U16"},
    {DType::kU8, 8, "U8"},
    {DType::kBool, 8, "BOOL"},
    {DType::kC64, 64, "C64"},
    {DType::kBlocks8, 0, "8bit"},
    {DType::kBlocks8Positive, 0, "8bit"},
}};

// A scale, and a byte for each value.
constexpr Bytes kBlockBytes{4 + kScaleBlock.count()};

struct DTypeAlias {
  std::string_view name;
  DType dtype;
};

constexpr std::array<DTypeAlias, 9> kAliases = {{
    {"FLOAT64", DType::kF64},
    {"FLOAT32", DType::kF32},
    {"FLOAT", DType::kF32},
    {"FP32", DType::kF32},
    {"FLOAT16", DType::kF16},
    {"HALF", DType::kF16},
    {"FP16", DType::kF16},
    {"BFLOAT16", DType::kBF16},
    {"DOUBLE", DType::kF64},
}};

const DTypeInfo& InfoOf(DType dtype) {
  const DTypeInfo& info = kInfos[static_cast<size_t>(dtype)];
  CASTOR_CHECK(info.dtype == dtype);
  return info;
}

}  // namespace

int DTypeBits(DType dtype) {
  CASTOR_CHECK(!IsBlocks8(dtype));
  return InfoOf(dtype).bits;
}

std::string_view DTypeName(DType dtype) { return InfoOf(dtype).name; }

std::optional<DType> ParseDType(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  });
  for (const DTypeInfo& info : kInfos) {
    if (info.name == upper) return info.dtype;
  }
  for (const DTypeAlias& alias : kAliases) {
    if (alias.name == upper) return alias.dtype;
  }
  return std::nullopt;
}

Bytes BytesOf(Elements count, DType dtype) {
  const Bytes bytes = BytesToHold(count, dtype);
  if (IsBlocks8(dtype)) {
    CASTOR_CHECK_EQ(count.count() % kScaleBlock.count(), 0);
    return bytes;
  }
  // Only types smaller than a byte can end inside one.
  CASTOR_CHECK_EQ(count.count() % 8 * DTypeBits(dtype) % 8, 0);
  return bytes;
}

Bytes BytesToHold(Elements count, DType dtype) {
  if (IsBlocks8(dtype)) {
    const int64_t blocks =
        (count.count() + kScaleBlock.count() - 1) / kScaleBlock.count();
    return kBlockBytes * blocks;
  }
  const int bits = DTypeBits(dtype);
  if (bits % 8 == 0) return Bytes(count.count()) * (bits / 8);
  int64_t total_bits = 0;
  CASTOR_CHECK(!__builtin_mul_overflow(count.count(), bits, &total_bits));
  return Bytes(total_bits / 8 + (total_bits % 8 != 0 ? 1 : 0));
}

}  // namespace castor
