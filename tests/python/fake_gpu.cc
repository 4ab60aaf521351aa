// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// libcastor.so on fakes of CUDA and NCCL, for the Python package's tests: GPU 0
// is memory of the host. Its streams run beside the caller, as on hardware, and
// a test waits for one where a kernel of torch's would have been queued.

#include <cstdint>

#include "collectives/nccl/nccl_machine.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/fake_nccl.h"

namespace {

castor::FakeCuda& Cuda() {
  // Streams may still be used while the process ends.
  static castor::FakeCuda& fake =
      *new castor::FakeCuda({.total_bytes = int64_t{1} << 30});
  return fake;
}

}  // namespace

extern "C" {

void castor_fake_gpu_begin() {
  static castor::FakeNccl& nccl = *new castor::FakeNccl(&Cuda());
  castor::ReplaceNcclMachine({.cuda = &Cuda(), .nccl = &nccl});
}

// Of the program's own, in the current context of GPU 0.
void* castor_fake_stream_create() {
  castor::CudaStream stream = nullptr;
  return Cuda().StreamCreate(&stream) == castor::kCudaOk ? stream : nullptr;
}

// 0, or the error of the runtime.
int32_t castor_fake_stream_wait(void* stream) {
  return Cuda().StreamSynchronize(stream);
}

int64_t castor_fake_live(int32_t what) {
  const castor::FakeCuda::Live live = Cuda().live();
  return what == 0 ? live.streams : what == 1 ? live.events : live.allocations;
}

}  // extern "C"
