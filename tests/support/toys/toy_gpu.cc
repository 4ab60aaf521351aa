// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/toys/toy_gpu.h"

#include <utility>

#include "chunk/base/check.h"

namespace castor {

ToyGpu::~ToyGpu() {
  for (const CudaStream stream : streams_) {
    const int error = cuda_->StreamDestroy(stream);
    CASTOR_CHECK_EQ(error, kCudaOk);
  }
}

CudaStream ToyGpu::MakeStream() {
  cuda_->UseDevice(ordinal_);
  CudaStream stream = nullptr;
  const int error = cuda_->StreamCreate(&stream);
  CASTOR_CHECK_EQ(error, kCudaOk);
  streams_.push_back(stream);
  return stream;
}

void ToyGpu::Launch(CudaStream stream, const void* read, void* updated,
                    Kernel kernel) {
  cuda_->UseDevice(ordinal_);
  auto run = [read = cuda_->Reach(read), updated = cuda_->Reach(updated),
              kernel = std::move(kernel)] { kernel(read, updated); };
  if (options_.loads_each > 0 && launched_++ % options_.loads_each == 0) {
    cuda_->LaunchFirst(stream, std::move(run));
  } else {
    cuda_->Launch(stream, std::move(run));
  }
  for (int i = 0; i < options_.launches; ++i) cuda_->Launch(stream, [] {});
}

}  // namespace castor
