// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/units.h"

#include <cstdint>
#include <limits>
#include <sstream>
#include <type_traits>

#include "gtest/gtest.h"

namespace castor {
namespace {

// Mixing units, or taking a bare number for a quantity, must not compile.
template <typename A, typename B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <typename A, typename B>
concept Comparable = requires(A a, B b) {
  a < b;
};

static_assert(Addable<Bytes, Bytes>);
static_assert(!Addable<Bytes, Elements>);
static_assert(!Addable<Bytes, int64_t>);
static_assert(!Comparable<Bytes, Elements>);
static_assert(!std::is_convertible_v<int64_t, Bytes>);
static_assert(!std::is_convertible_v<Bytes, Elements>);
static_assert(sizeof(Bytes) == sizeof(int64_t));

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(UnitsTest, StartsAtZero) { EXPECT_EQ(Bytes(), Bytes(0)); }

TEST(UnitsTest, AddsSubtractsAndScales) {
  EXPECT_EQ(Bytes(3) + Bytes(4), Bytes(7));
  EXPECT_EQ(Bytes(3) - Bytes(4), Bytes(-1));
  EXPECT_EQ(Bytes(3) * 4, Bytes(12));
  EXPECT_EQ(4 * Bytes(3), Bytes(12));
  Bytes sum(1);
  sum += Bytes(5);
  sum -= Bytes(2);
  EXPECT_EQ(sum, Bytes(4));
}

TEST(UnitsTest, DivisionByANumberScalesAndByAQuantityCounts) {
  EXPECT_EQ(Elements(10) / 4, Elements(2));
  EXPECT_EQ(Elements(10) / Elements(4), 2);
  EXPECT_EQ(Elements(10) % Elements(4), Elements(2));
}

TEST(UnitsTest, Orders) {
  EXPECT_LT(Bytes(1), Bytes(2));
  EXPECT_GE(Bytes(2), Bytes(2));
  EXPECT_NE(Bytes(1), Bytes(2));
}

TEST(UnitsTest, NamesBinarySizes) {
  EXPECT_EQ(KiB(1), Bytes(1024));
  EXPECT_EQ(MiB(3), Bytes(3 * 1024 * 1024));
  EXPECT_EQ(GiB(2), MiB(2048));
}

TEST(UnitsTest, RoundsToMultiples) {
  EXPECT_EQ(RoundUp(Elements(0), Elements(128)), Elements(0));
  EXPECT_EQ(RoundUp(Elements(1), Elements(128)), Elements(128));
  EXPECT_EQ(RoundUp(Elements(128), Elements(128)), Elements(128));
  EXPECT_EQ(RoundUp(Elements(129), Elements(128)), Elements(256));
  EXPECT_EQ(RoundDown(Elements(127), Elements(128)), Elements(0));
  EXPECT_EQ(RoundDown(Elements(255), Elements(128)), Elements(128));
  EXPECT_EQ(CeilDiv(Elements(0), Elements(128)), 0);
  EXPECT_EQ(CeilDiv(Elements(129), Elements(128)), 2);
}

TEST(UnitsTest, PrintsWithItsUnit) {
  std::ostringstream out;
  out << Bytes(5) << ", " << Elements(7);
  EXPECT_EQ(out.str(), "5 B, 7 elements");
}

TEST(UnitsDeathTest, OverflowIsABrokenInvariant) {
  EXPECT_DEATH(Bytes(kMax) + Bytes(1), "internal error");
  EXPECT_DEATH(Bytes(kMin) - Bytes(1), "internal error");
  EXPECT_DEATH(Bytes(kMax / 2 + 1) * 2, "internal error");
  EXPECT_DEATH(RoundUp(Bytes(kMax), Bytes(2)), "internal error");
  EXPECT_DEATH(GiB(int64_t{1} << 33), "internal error");
}

}  // namespace
}  // namespace castor
