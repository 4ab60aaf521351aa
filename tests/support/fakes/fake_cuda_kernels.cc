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
#include "tests/support/fakes/fake_cuda.h"

namespace castor {

int FakeCuda::Convert(CudaStream stream, const void* from, DType from_dtype,
                      void* to, DType to_dtype, int64_t count) {
  from = Reach(from);
  to = Reach(to);
  return QueueKernel("Convert", stream, [=] {
    if (to_dtype == DType::kF32 && from_dtype != DType::kF32) {
      ConvertToFloat(from, from_dtype, count, static_cast<float*>(to));
    } else {
      ConvertFromFloat(static_cast<const float*>(from), count, to_dtype, to);
    }
  });
}

int FakeCuda::AddInto(CudaStream stream, void* total, const void* part,
                      DType dtype, int64_t count) {
  total = Reach(total);
  part = Reach(part);
  return QueueKernel("AddInto", stream,
                     [=] { castor::AddInto(total, part, dtype, count); });
}

int FakeCuda::Scale(CudaStream stream, void* data, DType dtype, int64_t count,
                    float factor) {
  data = Reach(data);
  return QueueKernel("Scale", stream,
                     [=] { castor::Scale(data, dtype, count, factor); });
}

int FakeCuda::SumParts(CudaStream stream, const CudaParts& parts, DType dtype,
                       int64_t count, void* to) {
  to = Reach(to);
  const void* const own = Reach(parts.own);
  const void* const first = Reach(parts.others);
  return QueueKernel("SumParts", stream, [=] {
    std::vector<const void*> sources;
    const auto* others = static_cast<const std::byte*>(first);
    for (int part = 0; part < parts.parts; ++part) {
      if (part == parts.own_index) {
        sources.push_back(own);
        continue;
      }
      sources.push_back(others);
      others += BytesOf(Elements(parts.stride), dtype).count();
    }
    SumInOrder(sources, dtype, count, to);
  });
}

int FakeCuda::AddSquares(CudaStream stream, const void* grad, DType dtype,
                         int64_t count, uint64_t* words) {
  grad = Reach(grad);
  words = Reach(words);
  return QueueKernel("AddSquares", stream, [=] {
    ExactSum sum;
    castor::AddSquares(grad, dtype, count, &sum);
    for (int i = 0; i < ExactSum::kWords; ++i) words[i] += sum.words()[i];
  });
}

int FakeCuda::Optimize(CudaStream stream, const OptimizerBuffers& buffers,
                       int64_t count, const OptimizerScalars& scalars,
                       float grad_factor) {
  OptimizerBuffers reached = buffers;
  reached.grad = Reach(buffers.grad);
  reached.param = Reach(buffers.param);
  reached.exp_avg = Reach(buffers.exp_avg);
  reached.exp_avg_sq = Reach(buffers.exp_avg_sq);
  reached.low = Reach(buffers.low);
  return QueueKernel("Optimize", stream, [=] {
    OptimizerStep(reached, count, scalars, grad_factor);
  });
}

}  // namespace castor
