// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/contracts/io_queue_contract.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {

UniqueFd OpenFile(const std::string& path, int flags) {
  return UniqueFd(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600));
}

std::future<Status> SubmitTo(IoQueue& queue, IoDirection direction, int fd,
                             Bytes offset, std::span<std::byte> bytes,
                             IoPriority priority) {
  const auto promise = std::make_shared<std::promise<Status>>();
  queue.Submit({.direction = direction,
                .priority = priority,
                .fd = fd,
                .offset = offset,
                .data = bytes.data(),
                .size = Bytes(static_cast<int64_t>(bytes.size())),
                .done = [promise](const Status& status) {
                  promise->set_value(status);
                }});
  return promise->get_future();
}

TEST_P(IoQueueContract, ReadsWhatItWroteForSizesAroundEveryBorder) {
  auto queue = Make();
  UniqueFd fd = OpenFile(dir_.File("data"));
  const int64_t mib = 1 << 20;
  for (const int64_t size :
       {int64_t{0}, int64_t{1}, int64_t{511}, int64_t{4096}, int64_t{4097},
        mib - 1, mib, mib + 1, 3 * mib + 17, 5 * mib}) {
    for (const size_t misalignment : {0, 1, 513}) {
      AlignedBytes written(Bytes(size), misalignment);
      AlignedBytes read(Bytes(size), misalignment);
      FillRandom(written.span(), static_cast<uint64_t>(size) + misalignment);
      const Bytes offset(static_cast<int64_t>(misalignment) * 3);
      ASSERT_THAT(Write(*queue, fd.get(), offset, written.span()), IsOk());
      ASSERT_THAT(Read(*queue, fd.get(), offset, read.span()), IsOk());
      EXPECT_TRUE(SameBytes(read.span(), written.span()))
          << size << " B, misaligned by " << misalignment;
    }
  }
}

TEST_P(IoQueueContract, MovesDirectlyWhereTheFileSystemAllowsIt) {
  UniqueFd fd = OpenFile(dir_.File("data"), O_DIRECT);
  if (!fd.valid()) GTEST_SKIP() << "the file system refuses O_DIRECT";
  auto queue = Make();
  AlignedBytes written(MiB(3) + KiB(4)), read(MiB(3) + KiB(4));
  FillRandom(written.span(), 1);
  ASSERT_THAT(Write(*queue, fd.get(), KiB(8), written.span()), IsOk());
  ASSERT_THAT(Read(*queue, fd.get(), KiB(8), read.span()), IsOk());
  EXPECT_TRUE(SameBytes(read.span(), written.span()));
}

TEST_P(IoQueueContract, WorksAtTheSmallestDepthPieceAndThreadCount) {
  auto queue = Make({.depth = 1, .piece = KiB(4), .threads = 1});
  UniqueFd fd = OpenFile(dir_.File("data"));
  AlignedBytes written(KiB(300) + Bytes(5)), read(KiB(300) + Bytes(5));
  FillRandom(written.span(), 2);
  ASSERT_THAT(Write(*queue, fd.get(), Bytes(0), written.span()), IsOk());
  ASSERT_THAT(Read(*queue, fd.get(), Bytes(0), read.span()), IsOk());
  EXPECT_TRUE(SameBytes(read.span(), written.span()));
}

TEST_P(IoQueueContract, KeepsRandomTransfersOfSeveralThreadsApart) {
  auto queue = Make({.depth = 8, .piece = KiB(64), .threads = 3});
  const uint64_t seed = TestSeed(71);
  UniqueFd fd = OpenFile(dir_.File("data"));
  constexpr Bytes kRegion = MiB(2);
  const int rounds = std::max(8, TestRounds(30));
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      // Each thread has a region of the file, and a model of it in memory.
      std::mt19937_64 random(seed + static_cast<uint64_t>(t));
      AlignedBytes model(kRegion), read(kRegion);
      const Bytes start = kRegion * t;
      if (!Write(*queue, fd.get(), start, model.span()).ok()) ++failures;
      for (int i = 0; i < rounds; ++i) {
        const Bytes from(static_cast<int64_t>(random() % (1 << 21)));
        const Bytes size(static_cast<int64_t>(
            random() % static_cast<uint64_t>((kRegion - from).count()) + 1));
        const auto part = model.part(from, size);
        FillRandom(part, random());
        if (!Write(*queue, fd.get(), start + from, part).ok()) ++failures;
        if (!Read(*queue, fd.get(), start, read.span()).ok()) ++failures;
        if (!SameBytes(read.span(), model.span())) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

TEST_P(IoQueueContract, EndsARequestOfNoBytesLater) {
  auto queue = Make();
  EXPECT_THAT(Read(*queue, -1, Bytes(0), {}), IsOk());
  EXPECT_THAT(Write(*queue, -1, Bytes(0), {}), IsOk());
}

TEST_P(IoQueueContract, MovesMoreThan2GiBInOneRequest) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "ThreadSanitizer would back every byte with memory";
#endif
#endif
  // Never touched, so never backed by memory; the null device takes it all.
  const Bytes size = GiB(3) + Bytes(1);
  void* memory = ::mmap(nullptr, static_cast<size_t>(size.count()), PROT_READ,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  UniqueFd fd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  for (const Bytes piece : {MiB(1), MiB(512)}) {
    auto queue = Make({.piece = piece});
    EXPECT_THAT(Write(*queue, fd.get(), Bytes(0),
                      {static_cast<std::byte*>(memory),
                       static_cast<size_t>(size.count())}),
                IsOk());
  }
  ::munmap(memory, static_cast<size_t>(size.count()));
}

TEST_P(IoQueueContract, FailsAReadPastTheEndAndSaysWhereTheFileEnds) {
  auto queue = Make();
  UniqueFd fd = OpenFile(dir_.File("data"));
  AlignedBytes bytes(MiB(2));
  ASSERT_THAT(Write(*queue, fd.get(), Bytes(0), bytes.part(Bytes(0), KiB(5))),
              IsOk());
  EXPECT_THAT(Read(*queue, fd.get(), Bytes(0), bytes.span()),
              StatusIs(ErrorCode::kIoError, Says("ends at 5120 B")));
}

TEST_P(IoQueueContract, ReportsWhatTheSystemAnswered) {
  auto queue = Make();
  AlignedBytes bytes(MiB(2));
  // Nothing is mapped at the bottom of a process, so reading there is EIO.
  UniqueFd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(memory.valid());
  EXPECT_THAT(Read(*queue, memory.get(), KiB(8), bytes.span()),
              StatusIs(ErrorCode::kIoError,
                       Says("reading 1048576 B", "offset", "(errno 5)")));
  UniqueFd full(::open("/dev/full", O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  EXPECT_THAT(Write(*queue, full.get(), KiB(4), bytes.span()),
              StatusIs(ErrorCode::kIoError,
                       Says("writing", "No space left on device")));
  EXPECT_THAT(Read(*queue, -1, Bytes(0), bytes.span()),
              StatusIs(ErrorCode::kIoError, Says("Bad file descriptor")));
}

TEST_P(IoQueueContract, FailsOnlyTheRequestThatFails) {
  auto queue = Make({.depth = 4, .piece = KiB(4)});
  UniqueFd good = OpenFile(dir_.File("data"));
  UniqueFd full(::open("/dev/full", O_RDWR | O_CLOEXEC));
  AlignedBytes bytes(KiB(512));
  std::vector<std::future<Status>> fine, broken;
  for (int i = 0; i < 20; ++i) {
    fine.push_back(SubmitTo(*queue, IoDirection::kWrite, good.get(),
                            KiB(512) * i, bytes.span()));
    broken.push_back(SubmitTo(*queue, IoDirection::kWrite, full.get(), Bytes(0),
                              bytes.span()));
  }
  for (auto& each : fine) EXPECT_THAT(each.get(), IsOk());
  for (auto& each : broken) {
    EXPECT_THAT(each.get(), StatusIs(ErrorCode::kIoError));
  }
}

TEST_P(IoQueueContract, CallsBackOncePerRequestBeforeItIsDestroyed) {
  UniqueFd fd = OpenFile(dir_.File("data"));
  AlignedBytes bytes(KiB(256));
  constexpr int kRequests = 200;
  std::vector<std::atomic<int>> calls(kRequests);
  auto queue = Make({.depth = 4, .piece = KiB(16)});
  for (int i = 0; i < kRequests; ++i) {
    queue->Submit({.direction = IoDirection::kWrite,
                   .fd = i % 7 == 0 ? -1 : fd.get(),
                   .offset = Bytes(0),
                   .data = bytes.data(),
                   .size = bytes.size(),
                   .done = [&calls, i](const Status& status) {
                     EXPECT_EQ(status.ok(), i % 7 != 0) << status;
                     ++calls[static_cast<size_t>(i)];
                   }});
  }
  queue.reset();
  for (const auto& count : calls) EXPECT_EQ(count, 1);
}

TEST_P(IoQueueContract, ACallbackMaySubmitTheNext) {
  auto queue = Make();
  UniqueFd fd = OpenFile(dir_.File("data"));
  AlignedBytes bytes(KiB(4));
  std::promise<int> finished;
  int moved = 0;
  std::function<void()> submit = [&] {
    queue->Submit(
        {.direction = moved % 2 == 0 ? IoDirection::kWrite : IoDirection::kRead,
         .fd = fd.get(),
         .offset = Bytes(0),
         .data = bytes.data(),
         .size = bytes.size(),
         .done = [&](const Status& status) {
           if (status.ok() && ++moved < 300) return submit();
           finished.set_value(moved);
         }});
  };
  submit();
  EXPECT_EQ(finished.get_future().get(), 300);
}

TEST_P(IoQueueContract, KnowsNothingOfRequestsThatAreOver) {
  auto queue = Make();
  UniqueFd fd = OpenFile(dir_.File("data"));
  AlignedBytes bytes(KiB(4));
  std::promise<Status> done;
  const IoTicket ticket =
      queue->Submit({.direction = IoDirection::kWrite,
                     .priority = IoPriority::kWriteBack,
                     .fd = fd.get(),
                     .offset = Bytes(0),
                     .data = bytes.data(),
                     .size = bytes.size(),
                     .done = [&](const Status& s) { done.set_value(s); }});
  EXPECT_NE(ticket.id, 0u);
  EXPECT_THAT(done.get_future().get(), IsOk());
  EXPECT_FALSE(queue->Raise(ticket, IoPriority::kDemand));
  EXPECT_FALSE(queue->Cancel(ticket));
  EXPECT_FALSE(queue->Cancel(IoTicket{}));
}

// Of many requests, some are cancelled and some raised while others end: each
// ends once, Aborted only where Cancel said so, and what ended well was moved.
TEST_P(IoQueueContract, EndsEachRequestOnceWhileOthersAreCancelled) {
  auto queue = Make({.depth = 4, .piece = KiB(16), .threads = 2});
  std::mt19937_64 random(TestSeed(19));
  UniqueFd fd = OpenFile(dir_.File("data"));
  constexpr int kRequests = 150;
  constexpr Bytes kSize = KiB(64);
  AlignedBytes content(kSize * kRequests), read(kSize * kRequests);
  FillRandom(content.span(), 3);
  ASSERT_THAT(Write(*queue, fd.get(), Bytes(0), content.span()), IsOk());
  struct Outcome {
    std::atomic<int> calls = 0;
    Status status;
  };
  std::vector<Outcome> outcomes(kRequests);
  std::vector<IoTicket> tickets;
  std::vector<bool> cancelled(kRequests);
  for (int i = 0; i < kRequests; ++i) {
    tickets.push_back(
        queue->Submit({.direction = IoDirection::kRead,
                       .priority = static_cast<IoPriority>(random() % 3),
                       .fd = fd.get(),
                       .offset = kSize * i,
                       .data = read.part(kSize * i, kSize).data(),
                       .size = kSize,
                       .done = [&outcome = outcomes[static_cast<size_t>(i)]](
                                   const Status& status) {
                         outcome.status = status;
                         ++outcome.calls;
                       }}));
    const size_t other = random() % tickets.size();
    if (random() % 3 == 0) {
      cancelled[other] = queue->Cancel(tickets[other]) || cancelled[other];
    } else {
      queue->Raise(tickets[other], IoPriority::kDemand);
    }
  }
  queue.reset();
  int dropped = 0;
  for (int i = 0; i < kRequests; ++i) {
    const Outcome& outcome = outcomes[static_cast<size_t>(i)];
    ASSERT_EQ(outcome.calls, 1) << i;
    if (cancelled[static_cast<size_t>(i)]) {
      EXPECT_THAT(outcome.status, StatusIs(ErrorCode::kAborted)) << i;
      ++dropped;
    } else {
      EXPECT_THAT(outcome.status, IsOk()) << i;
      EXPECT_TRUE(SameBytes(read.part(kSize * i, kSize),
                            content.part(kSize * i, kSize)))
          << i;
    }
  }
  std::cout << dropped << " of " << kRequests << " were cancelled" << std::endl;
}

// Within registered memory, beside it, and across its end.
TEST_P(IoQueueContract, MovesRegisteredAndOtherMemoryAlike) {
  auto queue = Make({.piece = KiB(64)});
  UniqueFd fd = OpenFile(dir_.File("data"));
  AlignedBytes bytes(MiB(4));
  FillRandom(bytes.span(), 4);
  EXPECT_THAT(queue->RegisterFile(fd.get()), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto registered,
                       queue->RegisterMemory(bytes.part(MiB(1), MiB(2))));
  EXPECT_EQ(registered, queue->name() == "io_uring" ? MiB(2) : Bytes(0));
  ASSERT_THAT(Write(*queue, fd.get(), Bytes(0), bytes.span()), IsOk());
  AlignedBytes other(MiB(4));
  ASSERT_THAT(Read(*queue, fd.get(), Bytes(0), other.span()), IsOk());
  EXPECT_TRUE(SameBytes(other.span(), bytes.span()));
  FillRandom(bytes.span(), 5);
  for (const Bytes from : {KiB(0), KiB(1000), KiB(2000), KiB(3050)}) {
    ASSERT_THAT(Read(*queue, fd.get(), from, bytes.part(from, KiB(1000))),
                IsOk());
    EXPECT_TRUE(
        SameBytes(bytes.part(from, KiB(1000)), other.part(from, KiB(1000))));
  }
  // Another file is not the registered one.
  UniqueFd second = OpenFile(dir_.File("other"));
  ASSERT_THAT(Write(*queue, second.get(), Bytes(0), bytes.part(MiB(1), KiB(4))),
              IsOk());
  EXPECT_EQ(::lseek(second.get(), 0, SEEK_END), 4096);
}

}  // namespace castor
