// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_SEARCH_SIZE_EVENT_QUEUE_H_
#define CASTOR_CHUNK_SEARCH_SIZE_EVENT_QUEUE_H_

// Part of the chunk-size search (chunk_size_search.h).
// The agenda of a sweep over chunk sizes: events come out by size, then by
// item, and a new one is never earlier than the last that came out. The range
// of sizes is cut into equal buckets and only the bucket under the sweep is
// kept in order, so a push is an append; with one binary heap over all events
// the sweep takes twice as long. Thread-compatible.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace castor {

class SizeEventQueue {
 public:
  struct Event {
    int64_t size = 0;
    int32_t item = 0;
  };

  // For sizes in [first, last], of which about `expected` are pushed.
  // REQUIRES: first <= last.
  SizeEventQueue(int64_t first, int64_t last, size_t expected);

  // REQUIRES: first <= event.size <= last, event.size not below that of the
  // last event popped.
  void Push(Event event);

  // The next event into `*event`; false when there is none.
  bool Pop(Event* event);

 private:
  static constexpr int32_t kNone = -1;

  struct Waiting {
    int64_t size;
    int32_t item;
    int32_t next;  // in the same bucket, or kNone
  };

  size_t BucketOf(int64_t size) const {
    return static_cast<size_t>((size - first_) >> shift_);
  }
  bool OpenNextBucket();

  int64_t first_;
  int shift_ = 0;
  std::vector<int32_t> heads_;    // by bucket: its list in waiting_, or kNone
  std::vector<Waiting> waiting_;  // events pushed into later buckets
  int32_t free_ = kNone;          // the list of entries to use again
  size_t open_ = 0;               // the bucket under the sweep
  std::vector<Event> sorted_;     // its events when it was opened, last first
  std::vector<Event> late_;       // pushed into it since: a heap
};

}  // namespace castor

#endif  // CASTOR_CHUNK_SEARCH_SIZE_EVENT_QUEUE_H_
