// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/tensor_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {
namespace {

using testing::HasSubstr;

TEST(TensorFieldsTest, ReadsDTypesExactlyOrLeniently) {
  EXPECT_EQ(*ReadDType("BF16", DTypeSpelling::kExact), DType::kBF16);
  EXPECT_EQ(*ReadDType("F8_E4M3FNUZ", DTypeSpelling::kExact),
            DType::kF8E4M3Fnuz);
  EXPECT_EQ(*ReadDType("bfloat16", DTypeSpelling::kLenient), DType::kBF16);
  EXPECT_FALSE(ReadDType("bf16", DTypeSpelling::kExact).ok());
  EXPECT_FALSE(ReadDType("float32", DTypeSpelling::kExact).ok());
  const auto unknown = ReadDType("BF61", DTypeSpelling::kLenient);
  EXPECT_EQ(unknown.status().code(), ErrorCode::kMalformed);
  EXPECT_THAT(std::string(unknown.status().message()),
              HasSubstr("dtype \"BF61\" is unknown; did you mean BF16?"));
}

TEST(TensorFieldsTest, AppendsDimensionsThatAreWholeNumbers) {
  std::vector<int64_t> shape;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(
      AppendDim({.kind = JsonKind::kUnsigned, .number = 3}, &shape).ok());
  EXPECT_TRUE(AppendDim({.kind = JsonKind::kUnsigned,
                         .number = static_cast<uint64_t>(kMax)},
                        &shape)
                  .ok());
  EXPECT_THAT(shape, testing::ElementsAre(3, kMax));
  for (const JsonScalar& bad :
       {JsonScalar{.kind = JsonKind::kUnsigned, .number = uint64_t{1} << 63},
        JsonScalar{.kind = JsonKind::kNegative, .real = -1},
        JsonScalar{.kind = JsonKind::kReal, .real = 2.0},
        JsonScalar{.kind = JsonKind::kString, .text = "2"},
        JsonScalar{.kind = JsonKind::kNull},
        JsonScalar{.kind = JsonKind::kBool, .boolean = true}}) {
    EXPECT_EQ(AppendDim(bad, &shape).code(), ErrorCode::kMalformed);
  }
  shape.resize(kMaxRank);
  EXPECT_EQ(
      AppendDim({.kind = JsonKind::kUnsigned, .number = 1}, &shape).code(),
      ErrorCode::kMalformed);
}

TEST(TensorFieldsTest, CountsBytes) {
  EXPECT_EQ(*TensorBytes({}, DType::kF32), Bytes(4));
  EXPECT_EQ(*TensorBytes({2, 3}, DType::kBF16), Bytes(12));
  EXPECT_EQ(*TensorBytes({0, 3}, DType::kF64), Bytes(0));
  EXPECT_EQ(*TensorBytes({2, 3}, DType::kF4), Bytes(3));
  EXPECT_EQ(*TensorBytes({4}, DType::kF6E2M3), Bytes(3));
}

TEST(TensorFieldsTest, RefusesWhatOverflowsOrEndsInsideAByte) {
  EXPECT_EQ(TensorBytes({int64_t{1} << 32, int64_t{1} << 32}, DType::kU8)
                .status()
                .code(),
            ErrorCode::kMalformed);
  EXPECT_FALSE(TensorBytes({int64_t{1} << 58}, DType::kF64).ok());
  EXPECT_FALSE(TensorBytes({3}, DType::kF4).ok());
  EXPECT_FALSE(TensorBytes({2}, DType::kF6E3M2).ok());
  EXPECT_FALSE(TensorBytes({}, DType::kF4).ok());
}

}  // namespace
}  // namespace castor
