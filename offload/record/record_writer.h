// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_RECORD_RECORD_WRITER_H_
#define CASTOR_OFFLOAD_RECORD_RECORD_WRITER_H_

// Records a run to a file, for all ranks of a process. Record puts the event
// into a ring of fixed size and returns; a thread of the recorder's own writes
// the ring out every few milliseconds. A full ring drops the event that does
// not fit: the run never waits for its record, and the count of dropped events
// is in the file. A process that is killed loses the last interval, and leaves
// a record that reads up to there.
//
// A write that fails stops recording, not the run; Close tells. AddRank,
// AddArena, AddPlan, AddHomes, AddMark, AddDocument and Record are thread-safe;
// everything else is for the owner thread.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/record/event_ring.h"
#include "offload/record/record_format.h"
#include "placement/run_event.h"

namespace castor {

struct FileRecorderOptions {
  // Events between two writes, 64 bytes each. A power of two. The default holds
  // 1.3 million events per second at the default interval.
  size_t ring_events = size_t{1} << 16;
  std::chrono::milliseconds interval{50};
  // Events of other steps are left out (0 is before the first step).
  int32_t first_step = 0;
  int32_t last_step = INT32_MAX;
  // Of these, every so-manieth from the first on: 1 is all. From 2 on nothing
  // of before the first step is recorded.
  int32_t every = 1;
  Log* log = nullptr;  // for what the destructor has to say; null: to stderr
};

class FileRecorder final : public RunRecorder {
 public:
  // Opens `path` and writes the header, over a record that is there already.
  // InvalidArgument when there is no such folder or another process is
  // recording to the file, IoError when the system refuses.
  static Result<std::unique_ptr<FileRecorder>> Create(
      const std::string& path, const FileRecorderOptions& options = {});
  // Closes; a failure is logged.
  ~FileRecorder() override;
  FileRecorder(const FileRecorder&) = delete;
  FileRecorder& operator=(const FileRecorder&) = delete;

  void AddRank(const RunRankInfo& info) override;
  void AddArena(const RunArenaInfo& info) override;
  void AddPlan(const RunPlanInfo& info) override;
  void AddHomes(const RunHomesInfo& info) override;
  void AddMark(const RunMark& mark) override;
  // One that is longer than a frame is left out.
  void AddDocument(const RunDocument& info) override;
  void Record(const RunEvent& event) override {
    if (windowed_ && !InWindow(event)) return;
    if (recording_.load(std::memory_order_relaxed) && ring_.Push(event)) return;
    if (ended_.load(std::memory_order_relaxed)) return;
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }

  // Writes out what was recorded and ends the record; later events are ignored.
  // Blocks. IoError when any write failed; the record is readable up to it.
  // Again: the same answer.
  Status Close();

  // What AddRank, AddArena and AddPlan told and no write has taken. Any thread.
  Bytes waiting();

  // What the file holds. REQUIRES: closed.
  const RecordTotals& totals() const;
  int64_t file_bytes() const;
  // Of memory, for events that are not written yet.
  Bytes ring_bytes() const {
    return Bytes(static_cast<int64_t>(options_.ring_events * sizeof(RunEvent)));
  }

 private:
  FileRecorder(std::string path, int fd, const FileRecorderOptions& options);

  // Whether the options want the step.
  bool Wants(int32_t step) const;
  // Whether the event's step is wanted; keeps how full tiers are before
  // it, and records that when the rank's first event in it comes.
  bool InWindow(const RunEvent& event);
  // Unless recording has ended.
  template <typename Info>
  void AddFrame(void (*append)(const Info&, std::string*), const Info& info);

  void FlushLoop();
  // Writes out what the ring holds; false after a failed write.
  bool Flush();
  // Waits for pushes under way, and pops them too.
  bool FlushAll();
  bool Write(std::string* bytes);

  const std::string path_;
  const int fd_;
  const FileRecorderOptions options_;
  const bool windowed_;
  EventRing ring_;
  std::atomic<bool> recording_{true};
  std::atomic<bool> ended_{false};  // by Close, not by a failed write
  std::atomic<int64_t> dropped_{0};

  std::mutex mutex_;
  std::condition_variable wake_;
  bool closing_ = false;     // guarded by mutex_
  bool stopped_ = false;     // by a failed write; guarded by mutex_
  std::string info_frames_;  // not written yet; guarded by mutex_
  int64_t ranks_added_ = 0;  // guarded by mutex_
  // Digests of the last texts, by how they begin; guarded by mutex_.
  std::map<std::string, std::pair<uint64_t, uint64_t>> documents_;
  // The last before the window, by rank and tier; guarded by mutex_.
  std::map<std::pair<int32_t, Tier>, RunEvent> levels_;
  std::atomic<bool> has_levels_{false};

  // Of the flush thread, until it has been joined.
  std::vector<RunEvent> batch_;
  std::string out_;
  RecordTotals totals_;
  int64_t file_bytes_ = 0;
  Status status_;

  bool closed_ = false;
  std::thread thread_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_RECORD_RECORD_WRITER_H_
