// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The fake's kernels: those of the host.

#include <cstddef>
#include <vector>

#include "chunk/base/units.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/reduce.h"
#include "tests/support/fake_cuda.h"

namespace castor {

int FakeCuda::Convert(CudaStream stream, const CudaGuard& guard,
                      const void* from, DType from_dtype, void* to,
                      DType to_dtype, int64_t count) {
  return QueueKernel("Convert", stream, guard, [=] {
    if (to_dtype == DType::kF32 && from_dtype != DType::kF32) {
      ConvertToFloat(from, from_dtype, count, static_cast<float*>(to));
    } else {
      ConvertFromFloat(static_cast<const float*>(from), count, to_dtype, to);
    }
  });
}

int FakeCuda::AddInto(CudaStream stream, const CudaGuard& guard, void* total,
                      const void* part, DType dtype, int64_t count) {
  return QueueKernel("AddInto", stream, guard,
                     [=] { castor::AddInto(total, part, dtype, count); });
}

int FakeCuda::Scale(CudaStream stream, const CudaGuard& guard, void* data,
                    DType dtype, int64_t count, float factor) {
  return QueueKernel("Scale", stream, guard,
                     [=] { castor::Scale(data, dtype, count, factor); });
}

int FakeCuda::SumParts(CudaStream stream, const CudaGuard& guard,
                       const CudaParts& parts, DType dtype, int64_t count,
                       void* to) {
  return QueueKernel("SumParts", stream, guard, [=] {
    std::vector<const void*> sources;
    const auto* others = static_cast<const std::byte*>(parts.others);
    for (int part = 0; part < parts.parts; ++part) {
      if (part == parts.own_index) {
        sources.push_back(parts.own);
        continue;
      }
      sources.push_back(others);
      others += BytesOf(Elements(parts.stride), dtype).count();
    }
    SumInOrder(sources, dtype, count, to);
  });
}

int FakeCuda::AddSquares(CudaStream stream, const CudaGuard& guard,
                         const void* grad, DType dtype, int64_t count,
                         uint64_t* words) {
  return QueueKernel("AddSquares", stream, guard, [=] {
    ExactSum sum;
    castor::AddSquares(grad, dtype, count, &sum);
    for (int i = 0; i < ExactSum::kWords; ++i) words[i] += sum.words()[i];
  });
}

int FakeCuda::Optimize(CudaStream stream, const CudaGuard& guard,
                       const OptimizerBuffers& buffers, int64_t count,
                       const OptimizerScalars& scalars, float grad_factor) {
  return QueueKernel("Optimize", stream, guard, [=] {
    OptimizerStep(buffers, count, scalars, grad_factor);
  });
}

}  // namespace castor
