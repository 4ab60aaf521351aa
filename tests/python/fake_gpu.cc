// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// libcastor.so on fakes of CUDA and NCCL, for the Python package's tests: GPU 0
// is memory of the host. Its streams run beside the caller, as on hardware, and
// a test waits for one where a kernel of torch's would have been queued.

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "collectives/nccl/nccl_machine.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/fakes/fake_nccl.h"

namespace {

castor::FakeCuda& Cuda() {
  // Streams may still be used while the process ends.
  static castor::FakeCuda& fake = *new castor::FakeCuda(
      {.total_bytes = int64_t{1} << 30, .knows_pageable = false});
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

// What kernels do that were queued for the block's user before: they come late,
// and overwrite all of it.
void castor_fake_scribble(void* stream, void* data, int64_t size) {
  Cuda().Launch(stream, [data, size] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::memset(data, 0xA5, static_cast<size_t>(size));
  });
}

// Runs `work` when the stream gets there, on a thread of the fake.
void castor_fake_launch(void* stream, void (*work)(void*), void* context) {
  Cuda().Launch(stream, [work, context] { work(context); });
}

int64_t castor_fake_live(int32_t what) {
  const castor::FakeCuda::Live live = Cuda().live();
  return what == 0 ? live.streams : what == 1 ? live.events : live.allocations;
}

}  // extern "C"
