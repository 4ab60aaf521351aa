// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_OPTION_FILES_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_OPTION_FILES_H_

// Files that say what the engine is to do: a plan (--plan) and a config
// (--config). What one of them says is not said by a flag too. Thread-safe.

#include "chunk/base/status.h"
#include "tools/examples/gpt/train_flags.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {

// Puts what flags.plan says into `options`. Fails as ReadPlanFile does, and
// with InvalidArgument where the plan is of another model or other ranks.
Status TakePlan(const TrainFlags& flags, TrainOptions* options);

// Puts what flags.config says on top of what the flags do. Fails as
// ParseZeroConfig does.
Status TakeConfig(const TrainFlags& flags, TrainOptions* options);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_OPTION_FILES_H_
