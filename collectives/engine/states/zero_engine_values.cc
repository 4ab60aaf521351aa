// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "collectives/engine/zero_engine_impl.h"
#include "offload/kernels/convert.h"

namespace castor {
namespace {

// Elements hashed at a time: shard borders never cut such a block of a
// parameter, so that the digest knows nothing of the layout.
constexpr int64_t kDigestBlock = 64;

// Of fp32 values, to fp32 ones at `to`, those that differ in `own` type.
void CopyWhatDiffers(const float* from, int64_t count, DType own,
                     std::byte* to) {
  std::array<uint16_t, 2 * kDigestBlock> low;
  auto* const masters = reinterpret_cast<float*>(to);
  for (int64_t begin = 0; begin < count; begin += kDigestBlock) {
    const int64_t n = std::min(kDigestBlock, count - begin);
    ConvertFromFloat(from + begin, n, own, low.data());
    ConvertFromFloat(masters + begin, n, own, low.data() + kDigestBlock);
    for (int64_t i = 0; i < n; ++i) {
      if (low[static_cast<size_t>(i)] !=
          low[static_cast<size_t>(kDigestBlock + i)]) {
        masters[begin + i] = from[begin + i];
      }
    }
  }
}

}  // namespace

Status ZeroEngine::Impl::ReadParam(ParamId param, std::span<float> out) {
  CASTOR_RETURN_IF_ERROR(RequireStates());
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  const Elements size = params_[param.index()].size;
  CASTOR_CHECK_EQ(static_cast<int64_t>(out.size()), size.count());
  const ChunkId chunk = layout_->place(param).chunk;
  if (!chunk.valid()) return OkStatus();
  return ReadState(param,
                   store_->has(chunk, StateKind::kMaster) ? StateKind::kMaster
                                                          : StateKind::kParam,
                   1, out, "read parameter");
}

Status ZeroEngine::Impl::RequireReduced(ParamId param, size_t elements,
                                        std::string_view call) const {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  CASTOR_CHECK_EQ(static_cast<int64_t>(elements),
                  params_[param.index()].size.count());
  if (micro_batches_ == 0) {
    return FailedPrecondition(fmt::format(
        "there is no gradient of {} outside a step: {} it before Step()",
        Name(param), call));
  }
  const ChunkId chunk = layout_->place(param).chunk;
  if (!chunk.valid() || grads_[chunk.index()].state != GradState::kOpen) {
    return OkStatus();
  }
  return FailedPrecondition(fmt::format(
      "the gradient of {} is not reduced yet: hand back those of all {} "
      "parameters of its chunk first{}",
      Name(param), layout_->chunk(chunk).params.size(),
      Reduces() ? "" : ", in the last micro-batch"));
}

Status ZeroEngine::Impl::ReadGrad(ParamId param, std::span<float> out) {
  CASTOR_RETURN_IF_ERROR(RequireReduced(param, out.size(), "read"));
  const ChunkId chunk = layout_->place(param).chunk;
  if (!chunk.valid()) return OkStatus();
  if (grads_[chunk.index()].used_up) {
    return FailedPrecondition(fmt::format(
        "the gradient of {} is used up: the chunk is updated already, as "
        "UpdateEarly() allowed",
        Name(param)));
  }
  if (!grads_[chunk.index()].valid) {
    std::fill(out.begin(), out.end(), 0.0f);
    return OkStatus();
  }
  return ReadState(param, StateKind::kGrad,
                   static_cast<float>(AveragingFactor()), out, "read gradient");
}

Status ZeroEngine::Impl::ReadState(ParamId param, StateKind kind, float factor,
                                   std::span<float> out,
                                   std::string_view what) {
  const ChunkId chunk = layout_->place(param).chunk;
  const Elements size = params_[param.index()].size;
  const DType dtype = sharding_.dtype(kind, GroupOf(chunk));
  const ShardRange counted = sharding_.counted(*layout_, chunk);
  const ByteRange range = RangeBytes(chunk, kind, counted);
  std::vector<std::byte> shard(static_cast<size_t>(range.size().count()));
  if (Status read = store_->ReadNow(chunk, kind, range, shard.data());
      !read.ok()) {
    return Fail(read);
  }
  const std::vector<Segment> segments = Segments(chunk, counted);
  // Each rank puts the bits of the elements it counts among zeros; whole words
  // then add to the bits. They go in pieces: a backend may hold every rank's.
  const int64_t piece = options_.values_piece.count() / 8 * 2;
  std::vector<uint64_t> words;
  for (int64_t begin = 0; begin < size.count(); begin += piece) {
    const int64_t end = std::min(begin + piece, size.count());
    words.assign(static_cast<size_t>((end - begin + 1) / 2), 0);
    float* const values = reinterpret_cast<float*>(words.data());
    for (const Segment& segment : segments) {
      const int64_t from = std::max(segment.begin, begin);
      const int64_t count = std::min(segment.begin + segment.count, end) - from;
      if (segment.param != param || count <= 0) continue;
      float* const to = values + (from - begin);
      const Elements offset(segment.offset + from - segment.begin);
      ConvertToFloat(shard.data() + BytesOf(offset, dtype).count(), dtype,
                     count, to);
      if (factor == 1) continue;
      for (int64_t i = 0; i < count; ++i) to[i] *= factor;
    }
    comm_->AllReduce(*comm_lane_, words.data(),
                     Elements(static_cast<int64_t>(words.size())), DType::kU64,
                     ReduceOp::kSum, {chunk, SharedMoment(), what});
    CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
    std::copy_n(values, end - begin, out.data() + begin);
  }
  return OkStatus();
}

Result<uint64_t> ZeroEngine::Impl::WeightDigest() {
  CASTOR_RETURN_IF_ERROR(RequireStates());
  uint64_t digest = 0;
  std::vector<std::byte> shard;
  std::vector<float> values;
  for (size_t c = 0; c < layout_->chunks().size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const StateKind kind = store_->has(chunk, StateKind::kMaster)
                               ? StateKind::kMaster
                               : StateKind::kParam;
    const DType dtype = sharding_.dtype(kind, GroupOf(chunk));
    const ShardRange counted = sharding_.counted(*layout_, chunk);
    const ByteRange range = RangeBytes(chunk, kind, counted);
    shard.resize(static_cast<size_t>(range.size().count()));
    if (Status read = store_->ReadNow(chunk, kind, range, shard.data());
        !read.ok()) {
      return Fail(read);
    }
    for (const Segment& segment : Segments(chunk, counted)) {
      values.resize(static_cast<size_t>(segment.count));
      ConvertToFloat(
          shard.data() + BytesOf(Elements(segment.offset), dtype).count(),
          dtype, segment.count, values.data());
      // Block hashes are added, which any order and any rank may do.
      for (int64_t i = 0; i < segment.count; i += kDigestBlock) {
        const uint64_t block =
            static_cast<uint64_t>((segment.begin + i) / kDigestBlock);
        const uint64_t seed =
            static_cast<uint64_t>(segment.param.value()) << 40 ^ block;
        const size_t bytes =
            sizeof(float) *
            static_cast<size_t>(std::min(kDigestBlock, segment.count - i));
        digest += XXH3_64bits_withSeed(values.data() + i, bytes, seed);
      }
    }
  }
  comm_->AllReduce(*comm_lane_, &digest, Elements(1), DType::kU64,
                   ReduceOp::kSum, {ChunkId(), -1, "digest"});
  CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
  return digest;
}

Result<ParamId> ZeroEngine::Impl::Find(std::string_view name) const {
  for (size_t p = 0; p < params_.size(); ++p) {
    if (params_[p].spec.name == name) return ParamId(static_cast<int32_t>(p));
  }
  return InvalidArgument(fmt::format(
      "no parameter is called {}; {} are registered", name, params_.size()));
}

Result<ChunkId> ZeroEngine::Impl::ChunkOfMoment(ParamId param, StateKind state,
                                                size_t elements) const {
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  CASTOR_CHECK_EQ(static_cast<int64_t>(elements),
                  params_[param.index()].size.count());
  const ChunkId chunk = layout_->place(param).chunk;
  if (IsOptimizerState(state) && (!chunk.valid() || store_->has(chunk, state)))
    return chunk;
  return InvalidArgument(fmt::format(
      "{} has no {}: moments are of trained parameters, as many as the "
      "optimizer keeps",
      Name(param), sharding_.states.of(state)));
}

Status ZeroEngine::Impl::ReadMoment(ParamId param, StateKind state,
                                    std::span<float> out) {
  CASTOR_RETURN_IF_ERROR(RequireStates());
  CASTOR_ASSIGN_OR_RETURN(const ChunkId chunk,
                          ChunkOfMoment(param, state, out.size()));
  if (!chunk.valid()) return OkStatus();
  return ReadState(param, state, 1, out, "read moment");
}

Status ZeroEngine::Impl::WriteMoment(ParamId param, StateKind state,
                                     std::span<const float> values) {
  CASTOR_RETURN_IF_ERROR(RequireWritable(param, "WriteState()"));
  CASTOR_ASSIGN_OR_RETURN(const ChunkId chunk,
                          ChunkOfMoment(param, state, values.size()));
  if (!chunk.valid()) return OkStatus();
  CASTOR_RETURN_IF_ERROR(AgreeOnValues(param, values, "write moment"));
  CASTOR_RETURN_IF_ERROR(Overwrite(param, state, values));
  return Health();
}

Result<int64_t> ZeroEngine::Impl::UpdateCount(ParamId param) const {
  CASTOR_RETURN_IF_ERROR(RequireStates());
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  return params_[param.index()].steps;
}

Status ZeroEngine::Impl::SetUpdateCount(ParamId param, int64_t count) {
  CASTOR_RETURN_IF_ERROR(RequireWritable(param, "SetUpdateCount()"));
  const auto value = static_cast<float>(count);
  CASTOR_RETURN_IF_ERROR(
      AgreeOnValues(param, std::span(&value, 1), "write update count"));
  constexpr int64_t kMost = int64_t{1} << 24;
  if (count < 0 || count > kMost) {
    return InvalidArgument(
        fmt::format("{} cannot have been updated {} times: give 0 to {}",
                    Name(param), count, kMost));
  }
  params_[param.index()].steps = count;
  return OkStatus();
}

Status ZeroEngine::Impl::RequireWritable(ParamId param,
                                         std::string_view call) const {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen(call));
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  if (micro_batches_ == 0) return OkStatus();
  return FailedPrecondition(
      fmt::format("a step is half done, with gradients of the old values of "
                  "{}: call Step() "
                  "or Abandon() before {}",
                  Name(param), call));
}

Status ZeroEngine::Impl::WriteParam(ParamId param,
                                    std::span<const float> values) {
  CASTOR_RETURN_IF_ERROR(RequireWritable(param, "WriteParam()"));
  CASTOR_CHECK_EQ(static_cast<int64_t>(values.size()),
                  params_[param.index()].size.count());
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

Status ZeroEngine::Impl::FinishGradients() {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen("FinishGradients()"));
  if (micro_batches_ == 0) {
    return FailedPrecondition(
        "there are no gradients outside a step: finish them before Step()");
  }
  // The norm is taken of finished ones.
  return clipped_ ? OkStatus() : FlushGrads();
}

Status ZeroEngine::Impl::DropGradient(ParamId param) {
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  const std::vector<float> zeros(
      static_cast<size_t>(params_[param.index()].size.count()));
  CASTOR_RETURN_IF_ERROR(OverwriteGrad(param, zeros));
  params_[param.index()].used = false;
  return OkStatus();
}

Status ZeroEngine::Impl::WriteGrad(ParamId param,
                                   std::span<const float> values) {
  CASTOR_RETURN_IF_ERROR(OverwriteGrad(param, values));
  params_[param.index()].used = true;
  return OkStatus();
}

Status ZeroEngine::Impl::OverwriteGrad(ParamId param,
                                       std::span<const float> values) {
  CASTOR_RETURN_IF_ERROR(RequireReduced(param, values.size(), "write"));
  const ChunkId chunk = layout_->place(param).chunk;
  if (!chunk.valid()) return OkStatus();
  CASTOR_RETURN_IF_ERROR(RequireNotUpdated(chunk));
  CASTOR_RETURN_IF_ERROR(RequireNotClipped(param));
  if (!grads_[chunk.index()].valid) {
    return FailedPrecondition(fmt::format(
        "no parameter of the chunk of {} has a gradient in this step: hand "
        "back one before WriteGrad()",
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
  if (CountsNorm()) CASTOR_RETURN_IF_ERROR(CountAnew());
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
                   {layout_->place(param).chunk, SharedMoment(), what});
  CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
  if (least[0] == -least[1]) return OkStatus();
  return InvalidArgument(fmt::format(
      "the ranks give {} different values: all must give the same ones",
      Name(param)));
}

Status ZeroEngine::Impl::Overwrite(ParamId param, StateKind kind,
                                   std::span<const float> values,
                                   Differing differing) {
  const ChunkId chunk = layout_->place(param).chunk;
  const DType dtype = sharding_.dtype(kind, GroupOf(chunk));
  const Bytes size = store_->bytes(chunk, kind);
  std::vector<std::byte> bytes(static_cast<size_t>(size.count()));
  Status status = store_->ReadNow(chunk, kind, {Bytes(0), size}, bytes.data());
  if (!status.ok()) return Fail(status);
  for (const Segment& segment :
       Segments(chunk, sharding_.kept(kind, *layout_, chunk))) {
    if (segment.param != param) continue;
    const float* const from = values.data() + segment.begin;
    std::byte* const to =
        bytes.data() + BytesOf(Elements(segment.offset), dtype).count();
    if (differing == Differing::kInOwnType && kind == StateKind::kMaster) {
      CopyWhatDiffers(from, segment.count, layout_->dtype(chunk), to);
    } else {
      ConvertFromFloat(from, segment.count, dtype, to);
    }
  }
  status = store_->WriteNow(chunk, kind, bytes.data());
  return status.ok() ? status : Fail(status);
}

}  // namespace castor
