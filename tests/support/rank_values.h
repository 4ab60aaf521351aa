// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_RANK_VALUES_H_
#define CASTOR_TESTS_SUPPORT_RANK_VALUES_H_

// What each rank brings to a collective in a test, as a function of rank,
// element and a salt, so that any rank can compute what every other brings and
// what must come out, bit by bit. Pure functions, thread-safe.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

namespace castor {

inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

inline uint64_t RandomBits(int rank, int64_t element, uint64_t salt = 0) {
  return Mix(Mix(salt * 1000 + static_cast<uint64_t>(rank) + 1) +
             static_cast<uint64_t>(element));
}

// Of both signs and magnitudes from 2^-12 to 2^12, so that the order of a sum
// shows.
inline float RandomFloat(int rank, int64_t element, uint64_t salt = 0) {
  const uint64_t random = RandomBits(rank, element, salt);
  const auto sign_and_mantissa = static_cast<uint32_t>(random) & 0x807FFFFF;
  const auto exponent = static_cast<uint32_t>(115 + (random >> 32) % 24);
  return std::bit_cast<float>(sign_and_mantissa | exponent << 23);
}

// The formats in which ranks bring numbers, whose rounding has no relation to
// how the library does it.
struct Fp32 {
  using Bits = float;
  static float Round(float value) { return value; }
  static float Widen(float bits) { return bits; }
};
struct Bf16 {
  using Bits = uint16_t;
  // As IEEE 754 says, by comparing distances.
  static uint16_t Round(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const auto below = static_cast<uint16_t>(bits >> 16);
    const auto above = static_cast<uint16_t>(below + 1);
    const auto exact = static_cast<double>(value);
    const double to_below = std::abs(static_cast<double>(Widen(below)) - exact);
    const double to_above = std::abs(static_cast<double>(Widen(above)) - exact);
    if (to_below == to_above) return below % 2 == 0 ? below : above;
    return to_below < to_above ? below : above;
  }
  static float Widen(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};
struct Fp16 {
  using Bits = uint16_t;
  // The compiler's own.
  static uint16_t Round(float value) {
    return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  }
  static float Widen(uint16_t bits) {
    return static_cast<float>(std::bit_cast<_Float16>(bits));
  }
};

template <typename T>
std::vector<T> MakeShard(int rank, int64_t count, uint64_t salt = 0) {
  std::vector<T> shard(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    shard[static_cast<size_t>(i)] = static_cast<T>(RandomBits(rank, i, salt));
  }
  return shard;
}

// All ranks' shards, one after the other.
template <typename T>
std::vector<T> MakeGathered(int world, int64_t count, uint64_t salt = 0) {
  std::vector<T> chunk;
  for (int rank = 0; rank < world; ++rank) {
    const std::vector<T> shard = MakeShard<T>(rank, count, salt);
    chunk.insert(chunk.end(), shard.begin(), shard.end());
  }
  return chunk;
}

template <typename Format>
std::vector<typename Format::Bits> MakeNumbers(int rank, int64_t count,
                                               uint64_t salt = 0) {
  std::vector<typename Format::Bits> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(Format::Round(RandomFloat(rank, i, salt)));
  }
  return values;
}
inline std::vector<float> MakeFloats(int rank, int64_t count,
                                     uint64_t salt = 0) {
  return MakeNumbers<Fp32>(rank, count, salt);
}

// ((g0 + g1) + g2) + ..., of element `i`, of these ranks, rounded once.
template <typename Format>
typename Format::Bits SumOver(const std::vector<int>& ranks, int64_t i,
                              uint64_t salt = 0) {
  const auto term = [&](int rank) {
    return Format::Widen(Format::Round(RandomFloat(rank, i, salt)));
  };
  float sum = term(ranks[0]);
  for (size_t r = 1; r < ranks.size(); ++r) sum += term(ranks[r]);
  return Format::Round(sum);
}
template <typename Format = Fp32>
typename Format::Bits SumInRankOrder(int world, int64_t i, uint64_t salt = 0) {
  std::vector<int> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return SumOver<Format>(ranks, i, salt);
}

template <typename T>
bool SameBits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// The slice of `rank` in a chunk.
template <typename T>
T* SliceOf(std::vector<T>& chunk, int rank, int64_t shard) {
  return chunk.data() + rank * shard;
}

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_RANK_VALUES_H_
