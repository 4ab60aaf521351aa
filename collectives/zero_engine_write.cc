// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Values that come from outside: from a trainer, by parameter.

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "collectives/zero_engine_impl.h"
#include "offload/kernels/convert.h"

namespace castor {

Result<ParamId> ZeroEngine::Impl::Find(std::string_view name) const {
  for (size_t p = 0; p < params_.size(); ++p) {
    if (params_[p].spec.name == name) return ParamId(static_cast<int32_t>(p));
  }
  return InvalidArgument(fmt::format(
      "no parameter is called {}; {} are registered", name, params_.size()));
}

Status ZeroEngine::Impl::WriteParam(ParamId param,
                                    std::span<const float> values) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen("WriteParam"));
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  CASTOR_CHECK_EQ(static_cast<int64_t>(values.size()),
                  params_[param.index()].size.count());
  if (micro_batches_ > 0) {
    return FailedPrecondition(fmt::format(
        "a step is half done, with gradients of the old values of {}: call "
        "Step or Abandon before WriteParam",
        Name(param)));
  }
  const ChunkId chunk = layout_->place(param).chunk;
  if (!chunk.valid()) return OkStatus();
  CASTOR_RETURN_IF_ERROR(AgreeOnValues(param, values, "write parameter"));
  // Copies have the old values. What the plan counts on comes back.
  manager_->DropAll(RunCause::kNone);
  for (StateKind kind : {StateKind::kMaster, StateKind::kParam}) {
    if (!store_->has(chunk, kind)) continue;
    CASTOR_RETURN_IF_ERROR(Overwrite(param, kind, values));
  }
  manager_->BeginStep(static_cast<int32_t>(step_ + 1));
  return Health();
}

Status ZeroEngine::Impl::WriteGrad(ParamId param,
                                   std::span<const float> values) {
  CASTOR_RETURN_IF_ERROR(RequireReduced(param, values.size(), "write"));
  const ChunkId chunk = layout_->place(param).chunk;
  if (!chunk.valid()) return OkStatus();
  CASTOR_RETURN_IF_ERROR(RequireNotUpdated(chunk));
  if (!grads_[chunk.index()].valid) {
    return FailedPrecondition(fmt::format(
        "no parameter of the chunk of {} has a gradient in this step: hand "
        "back one before WriteGrad",
        Name(param)));
  }
  CASTOR_RETURN_IF_ERROR(AgreeOnValues(param, values, "write gradient"));
  // As the sum that Step averages.
  const double factor = AveragingFactor();
  std::vector<float> sums(values.size());
  std::transform(values.begin(), values.end(), sums.begin(), [&](float value) {
    return static_cast<float>(value / factor);
  });
  CASTOR_RETURN_IF_ERROR(Overwrite(param, StateKind::kGrad, sums));
  if (CountsNorm()) {
    // What is in the norm cannot be taken out of it: Step counts all anew.
    CASTOR_RETURN_IF_ERROR(host_lane_->Record().Wait());
    ResetSquares();
    for (ChunkGrad& grad : grads_) grad.counted = false;
  }
  return Health();
}

Status ZeroEngine::Impl::AgreeOnValues(ParamId param,
                                       std::span<const float> values,
                                       std::string_view what) {
  const auto hash = static_cast<int64_t>(
      XXH3_64bits(values.data(), values.size_bytes()) >> 2);
  std::array<int64_t, 2> least = {hash, -hash};
  comm_->AllReduce(*comm_lane_, least.data(), Elements(2), DType::kI64,
                   ReduceOp::kMin,
                   {layout_->place(param).chunk, Moment(), what});
  CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
  if (least[0] == -least[1]) return OkStatus();
  return InvalidArgument(fmt::format(
      "the ranks give {} different values: all must give the same ones",
      Name(param)));
}

Status ZeroEngine::Impl::Overwrite(ParamId param, StateKind kind,
                                   std::span<const float> values) {
  const ChunkId chunk = layout_->place(param).chunk;
  const DType dtype = sharding_.dtype(kind, GroupOf(chunk));
  const Bytes size = store_->bytes(chunk, kind);
  std::vector<std::byte> bytes(static_cast<size_t>(size.count()));
  Status status = store_->ReadNow(chunk, kind, {Bytes(0), size}, bytes.data());
  if (!status.ok()) return Fail(status);
  for (const Segment& segment :
       Segments(chunk, sharding_.kept(kind, *layout_, chunk))) {
    if (segment.param != param) continue;
    ConvertFromFloat(
        values.data() + segment.begin, segment.count, dtype,
        bytes.data() + BytesOf(Elements(segment.offset), dtype).count());
  }
  status = store_->WriteNow(chunk, kind, bytes.data());
  return status.ok() ? status : Fail(status);
}

}  // namespace castor
