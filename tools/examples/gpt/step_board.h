// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_STEP_BOARD_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_STEP_BOARD_H_

// Part of a training (training.h). Where the ranks of a run meet: they agree on
// whether a step is made at all, and post their losses, of which the last to
// come makes the report. Nobody waits but for whether to save. Thread-safe.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "chunk/base/clock.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {

// What one rank has to say about one step.
struct RankStep {
  double loss = 0;
  double grad_norm = 0;   // the same on all ranks
  bool applied = true;    // the same on all ranks
  double loss_scale = 1;  // the same on all ranks
  TierUse tiers[3];
};

class StepBoard {
 public:
  // `options` and `hooks` must outlive the board, `clock` too.
  StepBoard(const TrainOptions& options, const TrainHooks& hooks,
            const Clock* clock);

  // Whether step `step` is to be made: all ranks get the same answer, whenever
  // the run is told to stop. Each rank asks for every step in turn.
  bool Begin(int64_t step);
  void Post(int rank, int64_t step, const RankStep& result);

  // Whether the state after `step`, the last that this rank posted, may be
  // saved: not where the loss of all ranks was not finite, unless options let
  // that pass. Waits until all have posted the step, or a rank abandons the
  // run. All ranks get the same answer.
  bool MaySave(int64_t step);
  // A rank has failed, and posts no more.
  void Abandon();

  // What was reported, and whether Begin refused a step that was wanted.
  StepHistory TakeReports();
  bool stopped_early() const;
  // How many steps in a row, up to the last, had no finite loss.
  int64_t steps_without_loss() const;

 private:
  struct Pending {
    std::vector<RankStep> ranks;
    int posted = 0;
  };

  const TrainOptions& options_;
  const TrainHooks& hooks_;
  const Clock* clock_;
  mutable std::mutex mutex_;
  std::condition_variable reported_;
  // All guarded by mutex_.
  int64_t last_begun_;
  int64_t end_;  // the first step that is not made
  int64_t last_report_ns_;
  int64_t last_reported_;
  int64_t steps_without_loss_ = 0;
  bool abandoned_ = false;
  std::map<int64_t, Pending> pending_;
  StepHistory reports_;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_STEP_BOARD_H_
