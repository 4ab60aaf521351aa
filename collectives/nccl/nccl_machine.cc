// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/nccl_machine.h"

#include <memory>
#include <mutex>

#include "collectives/nccl/nccl_library.h"
#include "offload/cuda/cuda_runtime_calls.h"

namespace castor {
namespace {

struct Found {
  std::mutex mutex;
  NcclMachine machine;  // guarded by mutex
};

Found& TheFound() {
  static Found found;
  return found;
}

}  // namespace

Result<CudaCalls*> FindCuda() {
  Found& found = TheFound();
  const std::lock_guard lock(found.mutex);
  if (found.machine.cuda == nullptr) found.machine.cuda = CudaRuntimeCalls();
  if (found.machine.cuda != nullptr) return found.machine.cuda;
  return Unavailable(
      "this build of Castor has no CUDA: build it by bazel with --config=cuda "
      "where the CUDA toolkit is installed");
}

Result<NcclMachine> FindNcclMachine() {
  CASTOR_RETURN_IF_ERROR(FindCuda().status());
  Found& found = TheFound();
  const std::lock_guard lock(found.mutex);
  if (found.machine.nccl == nullptr) {
    CASTOR_ASSIGN_OR_RETURN(std::unique_ptr<NcclCalls> loaded,
                            NcclLibrary::Load());
    found.machine.nccl = loaded.release();  // stays, as NCCL's threads do
  }
  return found.machine;
}

void ReplaceNcclMachine(const NcclMachine& machine) {
  Found& found = TheFound();
  const std::lock_guard lock(found.mutex);
  found.machine = machine;
}

}  // namespace castor
