// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_ENGINE_DRY_STEP_H_
#define CASTOR_COLLECTIVES_C_API_ENGINE_DRY_STEP_H_

// A step that a program makes before its engine is sealed, so that Castor sees
// what is held at once: the calls are recorded and answered with scratch. The
// first micro-batch counts; of the others, how many there are. Owner thread
// only.

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/zero_options.h"
#include "offload/device.h"
#include "offload/memory/slab.h"

namespace castor::c_api {

class DryStep {
 public:
  // `largest`: of the parameters. `device` null: host memory.
  static Result<DryStep> Begin(Bytes largest, Device* device);

  void BeginMicroBatch() {
    grads_.clear();
    ++micro_batches_;
  }
  // What they answer is as large as the largest parameter.
  void* Acquire(std::span<const ParamId> params);
  void Release(std::span<const ParamId> params);
  Result<void*> Grad(ParamId param);
  Status GradReady(ParamId param);
  Result<void*> Borrow(Bytes size);
  void Return(Bytes size) { borrowed_ -= size; }

  // What Seal is to be told. Ends the step.
  Result<SealOptions> End() &&;

 private:
  explicit DryStep(Device* device) : device_(device) {}

  Result<Slab> Make(Bytes size) const;
  Status RequireMicroBatch() const;
  // What is held now is a moment.
  void Note();

  Device* device_ = nullptr;
  Slab params_scratch_;
  Slab grads_scratch_;
  std::vector<Slab> lent_;
  std::multiset<ParamId> params_;
  std::set<ParamId> grads_;
  Bytes borrowed_;
  SealOptions seen_;
  int64_t micro_batches_ = 0;
};

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_ENGINE_DRY_STEP_H_
