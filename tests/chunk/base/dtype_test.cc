// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/dtype.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace castor {
namespace {

// Bits as the safetensors format defines them.
const std::vector<std::pair<std::string, int>> kFormat = {
    {"F64", 64},        {"F32", 32},    {"F16", 16},    {"BF16", 16},
    {"F8_E4M3", 8},     {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
    {"I64", 64},        {"I32", 32},    {"I16", 16},    {"I8", 8},
    {"U64", 64},        {"U32", 32},    {"U16", 16},    {"U8", 8},
    {"BOOL", 8},        {"C64", 64}};

TEST(DTypeTest, NamesAndSizesAreThoseOfTheFormat) {
  std::set<DType> seen;
  for (const auto& [name, bits] : kFormat) {
    const std::optional<DType> dtype = ParseDType(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(DTypeName(*dtype), name);
    EXPECT_EQ(DTypeBits(*dtype), bits) << name;
    seen.insert(*dtype);
  }
  EXPECT_EQ(seen.size(), kFormat.size());
}

TEST(DTypeTest, ReadsTrainersNamesInAnyCase) {
  EXPECT_EQ(ParseDType("bf16"), DType::kBF16);
  EXPECT_EQ(ParseDType("bfloat16"), DType::kBF16);
  EXPECT_EQ(ParseDType("Float32"), DType::kF32);
  EXPECT_EQ(ParseDType("float"), DType::kF32);
  EXPECT_EQ(ParseDType("half"), DType::kF16);
  EXPECT_EQ(ParseDType("fp16"), DType::kF16);
  EXPECT_EQ(ParseDType("double"), DType::kF64);
}

TEST(DTypeTest, RefusesOtherNames) {
  for (const char* name : {"", "F", "F33", "BF16 ", "float128", "F32\n"}) {
    EXPECT_FALSE(ParseDType(name).has_value()) << name;
  }
}

TEST(DTypeTest, CountsBytes) {
  EXPECT_EQ(BytesOf(Elements(3), DType::kF32), Bytes(12));
  EXPECT_EQ(BytesOf(Elements(3), DType::kBF16), Bytes(6));
  EXPECT_EQ(BytesOf(Elements(4), DType::kF6E2M3), Bytes(3));
  EXPECT_EQ(BytesOf(Elements(128), DType::kF4), Bytes(64));
  EXPECT_EQ(BytesOf(Elements(0), DType::kF4), Bytes(0));
}

TEST(DTypeTest, BytesToHoldRoundsUpWhereElementsEndInsideAByte) {
  EXPECT_EQ(BytesToHold(Elements(1), DType::kF4), Bytes(1));
  EXPECT_EQ(BytesToHold(Elements(3), DType::kF4), Bytes(2));
  EXPECT_EQ(BytesToHold(Elements(5), DType::kF6E3M2), Bytes(4));
  EXPECT_EQ(BytesToHold(Elements(5), DType::kF32), Bytes(20));
}

// A scale of four bytes and a byte for each of 128 values, which are there to a
// block's end.
TEST(DTypeTest, BlocksOf8BitsAreCountedWhole) {
  for (const DType dtype : {DType::kBlocks8, DType::kBlocks8Positive}) {
    EXPECT_TRUE(IsBlocks8(dtype));
    EXPECT_EQ(BytesOf(Elements(0), dtype), Bytes(0));
    EXPECT_EQ(BytesOf(Elements(128), dtype), Bytes(132));
    EXPECT_EQ(BytesOf(Elements(1280), dtype), Bytes(1320));
    EXPECT_EQ(BytesToHold(Elements(1), dtype), Bytes(132));
    EXPECT_EQ(BytesToHold(Elements(129), dtype), Bytes(264));
    EXPECT_EQ(DTypeName(dtype), "8bit");
  }
  EXPECT_FALSE(IsBlocks8(DType::kU8));
  // No file and no parameter is of them.
  EXPECT_FALSE(ParseDType("8bit").has_value());
}

TEST(DTypeDeathTest, BytesOfNeedsWholeBytesThatFit) {
  EXPECT_DEATH(BytesOf(Elements(1), DType::kF4), "CHECK");
  EXPECT_DEATH(BytesOf(Elements(2), DType::kF6E2M3), "CHECK");
  EXPECT_DEATH(BytesOf(Elements(64), DType::kBlocks8), "CHECK");
  EXPECT_DEATH(DTypeBits(DType::kBlocks8), "CHECK");
  EXPECT_DEATH(
      BytesOf(Elements(std::numeric_limits<int64_t>::max()), DType::kF32),
      "CHECK");
}

}  // namespace
}  // namespace castor
