// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_HOST_HUB_H_
#define CASTOR_TESTS_SUPPORT_HOST_HUB_H_

// Collectives of a host program whose ranks are threads: each call meets the
// others' in memory, by its number. Checks what callback_communicator.h
// promises its hosts: calls come one at a time and in one order. Thread-safe.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/callbacks/callback_communicator.h"

namespace castor {

class HostHub {
 public:
  explicit HostHub(int size) : size_(size), seq_(Index(size), 0) {}

  // What `rank` is given. The hub outlives it.
  HostCollectives Of(int rank) {
    HostCollectives host;
    host.all_gather = [this, rank](uint64_t seq, const void* send, void* recv,
                                   Bytes bytes) {
      const std::vector<int64_t> sizes(Index(size_), bytes.count());
      return Call(rank, seq, "all_gather", send, sizes, recv, sizes, true);
    };
    host.all_to_all = [this, rank](uint64_t seq, const void* send,
                                   const int64_t* send_bytes, void* recv,
                                   const int64_t* recv_bytes) {
      return Call(rank, seq, "all_to_all", send,
                  {send_bytes, send_bytes + size_}, recv,
                  {recv_bytes, recv_bytes + size_}, false);
    };
    host.barrier = [this, rank](uint64_t seq) {
      const std::vector<int64_t> none(Index(size_), 0);
      return Call(rank, seq, "barrier", nullptr, none, nullptr, none, true);
    };
    host.abort = [this](const char* why) { Abort(why); };
    return host;
  }

  // Ends calls that wait, of all ranks, and fails those to come.
  void Abort(const std::string& why) {
    std::lock_guard lock(mutex_);
    if (aborted_.empty()) aborted_ = why.empty() ? "aborted" : why;
    changed_.notify_all();
  }
  // From the call of this number on `rank` fails.
  void FailFrom(int rank, uint64_t seq) {
    std::lock_guard lock(mutex_);
    failing_rank_ = rank;
    failing_seq_ = seq;
  }
  uint64_t calls(int rank) const {
    std::lock_guard lock(mutex_);
    return seq_[Index(rank)];
  }

 private:
  struct Part {
    const std::byte* data = nullptr;
    std::vector<int64_t> bytes;
  };
  struct Meeting {
    std::string what;
    std::map<int, Part> parts;
    int read = 0;
  };

  static size_t Index(int rank) { return static_cast<size_t>(rank); }

  // `same`: every rank is sent the same bytes.
  Status Call(int rank, uint64_t seq, const std::string& what, const void* send,
              const std::vector<int64_t>& send_bytes, void* recv,
              const std::vector<int64_t>& recv_bytes, bool same) {
    std::unique_lock lock(mutex_);
    CASTOR_CHECK_EQ(seq, seq_[Index(rank)]++);
    if (rank == failing_rank_ && seq >= failing_seq_) {
      return IoError("the network is down");
    }
    Meeting& meeting = meetings_[seq];
    if (meeting.what.empty()) meeting.what = what;
    CASTOR_CHECK(meeting.what == what);
    meeting.parts[rank] = {static_cast<const std::byte*>(send), send_bytes};
    changed_.notify_all();
    changed_.wait(lock, [&] {
      return !aborted_.empty() || meeting.parts.size() == Index(size_);
    });
    if (meeting.parts.size() == Index(size_)) {
      auto* to = static_cast<std::byte*>(recv);
      for (const auto& [from, part] : meeting.parts) {
        const int64_t bytes = part.bytes[Index(rank)];
        CASTOR_CHECK_EQ(bytes, recv_bytes[Index(from)]);
        const int64_t at =
            same ? 0
                 : std::accumulate(part.bytes.begin(),
                                   part.bytes.begin() + rank, int64_t{0});
        if (bytes > 0 && to != part.data + at) {
          std::memcpy(to, part.data + at, static_cast<size_t>(bytes));
        }
        to += bytes;
      }
    }
    // Nobody's memory is given back while another rank reads it.
    const bool met = meeting.parts.size() == Index(size_);
    ++meeting.read;
    changed_.notify_all();
    if (met) {
      changed_.wait(lock, [&] { return meeting.read >= size_; });
      return OkStatus();
    }
    return Aborted(aborted_);
  }

  const int size_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::vector<uint64_t> seq_;  // by rank: of the next call
  std::map<uint64_t, Meeting> meetings_;
  std::string aborted_;
  int failing_rank_ = -1;
  uint64_t failing_seq_ = 0;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_HOST_HUB_H_
