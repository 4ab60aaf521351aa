// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "chunk/text/quote.h"
#include "collectives/engine/zero_engine_impl.h"
#include "offload/kernels/convert.h"

namespace castor {

Status ZeroEngine::Impl::InitializeShards() {
  if (options_.dry) return OkStatus();
  std::vector<std::byte> values;
  for (size_t c = 0; c < memory_.states.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    // Large models take a while: no use in going on without the others.
    CASTOR_RETURN_IF_ERROR(comm_->Health());
    for (int k = 0; k < kStateKinds; ++k) {
      const auto state = static_cast<StateKind>(k);
      if (state == StateKind::kGrad || !store_->has(chunk, state)) continue;
      values.assign(static_cast<size_t>(store_->bytes(chunk, state).count()),
                    std::byte{0});
      if (state == StateKind::kParam || state == StateKind::kMaster) {
        CASTOR_RETURN_IF_ERROR(FillState(chunk, state, values.data()));
      }
      CASTOR_RETURN_IF_ERROR(store_->WriteNow(chunk, state, values.data()));
    }
  }
  return OkStatus();
}

Status ZeroEngine::Impl::FillState(ChunkId chunk, StateKind state,
                                   std::byte* out) const {
  const DType dtype = sharding_.dtype(state, GroupOf(chunk));
  std::vector<float> values;
  for (const Segment& segment :
       Segments(chunk, sharding_.kept(state, *layout_, chunk))) {
    const auto& param = params_[segment.param.index()];
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

std::vector<ZeroEngine::Impl::Segment> ZeroEngine::Impl::Segments(
    ChunkId chunk, ShardRange range) const {
  std::vector<Segment> segments;
  for (ParamId id : layout_->chunk(chunk).params) {
    const ParamPlace& place = layout_->place(id);
    const Elements begin = std::max(place.offset, range.begin);
    const Elements end = std::min(place.offset + place.size, range.end);
    if (begin >= end) continue;
    Segment segment;
    segment.param = id;
    segment.begin = (begin - place.offset).count();
    segment.count = (end - begin).count();
    segment.offset = (begin - range.begin).count();
    segments.push_back(segment);
  }
  return segments;
}

const GroupInfo& ZeroEngine::Impl::GroupOf(ChunkId chunk) const {
  return layout_->groups()[static_cast<size_t>(layout_->chunk(chunk).group)];
}

Bytes ZeroEngine::Impl::ChunkBytes(ChunkId chunk) const {
  return BytesOf(layout_->chunk(chunk).size, layout_->dtype(chunk));
}

ByteRange ZeroEngine::Impl::RangeBytes(ChunkId chunk, StateKind state,
                                       ShardRange range) const {
  const DType dtype = sharding_.dtype(state, GroupOf(chunk));
  const Elements start = sharding_.kept(state, *layout_, chunk).begin;
  return {BytesOf(range.begin - start, dtype),
          BytesOf(range.end - start, dtype)};
}

std::vector<ShardRange> ZeroEngine::Impl::WithinPieces(ChunkId chunk,
                                                       ShardRange range) const {
  if (memory_.piece == Elements(0)) return {range};
  std::vector<Elements> cuts = {range.begin, range.end};
  for (int k = 0; k < kStateKinds; ++k) {
    const StateKind state = static_cast<StateKind>(k);
    if (!store_->has(chunk, state)) continue;
    const ShardRange kept = sharding_.kept(state, *layout_, chunk);
    for (Elements cut = kept.begin + memory_.piece; cut < range.end;
         cut += memory_.piece) {
      if (cut > range.begin) cuts.push_back(cut);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<ShardRange> parts;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    parts.push_back({cuts[i], cuts[i + 1]});
  }
  return parts;
}

}  // namespace castor
