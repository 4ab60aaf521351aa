// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/internal/mpi_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "chunk/base/check.h"

namespace castor::internal {
namespace {

constexpr int kControlTag = 0;
constexpr int kFirstDataTag = 1;
// Enough for all operations that can be under way at a time, many times over.
constexpr int64_t kMostTags = int64_t{1} << 20;

int IntOf(int64_t value) {
  CASTOR_CHECK_GE(value, 0);
  CASTOR_CHECK(value <= std::numeric_limits<int>::max());
  return static_cast<int>(value);
}

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

MpiWire::MpiWire(MPI_Comm comm) : comm_(comm) {
  Note(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN),
       "MPI_Comm_set_errhandler");
  Note(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  Note(MPI_Comm_size(comm_, &world_), "MPI_Comm_size");
  int* most = nullptr;
  int known = 0;
  Note(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &most, &known),
       "MPI_Comm_get_attr");
  // MPI promises as much as that.
  constexpr int64_t kLeast = 32767;
  tags_ =
      std::min<int64_t>(kMostTags, known != 0 ? *most : kLeast) - kFirstDataTag;
}

void MpiWire::Note(int code, std::string_view call) {
  if (code == MPI_SUCCESS || !status_.ok()) return;
  status_ = MpiStatus(code, call);
}

void MpiWire::SendControl(int peer, std::string message) {
  // The text must not move while it is sent, as a short one would with its
  // string.
  if (!status_.ok()) return;
  message.reserve(64);
  OutgoingControl& out = control_.emplace_back();
  out.message = std::move(message);
  Note(MPI_Isend(out.message.data(), IntOf(std::ssize(out.message)), MPI_BYTE,
                 peer, kControlTag, comm_, &out.request),
       "MPI_Isend");
}

std::optional<MpiWire::Control> MpiWire::NextControl() {
  if (!status_.ok()) return std::nullopt;
  int there = 0;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  Note(
      MPI_Improbe(MPI_ANY_SOURCE, kControlTag, comm_, &there, &handle, &status),
      "MPI_Improbe");
  if (there == 0 || !status_.ok()) return std::nullopt;
  int size = 0;
  Note(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
  Control control;
  control.peer = status.MPI_SOURCE;
  control.message.resize(static_cast<size_t>(std::max(size, 0)));
  // The message is here: this does not wait for its sender, but for a large
  // one's bytes.
  Note(MPI_Mrecv(control.message.data(), size, MPI_BYTE, &handle,
                 MPI_STATUS_IGNORE),
       "MPI_Mrecv");
  if (!status_.ok()) return std::nullopt;
  return control;
}

void MpiWire::Send(const void* owner, int peer, int64_t tag, const void* data,
                   Bytes size, OnPiece on_piece) {
  CASTOR_CHECK(tag >= 0 && tag < tags_);
  if (!status_.ok()) return;  // the world ends, and waits for nothing more
  MPI_Request request = MPI_REQUEST_NULL;
  Note(MPI_Isend(data, IntOf(size.count()), MPI_BYTE, peer,
                 IntOf(tag + kFirstDataTag), comm_, &request),
       "MPI_Isend");
  Keep(request, {owner, peer, tag, -1, false, std::move(on_piece)});
}

void MpiWire::Receive(const void* owner, int peer, int64_t tag, int64_t index,
                      void* data, Bytes size, OnPiece on_piece) {
  CASTOR_CHECK(tag >= 0 && tag < tags_);
  if (!status_.ok()) return;  // the world ends, and waits for nothing more
  MPI_Request request = MPI_REQUEST_NULL;
  Note(MPI_Irecv(data, IntOf(size.count()), MPI_BYTE, peer,
                 IntOf(tag + kFirstDataTag), comm_, &request),
       "MPI_Irecv");
  Keep(request, {owner, peer, tag, index, false, std::move(on_piece)});
}

void MpiWire::Keep(MPI_Request request, Piece piece) {
  if (!status_.ok()) return;
  requests_.push_back(request);
  pieces_.push_back(std::move(piece));
}

void MpiWire::CancelReceives(const void* owner, int peer, int64_t tag,
                             int64_t first_index) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    Piece& piece = pieces_[i];
    if (piece.owner != owner || piece.peer != peer || piece.tag != tag ||
        piece.index < std::max<int64_t>(first_index, 0)) {
      continue;
    }
    // Open MPI does not bear it twice.
    if (std::exchange(piece.cancelled, true)) continue;
    Note(MPI_Cancel(&requests_[i]), "MPI_Cancel");
  }
}

void MpiWire::Forget(const void* owner) {
  Compact([&](size_t i) { return pieces_[i].owner != owner; });
}

bool MpiWire::PollControl() {
  bool any = false;
  for (size_t i = 0; i < control_.size();) {
    int done = 0;
    Note(MPI_Test(&control_[i].request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) {
      ++i;
      continue;
    }
    any = true;
    if (i + 1 < control_.size()) control_[i] = std::move(control_.back());
    control_.pop_back();
  }
  return any;
}

bool MpiWire::Poll() {
  if (!status_.ok()) return false;
  bool any = PollControl();
  if (requests_.empty() || !status_.ok()) return any;
  ended_.resize(requests_.size());
  how_.resize(requests_.size());
  int count = 0;
  Note(MPI_Testsome(IntOf(std::ssize(requests_)), requests_.data(), &count,
                    ended_.data(), how_.data()),
       "MPI_Testsome");
  if (!status_.ok() || count <= 0) return any;
  // Called back once the lists are in order: callbacks add to them.
  std::vector<std::pair<OnPiece, Outcome>> ended;
  for (int i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(ended_[static_cast<size_t>(i)]);
    int cancelled = 0;
    Note(MPI_Test_cancelled(&how_[static_cast<size_t>(i)], &cancelled),
         "MPI_Test_cancelled");
    ended.emplace_back(std::move(pieces_[index].on_piece),
                       cancelled != 0 ? Outcome::kCancelled : Outcome::kMoved);
  }
  // MPI_Testsome made these null.
  Compact([&](size_t i) { return requests_[i] != MPI_REQUEST_NULL; });
  for (auto& [on_piece, outcome] : ended) on_piece(outcome);
  return true;
}

void MpiWire::Compact(const std::function<bool(size_t)>& stays) {
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (!stays(i)) continue;
    if (kept != i) {
      requests_[kept] = requests_[i];
      pieces_[kept] = std::move(pieces_[i]);
    }
    ++kept;
  }
  requests_.resize(kept);
  pieces_.resize(kept);
}

}  // namespace castor::internal
