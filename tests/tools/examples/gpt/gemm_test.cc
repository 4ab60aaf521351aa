// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/gemm.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace castor::gpt {
namespace {

// [2 x 3] and [3 x 2] inside wider rows.
constexpr int64_t kStride = 5;
template <typename T>
std::vector<T> Left() {
  return {1, 2, 3, 0, 0, 4, 5, 6, 0, 0};
}
template <typename T>
std::vector<T> Right() {
  return {1, 0, 9, 9, 9, 0, 1, 9, 9, 9, 2, 3, 9, 9, 9};
}

template <typename T>
class GemmTest : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(GemmTest, Scalars);

TYPED_TEST(GemmTest, MultipliesRowMajorMatricesWithStrides) {
  ASSERT_TRUE(LoadBlas().ok());
  std::vector<TypeParam> c = {9, 9, -1, 9, 9, -1};
  Multiply<TypeParam>({2, 2, 3}, {Left<TypeParam>().data(), kStride},
                      {Right<TypeParam>().data(), kStride}, Into::kOverwrite,
                      c.data(), 3);
  EXPECT_EQ(c, (std::vector<TypeParam>{7, 11, -1, 16, 23, -1}));
}

TYPED_TEST(GemmTest, AddsAndScales) {
  std::vector<TypeParam> c = {1, 1, 1, 1};
  Multiply<TypeParam>({2, 2, 3}, {Left<TypeParam>().data(), kStride},
                      {Right<TypeParam>().data(), kStride}, Into::kAdd,
                      c.data(), 2, TypeParam{2});
  EXPECT_EQ(c, (std::vector<TypeParam>{15, 23, 33, 47}));
}

TYPED_TEST(GemmTest, TakesFactorsTransposed) {
  // right^T left^T = (left right)^T.
  std::vector<TypeParam> c(4);
  Multiply<TypeParam>({2, 2, 3},
                      Transposed<TypeParam>(Right<TypeParam>().data(), kStride),
                      Transposed<TypeParam>(Left<TypeParam>().data(), kStride),
                      Into::kOverwrite, c.data(), 2);
  EXPECT_EQ(c, (std::vector<TypeParam>{7, 16, 11, 23}));
}

}  // namespace
}  // namespace castor::gpt
