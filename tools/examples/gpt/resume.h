// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RESUME_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RESUME_H_

// Part of a training (train_options.h). What a run leaves in a checkpoint
// besides the engine's states, and how another goes on from there. Sequences
// are drawn by counter, so the seed, the step and what a step takes are the
// place in the data and the random state; the learning rate is a function of
// the step, so its schedule is told by a few numbers. Thread-safe.

#include <string>
#include <string_view>

#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/train_options.h"

namespace castor::gpt {

// InvalidArgument, naming a rank, where ranks were told to train otherwise or
// on other text, besides what their engines compare. All call it.
Status CheckToldAlike(Communicator& ranks, const TrainOptions& options,
                      const TextData& data);

// The seed, and by name all that decides which updates are to come, as
// SaveOptions::trainer holds it.
std::string WriteTold(const TrainOptions& options);

// How the run that wrote `told` was told otherwise than `options` are, in a
// sentence; empty where it was not. Malformed where `told` is not of this
// trainer.
Result<std::string> ToldOtherwise(std::string_view told,
                                  const TrainOptions& options);

// Finds the checkpoint that `options->resume` names and sets what the run goes
// on from: that checkpoint's own folder, its step, its seed, and ToldOtherwise.
// A folder that the run saves to as well may hold none yet: then it begins at
// the first step. InvalidArgument where there is none, where the user gave a
// seed that is another, or where no step is left.
Status TakeCheckpoint(bool seed_given, TrainOptions* options);

// Finds the files of the weights that `options->init` names: of a checkpoint,
// of the latest in a folder of them, or of a model that others saved. None
// where the run goes on from a checkpoint. InvalidArgument where it names none.
Status TakeInitialWeights(TrainOptions* options);

// A folder is of one run. InvalidArgument, with their names, where the folder
// that the run saves to holds checkpoints that it does not go on from. So it is
// where something else there has a checkpoint's name.
Status CheckSaveFolder(const TrainOptions& options);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RESUME_H_
