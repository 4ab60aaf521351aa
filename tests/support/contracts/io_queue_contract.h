// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_CONTRACTS_IO_QUEUE_CONTRACT_H_
#define CASTOR_TESTS_SUPPORT_CONTRACTS_IO_QUEUE_CONTRACT_H_

// What every IoQueue must do. A test of an implementation links this and
// instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Threads, IoQueueContract,
//                            testing::Values(&MakeQueue));
//
// where the factory may return null with a reason to skip.

#include <future>
#include <memory>
#include <span>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/queue/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace castor {

using IoQueueMaker = std::unique_ptr<IoQueue> (*)(const IoQueueOptions&,
                                                  std::string* skip_reason);

// Readable and writable, made if there is none.
UniqueFd OpenFile(const std::string& path, int flags = 0);

// How the request ends, in the future.
std::future<Status> SubmitTo(IoQueue& queue, IoDirection direction, int fd,
                             Bytes offset, std::span<std::byte> bytes,
                             IoPriority priority = IoPriority::kDemand);

class IoQueueContract : public testing::TestWithParam<IoQueueMaker> {
 protected:
  // Skipped where this machine has no such queue.
  void SetUp() override {
    std::string reason;
    if (GetParam()({}, &reason) == nullptr) GTEST_SKIP() << reason;
  }
  std::unique_ptr<IoQueue> Make(const IoQueueOptions& options = {}) {
    std::string reason;
    return GetParam()(options, &reason);
  }
  static Status Read(IoQueue& queue, int fd, Bytes offset,
                     std::span<std::byte> bytes) {
    return SubmitTo(queue, IoDirection::kRead, fd, offset, bytes).get();
  }
  static Status Write(IoQueue& queue, int fd, Bytes offset,
                      std::span<std::byte> bytes) {
    return SubmitTo(queue, IoDirection::kWrite, fd, offset, bytes).get();
  }

  TempDir dir_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_CONTRACTS_IO_QUEUE_CONTRACT_H_
