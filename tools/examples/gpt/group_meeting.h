// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_GROUP_MEETING_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_GROUP_MEETING_H_

// Part of training with Castor (trainer.h). What the processes of a run tell
// each other beside what their engines do: that they train the same, what each
// step gave, whether to stop, and the numbers for the summary. Every call
// blocks until all ranks have made it. Owner thread only.

#include <atomic>
#include <cstdint>

#include "chunk/base/status.h"
#include "tools/examples/gpt/rank_group.h"
#include "tools/examples/gpt/step_board.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {

class GroupMeeting {
 public:
  // `stop` may be null; all outlive the meeting.
  GroupMeeting(RankGroup* group, const std::atomic<bool>* stop)
      : group_(group), stop_(stop) {}

  int rank() const { return group_->rank(); }

  // InvalidArgument, naming a rank, where ranks were told to train otherwise or
  // on other text.
  Status AgreeOnRun(const TrainOptions& options, int64_t text_size);

  // Posts the results of all ranks to `board`.
  Status Post(int64_t step, const RankStep& mine, StepBoard* board);
  // True on all ranks once any was told to stop.
  const std::atomic<bool>& stop() const { return stop_of_all_; }

  // `outcome` has this rank's statistics and gets those of all, by rank.
  Status GatherNumbers(TrainOutcome* outcome);

 private:
  RankGroup* const group_;
  const std::atomic<bool>* const stop_;
  std::atomic<bool> stop_of_all_ = false;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_GROUP_MEETING_H_
