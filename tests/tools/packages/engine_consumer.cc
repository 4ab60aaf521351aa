// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A program outside the repository that trains with the C++ engine. Prints the
// digest of its weights.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "chunk/base/units.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"

namespace {

castor::Result<uint64_t> Train() {
  castor::ThreadPool pool(2);
  const auto world =
      castor::MakeInProcessWorld({.world = 1, .executor = &pool});
  castor::ZeroOptions options;
  options.executor = &pool;
  options.chunk_size = castor::KiB(4);
  options.device_budget = castor::KiB(64);
  options.host_budget = castor::KiB(64);
  CASTOR_ASSIGN_OR_RETURN(const std::unique_ptr<castor::ZeroEngine> engine,
                          castor::ZeroEngine::Create(options, world[0].get()));
  std::vector<castor::ParamId> params;
  for (int p = 0; p < 4; ++p) {
    CASTOR_ASSIGN_OR_RETURN(
        const castor::ParamId id,
        engine->Register({"p" + std::to_string(p),
                          {500},
                          castor::DType::kF32,
                          /*trainable=*/true},
                         [](int64_t begin, int64_t end, float* out) {
                           for (int64_t i = begin; i < end; ++i) {
                             out[i - begin] = static_cast<float>(i % 7);
                           }
                         }));
    params.push_back(id);
  }
  CASTOR_RETURN_IF_ERROR(engine->Seal({}));
  castor::ThreadLane lane("compute");
  for (int step = 0; step < 2; ++step) {
    CASTOR_RETURN_IF_ERROR(engine->BeginMicroBatch(/*last=*/true));
    for (const castor::ParamId id : params) {
      CASTOR_ASSIGN_OR_RETURN(void* const grad, engine->Grad(id, lane));
      for (int i = 0; i < 500; ++i) static_cast<float*>(grad)[i] += 1;
      CASTOR_RETURN_IF_ERROR(engine->GradReady(id, lane));
    }
    CASTOR_RETURN_IF_ERROR(engine->Step(0.1).status());
  }
  CASTOR_ASSIGN_OR_RETURN(const uint64_t digest, engine->WeightDigest());
  CASTOR_RETURN_IF_ERROR(engine->Close());
  return digest;
}

}  // namespace

int main() {
  const castor::Result<uint64_t> digest = Train();
  if (!digest.ok()) {
    std::fprintf(stderr, "%s\n", digest.status().ToString().c_str());
    return 1;
  }
  std::printf("%016llx\n", static_cast<unsigned long long>(*digest));
  return 0;
}
