// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/states/state_values.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "chunk/text/quote.h"
#include "offload/kernels/convert.h"

namespace castor::internal {
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

Status StateValues::Initialize() {
  if (model_.options.dry) return OkStatus();
  std::vector<std::byte> values;
  for (size_t c = 0; c < memory_.plan().states.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    // Large models take a while: no use in going on without the others.
    CASTOR_RETURN_IF_ERROR(model_.comm->Health());
    for (int k = 0; k < kStateKinds; ++k) {
      const auto state = static_cast<StateKind>(k);
      if (state == StateKind::kGrad || !memory_.store().has(chunk, state))
        continue;
      values.assign(
          static_cast<size_t>(memory_.store().bytes(chunk, state).count()),
          std::byte{0});
      if (state == StateKind::kParam || state == StateKind::kMaster) {
        CASTOR_RETURN_IF_ERROR(Fill(chunk, state, values.data()));
      }
      CASTOR_RETURN_IF_ERROR(
          memory_.store().WriteNow(chunk, state, values.data()));
    }
  }
  return OkStatus();
}

Status StateValues::Fill(ChunkId chunk, StateKind state, std::byte* out) const {
  const DType dtype = model_.dtype(state, chunk);
  std::vector<float> values;
  for (const Segment& segment :
       model_.Segments(chunk, model_.kept(state, chunk))) {
    const EngineParam& param = model_.param(segment.param);
    if (!param.initializer) continue;  // zero
    values.resize(static_cast<size_t>(segment.count));
    const Status filled = param.initializer(
        segment.begin, segment.begin + segment.count, values.data());
    if (!filled.ok()) {
      return filled.WithContext(
          fmt::format("the initial values of {}", Quoted(param.spec.name)));
    }
    ConvertFromFloat(values.data(), segment.count, dtype,
                     out + BytesOf(Elements(segment.offset), dtype).count());
  }
  return OkStatus();
}

void StateValues::CheckSize(ParamId param, size_t elements) const {
  CASTOR_CHECK(param.valid() && param.index() < model_.params.size());
  CASTOR_CHECK_EQ(static_cast<int64_t>(elements),
                  model_.param(param).size.count());
}

Status StateValues::ReadParam(ParamId param, std::span<float> out) const {
  CASTOR_RETURN_IF_ERROR(rules_.RequireStates());
  CheckSize(param, out.size());
  const ChunkId chunk = model_.chunk_of(param);
  if (!chunk.valid()) return OkStatus();
  return Read(param,
              memory_.store().has(chunk, StateKind::kMaster)
                  ? StateKind::kMaster
                  : StateKind::kParam,
              1, out, "read parameter");
}

Status StateValues::RequireReduced(ParamId param, size_t elements,
                                   std::string_view call) const {
  CASTOR_RETURN_IF_ERROR(rules_.RequireSealed());
  CheckSize(param, elements);
  if (progress_.micro_batches == 0) {
    return FailedPrecondition(fmt::format(
        "there is no gradient of {} outside a step: {} it before Step()",
        model_.Name(param), call));
  }
  const ChunkId chunk = model_.chunk_of(param);
  if (!chunk.valid() || reducer_.of(chunk).state != GradState::kOpen) {
    return OkStatus();
  }
  return FailedPrecondition(fmt::format(
      "the gradient of {} is not reduced yet: hand back those of all {} "
      "parameters of its chunk first{}",
      model_.Name(param), model_.layout->chunk(chunk).params.size(),
      reducer_.reduces() ? "" : ", in the last micro-batch"));
}

Status StateValues::ReadGrad(ParamId param, std::span<float> out) const {
  CASTOR_RETURN_IF_ERROR(RequireReduced(param, out.size(), "read"));
  const ChunkId chunk = model_.chunk_of(param);
  if (!chunk.valid()) return OkStatus();
  if (reducer_.of(chunk).used_up) {
    return FailedPrecondition(fmt::format(
        "the gradient of {} is used up: the chunk is updated already, as "
        "UpdateEarly() allowed",
        model_.Name(param)));
  }
  if (!reducer_.of(chunk).valid) {
    std::fill(out.begin(), out.end(), 0.0f);
    return OkStatus();
  }
  const auto average = static_cast<float>(optimizer_.AveragingFactor());
  return model_.borrows_grads()
             ? ReadBorrowed(param, average, out)
             : Read(param, StateKind::kGrad, average, out, "read gradient");
}

Status StateValues::Read(ParamId param, StateKind kind, float factor,
                         std::span<float> out, std::string_view what) const {
  const ChunkId chunk = model_.chunk_of(param);
  const Elements size = model_.params[param.index()].size;
  const DType dtype = model_.dtype(kind, chunk);
  const ShardRange counted = model_.counted(chunk);
  const ByteRange range = model_.RangeBytes(chunk, kind, counted);
  std::vector<std::byte> shard(static_cast<size_t>(range.size().count()));
  if (Status read = memory_.store().ReadNow(chunk, kind, range, shard.data());
      !read.ok()) {
    return health_.Fail(read);
  }
  const std::vector<Segment> segments = model_.Segments(chunk, counted);
  // Each rank puts the bits of the elements it counts among zeros; whole words
  // then add to the bits. They go in pieces: a backend may hold every rank's.
  int64_t piece = model_.options.values_piece.count() / 8 * 2;
  if (IsBlocks8(dtype)) {
    piece = RoundUp(Elements(piece), kScaleBlock).count();
  }
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
    model_.comm->AllReduce(*lanes_.comm, words.data(),
                           Elements(static_cast<int64_t>(words.size())),
                           DType::kU64, ReduceOp::kSum,
                           {chunk, record_.SharedMoment(), what});
    CASTOR_RETURN_IF_ERROR(lanes_.comm->Record().Wait());
    std::copy_n(values, end - begin, out.data() + begin);
  }
  return OkStatus();
}

Result<uint64_t> StateValues::Digest() const {
  CASTOR_RETURN_IF_ERROR(rules_.RequireStates());
  uint64_t digest = 0;
  std::vector<std::byte> shard;
  std::vector<float> values;
  for (size_t c = 0; c < model_.chunks(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const StateKind kind = memory_.store().has(chunk, StateKind::kMaster)
                               ? StateKind::kMaster
                               : StateKind::kParam;
    const DType dtype = model_.dtype(kind, chunk);
    const ShardRange counted = model_.counted(chunk);
    const ByteRange range = model_.RangeBytes(chunk, kind, counted);
    shard.resize(static_cast<size_t>(range.size().count()));
    if (Status read = memory_.store().ReadNow(chunk, kind, range, shard.data());
        !read.ok()) {
      return health_.Fail(read);
    }
    for (const Segment& segment : model_.Segments(chunk, counted)) {
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
  model_.comm->AllReduce(*lanes_.comm, &digest, Elements(1), DType::kU64,
                         ReduceOp::kSum, {ChunkId(), -1, "digest"});
  CASTOR_RETURN_IF_ERROR(lanes_.comm->Record().Wait());
  return digest;
}

Result<ChunkId> StateValues::ChunkOfState(ParamId param, StateKind state,
                                          size_t elements) const {
  CheckSize(param, elements);
  const ChunkId chunk = model_.chunk_of(param);
  if (IsOptimizerState(state) &&
      (!chunk.valid() || memory_.store().has(chunk, state)))
    return chunk;
  return InvalidArgument(fmt::format(
      "{} has no {}: moments are of trained parameters, as many as the "
      "optimizer keeps",
      model_.Name(param), model_.sharding.states.of(state)));
}

Status StateValues::ReadState(ParamId param, StateKind state,
                              std::span<float> out) const {
  CASTOR_RETURN_IF_ERROR(rules_.RequireStates());
  CASTOR_ASSIGN_OR_RETURN(const ChunkId chunk,
                          ChunkOfState(param, state, out.size()));
  if (!chunk.valid()) return OkStatus();
  return Read(param, state, 1, out, "read moment");
}

Status StateValues::WriteState(ParamId param, StateKind state,
                               std::span<const float> values) {
  CASTOR_RETURN_IF_ERROR(rules_.RequireWritable(param, "WriteState()"));
  CASTOR_ASSIGN_OR_RETURN(const ChunkId chunk,
                          ChunkOfState(param, state, values.size()));
  if (!chunk.valid()) return OkStatus();
  CASTOR_RETURN_IF_ERROR(words_.AgreeOnValues(param, values, "write moment"));
  CASTOR_RETURN_IF_ERROR(Overwrite(param, state, values));
  return health_.status();
}

Status StateValues::SetUpdateCount(ParamId param, int64_t count) {
  CASTOR_RETURN_IF_ERROR(rules_.RequireWritable(param, "SetUpdateCount()"));
  const auto value = static_cast<float>(count);
  CASTOR_RETURN_IF_ERROR(
      words_.AgreeOnValues(param, std::span(&value, 1), "write update count"));
  constexpr int64_t kMost = int64_t{1} << 24;
  if (count < 0 || count > kMost) {
    return InvalidArgument(
        fmt::format("{} cannot have been updated {} times: give 0 to {}",
                    model_.Name(param), count, kMost));
  }
  scalars_.updates[param.index()] = count;
  return OkStatus();
}

Status StateValues::WriteParam(ParamId param, std::span<const float> values) {
  CASTOR_RETURN_IF_ERROR(rules_.RequireWritable(param, "WriteParam()"));
  CheckSize(param, values.size());
  const ChunkId chunk = model_.chunk_of(param);
  if (!chunk.valid()) return OkStatus();
  CASTOR_RETURN_IF_ERROR(
      words_.AgreeOnValues(param, values, "write parameter"));
  // Copies have the old values. What the plan counts on comes back.
  memory_.DropCopies();
  for (StateKind kind : {StateKind::kMaster, StateKind::kParam}) {
    if (!memory_.store().has(chunk, kind)) continue;
    CASTOR_RETURN_IF_ERROR(Overwrite(param, kind, values));
  }
  memory_.RestoreCopies(progress_.number());
  return health_.status();
}

Status StateValues::WriteGrad(ParamId param, std::span<const float> values,
                              bool used) {
  CASTOR_RETURN_IF_ERROR(RequireReduced(param, values.size(), "write"));
  const ChunkId chunk = model_.chunk_of(param);
  if (!chunk.valid()) {
    progress_.params[param.index()].used = used;
    return OkStatus();
  }
  CASTOR_RETURN_IF_ERROR(optimizer_.early().RequireNotUpdated(chunk));
  CASTOR_RETURN_IF_ERROR(norm_.RequireNotClipped(param));
  if (!reducer_.of(chunk).valid) {
    return FailedPrecondition(fmt::format(
        "no parameter of the chunk of {} has a gradient in this step: hand "
        "back one before WriteGrad()",
        model_.Name(param)));
  }
  CASTOR_RETURN_IF_ERROR(words_.AgreeOnValues(param, values, "write gradient"));
  // As the sum that Step averages.
  const double factor = optimizer_.AveragingFactor();
  std::vector<float> sums(values.size());
  std::transform(values.begin(), values.end(), sums.begin(), [&](float value) {
    return static_cast<float>(value / factor);
  });
  CASTOR_RETURN_IF_ERROR(model_.borrows_grads()
                             ? WriteBorrowed(param, sums)
                             : Overwrite(param, StateKind::kGrad, sums));
  if (model_.counts_norm()) CASTOR_RETURN_IF_ERROR(norm_.CountAnew());
  progress_.params[param.index()].used = used;
  return health_.status();
}

Status StateValues::DropGrad(ParamId param) {
  CASTOR_CHECK(param.valid() && param.index() < model_.params.size());
  if (model_.borrows_grads() &&
      progress_.params[param.index()].borrowed == nullptr) {
    return RequireReduced(
        param, static_cast<size_t>(model_.param(param).size.count()), "drop");
  }
  const std::vector<float> zeros(
      static_cast<size_t>(model_.param(param).size.count()));
  CASTOR_RETURN_IF_ERROR(WriteGrad(param, zeros, false));
  progress_.params[param.index()].borrowed = nullptr;
  return OkStatus();
}

Status StateValues::Overwrite(ParamId param, StateKind kind,
                              std::span<const float> values,
                              Differing differing) {
  const ChunkId chunk = model_.chunk_of(param);
  optimizer_.guesses().Drop(chunk);
  const DType dtype = model_.dtype(kind, chunk);
  const Bytes size = memory_.store().bytes(chunk, kind);
  std::vector<std::byte> bytes(static_cast<size_t>(size.count()));
  Status status =
      memory_.store().ReadNow(chunk, kind, {Bytes(0), size}, bytes.data());
  if (!status.ok()) return health_.Fail(status);
  for (const Segment& segment :
       model_.Segments(chunk, model_.kept(kind, chunk))) {
    if (segment.param != param) continue;
    const float* const from = values.data() + segment.begin;
    std::byte* const to =
        bytes.data() + BytesOf(Elements(segment.offset), dtype).count();
    if (differing == Differing::kInOwnType && kind == StateKind::kMaster) {
      CopyWhatDiffers(from, segment.count, model_.layout->dtype(chunk), to);
    } else {
      ConvertFromFloat(from, segment.count, dtype, to);
    }
  }
  status = memory_.store().WriteNow(chunk, kind, bytes.data());
  return status.ok() ? status : health_.Fail(status);
}

Result<ParamId> StateValues::FirstNotFinite() const {
  std::vector<float> values;
  for (size_t p = 0; p < model_.params.size(); ++p) {
    const ParamId param(static_cast<int32_t>(p));
    const ChunkId chunk = model_.chunk_of(param);
    if (!progress_.params[p].used || !chunk.valid() ||
        !reducer_.of(chunk).valid) {
      continue;
    }
    values.resize(static_cast<size_t>(model_.params[p].size.count()));
    CASTOR_RETURN_IF_ERROR(model_.borrows_grads()
                               ? ReadBorrowed(param, 1.0f, values)
                               : Read(param, StateKind::kGrad, 1.0f, values,
                                      "find what overflows"));
    if (!std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); })) {
      return param;
    }
  }
  return ParamId();
}

}  // namespace castor::internal
