// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_ENGINE_SEALING_H_
#define CASTOR_COLLECTIVES_ENGINE_ENGINE_SEALING_H_

// How ranks agree, at Seal and at a reseal, on what they train: the inputs, the
// layout, the homes that rules bind. Writes the model and nothing else. Owner
// thread only.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/rank_words.h"
#include "collectives/zero_options.h"
#include "placement/trace/step_trace.h"

namespace castor::internal {

class EngineSealing {
 public:
  explicit EngineSealing(EngineBase& base)
      : model_(base.model), lanes_(base.lanes), words_(base) {}

  static Status CheckMicroBatches(const SealOptions& declared);
  // Whether the communicator can work on the device's memory.
  Status CheckDevice() const;
  // Ranks must have registered the same parameters and chosen the same options;
  // their memory is cut alike, so the least budget of any rank serves for all.
  Status AgreeOnInputs(const SealOptions& declared);
  Status BuildLayout(const SealOptions& declared);
  void SetHeadroom(const SealOptions& declared);
  // Whether gradients are borrowed (ZeroOptions::borrow_grads): they take their
  // bytes of the budget then. REQUIRES: the inputs are agreed on, homes bound.
  void ChooseGrads(const SealOptions& declared);
  // Finds what rules bind, alike on all ranks.
  Status BindHomes();
  // Whether a step that is declared is one of these chunks and gradients.
  Status CheckStep(const SealOptions& declared) const;
  // A rank that cannot begin is known to all of them before any trains.
  Status WaitForOthers();
  // What the last step held, where nothing is declared and ranks know the same.
  Status DeclareLastStep(const std::optional<StepTrace>& last,
                         SealOptions* declared);

 private:
  int64_t HashOfParams() const;
  // Hashes of what ranks have to choose alike, by name.
  std::vector<std::pair<std::string, int64_t>> OptionsOfAllRanks(
      const SealOptions& declared) const;

  EngineModel& model_;
  const EngineLanes& lanes_;
  const RankWords words_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_ENGINE_SEALING_H_
