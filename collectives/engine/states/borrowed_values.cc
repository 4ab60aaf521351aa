// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Values of gradients in the trainer's memory, which is the device's.

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "collectives/engine/states/state_values.h"
#include "offload/kernels/convert.h"

namespace castor::internal {

Status StateValues::ReadBorrowed(ParamId param, float factor,
                                 std::span<float> out) const {
  const std::byte* const from = progress_.params[param.index()].borrowed;
  if (from == nullptr) {
    std::fill(out.begin(), out.end(), 0.0f);
    return OkStatus();
  }
  const DType dtype = model_.param(param).spec.dtype;
  const Bytes size = BytesOf(model_.param(param).size, dtype);
  std::vector<std::byte> values(static_cast<size_t>(size.count()));
  memory_.device().Copy(memory_.device_lane(), values.data(), from, size,
                        CopyKind::kFromDevice);
  const Status read = memory_.device_lane().Record().Wait();
  if (!read.ok()) return health_.Fail(read);
  ConvertToFloat(values.data(), dtype, static_cast<int64_t>(out.size()),
                 out.data());
  if (factor == 1) return OkStatus();
  for (float& value : out) value *= factor;
  return OkStatus();
}

Status StateValues::WriteBorrowed(ParamId param, std::span<const float> sums) {
  std::byte* const to = progress_.params[param.index()].borrowed;
  if (to == nullptr) {
    return FailedPrecondition(fmt::format(
        "there is no gradient of {} in this step: call BorrowGrads() with one",
        model_.Name(param)));
  }
  const DType dtype = model_.param(param).spec.dtype;
  const Bytes size = BytesOf(model_.param(param).size, dtype);
  std::vector<std::byte> values(static_cast<size_t>(size.count()));
  ConvertFromFloat(sums.data(), static_cast<int64_t>(sums.size()), dtype,
                   values.data());
  memory_.device().Copy(memory_.device_lane(), to, values.data(), size,
                        CopyKind::kToDevice);
  const Status written = memory_.device_lane().Record().Wait();
  return written.ok() ? written : health_.Fail(written);
}

}  // namespace castor::internal
