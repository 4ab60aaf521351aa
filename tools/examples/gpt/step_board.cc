// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/step_board.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "chunk/base/check.h"

namespace castor::gpt {

StepBoard::StepBoard(const TrainOptions& options, const TrainHooks& hooks,
                     const Clock* clock)
    : options_(options),
      hooks_(hooks),
      clock_(clock),
      last_begun_(options.first_step - 1),
      end_(options.steps + 1),
      last_report_ns_(clock->NowNs()),
      last_reported_(options.first_step - 1) {}

bool StepBoard::Begin(int64_t step) {
  std::lock_guard lock(mutex_);
  // A step that one rank has begun is made by all.
  if (hooks_.stop != nullptr && *hooks_.stop) {
    end_ = std::min(end_, last_begun_ + 1);
  }
  if (step >= end_) return false;
  if (last_begun_ < options_.first_step) last_report_ns_ = clock_->NowNs();
  last_begun_ = std::max(last_begun_, step);
  return true;
}

void StepBoard::Post(int rank, int64_t step, const RankStep& result) {
  std::lock_guard lock(mutex_);
  Pending& pending = pending_[step];
  pending.ranks.resize(static_cast<size_t>(options_.ranks));
  pending.ranks[static_cast<size_t>(rank)] = result;
  if (++pending.posted < options_.ranks) return;

  StepReport report;
  report.step = step;
  for (const RankStep& each : pending.ranks) report.loss += each.loss;
  report.loss /= options_.ranks;
  const RankStep& first = pending.ranks.front();
  report.grad_norm = first.grad_norm;
  report.applied = first.applied;
  report.loss_scale = first.loss_scale;
  std::copy(std::begin(first.tiers), std::end(first.tiers), report.tiers);
  const int64_t now = clock_->NowNs();
  report.seconds = static_cast<double>(now - last_report_ns_) * 1e-9;
  last_report_ns_ = now;
  report.tokens = int64_t{options_.ranks} * options_.accumulate *
                  options_.batch * options_.model.context;
  // A rank posts its steps in order, so the last one to post one does too.
  CASTOR_CHECK_EQ(step,
                  static_cast<int64_t>(reports_.size()) + options_.first_step);
  pending_.erase(step);
  reports_.push_back(report);
  last_reported_ = step;
  steps_without_loss_ =
      std::isfinite(report.loss) ? 0 : steps_without_loss_ + 1;
  if (options_.stop_on_nan > 0 && steps_without_loss_ >= options_.stop_on_nan) {
    end_ = std::min(end_, last_begun_ + 1);
  }
  reported_.notify_all();
  if (hooks_.on_step) hooks_.on_step(report);
}

bool StepBoard::MaySave(int64_t step) {
  std::unique_lock lock(mutex_);
  reported_.wait(lock, [&] { return last_reported_ >= step || abandoned_; });
  return options_.stop_on_nan == 0 || steps_without_loss_ == 0;
}

void StepBoard::Abandon() {
  std::lock_guard lock(mutex_);
  abandoned_ = true;
  reported_.notify_all();
}

StepHistory StepBoard::TakeReports() {
  std::lock_guard lock(mutex_);
  return std::move(reports_);
}

bool StepBoard::stopped_early() const {
  std::lock_guard lock(mutex_);
  return end_ <= options_.steps;
}

int64_t StepBoard::steps_without_loss() const {
  std::lock_guard lock(mutex_);
  return steps_without_loss_;
}

}  // namespace castor::gpt
