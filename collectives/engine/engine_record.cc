// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/engine_record.h"

#include <memory>
#include <string>
#include <utility>

namespace castor::internal {

int64_t EngineRecord::Moment() const {
  return progress_.ending_moment >= 0 ? progress_.ending_moment
                                      : memory_.moment();
}

RunEvent EngineRecord::EventFor(RunEventKind kind, ChunkId chunk,
                                RunCause cause) const {
  RunEvent event;
  event.kind = kind;
  event.cause = cause;
  event.rank = model_.comm->rank();
  event.step = progress_.number();
  event.moment = static_cast<int32_t>(Moment());
  event.chunk = chunk.value();
  return event;
}

void EngineRecord::Note(Lane& lane, const std::shared_ptr<RunEvent>& event,
                        bool begin) const {
  if (model_.options.recorder == nullptr) return;
  lane.NoteTime(model_.options.clock,
                [event, begin, recorder = model_.options.recorder](int64_t ns) {
                  (begin ? event->begin_ns : event->end_ns) = ns;
                  if (!begin) recorder->Record(*event);
                });
}

void EngineRecord::BeginLease(Lane& lane, int32_t lease, Bytes size) {
  if (model_.options.recorder == nullptr) return;
  auto event = std::make_shared<RunEvent>(
      EventFor(RunEventKind::kLease, ChunkId(), RunCause::kNone));
  event->bytes = size.count();
  Begin(lane, event);
  leases_[lease] = std::move(event);
}

void EngineRecord::EndLease(Lane& lane, int32_t lease) {
  const auto begun = leases_.find(lease);
  if (begun == leases_.end()) return;
  End(lane, begun->second);
  leases_.erase(begun);
}

void EngineRecord::EndStep() const {
  if (model_.options.recorder == nullptr) return;
  RunEvent event = EventFor(RunEventKind::kStep, ChunkId(), RunCause::kNone);
  event.moment = -1;
  event.begin_ns = progress_.begin_ns;
  event.end_ns = model_.options.clock->NowNs();
  model_.options.recorder->Record(event);
}

void EngineRecord::Mark(std::string_view words) const {
  if (model_.options.recorder == nullptr) return;
  model_.options.recorder->AddMark({.at_ns = model_.options.clock->NowNs(),
                                    .rank = model_.comm->rank(),
                                    .step = progress_.number(),
                                    .words = std::string(words)});
}

}  // namespace castor::internal
