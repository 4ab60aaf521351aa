// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/callbacks/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "chunk/base/check.h"

namespace castor {
namespace {

using Word = std::atomic<uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);

constexpr uint32_t kReady = 0xCA570001;
constexpr size_t kLine = 64;
constexpr int kLooks = 64;              // before a wait sleeps
constexpr int64_t kSleepNs = 50000000;  // then the others are looked at

// One word of a line of its own.
struct alignas(kLine) Counter {
  Word value;
};

// All of it is zeros at first.
struct Header {
  Word ready;
  Word joined;
  Word ended;  // 1 while `why` is written, then 2
  char why[500];
  std::atomic<int32_t> pids[kMostSharedMemoryRanks];
};

size_t Index(int64_t value) { return static_cast<size_t>(value); }

int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

// Sleeps while the word is `seen`, for a while at most.
void Sleep(Word& word, uint32_t seen) {
  const timespec most = {.tv_sec = 0, .tv_nsec = kSleepNs};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &most, nullptr, 0);
}

void Wake(Word& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool Reached(uint32_t count, uint32_t wanted) {
  return static_cast<int32_t>(count - wanted) >= 0;
}

class SharedMemory {
 public:
  SharedMemory(int rank, int size, const std::string& name, int64_t timeout_ns)
      : rank_(rank),
        size_(size),
        name_("/castor-" + name),
        timeout_ns_(timeout_ns) {}
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() {
    if (std::byte* const base = base_; base != nullptr) {
      ::munmap(base, total());
    }
    if (named_) ::shm_unlink(name_.c_str());
    for (const int process : processes_) {
      if (process >= 0) ::close(process);
    }
  }

  Status AllGather(const std::byte* send, std::byte* recv, int64_t bytes);
  Status AllToAll(const std::byte* send, const int64_t* send_bytes,
                  std::byte* recv, const int64_t* recv_bytes);
  Status Barrier();
  void Abort(const char* why);

 private:
  size_t pairs() const { return Index(size_) * Index(size_); }
  size_t counters_at() const {
    return (sizeof(Header) + kLine - 1) / kLine * kLine;
  }
  size_t parts_at() const { return counters_at() + 2 * pairs() * kLine; }
  int64_t part() const { return SharedMemoryFor(size_).count() / size_; }
  int64_t half() const { return part() / 2; }
  size_t total() const { return parts_at() + Index(part()) * Index(size_); }
  Header& header() { return *reinterpret_cast<Header*>(base_.load()); }
  Word& counter(size_t index) {
    return reinterpret_cast<Counter*>(base_ + counters_at())[index].value;
  }
  // Pieces that `from` has written for `to`, and that `to` has read of them.
  Word& written(int from, int to) {
    return counter(Index(from) * Index(size_) + Index(to));
  }
  Word& read(int from, int to) {
    return counter(pairs() + Index(from) * Index(size_) + Index(to));
  }
  std::byte* part_of(int rank) {
    return base_ + parts_at() + Index(part()) * Index(rank);
  }

  // With all ranks there.
  Status Join();
  Status Map(int file);
  Status Make();
  Status Find(int64_t deadline);

  // Why waiting is of no use; ok while it is. `peer`: for whom, or -1.
  Status Healthy(int peer);
  Status WaitUntil(Word& word, uint32_t wanted, int peer);
  // Until `to` has read all of this rank's pieces but `but`.
  Status WaitForReader(int to, uint32_t but) {
    return WaitUntil(read(rank_, to), written(rank_, to).load() - but, to);
  }
  Status WaitForReaders(uint32_t but);
  void Publish(int to) {
    written(rank_, to).fetch_add(1, std::memory_order_release);
    Wake(written(rank_, to));
  }
  // The number of the next piece of `from` that this rank has not read.
  uint32_t NextOf(int from) { return read(from, rank_).load() + 1; }
  Status WaitForPiece(int from) {
    return WaitUntil(written(from, rank_), NextOf(from), from);
  }
  void HasRead(int from) {
    read(from, rank_).fetch_add(1, std::memory_order_release);
    Wake(read(from, rank_));
  }
  // The others, this rank's next one first.
  int other(int i) const { return (rank_ + i) % size_; }

  const int rank_;
  const int size_;
  const std::string name_;
  const int64_t timeout_ns_;
  std::atomic<std::byte*> base_ = nullptr;  // Abort comes from any thread
  bool named_ = false;                      // rank 0's: others can find it
  bool joined_ = false;
  // Of each rank; it can be read once the process has ended. Negative where the
  // system has none, or the process is of another namespace.
  std::vector<int> processes_;
  std::atomic<bool> aborted_ = false;
};

Status SharedMemory::Healthy(int peer) {
  if (aborted_.load()) return Aborted("the world was ended");
  if (base_ == nullptr) return OkStatus();
  if (header().ended.load(std::memory_order_acquire) == 2) {
    return Aborted(header().why);
  }
  if (peer < 0) return OkStatus();
  pollfd process = {
      .fd = processes_[Index(peer)], .events = POLLIN, .revents = 0};
  if (process.fd < 0 || ::poll(&process, 1, 0) != 1) return OkStatus();
  return Unavailable(
      fmt::format("the process of rank {} has ended without a word", peer));
}

Status SharedMemory::WaitUntil(Word& word, uint32_t wanted, int peer) {
  for (int look = 0; look < kLooks; ++look) {
    if (Reached(word.load(std::memory_order_acquire), wanted)) {
      return OkStatus();
    }
  }
  for (;;) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (Reached(seen, wanted)) return OkStatus();
    Sleep(word, seen);
    if (word.load(std::memory_order_acquire) == seen) {
      CASTOR_RETURN_IF_ERROR(Healthy(peer));
    }
  }
}

Status SharedMemory::WaitForReaders(uint32_t but) {
  for (int i = 1; i < size_; ++i) {
    CASTOR_RETURN_IF_ERROR(WaitForReader(other(i), but));
  }
  return OkStatus();
}

Status SharedMemory::Map(int file) {
  void* const base =
      ::mmap(nullptr, total(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (base == MAP_FAILED) {
    return Unavailable(
        fmt::format("{} bytes of shared memory cannot be mapped", total()));
  }
  base_ = static_cast<std::byte*>(base);
  header().pids[Index(rank_)].store(static_cast<int32_t>(::getpid()));
  return OkStatus();
}

Status SharedMemory::Make() {
  const int file =
      ::shm_open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) {
    return Unavailable(fmt::format("shared memory {} cannot be made: {}", name_,
                                   std::strerror(errno)));
  }
  named_ = true;
  // A page that finds no room later would end the process.
  const int error = ::posix_fallocate(file, 0, static_cast<off_t>(total()));
  Status made = error == 0
                    ? Map(file)
                    : Status(Unavailable(fmt::format(
                          "the host's shared memory (/dev/shm) has no room for "
                          "{} bytes: {}",
                          total(), std::strerror(error))));
  ::close(file);
  CASTOR_RETURN_IF_ERROR(made);
  header().ready.store(kReady, std::memory_order_release);
  return OkStatus();
}

Status SharedMemory::Find(int64_t deadline) {
  for (;;) {
    const int file = ::shm_open(name_.c_str(), O_RDWR | O_CLOEXEC, 0);
    struct stat found = {};
    if (file >= 0 && ::fstat(file, &found) == 0 &&
        found.st_size == static_cast<off_t>(total())) {
      const Status mapped = Map(file);
      ::close(file);
      CASTOR_RETURN_IF_ERROR(mapped);
      break;
    }
    if (file >= 0) ::close(file);
    CASTOR_RETURN_IF_ERROR(Healthy(-1));
    if (deadline != 0 && NowNs() > deadline) {
      return Unavailable(
          "rank 0 has not made the shared memory: ranks are on "
          "one host, and all make the same world");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return OkStatus();
}

Status SharedMemory::Join() {
  if (joined_) return OkStatus();
  const int64_t deadline = timeout_ns_ == 0 ? 0 : NowNs() + timeout_ns_;
  CASTOR_RETURN_IF_ERROR(rank_ == 0 ? Make() : Find(deadline));
  const auto late = [&] { return deadline != 0 && NowNs() > deadline; };
  while (header().ready.load(std::memory_order_acquire) != kReady) {
    CASTOR_RETURN_IF_ERROR(Healthy(-1));
    if (late()) return Unavailable("rank 0 has not made the shared memory");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Word& joined = header().joined;
  joined.fetch_add(1);
  Wake(joined);
  for (uint32_t seen = joined.load(); seen != static_cast<uint32_t>(size_);
       seen = joined.load()) {
    CASTOR_RETURN_IF_ERROR(Healthy(-1));
    if (late()) {
      return Unavailable(
          fmt::format("{} of {} ranks have come to the shared memory: ranks "
                      "are on one host, and all make the same world",
                      seen, size_));
    }
    Sleep(joined, seen);
  }
  if (named_) ::shm_unlink(name_.c_str());
  named_ = false;
  for (int r = 0; r < size_; ++r) {
    const int32_t pid = header().pids[Index(r)].load();
    processes_.push_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  }
  joined_ = true;
  return OkStatus();
}

Status SharedMemory::AllGather(const std::byte* send, std::byte* recv,
                               int64_t bytes) {
  CASTOR_RETURN_IF_ERROR(Join());
  if (std::byte* const own = recv + rank_ * bytes; own != send && bytes > 0) {
    std::memcpy(own, send, Index(bytes));
  }
  // What went before lay elsewhere.
  CASTOR_RETURN_IF_ERROR(WaitForReaders(0));
  for (int64_t done = 0, turn = 0; done < bytes; done += half(), ++turn) {
    const auto size = Index(std::min(half(), bytes - done));
    const int64_t place = turn % 2 * half();
    CASTOR_RETURN_IF_ERROR(WaitForReaders(1));
    std::memcpy(part_of(rank_) + place, send + done, size);
    for (int i = 1; i < size_; ++i) Publish(other(i));
    for (int i = 1; i < size_; ++i) {
      const int from = other(i);
      CASTOR_RETURN_IF_ERROR(WaitForPiece(from));
      std::memcpy(recv + from * bytes + done, part_of(from) + place, size);
      HasRead(from);
    }
  }
  return OkStatus();
}

Status SharedMemory::AllToAll(const std::byte* send, const int64_t* send_bytes,
                              std::byte* recv, const int64_t* recv_bytes) {
  CASTOR_RETURN_IF_ERROR(Join());
  struct Peer {
    const std::byte* send;
    int64_t sends;
    std::byte* recv;
    int64_t receives;
  };
  std::vector<Peer> peers(Index(size_));
  int64_t most = 0;
  for (int r = 0; r < size_; ++r) {
    peers[Index(r)] = {send, send_bytes[r], recv, recv_bytes[r]};
    send += send_bytes[r];
    recv += recv_bytes[r];
    if (r != rank_) most = std::max({most, send_bytes[r], recv_bytes[r]});
  }
  const Peer& own = peers[Index(rank_)];
  CASTOR_CHECK(own.sends == own.receives);
  if (own.sends > 0) {
    std::memcpy(own.recv, own.send, Index(own.sends));
  }
  const int64_t place_size = half() / size_ / kLine * kLine;
  CASTOR_RETURN_IF_ERROR(WaitForReaders(0));
  for (int64_t done = 0, turn = 0; done < most; done += place_size, ++turn) {
    const auto place_of = [&](int from, int to) {
      return part_of(from) + turn % 2 * half() + place_size * to;
    };
    for (int i = 1; i < size_; ++i) {
      const int to = other(i);
      const Peer& peer = peers[Index(to)];
      if (done >= peer.sends) continue;
      CASTOR_RETURN_IF_ERROR(WaitForReader(to, 1));
      std::memcpy(place_of(rank_, to), peer.send + done,
                  Index(std::min(place_size, peer.sends - done)));
      Publish(to);
    }
    for (int i = 1; i < size_; ++i) {
      const int from = other(i);
      const Peer& peer = peers[Index(from)];
      if (done >= peer.receives) continue;
      CASTOR_RETURN_IF_ERROR(WaitForPiece(from));
      std::memcpy(peer.recv + done, place_of(from, rank_),
                  Index(std::min(place_size, peer.receives - done)));
      HasRead(from);
    }
  }
  return OkStatus();
}

Status SharedMemory::Barrier() {
  CASTOR_RETURN_IF_ERROR(Join());
  for (int i = 1; i < size_; ++i) Publish(other(i));
  for (int i = 1; i < size_; ++i) {
    CASTOR_RETURN_IF_ERROR(WaitForPiece(other(i)));
    HasRead(other(i));
  }
  return OkStatus();
}

void SharedMemory::Abort(const char* why) {
  aborted_.store(true);
  if (base_ == nullptr) return;
  uint32_t none = 0;
  if (header().ended.compare_exchange_strong(none, 1)) {
    const std::string_view words(why);
    const size_t size = std::min(words.size(), sizeof(header().why) - 1);
    std::memcpy(header().why, words.data(), size);
    header().ended.store(2, std::memory_order_release);
  }
  for (size_t i = 0; i < 2 * pairs(); ++i) Wake(counter(i));
  Wake(header().joined);
}

}  // namespace

Bytes SharedMemoryFor(int size) {
  const Bytes part = std::clamp(MiB(32) / size, KiB(512), MiB(8));
  return RoundDown(part, KiB(64)) * size;
}

HostCollectives MakeSharedMemoryCollectives(int rank, int size,
                                            const std::string& name,
                                            int64_t timeout_ns) {
  CASTOR_CHECK(size >= 1 && size <= kMostSharedMemoryRanks);
  const auto memory =
      std::make_shared<SharedMemory>(rank, size, name, timeout_ns);
  HostCollectives host;
  host.all_gather = [memory](uint64_t, const void* send, void* recv,
                             Bytes bytes) {
    return memory->AllGather(static_cast<const std::byte*>(send),
                             static_cast<std::byte*>(recv), bytes.count());
  };
  host.all_to_all = [memory](uint64_t, const void* send,
                             const int64_t* send_bytes, void* recv,
                             const int64_t* recv_bytes) {
    return memory->AllToAll(static_cast<const std::byte*>(send), send_bytes,
                            static_cast<std::byte*>(recv), recv_bytes);
  };
  host.barrier = [memory](uint64_t) { return memory->Barrier(); };
  host.abort = [memory](const char* why) { memory->Abort(why); };
  return host;
}

}  // namespace castor
