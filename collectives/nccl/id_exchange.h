// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_ID_EXCHANGE_H_
#define CASTOR_COLLECTIVES_NCCL_ID_EXCHANGE_H_

// How ranks that cannot talk yet learn what rank 0 tells them: NCCL's ids, and
// where rank 0 listens. About a kilobyte, once per communicator. Whoever starts
// a job has a way already (MPI_Bcast, the store of torchrun, a shared file), so
// this is an interface, with the ways that need nobody else.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"

namespace castor {

class IdExchange {
 public:
  virtual ~IdExchange() = default;
  // Every rank of the world calls it, as often as the others and with spans of
  // one size; afterwards all hold what rank 0 brought. Blocks until rank 0 has
  // called. Unavailable, with the reason, where that cannot be or takes longer
  // than the implementation bears.
  virtual Status Broadcast(int rank, std::span<std::byte> data) = 0;
};

// By what the caller has: a lambda around MPI_Bcast, for example, or around a
// store. Thread contract: the function's.
class FunctionIdExchange final : public IdExchange {
 public:
  using Function = std::function<Status(int rank, std::span<std::byte> data)>;
  explicit FunctionIdExchange(Function function)
      : function_(std::move(function)) {}
  Status Broadcast(int rank, std::span<std::byte> data) override {
    return function_(rank, data);
  }

 private:
  const Function function_;
};

// Ranks that are threads of one process: all use the same object. Thread-safe.
class ThreadIdExchange final : public IdExchange {
 public:
  explicit ThreadIdExchange(int64_t timeout_ns = 120'000'000'000)
      : timeout_ns_(timeout_ns) {}
  Status Broadcast(int rank, std::span<std::byte> data) override;

 private:
  const int64_t timeout_ns_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, size_t> calls_;                  // by rank; guarded by mutex_
  std::vector<std::vector<std::byte>> brought_;  // by call; guarded by mutex_
};

// A file that all ranks see, whose name is this run's own. Rank 0 writes
// another and links it to the name, so nobody sees half of it, and refuses a
// name that is taken: a file of an earlier run would send ranks to whoever
// listens now. Calls after the first append ".1", ".2", ... to the name. Rank 0
// removes its files at the end of its exchange's life. Owner thread only; one
// object per rank.
class FileIdExchange final : public IdExchange {
 public:
  explicit FileIdExchange(std::string path,
                          int64_t timeout_ns = 120'000'000'000);
  ~FileIdExchange() override;
  FileIdExchange(const FileIdExchange&) = delete;
  FileIdExchange& operator=(const FileIdExchange&) = delete;

  Status Broadcast(int rank, std::span<std::byte> data) override;

 private:
  Status Write(const std::string& name, std::span<const std::byte> data);
  Status Read(const std::string& name, int rank, std::span<std::byte> data);

  const std::string path_;
  const int64_t timeout_ns_;
  int calls_ = 0;
  std::vector<std::string> written_;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_NCCL_ID_EXCHANGE_H_
