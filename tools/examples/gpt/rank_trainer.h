// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RANK_TRAINER_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RANK_TRAINER_H_

// Part of training with Castor (trainer.h). One rank of a training, on a thread
// of its own: its engine, its batches, and what every step does. After each
// step the ranks tell each other their losses and whether to stop, so all end
// after the same one. Owner thread only.

#include <functional>
#include <memory>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/memory/pinned_arena.h"
#include "tools/examples/gpt/engine_params.h"
#include "tools/examples/gpt/model/model.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/trainer.h"

namespace castor::gpt {

// All outlive the training.
struct RankPlace {
  Communicator* engine = nullptr;
  Communicator* trainer = nullptr;  // for Exchange
  Device* device = nullptr;         // null: computes next to host memory
  // What its simulated links carried; empty: it has none.
  std::function<RankLinks()> links = {};
};

class RankTrainer {
 public:
  RankTrainer(const TrainOptions& options, const TextData& data,
              const TrainHooks& hooks, const RankPlace& place);

  // Blocks until all steps are made; a failure ends the other ranks' too.
  // ProcessMemory is that of this rank alone, without what the process knows.
  Result<TrainOutcome> Run(const ZeroOptions& zero);

 private:
  Status Agree();
  Status TrainWith(ZeroEngine& engine);
  Status LoadInto(ZeroEngine& engine) const;
  Status Steps(ZeroEngine& engine, EngineParams& params, Gpt& model);
  Result<StepReport> Step(ZeroEngine& engine, EngineParams& params, Gpt& model,
                          int64_t step);
  // Tells the others what `report` says of this rank, and takes in what they
  // say.
  Status Meet(StepReport* report);
  Status SaveWhatIsDue(ZeroEngine& engine, int64_t step);
  Status SaveLast(ZeroEngine& engine);
  Result<std::string> Save(ZeroEngine& engine) const;
  // Batches lie where a device could fetch them from.
  Status MakeBatches();
  bool StopAsked() const { return hooks_.stop != nullptr && *hooks_.stop; }
  // Not where the loss was not finite, unless options let that pass.
  bool MaySave() const {
    return options_.stop_on_nan == 0 || outcome_.steps_without_loss == 0;
  }

  const TrainOptions& options_;
  const TextData& data_;
  const TrainHooks& hooks_;
  const RankPlace place_;
  const std::unique_ptr<Lane> lane_;
  std::unique_ptr<PinnedArena> arena_;
  PinnedBuffer tokens_;  // of arena_, as targets_
  PinnedBuffer targets_;
  TrainOutcome outcome_;
  bool stop_ = false;        // said by any rank
  int64_t saved_ = 0;        // after which step
  bool unfinished_ = false;  // the last save
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RANK_TRAINER_H_
