// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MPI_MPI_CALLS_H_
#define CASTOR_COLLECTIVES_MPI_MPI_CALLS_H_

// Part of the MPI communicator (mpi_communicator.h).
//
// The calls of a callback communicator over one MPI communicator. Every rank
// sends each other rank its part and takes that one's, straight from and to
// where they lie, so who is missing is known by name. All ranks make the same
// calls in the same order; messages between two ranks keep theirs. A rank whose
// call lasts tells the others, who then know that it is not to blame.
//
// A call that is ended takes back what it still waits for, so that nothing is
// written to its memory any more, and tells the others. A rank that has begun
// to send and says nothing for kGraceNs may still write there: the process
// should end then. One thread makes the calls, any may end them and ask whom
// they wait for.

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/callbacks/callback_communicator.h"

namespace castor::internal {

// How long a call that is ended waits for ranks that do not answer.
inline constexpr int64_t kGraceNs = 2'000'000'000;

// What MPI says of `code`, as a sentence of `call`; ok for MPI_SUCCESS.
Status MpiStatus(int code, std::string_view call);

class MpiCalls {
 public:
  // Takes both over, of the same ranks. REQUIRES: MPI_THREAD_MULTIPLE.
  MpiCalls(MPI_Comm comm, MPI_Comm notes);
  MpiCalls(const MpiCalls&) = delete;
  MpiCalls& operator=(const MpiCalls&) = delete;

  // For MakeCallbackCommunicator. What it returns holds `calls`.
  static HostCollectives Of(const std::shared_ptr<MpiCalls>& calls);

  // Whether MPI still holds memory of a call that was ended.
  bool broken() const { return broken_; }
  // Of all ranks, for what they do once no call comes any more.
  MPI_Comm comm() const { return comm_; }
  // Gives the MPI communicators back. REQUIRES: no call any more, not broken.
  Status Free();

 private:
  // A part of what is sent to or taken from one rank.
  struct Part {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };

  Status Exchange(const std::vector<Part>& send, const std::vector<Part>& recv);
  Status Begin(const std::vector<Part>& send, const std::vector<Part>& recv);
  Status Finish();
  void TakeBack();
  // That the call under way lasts, or that the world has ended (kEnded).
  void TellOthers(int64_t call);
  void HearOthers();
  // Those whose own calls last are left out, unless all of them do.
  std::vector<int> WaitsFor() const;

  MPI_Comm comm_;
  MPI_Comm notes_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<MPI_Request> requests_;  // receives, then sends
  std::vector<int> peers_;             // by request
  size_t receives_ = 0;
  std::vector<int> ended_requests_;
  // How many requests a rank is still to serve.
  std::vector<std::atomic<int>> waits_;
  std::atomic<int64_t> call_ = 0;  // the number of the one under way
  // The last call of each rank that lasted there, as it told.
  std::vector<std::atomic<int64_t>> lasted_;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> broken_ = false;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MPI_MPI_CALLS_H_
