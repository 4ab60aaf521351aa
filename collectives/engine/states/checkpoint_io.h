// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_STATES_CHECKPOINT_IO_H_
#define CASTOR_COLLECTIVES_ENGINE_STATES_CHECKPOINT_IO_H_

// Checkpoints of an engine's states: saves, of which one may be under way in
// the background, and loads. It reads and writes states through the store, and
// the numbers that go with them (TrainingScalars). Owner thread only; a save
// that does not wait writes on a thread of its own.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "collectives/checkpoint/folder_hold.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/rank_words.h"

namespace castor::internal {

class CheckpointIo {
 public:
  explicit CheckpointIo(EngineBase& base)
      : model_(base.model),
        memory_(base.memory),
        lanes_(base.lanes),
        progress_(base.progress),
        scalars_(base.scalars),
        health_(base.health),
        words_(base) {}
  ~CheckpointIo();

  // As the engine's calls of these names. A save or a load ends a save that is
  // under way.
  Result<SaveResult> Save(const SaveOptions& options);
  Result<SaveResult> FinishSave();
  Result<LoadResult> Load(const LoadOptions& options);

  bool saving() const { return saving_ != nullptr; }
  // Waits for a save that is under way; what became of it is kept.
  Status EndSave();
  // Takes one further as far as all ranks have come; waits for no drive.
  Status AdvanceSave();
  // One that is under way is never a checkpoint.
  void DropSave();

 private:
  class Saving;
  class Loading;
  // What a checkpoint is of; a parameter without elements has values alone.
  std::vector<ParamWithStates> ParamsWithStates() const;

  const EngineModel& model_;
  EngineMemory& memory_;
  const EngineLanes& lanes_;
  StepProgress& progress_;
  TrainingScalars& scalars_;
  EngineHealth& health_;
  const RankWords words_;
  // Folders that were saved to, which are this process's while it trains.
  std::map<std::string, std::unique_ptr<const FolderHold>> held_folders_;
  std::shared_ptr<Saving> saving_;  // under way; null: none
  std::optional<Result<SaveResult>> saved_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_STATES_CHECKPOINT_IO_H_
