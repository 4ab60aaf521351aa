// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/measure/samples.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

using Time = std::chrono::steady_clock;

constexpr int kLeastRounds = 3;
constexpr double kPatience = 4;

double Quantile(std::vector<double>& values, size_t numerator) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(
                                          (values.size() - 1) * numerator / 4);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace

double MedianOf(std::vector<double> values) {
  CASTOR_CHECK(!values.empty());
  return Quantile(values, 2);
}

double SpreadOf(const std::vector<double>& values) {
  CASTOR_CHECK(!values.empty());
  std::vector<double> sorted = values;
  const double low = Quantile(sorted, 1);
  const double middle = Quantile(sorted, 2);
  const double high = Quantile(sorted, 3);
  CASTOR_CHECK(middle != 0);
  return (high - low) / middle;
}

SizeSamples::SizeSamples(const std::vector<Bytes>& sizes)
    : sizes_(sizes), seconds_(sizes.size()) {}

std::vector<TimedSize> SizeSamples::medians() const {
  std::vector<TimedSize> medians;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    medians.push_back({.bytes = sizes_[i],
                       .seconds = MedianOf(seconds_[i]),
                       .samples = static_cast<int>(seconds_[i].size())});
  }
  return medians;
}

Status RunRounds(size_t count, const RoundOptions& options,
                 const std::function<Status(size_t)>& once) {
  const Time::time_point begin = Time::now();
  const auto over = [&](int rounds) {
    const double seconds =
        std::chrono::duration<double>(Time::now() - begin).count();
    if (rounds >= options.most) return true;
    if (rounds == 0 || seconds < options.seconds) return false;
    return rounds >= kLeastRounds || seconds >= kPatience * options.seconds;
  };
  for (int rounds = 0; !over(rounds); ++rounds) {
    for (size_t i = 0; i < count; ++i) {
      if (options.stop && options.stop()) {
        return Status(ErrorCode::kStoppedEarly, "stopped while measuring");
      }
      CASTOR_RETURN_IF_ERROR(once(i));
    }
  }
  return OkStatus();
}

}  // namespace castor
