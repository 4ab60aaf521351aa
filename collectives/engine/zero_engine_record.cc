// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/engine/zero_engine_impl.h"

namespace castor {

void ZeroEngine::Impl::Mark(std::string_view words) const {
  if (options_.recorder == nullptr) return;
  options_.recorder->AddMark({.at_ns = options_.clock->NowNs(),
                              .rank = comm_->rank(),
                              .step = static_cast<int32_t>(step_ + 1),
                              .words = std::string(words)});
}

int64_t ZeroEngine::Impl::Moment() const {
  if (manager_ == nullptr) return -1;
  return ending_moment_ >= 0 ? ending_moment_ : manager_->moment();
}

RunEvent ZeroEngine::Impl::EventFor(RunEventKind kind, ChunkId chunk,
                                    RunCause cause) const {
  RunEvent event;
  event.kind = kind;
  event.cause = cause;
  event.rank = comm_->rank();
  event.step = static_cast<int32_t>(step_ + 1);
  event.moment = static_cast<int32_t>(Moment());
  event.chunk = chunk.value();
  return event;
}

// Notes the time at which `lane` gets here, as the begin or the end of `event`;
// the end records it.
void ZeroEngine::Impl::RecordSpan(Lane& lane,
                                  const std::shared_ptr<RunEvent>& event,
                                  bool begin) const {
  if (options_.recorder == nullptr) return;
  lane.NoteTime(options_.clock,
                [event, begin, recorder = options_.recorder](int64_t ns) {
                  (begin ? event->begin_ns : event->end_ns) = ns;
                  if (!begin) recorder->Record(*event);
                });
}

void ZeroEngine::Impl::RecordLeaseBegin(Lane& lane,
                                        const LeaseArena::Lease& lease,
                                        Bytes size) {
  manager_->SetLeased(leases_.in_use());
  if (options_.recorder == nullptr) return;
  auto event = std::make_shared<RunEvent>(
      EventFor(RunEventKind::kLease, ChunkId(), RunCause::kNone));
  event->bytes = size.count();
  RecordSpan(lane, event, true);
  lease_events_[lease.id] = std::move(event);
}

void ZeroEngine::Impl::RecordLeaseEnd(Lane& lane, int32_t lease) {
  // A lease may end after an engine that failed.
  if (manager_ != nullptr) {
    manager_->SetLeased(leases_.in_use() - leases_.SizeOf(lease));
  }
  const auto begun = lease_events_.find(lease);
  if (begun == lease_events_.end()) return;
  RecordSpan(lane, begun->second, false);
  lease_events_.erase(begun);
}

}  // namespace castor
