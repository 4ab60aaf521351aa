// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MEASURE_SAMPLES_H_
#define CASTOR_TOOLS_MEASURE_SAMPLES_H_

// Times of the same thing, taken again and again, and what is made of them.
// Machines are noisy: what is compared is sampled in turns, so that a slow
// second falls on all of it, and medians are kept. Thread-compatible.

#include <cstddef>
#include <functional>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

// What a transfer of that size took, in the median.
struct TimedSize {
  Bytes bytes;
  double seconds = 0;
  int samples = 0;

  friend bool operator==(const TimedSize&, const TimedSize&) = default;
};

// REQUIRES: there is one.
double MedianOf(std::vector<double> values);

// How far the middle half of the values is apart, as a share of their median.
// REQUIRES: there is one, and the median is not 0.
double SpreadOf(const std::vector<double>& values);

class SizeSamples {
 public:
  explicit SizeSamples(const std::vector<Bytes>& sizes);

  // One transfer of sizes[index] took so long. REQUIRES: it is in range.
  void Add(size_t index, double seconds) { seconds_[index].push_back(seconds); }

  // In the order of the sizes. REQUIRES: each has a sample.
  std::vector<TimedSize> medians() const;

 private:
  std::vector<Bytes> sizes_;
  std::vector<std::vector<double>> seconds_;  // by size
};

struct RoundOptions {
  // Rounds are made until so much time is over, but three at least; where those
  // take more than four times as long, fewer, and one at least.
  double seconds = 0.5;
  // Nor more than these, beyond which a median hardly moves. At least 1.
  int most = 50;
  // Asked before each sample; may be empty.
  std::function<bool()> stop = {};
};

// Calls once(0), ... once(count - 1), round after round. Fails with the first
// failure, and with StoppedEarly where `stop` says so.
Status RunRounds(size_t count, const RoundOptions& options,
                 const std::function<Status(size_t)>& once);

}  // namespace castor

#endif  // CASTOR_TOOLS_MEASURE_SAMPLES_H_
