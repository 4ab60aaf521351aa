// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_TIMES_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_TIMES_H_

// When streams of one device got to points in their work. A point is a CUDA
// event with a time: nothing runs on the host when the stream gets there, and
// nobody waits. Events are read later, a few at every new one and the rest by
// Finish.
//
// CUDA tells how long after another event an event was passed. That other one
// is the base: an event on a stream of its own, for which a thread waited and
// then looked at the host's clock. Both clocks drift apart, and CUDA's answer
// has the precision of a float, so a new base is made every ten seconds. The
// first point after that waits for the device to get to the base, behind what
// shares the base's hardware queue.
//
// Thread-safe. Part of the CUDA lanes (cuda_lane.h).

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/unique_function.h"
#include "offload/cuda/cuda_calls.h"

namespace castor {

class CudaCore;

class CudaTimes {
 public:
  using TimeNote = UniqueFunction<void(int64_t ns)>;

  explicit CudaTimes(CudaCore* core) : core_(*core) {}

  // Tells `note` later when `stream` got here, by `clock`. `lane` is for
  // comparing only. An error of the runtime. REQUIRES: the calling thread is in
  // a Scope of the core.
  int Note(const void* lane, CudaStream stream, const Clock* clock,
           TimeNote note);
  // Waits for every point so far, and tells of it.
  void Finish();
  // Gives the events back. REQUIRES: as Note, and nothing else is called.
  void Clear();

 private:
  struct Base {
    CudaEvent event = nullptr;
    int64_t at_ns = 0;
    const Clock* clock = nullptr;
  };
  struct Point {
    CudaEvent event = nullptr;
    std::shared_ptr<const Base> base;
    TimeNote note;
  };
  struct Told {
    TimeNote note;
    int64_t at_ns = 0;
  };

  // All with mutex_ held and in a Scope.
  int MakeBase(const Clock* clock);
  int TakeEvent(CudaEvent* event);
  // Reads the points that are done; where `waits`, all points.
  int Read(std::deque<Point>& points, bool waits, std::vector<Told>* told);
  void DropBases();

  CudaCore& core_;
  std::mutex mutex_;
  // All guarded by mutex_.
  CudaStream stream_ = nullptr;                      // of bases
  std::vector<std::shared_ptr<const Base>> bases_;   // the last is in use
  std::map<const void*, std::deque<Point>> points_;  // by lane
  std::vector<CudaEvent> free_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_TIMES_H_
