// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/offload/kernels/kernel_data.h"
#include "tests/offload/kernels/target_test.h"

namespace castor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeast = std::numeric_limits<double>::denorm_min();
constexpr double kGreatest = std::numeric_limits<double>::max();

// A natural number of least denormals, bit by bit: too slow and too simple to
// be wrong the way ExactSum could be.
class BitNumber {
 public:
  // Adds value * 2^doublings. REQUIRES: value >= 0, finite.
  void Add(double value, int doublings = 0) {
    if (value == 0) return;
    int exponent = 0;
    auto digits =
        static_cast<int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
    for (int place = exponent - 53 + 1074 + doublings; digits != 0; ++place) {
      if ((digits & 1) != 0) AddBit(place);
      digits >>= 1;
    }
  }

  void Double() { bits_.insert(bits_.begin(), false); }

  static int Compare(const BitNumber& a, const BitNumber& b) {
    for (size_t i = std::max(a.bits_.size(), b.bits_.size()); i-- > 0;) {
      if (a.Bit(i) != b.Bit(i)) return a.Bit(i) ? 1 : -1;
    }
    return 0;
  }

 private:
  bool Bit(size_t i) const { return i < bits_.size() && bits_[i]; }
  void AddBit(size_t i) {
    while (Bit(i)) bits_[i++] = false;
    if (i >= bits_.size()) bits_.resize(i + 1);
    bits_[i] = true;
  }

  std::vector<bool> bits_;
};

// Whether no double is nearer to `exact` than `total`, and none as near is
// even.
void ExpectNearest(double total, BitNumber exact) {
  if (std::isinf(total)) {
    // From half a last place above the greatest double on.
    BitNumber edge;
    edge.Add(kGreatest);
    edge.Add(std::ldexp(1.0, 970));
    EXPECT_GE(BitNumber::Compare(exact, edge), 0);
    return;
  }
  const bool even = (std::bit_cast<uint64_t>(total) & 1) == 0;
  exact.Double();
  BitNumber low;  // twice the middle of `total` and the one below
  low.Add(total);
  low.Add(total == 0 ? 0 : std::nextafter(total, 0));
  BitNumber high;
  high.Add(total);
  if (total == kGreatest) {
    high.Add(total);
    high.Add(std::ldexp(1.0, 971));
  } else {
    high.Add(std::nextafter(total, kInfinity));
  }
  const int above_low = BitNumber::Compare(exact, low);
  const int below_high = BitNumber::Compare(high, exact);
  EXPECT_TRUE(above_low > 0 || (above_low == 0 && (even || total == 0)))
      << total;
  EXPECT_TRUE(below_high > 0 || (below_high == 0 && even)) << total;
}

double RandomDouble(std::mt19937_64& random, int lowest, int highest) {
  const uint64_t exponent = lowest + random() % (highest - lowest + 1);
  return std::bit_cast<double>(exponent << 52 |
                               (random() & 0xFFFFFFFFFFFFFull));
}

std::vector<uint64_t> Words(ExactSum sum) {
  const auto words = sum.words();
  return {words.begin(), words.end()};
}

TEST(ExactSumTest, GivesOneDoubleBack) {
  std::mt19937_64 random = SeededGenerator();
  for (double value : {0.0, kLeast, 3 * kLeast, 0x1p-1022, kGreatest, 1.0,
                       std::nextafter(0x1p-1022, 0.0), 0x1p-1042}) {
    ExactSum sum;
    sum.Add(value);
    EXPECT_EQ(sum.Total(), value);
  }
  for (int i = 0; i < 20000; ++i) {
    const double value = RandomDouble(random, 0, 2046);
    ExactSum sum;
    sum.Add(value);
    ASSERT_EQ(sum.Total(), value);
  }
}

// IEEE addition of two doubles is the exact sum rounded to nearest even.
TEST(ExactSumTest, AddsTwoDoublesAsTheProcessorDoes) {
  std::mt19937_64 random = SeededGenerator();
  for (int i = 0; i < 200000; ++i) {
    const int exponent = static_cast<int>(random() % 2047);
    const double a = RandomDouble(random, exponent, exponent);
    const double b = RandomDouble(random, std::max(0, exponent - 60), exponent);
    ExactSum sum;
    sum.Add(a);
    sum.Add(b);
    ASSERT_EQ(sum.Total(), a + b) << std::hexfloat << a << " " << b;
  }
}

TEST(ExactSumTest, RoundsTiesToEvenAndWhatIsAboveThemUp) {
  const double odd = std::nextafter(1.0, 2.0);
  const auto total = [](std::initializer_list<double> values) {
    ExactSum sum;
    for (double value : values) sum.Add(value);
    return sum.Total();
  };
  EXPECT_EQ(total({1, 0x1p-53}), 1);
  EXPECT_EQ(total({odd, 0x1p-53}), std::nextafter(odd, 2.0));
  EXPECT_EQ(total({1, 0x1p-53, kLeast}), odd);
  EXPECT_EQ(total({1, 0x1p-53, 0x1p-110}), odd);
  EXPECT_EQ(total({1, 0x1p-54, kLeast}), 1);
  // A carry that runs through every place of the mantissa.
  EXPECT_EQ(total({std::nextafter(2.0, 1.0), 0x1p-53}), 2);
  // Denormals into normals, where no digit is lost.
  EXPECT_EQ(total({std::nextafter(0x1p-1022, 0.0), kLeast}), 0x1p-1022);
}

TEST(ExactSumTest, EqualsWholeNumberArithmetic) {
  std::mt19937_64 random = SeededGenerator();
  for (int round = 0; round < 200; ++round) {
    ExactSum sum;
    unsigned __int128 exact = 0;
    for (int i = 0; i < 1000; ++i) {
      const int bits = static_cast<int>(random() % 54);
      const uint64_t mantissa = random() >> 11 >> (53 - bits);
      const int shift = static_cast<int>(random() % 60);
      exact += static_cast<unsigned __int128>(mantissa) << shift;
      sum.Add(std::ldexp(static_cast<double>(mantissa), shift - 30));
    }
    EXPECT_EQ(sum.Total(), std::ldexp(static_cast<double>(exact), -30));
  }
}

TEST(ExactSumTest, IsNearestToTheBitByBitTotalOverTheWholeRange) {
  std::mt19937_64 random = SeededGenerator();
  for (int round = 0; round < 300; ++round) {
    const int lowest = static_cast<int>(random() % 2047);
    const int highest =
        std::min(2046, lowest + static_cast<int>(random() % 300));
    ExactSum sum;
    BitNumber exact;
    const int count = 1 + static_cast<int>(random() % 40);
    for (int i = 0; i < count; ++i) {
      const double value = RandomDouble(random, lowest, highest);
      sum.Add(value);
      exact.Add(value);
    }
    ExpectNearest(sum.Total(), exact);
  }
}

TEST(ExactSumTest, OverflowsToInfinityOnlyWhereNoDoubleIsNearer) {
  ExactSum sum;
  sum.Add(kGreatest);
  sum.Add(std::nextafter(0x1p970, 0.0));
  EXPECT_EQ(sum.Total(), kGreatest);
  sum.Add(kLeast);
  EXPECT_EQ(sum.Total(), kGreatest);
  sum.Add(0x1p970);
  EXPECT_EQ(sum.Total(), kInfinity);
  EXPECT_FALSE(sum.overflowed());
  for (int i = 0; i < 50; ++i) sum.Merge(ExactSum(sum));
  EXPECT_EQ(sum.Total(), kInfinity);
}

TEST(ExactSumTest, RemembersWhatIsInfiniteOrNotANumber) {
  for (double bad : {kInfinity, std::numeric_limits<double>::quiet_NaN(),
                     -std::numeric_limits<double>::quiet_NaN()}) {
    ExactSum sum;
    sum.Add(1);
    sum.Add(bad);
    sum.Add(bad);
    EXPECT_TRUE(sum.overflowed());
    EXPECT_EQ(sum.Total(), kInfinity);
    EXPECT_EQ(sum.words()[ExactSum::kDigits], 2);
    ExactSum other;
    other.Merge(sum);
    EXPECT_TRUE(other.overflowed());
  }
}

TEST(ExactSumDeathTest, RefusesWhatIsNegative) {
  EXPECT_DEATH(ExactSum().Add(-1), "block_sum >= 0");
  ExactSum sum;
  sum.Add(-0.0);
  EXPECT_EQ(sum.Total(), 0);
}

TEST(ExactSumTest, NeitherOrderNorSplitChangesAWord) {
  std::mt19937_64 random = SeededGenerator();
  std::vector<double> values(500);
  for (double& value : values) value = RandomDouble(random, 0, 2040);
  ExactSum in_order;
  for (double value : values) in_order.Add(value);
  const std::vector<uint64_t> expected = Words(in_order);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    std::vector<ExactSum> parts(1 + random() % 9);
    for (double value : values) parts[random() % parts.size()].Add(value);
    ExactSum merged;
    for (const ExactSum& part : parts) merged.Merge(part);
    EXPECT_EQ(merged.Total(), in_order.Total());
    EXPECT_EQ(Words(merged), expected);
  }
}

TEST(ExactSumTest, RanksMayAddTheirWordsAsWholeNumbers) {
  std::mt19937_64 random = SeededGenerator();
  ExactSum all;
  std::vector<ExactSum> ranks(64);
  for (int i = 0; i < 5000; ++i) {
    const double value = RandomDouble(random, 900, 1100);
    all.Add(value);
    ranks[random() % ranks.size()].Add(value);
  }
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const auto from = ranks[rank].words();
    const auto to = ranks[0].words();
    for (int i = 0; i < ExactSum::kWords; ++i) to[i] += from[i];
  }
  EXPECT_EQ(ranks[0].Total(), all.Total());
  EXPECT_EQ(Words(ranks[0]), Words(all));
  // And the sum goes on.
  ranks[0].Add(1.5);
  all.Add(1.5);
  EXPECT_EQ(Words(ranks[0]), Words(all));
}

TEST(ExactSumTest, CarriesBeforeADigitOverflows) {
  // Fills a whole digit with ones: the worst that one addition can do to it.
  const double value = std::ldexp(0x1FFFFFFFFFFFFFp0, -7);
  ExactSum sum;
  BitNumber exact;
  // 2^45 additions, were each made by itself.
  for (int doubling = 0; doubling < 45; ++doubling) {
    sum.Merge(ExactSum(sum));
    exact.Double();
    sum.Add(value);
    exact.Add(value);
    ExpectNearest(sum.Total(), exact);
  }
}

// What AddSquares is defined to be, without a vector.
template <typename T>
void AddSquaresOneByOne(const T* grad, int64_t count, ExactSum* sum) {
  for (int64_t block = 0; block < count; block += 64) {
    volatile double lane[8] = {};
    for (int64_t i = block; i < std::min(block + 64, count); ++i) {
      const double x = Widen(grad[i]);
      lane[(i - block) % 8] = lane[(i - block) % 8] + x * x;
    }
    sum->Add(((lane[0] + lane[1]) + (lane[2] + lane[3])) +
             ((lane[4] + lane[5]) + (lane[6] + lane[7])));
  }
}

double SumOfSquares(const std::vector<float>& grad) {
  ExactSum sum;
  AddSquares(grad.data(), DType::kF32, std::ssize(grad), &sum);
  return sum.Total();
}

using AddSquaresTest = TargetTest;
CASTOR_INSTANTIATE_FOR_EACH_TARGET(AddSquaresTest);

template <typename T>
void ExpectSquaresOfTheScalarForm(std::mt19937_64& random, int64_t count,
                                  int64_t offset) {
  OffsetBuffer<T> grad(count, offset);
  Draw(random, grad);
  // Without what is infinite or not a number, most of the time.
  if (random() % 4 != 0) {
    for (int64_t i = 0; i < count; ++i) {
      if (!std::isfinite(Widen(grad.data()[i]))) grad.data()[i] = T();
    }
  }
  ExactSum expected;
  AddSquaresOneByOne(grad.data(), count, &expected);
  ExactSum sum;
  {
    const FlushingMode flushing;
    AddSquares(grad.data(), kDTypeOf<T>, count, &sum);
  }
  ASSERT_EQ(Words(sum), Words(expected)) << count << " " << offset;
}

TEST_P(AddSquaresTest, GivesTheWordsOfTheScalarForm) {
  std::mt19937_64 random = SeededGenerator();
  for (int64_t count = 0; count < 200; ++count) {
    ExpectSquaresOfTheScalarForm<float>(random, count, count % 5);
    ExpectSquaresOfTheScalarForm<BFloat16>(random, count, count % 9);
    ExpectSquaresOfTheScalarForm<Float16>(random, count, count % 7);
  }
  for (int64_t count : {64 * 127, 64 * 128, 64 * 129 + 5, 64 * 300 + 63}) {
    ExpectSquaresOfTheScalarForm<float>(random, count, 1);
    ExpectSquaresOfTheScalarForm<BFloat16>(random, count, 3);
    ExpectSquaresOfTheScalarForm<Float16>(random, count, 2);
  }
}

// 2^54 + 1 is a tie that falls back to 2^54, while 2^54 + 2 has a double: a one
// is lost where it meets the great square by itself, and kept where it first
// meets another one.
constexpr float kGreat = 0x1p27f;
constexpr double kGreatSquare = 0x1p54;

TEST_P(AddSquaresTest, AddsWithinALaneInAscendingOrder) {
  std::vector<float> grad(64);
  grad[0] = kGreat;
  grad[8] = grad[16] = 1;
  EXPECT_EQ(SumOfSquares(grad), kGreatSquare);
  std::swap(grad[0], grad[16]);
  EXPECT_EQ(SumOfSquares(grad), kGreatSquare + 2);
  // Not as two vectors of four rows each.
  grad.assign(64, 0);
  grad[3] = kGreat;
  grad[3 + 8] = grad[3 + 32] = 1;
  EXPECT_EQ(SumOfSquares(grad), kGreatSquare);
}

TEST_P(AddSquaresTest, FoldsLanesInTheTreeOfTheHeader) {
  // Which pairs of ones are kept when `great` is the lane of the great square.
  for (int great = 0; great < 8; ++great) {
    for (int a = 0; a < 8; ++a) {
      for (int b = a + 1; b < 8; ++b) {
        if (a == great || b == great) continue;
        std::vector<float> grad(64);
        grad[great] = kGreat;
        grad[a] = grad[b] = 1;
        const bool meet_first =
            (a / 2 == b / 2) || (a / 4 == b / 4 && a / 4 != great / 4);
        EXPECT_EQ(SumOfSquares(grad), kGreatSquare + (meet_first ? 2 : 0))
            << great << " " << a << " " << b;
      }
    }
  }
}

TEST_P(AddSquaresTest, AddsBlocksExactly) {
  // Within a block the ones would be lost.
  std::vector<float> grad(64 * 5);
  grad[0] = kGreat;
  grad[64] = grad[128] = grad[192] = grad[256] = 1;
  EXPECT_EQ(SumOfSquares(grad), kGreatSquare + 4);
}

TEST_P(AddSquaresTest, SplitsBetweenBlocksGiveTheSameWords) {
  std::mt19937_64 random = SeededGenerator();
  constexpr int64_t kCount = 64 * 20 + 17;
  std::vector<float> grad(kCount);
  Fill(random, kCount, grad.data());
  ExactSum whole;
  AddSquares(grad.data(), DType::kF32, kCount, &whole);
  for (int round = 0; round < 50; ++round) {
    ExactSum merged;
    for (int64_t from = 0; from < kCount;) {
      const int64_t blocks = 1 + static_cast<int64_t>(random() % 7);
      const int64_t count = std::min(64 * blocks, kCount - from);
      ExactSum part;
      AddSquares(grad.data() + from, DType::kF32, count, &part);
      merged.Merge(part);
      from += count;
    }
    ASSERT_EQ(Words(merged), Words(whole));
  }
}

TEST_P(AddSquaresTest, CountsDenormalsAndIgnoresPadding) {
  constexpr float kLeastFloat = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(SumOfSquares({kLeastFloat, -kLeastFloat}), 0x1p-297);
  std::vector<float> padded(500);
  padded[0] = padded[1] = kLeastFloat;
  EXPECT_EQ(SumOfSquares(padded), 0x1p-297);
}

TEST_P(AddSquaresTest, ReportsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (float bad : {infinity, -infinity, std::nanf("")}) {
    for (int64_t place : {0, 13, 63, 64, 99}) {
      std::vector<float> grad(100, 1.0f);
      grad[place] = bad;
      ExactSum sum;
      AddSquares(grad.data(), DType::kF32, 100, &sum);
      EXPECT_TRUE(sum.overflowed());
    }
  }
  // The greatest float's square is far from the greatest double.
  const float greatest = std::numeric_limits<float>::max();
  EXPECT_EQ(SumOfSquares(std::vector<float>(128, greatest)),
            128 * (static_cast<double>(greatest) * greatest));
}

TEST(AddSquaresDeathTest, RefusesOtherTypes) {
  ExactSum sum;
  EXPECT_DEATH(AddSquares(nullptr, DType::kF64, 0, &sum), "kBF16");
}

}  // namespace
}  // namespace castor
