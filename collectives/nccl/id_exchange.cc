// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/id_exchange.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "offload/nvme/queue/unique_fd.h"

namespace castor {
namespace {

// How often a file is looked for: little beside starting NCCL.
constexpr std::chrono::milliseconds kLook(10);

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

Status FileError(std::string_view what, const std::string& name, int error) {
  return Unavailable(fmt::format("{} {}, by which ranks find each other: {}",
                                 what, name, std::strerror(error)));
}

}  // namespace

Status ThreadIdExchange::Broadcast(int rank, std::span<std::byte> data) {
  std::unique_lock lock(mutex_);
  const size_t call = calls_[rank]++;
  if (rank == 0) {
    CASTOR_CHECK_EQ(brought_.size(), call);
    brought_.emplace_back(data.begin(), data.end());
    changed_.notify_all();
    return OkStatus();
  }
  if (!changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns_),
                         [&] { return brought_.size() > call; })) {
    return Unavailable(
        fmt::format("rank 0 told rank {} nothing in {} s: does it run?", rank,
                    Seconds(timeout_ns_)));
  }
  CASTOR_CHECK_EQ(brought_[call].size(), data.size());
  std::ranges::copy(brought_[call], data.begin());
  return OkStatus();
}

FileIdExchange::FileIdExchange(std::string path, int64_t timeout_ns)
    : path_(std::move(path)), timeout_ns_(timeout_ns) {}

FileIdExchange::~FileIdExchange() {
  for (const std::string& name : written_) unlink(name.c_str());
}

Status FileIdExchange::Broadcast(int rank, std::span<std::byte> data) {
  const std::string name =
      calls_ == 0 ? path_ : fmt::format("{}.{}", path_, calls_);
  ++calls_;
  return rank == 0 ? Write(name, data) : Read(name, rank, data);
}

Status FileIdExchange::Write(const std::string& name,
                             std::span<const std::byte> data) {
  const std::string half = fmt::format("{}.{}.tmp", name, getpid());
  UniqueFd file(open(half.c_str(), O_CREAT | O_WRONLY | O_EXCL | O_CLOEXEC,
                     S_IRUSR | S_IWUSR));
  if (!file.valid()) return FileError("cannot create", half, errno);
  // It is small and new: a short write means that there is no room.
  const ssize_t put = write(file.get(), data.data(), data.size());
  int error = 0;
  if (put < 0) {
    error = errno;
  } else if (put != std::ssize(data)) {
    error = ENOSPC;
  } else if (fsync(file.get()) != 0) {
    error = errno;
  } else {
    error = file.Close();
  }
  // Unlike rename, link never replaces.
  if (error == 0 && link(half.c_str(), name.c_str()) != 0) error = errno;
  unlink(half.c_str());
  if (error == 0) {
    written_.push_back(name);
    return OkStatus();
  }
  if (error == EEXIST) {
    return Unavailable(fmt::format(
        "{}, by which ranks find each other, exists: an earlier run left it, "
        "or another one uses it. Name a file of this run's own, or remove it",
        name));
  }
  return FileError("cannot write", name, error);
}

Status FileIdExchange::Read(const std::string& name, int rank,
                            std::span<std::byte> data) {
  const SteadyClock clock;
  const int64_t begun_ns = clock.NowNs();
  for (;;) {
    const UniqueFd file(open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.valid()) {
      const ssize_t got = read(file.get(), data.data(), data.size());
      if (got == static_cast<ssize_t>(data.size())) return OkStatus();
      if (got < 0) return FileError("cannot read", name, errno);
      return Unavailable(fmt::format(
          "{}, by which ranks find each other, has {} bytes instead of {}: it "
          "is another program's",
          name, got, data.size()));
    }
    if (errno != ENOENT) return FileError("cannot open", name, errno);
    if (clock.NowNs() - begun_ns > timeout_ns_) {
      return Unavailable(fmt::format(
          "rank {} does not see {}, by which ranks find each other, after {} "
          "s: does rank 0 run, and is the file on a file system that both see?",
          rank, name, Seconds(timeout_ns_)));
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace castor
