// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/class_runs.h"

#include <algorithm>
#include <cstddef>

#include "chunk/base/check.h"

namespace castor {

ClassRuns::ClassRuns(std::span<const Elements> sizes, Elements max_size,
                     const PackOptions& options)
    : quantum_(ChunkQuantum(options.world)), max_size_(max_size) {
  CASTOR_CHECK_GT(max_size, Elements(0));
  CASTOR_CHECK_EQ(max_size % quantum_, Elements(0));
  for (const Elements size : sizes) {
    if (size == Elements(0)) continue;
    if (!runs_.empty() && runs_.back().run.size == size) {
      ++runs_.back().run.count;
    } else {
      runs_.push_back({{size, RoundUp(size, options.align), 1}, 0});
    }
  }

  thresholds_.reserve(runs_.size() + 1);
  thresholds_.emplace_back(0);
  for (const Run& run : runs_) {
    thresholds_.push_back(RoundUp(run.run.size, quantum_));
  }
  std::sort(thresholds_.begin(), thresholds_.end());
  thresholds_.erase(std::unique(thresholds_.begin(), thresholds_.end()),
                    thresholds_.end());
  while (thresholds_.back() > max_size) {
    oversize_classes_ += thresholds_.back();
    thresholds_.pop_back();
  }

  payload_.resize(thresholds_.size());
  for (Run& run : runs_) {
    SizeRun& same = run.run;
    const auto at =
        std::lower_bound(thresholds_.begin(), thresholds_.end(), same.size);
    run.threshold = static_cast<int>(at - thresholds_.begin());
    if (at != thresholds_.end()) {
      payload_[static_cast<size_t>(run.threshold)] += same.size * same.count;
      continue;
    }
    oversize_chunks_ += same.count;
    oversize_allocated_ += RoundUp(same.size, quantum_) * same.count;
    oversize_payload_ += same.size * same.count;
    same = {};
  }
  for (size_t k = 1; k < payload_.size(); ++k) payload_[k] += payload_[k - 1];
}

Elements ClassRuns::LargestSize(int k) const {
  CASTOR_CHECK_GE(k, 1);
  return k == thresholds() ? max_size_ : threshold(k + 1) - quantum_;
}

void ClassRuns::Select(int i, int k, SizeRuns* runs) const {
  const int last = k == thresholds() ? k + 1 : k;
  runs->Clear();
  for (const Run& run : runs_) {
    if (run.threshold <= i || run.threshold > last) continue;
    runs->Add(run.run);
  }
  runs->FindRepeat();
}

}  // namespace castor
