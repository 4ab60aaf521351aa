// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the last words of a world say while one rank holds it up. That rank is
// no world: it is played by hand, so it stops just where a test has it stop.

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "collectives/internal/call_code.h"
#include "collectives/internal/collective_call.h"
#include "collectives/mpi/internal/control_message.h"
#include "collectives/mpi/internal/mpi_wire.h"
#include "collectives/mpi/internal/mpi_world.h"
#include "collectives/mpi/internal/words_slot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/event.h"
#include "tests/collectives/mpi/mpi_ranks.h"
#include "tests/support/status_matchers.h"

namespace castor {

namespace {

using internal::CollectiveCall;
using internal::CollectiveKind;
using internal::ControlKind;
using internal::MpiWire;
using internal::MpiWorld;
using testing::Not;

constexpr int kByHand = 1;
// Of which a rank takes one from every other: more than MPI sends to one that
// has not asked for it.
constexpr Bytes kSlice = KiB(256);
constexpr Bytes kPiece = KiB(64);

// The last words of this process.
std::string Words() {
  std::array<int, 2> ends;
  EXPECT_EQ(pipe(ends.data()), 0);
  internal::WriteWords(ends[1]);
  close(ends[1]);
  std::string words;
  std::array<char, 4096> part;
  for (ssize_t n; (n = read(ends[0], part.data(), part.size())) > 0;) {
    words.append(part.data(), static_cast<size_t>(n));
  }
  close(ends[0]);
  return words;
}

// The last words once they hold `what`, or after some seconds.
std::string WordsWith(const std::string& what) {
  for (int i = 0; i < 2000; ++i) {
    const std::string words = Words();
    if (words.find(what) != std::string::npos) return words;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return Words();
}

CollectiveCall Reduction() {
  return {.kind = CollectiveKind::kReduceScatter,
          .tag = {ChunkId(7), 3, "grad"},
          .count = kSlice.count() / 4,
          .dtype = DType::kF32};
}

// The rank that is played: it says and sends what it is told to, takes what it
// is sent, and answers nothing.
class RankByHand {
 public:
  explicit RankByHand(MPI_Comm comm) : comm_(comm), wire_(comm) {}

  // To the world's only operation.
  void Come(const CollectiveCall& call) {
    Tell({.kind = ControlKind::kCall, .call = internal::EncodeCall(call)});
    for (int peer = 0; peer < wire_.world(); ++peer) {
      if (peer != kByHand) Move(peer, /*give=*/false);
    }
  }
  void Give(int peer) { Move(peer, /*give=*/true); }
  // Ends when all have gone.
  void Leave() {
    Tell({.kind = ControlKind::kLeave, .position = 1});
    Tell({.kind = ControlKind::kGone});
    int gone = 1;
    while (gone < wire_.world() || wire_.moving_data() ||
           wire_.sending_control()) {
      wire_.Poll();
      ASSERT_THAT(wire_.status(), IsOk());
      while (const auto heard = wire_.NextControl()) {
        ASSERT_OK_AND_ASSIGN(const auto message,
                             internal::DecodeMessage(heard->message));
        gone += message.kind == ControlKind::kGone;
      }
      std::this_thread::yield();
    }
    MPI_Comm_free(&comm_);
  }

 private:
  void Tell(const internal::ControlMessage& message) {
    for (int peer = 0; peer < wire_.world(); ++peer) {
      if (peer == kByHand) continue;
      wire_.SendControl(peer, internal::EncodeMessage(message));
    }
  }
  // One rank's slice, in pieces, as exchange.h has it.
  void Move(int peer, bool give) {
    constexpr int64_t kTag = 0;  // of the first operation's first phase
    for (int64_t i = 0; i < kSlice / kPiece; ++i) {
      std::byte* const data = buffer_.data() + i * kPiece.count();
      if (give) {
        wire_.Send(this, peer, kTag, data, kPiece, [](MpiWire::Outcome) {});
      } else {
        // Nobody looks at what comes.
        wire_.Receive(this, peer, kTag, i, trash_.data(), kPiece,
                      [](MpiWire::Outcome) {});
      }
    }
  }

  MPI_Comm comm_;
  MpiWire wire_;
  std::vector<std::byte> buffer_{static_cast<size_t>(kSlice.count())};
  std::vector<std::byte> trash_{static_cast<size_t>(kPiece.count())};
};

// A reduction to which every rank but the one by hand brings its part at once;
// that one does what `by_hand` says, and `go_on` when the others have looked at
// their words.
void Hold(const std::function<void(RankByHand&)>& by_hand,
          const std::function<void()>& look,
          const std::function<void(RankByHand&)>& go_on) {
  MPI_Comm comm = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_dup(MPI_COMM_WORLD, &comm), MPI_SUCCESS);
  if (session->rank() == kByHand) {
    RankByHand hand(comm);
    hand.Come(Reduction());
    by_hand(hand);
    MeetOthers();
    go_on(hand);
    return hand.Leave();
  }
  const SteadyClock clock;
  MpiWorld world(comm, {.timeout_ns = 0,
                        .sizes = {.most_at_once = MiB(1), .segment = kPiece},
                        .clock = &clock});
  const auto elements = static_cast<size_t>(kSlice.count() / 4);
  std::vector<float> in(elements * static_cast<size_t>(world.size()));
  std::vector<float> out(elements);
  const EventSource done;
  world.Arrive(world.Call(), Reduction(), {in.data(), out.data()}, done);
  look();
  MeetOthers();
  EXPECT_THAT(done.event().Wait(), IsOk());
  EXPECT_THAT(WordsWith("no rank"), Says("waited for no rank"));
  world.Leave();
  EXPECT_TRUE(world.WaitForAllToLeave(-1));
}

std::string Self() {
  return "rank " + std::to_string(session->rank()) + " of " +
         std::to_string(session->world()) + " was told to end (SIGTERM)";
}

// Words that were right when the operation began say nothing of who holds it
// up now: the others' data has come since.
TEST(MpiWorldWordsTest, NameTheOneRankWhoseDataHasNotCome) {
  if (session->world() < 3) GTEST_SKIP() << "it takes a third rank";
  Hold([](RankByHand&) {},
       [] {
         const std::string words = WordsWith("data of rank 1 at");
         EXPECT_THAT(words,
                     Says(Self() + " while it waited for data of rank 1 at "
                                   "operation 0 of the world, "));
         EXPECT_THAT(words, Says("chunk 7 at moment 3"));
         // The harness waits for nobody, and is quiet.
         EXPECT_THAT(words, Not(Says("no rank")));
       },
       [](RankByHand& hand) {
         for (int peer = 0; peer < session->world(); ++peer) {
           if (peer != kByHand) hand.Give(peer);
         }
       });
}

// Rank 0 has its sum, and waits for the others to take the rest of its part,
// for which they have no room while they wait for rank 1.
TEST(MpiWorldWordsTest, NameTheRankThatThoseWaitForThatAreWaitedFor) {
  if (session->world() < 3) GTEST_SKIP() << "it takes a third rank";
  Hold([](RankByHand& hand) { hand.Give(0); },
       [] {
         if (session->rank() != 0) {
           EXPECT_THAT(WordsWith("data of rank 1 at"),
                       Says("data of rank 1 at operation 0"));
           return;
         }
         const std::string others =
             session->world() == 3 ? "rank 2" : "ranks 2-3";
         EXPECT_THAT(WordsWith("and so for rank 1"),
                     Says(" while it waited for data of " + others +
                          ", waiting too, and so for rank 1 at operation 0 "
                          "of the world, "));
       },
       [](RankByHand& hand) {
         for (int peer = 2; peer < session->world(); ++peer) hand.Give(peer);
       });
}

// Operations that follow each other closely leave the thread no rest to make
// words in, and those of an early one blame a rank that has come since.
TEST(MpiWorldWordsTest, OfAnOperationThatIsOverBlameNobody) {
  if (session->world() < 2) GTEST_SKIP() << "it takes a second rank";
  MPI_Comm comm = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_dup(MPI_COMM_WORLD, &comm), MPI_SUCCESS);
  const SteadyClock clock;
  MpiWorld world(comm, {.timeout_ns = 0,
                        .sizes = {.most_at_once = MiB(1), .segment = kPiece},
                        .clock = &clock});
  const auto meet = [&] {
    const EventSource done;
    world.Arrive(
        world.Call(),
        {.kind = CollectiveKind::kBarrier, .tag = {ChunkId(), -1, "together"}},
        {}, done);
    return done.event();
  };
  if (session->rank() == kByHand) {
    MeetOthers();
    EXPECT_THAT(meet().Wait(), IsOk());
  } else {
    const Event first = meet();
    EXPECT_THAT(WordsWith("rank 1 at operation 0"),
                Says(Self() + " while it waited for rank"));
    MeetOthers();
    EXPECT_THAT(first.Wait(), IsOk());
  }
  for (int i = 1; i <= 200; ++i) {
    EXPECT_THAT(meet().Wait(), IsOk());
    EXPECT_THAT(Words(), Says(Self() +
                              " while it waited for no rank, after "
                              "operation " +
                              std::to_string(i) + " of the world"));
  }
  world.Leave();
  EXPECT_TRUE(world.WaitForAllToLeave(-1));
}

}  // namespace
}  // namespace castor
