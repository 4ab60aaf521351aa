// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RANK_TRAINER_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RANK_TRAINER_H_

// Part of training with Castor (trainer.h). One rank of a training, on a thread
// of its own: its engine, its batches, and what every step does. Owner thread
// only.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/pinned_arena.h"
#include "placement/trace_file.h"
#include "tools/examples/gpt/engine_params.h"
#include "tools/examples/gpt/group_meeting.h"
#include "tools/examples/gpt/model.h"
#include "tools/examples/gpt/step_board.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {

// What one rank leaves behind.
struct RankOutcome {
  EngineStats stats;
  PinnedArenaStats arena;
  Bytes activations;  // at the end, as is the next
  Bytes conversions;
  std::map<int64_t, uint64_t> digests;
  uint64_t final_digest = 0;
  std::string checkpoint;
  Status save_failure;
  TraceFile trace;  // of rank 0, as is the next
  std::vector<std::string> placed_by_rules;
};

class RankTrainer {
 public:
  // All outlive it. `meeting`: of the processes that the ranks are; null where
  // they are threads. `device`: what the rank computes next to; null: host
  // memory.
  RankTrainer(const TrainOptions& options, const TextData& data,
              StepBoard* board, GroupMeeting* meeting,
              Communicator* communicator, Device* device);

  // Blocks until all steps are made; a failure ends the other ranks' too.
  Result<RankOutcome> Run(const ZeroOptions& zero);

 private:
  Result<RankOutcome> TrainWith(ZeroEngine& engine);
  Result<std::string> Save(ZeroEngine& engine) const;
  // What is left to save after the last step: what is `unfinished`, and with
  // `save` that step.
  Status SaveLast(ZeroEngine& engine, bool unfinished, bool save,
                  RankOutcome* outcome) const;
  // Batches lie where a device could fetch them from.
  Status MakeBatches();
  Status Step(ZeroEngine& engine, EngineParams& params, Gpt<float>& model,
              int64_t step);

  const TrainOptions& options_;
  const TextData& data_;
  StepBoard* board_;
  GroupMeeting* meeting_;
  Communicator* communicator_;
  Device* device_;
  const std::unique_ptr<Lane> lane_;
  std::unique_ptr<PinnedArena> arena_;
  PinnedBuffer tokens_;  // of arena_, as targets_
  PinnedBuffer targets_;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RANK_TRAINER_H_
