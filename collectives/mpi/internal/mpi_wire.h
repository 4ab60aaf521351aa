// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MPI_INTERNAL_MPI_WIRE_H_
#define CASTOR_COLLECTIVES_MPI_INTERNAL_MPI_WIRE_H_

// Part of the world of MPI (mpi_world.h).
//
// Messages between the processes of one MPI communicator, none of which blocks:
// control messages of any size, which are taken as they come, and data, whose
// receiver knows size and tag. All MPI calls about messages are here, and each
// one's result is checked; the first failure stays. One thread only.

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor::internal {

// What MPI says of `code`, as a sentence of `call`; ok for MPI_SUCCESS.
Status MpiStatus(int code, std::string_view call);

class MpiWire {
 public:
  // How a piece of data ended: moved, or cancelled before anything moved.
  enum class Outcome : uint8_t { kMoved, kCancelled };
  using OnPiece = std::function<void(Outcome)>;

  // `comm` is used for nothing else; its errors are returned, not fatal.
  explicit MpiWire(MPI_Comm comm);
  MpiWire(const MpiWire&) = delete;
  MpiWire& operator=(const MpiWire&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  // Tags of data are below this.
  int64_t tags() const { return tags_; }

  void SendControl(int peer, std::string message);
  struct Control {
    int peer = 0;
    std::string message;
  };
  // The next one that has come, in the order of each sender's sending.
  std::optional<Control> NextControl();

  // `owner` groups pieces for Cancel and Forget. The memory must stay until the
  // piece has ended. Pieces from one rank to another with one tag meet in the
  // order of these calls. REQUIRES: at most 2^31 - 1 bytes.
  void Send(const void* owner, int peer, int64_t tag, const void* data,
            Bytes size, OnPiece on_piece);
  // `index`: the how manieth it is of its owner, peer and tag.
  void Receive(const void* owner, int peer, int64_t tag, int64_t index,
               void* data, Bytes size, OnPiece on_piece);
  // Has the receives from `first_index` on end cancelled, but for those that a
  // send has met.
  void CancelReceives(const void* owner, int peer, int64_t tag,
                      int64_t first_index);
  // `owner` hears of nothing any more; what it had under way is left to MPI
  // until the process ends. For peers that will never answer.
  void Forget(const void* owner);

  // Ends what has ended, calling back. Whether anything had.
  bool Poll();
  // Control messages that are still on their way.
  bool sending_control() const { return !control_.empty(); }
  bool moving_data() const { return !requests_.empty(); }
  const Status& status() const { return status_; }

 private:
  struct Piece {
    const void* owner = nullptr;
    int peer = 0;
    int64_t tag = 0;
    int64_t index = -1;  // of a receive
    bool cancelled = false;
    OnPiece on_piece;
  };
  struct OutgoingControl {
    std::string message;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void Note(int code, std::string_view call);
  void Keep(MPI_Request request, Piece piece);
  bool PollControl();
  // Keeps the data requests at which `stays` holds, in order.
  void Compact(const std::function<bool(size_t)>& stays);

  const MPI_Comm comm_;
  int rank_ = 0;
  int world_ = 0;
  int64_t tags_ = 0;
  Status status_;
  std::vector<OutgoingControl> control_;
  // Side by side, as MPI_Testsome wants them.
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;
  std::vector<int> ended_;       // MPI_Testsome's answer
  std::vector<MPI_Status> how_;  // likewise
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MPI_INTERNAL_MPI_WIRE_H_
