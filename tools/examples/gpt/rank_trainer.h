// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RANK_TRAINER_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RANK_TRAINER_H_

// Part of training with Castor (trainer.h). One rank of a training, on a thread
// of its own: its engine, its batches, and what every step does. After each
// step the ranks tell each other their losses and whether to stop, so all end
// after the same one. Thread-safe.

#include <functional>

#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "collectives/zero_options.h"
#include "offload/device.h"
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

// Blocks until all steps are made; a failure ends the other ranks' too.
// ProcessMemory is that of this rank alone, without what the process knows.
Result<TrainOutcome> TrainRank(const TrainOptions& options,
                               const TextData& data, const TrainHooks& hooks,
                               const RankPlace& place, const ZeroOptions& zero);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RANK_TRAINER_H_
