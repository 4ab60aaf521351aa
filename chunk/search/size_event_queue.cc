// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/size_event_queue.h"

#include <algorithm>

#include "chunk/base/check.h"

namespace castor {
namespace {

// Orders the latest first, as std::make_heap and a list read from its back
// want it. A type, so that the algorithms inline it.
struct Later {
  bool operator()(const SizeEventQueue::Event& a,
                  const SizeEventQueue::Event& b) const {
    return a.size != b.size ? a.size > b.size : a.item > b.item;
  }
};

}  // namespace

SizeEventQueue::SizeEventQueue(int64_t first, int64_t last, size_t expected)
    : first_(first) {
  CASTOR_CHECK_LE(first, last);
  const size_t buckets = std::max<size_t>(4 * expected, 1);
  while (BucketOf(last) >= buckets) ++shift_;
  heads_.assign(BucketOf(last) + 1, kNone);
  waiting_.reserve(expected);
}

void SizeEventQueue::Push(Event event) {
  const size_t bucket = BucketOf(event.size);
  if (bucket == open_) {
    late_.push_back(event);
    std::push_heap(late_.begin(), late_.end(), Later());
    return;
  }
  if (free_ == kNone) {
    free_ = static_cast<int32_t>(waiting_.size());
    waiting_.push_back({0, 0, kNone});
  }
  const int32_t entry = free_;
  free_ = waiting_[entry].next;
  waiting_[entry] = {event.size, event.item, heads_[bucket]};
  heads_[bucket] = entry;
}

bool SizeEventQueue::Pop(Event* event) {
  if (sorted_.empty() && late_.empty() && !OpenNextBucket()) return false;
  if (late_.empty() ||
      (!sorted_.empty() && Later()(late_.front(), sorted_.back()))) {
    *event = sorted_.back();
    sorted_.pop_back();
  } else {
    std::pop_heap(late_.begin(), late_.end(), Later());
    *event = late_.back();
    late_.pop_back();
  }
  return true;
}

bool SizeEventQueue::OpenNextBucket() {
  size_t bucket = open_ + 1;
  while (bucket < heads_.size() && heads_[bucket] == kNone) ++bucket;
  if (bucket >= heads_.size()) return false;
  open_ = bucket;

  int32_t last = kNone;
  for (int32_t i = heads_[open_]; i != kNone; i = waiting_[i].next) {
    sorted_.push_back({waiting_[i].size, waiting_[i].item});
    last = i;
  }
  waiting_[last].next = free_;
  free_ = heads_[open_];
  heads_[open_] = kNone;
  // Lists are last in, first out, and a sweep pushes by rising item: where many
  // share a size they are in order already.
  if (!std::is_sorted(sorted_.begin(), sorted_.end(), Later())) {
    std::sort(sorted_.begin(), sorted_.end(), Later());
  }
  return true;
}

}  // namespace castor
