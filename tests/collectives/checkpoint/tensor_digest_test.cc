// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/tensor_digest.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

TEST(TensorDigestTest, AddsUpAlikeHoweverATensorIsCut) {
  std::vector<float> values(64 * 5 + 13);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * i);
  }
  const int64_t all = static_cast<int64_t>(values.size());
  const uint64_t whole = DigestOfElements(values.data(), DType::kF32, 0, all);
  for (int64_t cut = 0; cut < all; cut += kDigestElements) {
    EXPECT_EQ(
        DigestOfElements(values.data() + cut, DType::kF32, cut, all - cut) +
            DigestOfElements(values.data(), DType::kF32, 0, cut),
        whole);
  }
  // Blocks that change places are noticed, and so is any bit.
  std::swap(values[3], values[64 + 3]);
  EXPECT_NE(DigestOfElements(values.data(), DType::kF32, 0, all), whole);
}

TEST(TensorDigestTest, ReadsItsOwnText) {
  for (const uint64_t digest :
       {uint64_t{0}, uint64_t{0xfe}, ~uint64_t{0}, uint64_t{1} << 63}) {
    EXPECT_THAT(ParseDigest(DigestText(digest)), IsOkAndHolds(digest));
  }
  for (const char* text : {"", "12", "0x23456789abcdef", "0123456789abcdefa"}) {
    EXPECT_THAT(ParseDigest(text), StatusIs(ErrorCode::kMalformed));
  }
}

}  // namespace
}  // namespace castor
