// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/bench/memory_load.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include "chunk/base/dtype.h"
#include "offload/kernels/optimizer.h"

namespace castor {
namespace {

using Time = std::chrono::steady_clock;

constexpr size_t kCopied = 64 << 20;
constexpr int64_t kUpdated = 4 << 20;  // parameters, of 16 bytes

class Until {
 public:
  Until(double seconds, const std::atomic<bool>& stop)
      : begin_(Time::now()), seconds_(seconds), stop_(stop) {}
  bool over() const { return stop_ || elapsed() >= seconds_; }
  double elapsed() const {
    return std::chrono::duration<double>(Time::now() - begin_).count();
  }

 private:
  const Time::time_point begin_;
  const double seconds_;
  const std::atomic<bool>& stop_;
};

double Copy(const Until& until) {
  std::vector<std::byte> from(kCopied, std::byte{1}), to(kCopied);
  double bytes = 0;
  const double begin = until.elapsed();
  while (!until.over()) {
    std::memcpy(to.data(), from.data(), kCopied);
    from.swap(to);  // else the second copy would be of nothing new
    bytes += static_cast<double>(kCopied);
  }
  return bytes / (until.elapsed() - begin);
}

double Update(const Until& until) {
  const size_t count = static_cast<size_t>(kUpdated);
  std::vector<float> grad(count, 1e-3f), param(count, 1), first(count),
      second(count);
  const OptimizerBuffers buffers = {.grad = grad.data(),
                                    .param = param.data(),
                                    .exp_avg = first.data(),
                                    .exp_avg_sq = second.data()};
  double params = 0;
  const double begin = until.elapsed();
  for (int64_t step = 1; !until.over(); ++step) {
    OptimizerStep(buffers, kUpdated, ComputeOptimizerScalars({}, step), 1);
    params += static_cast<double>(kUpdated);
  }
  return params / (until.elapsed() - begin);
}

}  // namespace

MemoryLoadResult RunMemoryLoad(bool copies, bool adam, double seconds,
                               const std::atomic<bool>& stop) {
  MemoryLoadResult result;
  const Until until(seconds, stop);
  std::vector<std::thread> threads;
  if (copies) {
    threads.emplace_back([&] { result.copied_bytes_per_second = Copy(until); });
  }
  if (adam) {
    threads.emplace_back(
        [&] { result.updated_params_per_second = Update(until); });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

}  // namespace castor
