// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_TRAINER_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_TRAINER_H_

// Training with Castor: ranks are threads with an engine each, over one pool of
// workers; or this process is one of a group of ranks. A failure on one rank
// ends all. Thread-safe; the threads and all memory are gone on return.

#include "chunk/base/status.h"
#include "tools/examples/gpt/rank_group.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {

// Blocks. The failure that came first where there are several. With a group,
// of which options.ranks is the size, every rank calls it; steps are reported
// and numbers returned of all ranks on each.
Result<TrainOutcome> Train(const TrainOptions& options, const TextData& data,
                           const TrainHooks& hooks, RankGroup* group = nullptr);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_TRAINER_H_
