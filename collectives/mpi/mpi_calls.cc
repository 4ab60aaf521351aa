// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/mpi_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace castor::internal {
namespace {

constexpr int kTag = 0;
// In the place of a call: the world has ended amid one.
constexpr int64_t kEnded = -1;
// MPI counts in 31 bits.
constexpr int64_t kMostAtOnce = int64_t{1} << 30;
// A call that lasts so long is told of.
constexpr std::chrono::milliseconds kLasts{200};

size_t Index(int rank) { return static_cast<size_t>(rank); }

using std::chrono::microseconds;
using std::chrono::steady_clock;

// Runs hot for a moment, then sleeps longer and longer.
class Pause {
 public:
  void Take() {
    if (turns_++ < kHotTurns) return std::this_thread::yield();
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, kLongest);
  }
  void Restart() { *this = Pause(); }

 private:
  static constexpr int kHotTurns = 200;
  static constexpr microseconds kLongest{400};

  int turns_ = 0;
  microseconds sleep_{10};
};

}  // namespace

Status MpiStatus(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return OkStatus();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  return Unavailable(fmt::format(
      "{} failed with {}: look at what mpirun says of the other ranks", call,
      length > 0 ? std::string(text, static_cast<size_t>(length))
                 : fmt::format("error {}", code)));
}

MpiCalls::MpiCalls(MPI_Comm comm, MPI_Comm notes) : comm_(comm), notes_(notes) {
  // None can fail on a communicator that is one.
  for (MPI_Comm each : {comm_, notes_}) {
    MPI_Comm_set_errhandler(each, MPI_ERRORS_RETURN);
  }
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  waits_ = std::vector<std::atomic<int>>(Index(size_));
  lasted_ = std::vector<std::atomic<int64_t>>(Index(size_));
}

HostCollectives MpiCalls::Of(const std::shared_ptr<MpiCalls>& calls) {
  const auto part = [](const void* data, int64_t at, int64_t bytes) {
    // What is sent is only read; parts of both directions share a type.
    auto* const begin = static_cast<std::byte*>(const_cast<void*>(data));
    return Part{begin + at, bytes};
  };
  HostCollectives host;
  host.all_gather = [=](uint64_t, const void* send, void* recv, Bytes bytes) {
    std::vector<Part> out;
    std::vector<Part> in;
    for (int rank = 0; rank < calls->size_; ++rank) {
      out.push_back(part(send, 0, bytes.count()));
      in.push_back(part(recv, rank * bytes.count(), bytes.count()));
    }
    return calls->Exchange(out, in);
  };
  host.all_to_all = [=](uint64_t, const void* send, const int64_t* send_bytes,
                        void* recv, const int64_t* recv_bytes) {
    std::vector<Part> out;
    std::vector<Part> in;
    int64_t sent = 0;
    int64_t received = 0;
    for (int rank = 0; rank < calls->size_; ++rank) {
      out.push_back(part(send, sent, send_bytes[rank]));
      in.push_back(part(recv, received, recv_bytes[rank]));
      sent += send_bytes[rank];
      received += recv_bytes[rank];
    }
    return calls->Exchange(out, in);
  };
  host.barrier = [=](uint64_t) {
    std::vector<std::byte> bytes(static_cast<size_t>(calls->size_) + 1);
    std::vector<Part> out;
    std::vector<Part> in;
    for (int rank = 0; rank < calls->size_; ++rank) {
      out.push_back({bytes.data() + calls->size_, 1});
      in.push_back({bytes.data() + rank, 1});
    }
    return calls->Exchange(out, in);
  };
  host.abort = [=](const char*) { calls->ended_ = true; };
  host.waits_for = [=] { return calls->WaitsFor(); };
  return host;
}

Status MpiCalls::Exchange(const std::vector<Part>& send,
                          const std::vector<Part>& recv) {
  if (ended_) return Aborted("the world was ended");
  ++call_;
  HearOthers();
  const size_t own = Index(rank_);
  if (recv[own].bytes > 0 && recv[own].data != send[own].data) {
    std::memcpy(recv[own].data, send[own].data,
                static_cast<size_t>(recv[own].bytes));
  }
  const Status begun = Begin(send, recv);
  if (!begun.ok()) ended_ = true;
  const Status finished = Finish();
  return begun.ok() ? finished : begun;
}

Status MpiCalls::Begin(const std::vector<Part>& send,
                       const std::vector<Part>& recv) {
  requests_.clear();
  peers_.clear();
  receives_ = 0;
  const auto each_piece = [this](int peer, const Part& part,
                                 const auto& move) -> Status {
    for (int64_t at = 0; at < part.bytes; at += kMostAtOnce) {
      MPI_Request request = MPI_REQUEST_NULL;
      CASTOR_RETURN_IF_ERROR(move(
          part.data + at,
          static_cast<int>(std::min(kMostAtOnce, part.bytes - at)), &request));
      requests_.push_back(request);
      peers_.push_back(peer);
      ++waits_[Index(peer)];
    }
    return OkStatus();
  };
  // Each begins with the rank after it, so that not all serve one.
  for (int i = 1; i < size_; ++i) {
    const int peer = (rank_ + size_ - i) % size_;
    const auto receive = [&](std::byte* data, int bytes, MPI_Request* request) {
      return MpiStatus(
          MPI_Irecv(data, bytes, MPI_BYTE, peer, kTag, comm_, request),
          "MPI_Irecv");
    };
    const Status posted = each_piece(peer, recv[Index(peer)], receive);
    receives_ = requests_.size();
    CASTOR_RETURN_IF_ERROR(posted);
  }
  for (int i = 1; i < size_; ++i) {
    const int peer = (rank_ + i) % size_;
    const auto give = [&](std::byte* data, int bytes, MPI_Request* request) {
      return MpiStatus(
          MPI_Isend(data, bytes, MPI_BYTE, peer, kTag, comm_, request),
          "MPI_Isend");
    };
    CASTOR_RETURN_IF_ERROR(each_piece(peer, send[Index(peer)], give));
  }
  return OkStatus();
}

Status MpiCalls::Finish() {
  Status status;
  bool told = false;
  bool taken_back = false;
  const steady_clock::time_point begun = steady_clock::now();
  steady_clock::time_point ended;
  Pause pause;
  ended_requests_.resize(requests_.size());
  for (size_t left = requests_.size(); left > 0;) {
    int count = 0;
    const Status tested = MpiStatus(
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(),
                     &count, ended_requests_.data(), MPI_STATUSES_IGNORE),
        "MPI_Testsome");
    if (!tested.ok()) {
      // Which ones ended, it does not say.
      broken_ = true;
      return tested;
    }
    for (int i = 0; i < count; ++i) {
      const auto request = static_cast<size_t>(ended_requests_[Index(i)]);
      --waits_[Index(peers_[request])];
    }
    left -= static_cast<size_t>(std::max(count, 0));
    if (count > 0) pause.Restart();
    if (left == 0) break;
    const steady_clock::time_point now = steady_clock::now();
    if (now - begun >= kLasts) {
      if (!std::exchange(told, true)) TellOthers(call_);
      HearOthers();
    }
    if (ended_ && !taken_back) {
      taken_back = true;
      ended = now;
      status = Aborted("the world was ended while it waited for a rank");
      TakeBack();
      TellOthers(kEnded);
    } else if (taken_back && now - ended > std::chrono::nanoseconds(kGraceNs)) {
      broken_ = true;
      return status;
    }
    pause.Take();
  }
  return status;
}

void MpiCalls::TakeBack() {
  for (size_t i = 0; i < std::min(receives_, requests_.size()); ++i) {
    // One that has begun to come comes to its end.
    if (requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
  }
}

// A note that cannot be sent costs a name in a message.
void MpiCalls::TellOthers(int64_t call) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    // It is sent at once: so little goes without the receiver.
    if (MPI_Isend(&call, 1, MPI_INT64_T, peer, kTag, notes_, &request) ==
        MPI_SUCCESS) {
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }
}

void MpiCalls::HearOthers() {
  for (;;) {
    int there = 0;
    MPI_Message note = MPI_MESSAGE_NULL;
    MPI_Status from;
    if (MPI_Improbe(MPI_ANY_SOURCE, kTag, notes_, &there, &note, &from) !=
            MPI_SUCCESS ||
        there == 0) {
      return;
    }
    int64_t call = 0;
    if (MPI_Mrecv(&call, 1, MPI_INT64_T, &note, MPI_STATUS_IGNORE) !=
        MPI_SUCCESS) {
      return;
    }
    if (call == kEnded) {
      ended_ = true;
    } else {
      lasted_[Index(from.MPI_SOURCE)] = call;
    }
  }
}

std::vector<int> MpiCalls::WaitsFor() const {
  std::vector<int> late;
  std::vector<int> to_blame;
  for (int rank = 0; rank < size_; ++rank) {
    if (waits_[Index(rank)] <= 0) continue;
    late.push_back(rank);
    // It is at the same call, or has not ended the one before.
    if (lasted_[Index(rank)] + 1 < call_) to_blame.push_back(rank);
  }
  return to_blame.empty() ? late : to_blame;
}

Status MpiCalls::Free() {
  // Notes that nobody heard go with theirs.
  CASTOR_RETURN_IF_ERROR(MpiStatus(MPI_Comm_free(&notes_), "MPI_Comm_free"));
  return MpiStatus(MPI_Comm_free(&comm_), "MPI_Comm_free");
}

}  // namespace castor::internal
