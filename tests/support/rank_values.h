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

// Rounds as IEEE 754 says, by comparing distances: no relation to how the
// library does it.
inline uint16_t RoundToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto below = static_cast<uint16_t>(bits >> 16);
  const auto above = static_cast<uint16_t>(below + 1);
  const auto widen = [](uint16_t half) {
    return static_cast<double>(
        std::bit_cast<float>(static_cast<uint32_t>(half) << 16));
  };
  const double to_below = std::abs(widen(below) - static_cast<double>(value));
  const double to_above = std::abs(widen(above) - static_cast<double>(value));
  if (to_below == to_above) return below % 2 == 0 ? below : above;
  return to_below < to_above ? below : above;
}

inline float WidenBFloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

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

inline std::vector<float> MakeFloats(int rank, int64_t count,
                                     uint64_t salt = 0) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = RandomFloat(rank, i, salt);
  }
  return values;
}

inline std::vector<uint16_t> MakeBFloat16s(int rank, int64_t count,
                                           uint64_t salt = 0) {
  std::vector<uint16_t> values;
  for (const float value : MakeFloats(rank, count, salt)) {
    values.push_back(RoundToBFloat16(value));
  }
  return values;
}

// The compiler's own rounding, which is no code of the library's.
inline uint16_t RoundToFloat16(float value) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

inline float WidenFloat16(uint16_t bits) {
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

inline std::vector<uint16_t> MakeFloat16s(int rank, int64_t count,
                                          uint64_t salt = 0) {
  std::vector<uint16_t> values;
  for (const float value : MakeFloats(rank, count, salt)) {
    values.push_back(RoundToFloat16(value));
  }
  return values;
}

// ((g0 + g1) + g2) + ..., of element `i`.
inline float SumInRankOrder(int world, int64_t i, uint64_t salt = 0) {
  float sum = RandomFloat(0, i, salt);
  for (int rank = 1; rank < world; ++rank) sum += RandomFloat(rank, i, salt);
  return sum;
}

inline uint16_t BFloat16SumInRankOrder(int world, int64_t i,
                                       uint64_t salt = 0) {
  float sum = WidenBFloat16(RoundToBFloat16(RandomFloat(0, i, salt)));
  for (int rank = 1; rank < world; ++rank) {
    sum += WidenBFloat16(RoundToBFloat16(RandomFloat(rank, i, salt)));
  }
  return RoundToBFloat16(sum);
}

inline uint16_t Float16SumInRankOrder(int world, int64_t i, uint64_t salt = 0) {
  float sum = WidenFloat16(RoundToFloat16(RandomFloat(0, i, salt)));
  for (int rank = 1; rank < world; ++rank) {
    sum += WidenFloat16(RoundToFloat16(RandomFloat(rank, i, salt)));
  }
  return RoundToFloat16(sum);
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
