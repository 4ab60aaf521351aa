// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/engine_model.h"

#include <algorithm>

#include "collectives/sealing/chunk_words.h"

namespace castor::internal {

EngineModel::EngineModel(const ZeroOptions& of, Communicator* communicator)
    : options(of),
      comm(communicator),
      sharding(ShardingOf(of, communicator->world(), communicator->rank())) {
  if (options.clock == nullptr) options.clock = &steady_clock_;
  if (options.log == nullptr) options.log = &default_log_;
}

std::vector<ParamSpec> EngineModel::Specs() const {
  std::vector<ParamSpec> specs;
  specs.reserve(params.size());
  for (const EngineParam& param : params) specs.push_back(param.spec);
  return specs;
}

std::vector<Segment> EngineModel::Segments(ChunkId chunk,
                                           ShardRange range) const {
  std::vector<Segment> segments;
  for (ParamId id : layout->chunk(chunk).params) {
    const ParamPlace& place = layout->place(id);
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

const GroupInfo& EngineModel::GroupOf(ChunkId chunk) const {
  return layout->groups()[static_cast<size_t>(layout->chunk(chunk).group)];
}

ByteRange EngineModel::RangeBytes(ChunkId chunk, StateKind state,
                                  ShardRange range) const {
  const DType of = dtype(state, chunk);
  const Elements start = kept(state, chunk).begin;
  return {BytesOf(range.begin - start, of), BytesOf(range.end - start, of)};
}

Status EngineModel::WithNames(const Status& failure) const {
  if (!layout) return failure;
  return Status(failure.code(),
                NameChunks(failure.message(), *layout,
                           [this](ParamId param) { return Name(param); }))
      .WithRaises({failure.raises().begin(), failure.raises().end()});
}

}  // namespace castor::internal
