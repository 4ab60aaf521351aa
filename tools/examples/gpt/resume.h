// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RESUME_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RESUME_H_

// Part of a training (training.h). What a run leaves in a checkpoint besides
// the engine's states, and how another goes on from there. Sequences are drawn
// by counter, so the seed, the step and what a step takes are the place in the
// data and the random state; the learning rate is a function of the step, so
// its schedule is told by a few numbers. Thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "chunk/base/status.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {

// What weights are updated by.
struct UpdateRule {
  std::string schedule;  // LrShapeName
  double lr = 0;
  double lr_floor = 0;
  int64_t warmup = 0;
  int64_t steps = 0;  // of the whole run
  double clip_norm = 0;
  double weight_decay = 0;
  double beta1 = 0;
  double beta2 = 0;

  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;
};

struct DataPosition {
  uint64_t seed = 0;
  int64_t ranks = 0;
  int64_t accumulate = 0;
  int64_t batch = 0;
  int64_t seq = 0;
  // Older checkpoints have neither of these.
  std::optional<int64_t> heads = {};
  std::optional<std::string> text = {};  // as it was named
  std::optional<UpdateRule> rule = {};   // older checkpoints have none

  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

DataPosition PositionOf(const TrainOptions& options);

// As SaveOptions::trainer holds it. Malformed where it is not of this trainer.
std::string WritePosition(const DataPosition& position);
Result<DataPosition> ParsePosition(std::string_view text);

// How the steps to come differ from what they would have been, in a sentence
// for each of data, model and updates; empty where they do not.
std::string NoteOf(const DataPosition& saved, const DataPosition& now);

// Finds the checkpoint that `options->resume` names and sets what the run goes
// on from: that checkpoint's own folder, its step, its seed, and NoteOf. A
// folder that the run saves to as well may hold none yet: then it begins at the
// first step. InvalidArgument where there is none, where the user gave a
// seed that is another, or where no step is left.
Status TakeCheckpoint(bool seed_given, TrainOptions* options);

// Finds the files of the weights that `options->init` names: of a checkpoint,
// of the latest in a folder of them, or of a model that others saved. None
// where the run goes on from a checkpoint. InvalidArgument where it names none.
Status TakeInitialWeights(TrainOptions* options);

// InvalidArgument, with their names, where the folder that the run saves to
// holds checkpoints that are not its own: later ones than it goes on from,
// which would be taken for its latest; or, where it goes on from elsewhere, any
// that it would replace or that `keep` would remove; or something that is no
// checkpoint under a name that it gives one.
Status CheckSaveFolder(const TrainOptions& options);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RESUME_H_
