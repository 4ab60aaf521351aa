// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A ShardStore's windows: shards where the host works on them.

#include <utility>

#include "chunk/base/check.h"
#include "offload/shards/shard_store.h"

namespace castor {

bool ShardStore::NeedsStaging(const WindowRequest& request) const {
  if (request.mode == WindowMode::kScratch) return true;
  const Shard& shard = At(request.chunk, request.state);
  // A spare place beside the device is host memory.
  return request.aside
             ? shard.home == Tier::kNvme || AsideTier(shard) == Tier::kNvme
             : shard.home != Tier::kHost;
}

HostWindow ShardStore::OpenWindow(ChunkId chunk, StateKind state,
                                  ByteRange range, WindowMode mode,
                                  RunCause cause) {
  WindowRequest request;
  request.chunk = chunk;
  request.state = state;
  request.range = range;
  request.mode = mode;
  request.cause = cause;
  Result<std::vector<HostWindow>> opened = OpenWindows({&request, 1});
  CASTOR_CHECK(opened.ok());
  return std::move(opened->front());
}

Result<std::vector<HostWindow>> ShardStore::OpenWindows(
    std::span<const WindowRequest> requests) {
  int64_t slots = 0;
  for (const WindowRequest& request : requests) {
    slots += NeedsStaging(request);
  }
  CASTOR_RETURN_IF_ERROR(staging_->CheckServable(slots, StagingUse::kWork));
  std::vector<HostWindow> windows;
  windows.reserve(requests.size());
  for (const WindowRequest& request : requests) {
    windows.push_back(Prepare(request));
  }
  const auto arrive = [this](const WindowRequest& request, bool staged,
                             std::span<Slot>& granted,
                             HostWindow::Staged* kept) {
    Slot slot;
    if (staged) {
      slot = std::move(granted.front());
      granted = granted.subspan(1);
    }
    Event ready = Arrive(request, slot, &kept->data);
    kept->slot = std::move(slot);
    return ready;
  };
  if (staging_->GrantsNow(slots, StagingUse::kWork)) {
    const auto open_all = [&](std::span<Slot> granted) {
      for (size_t i = 0; i < requests.size(); ++i) {
        const bool staged = NeedsStaging(requests[i]);
        HostWindow& window = windows[i];
        HostWindow::Staged kept;
        window.ready = arrive(requests[i], staged, granted, &kept);
        window.data = kept.data;
        if (staged) {
          window.staged = std::make_shared<HostWindow::Staged>(std::move(kept));
        }
      }
    };
    CASTOR_RETURN_IF_ERROR(staging_->Take(slots, StagingUse::kWork, open_all));
    return windows;
  }
  // In turn. Nothing moves a shard meanwhile: it is held.
  struct Late {
    WindowRequest request;
    bool staged;
    std::shared_ptr<HostWindow::Staged> kept;
    EventSource ready;
  };
  std::vector<Late> late;
  for (size_t i = 0; i < requests.size(); ++i) {
    windows[i].staged = std::make_shared<HostWindow::Staged>();
    late.push_back(
        {requests[i], NeedsStaging(requests[i]), windows[i].staged, {}});
    windows[i].ready = late.back().ready.event();
  }
  CASTOR_RETURN_IF_ERROR(staging_->Take(
      slots, StagingUse::kWork,
      [arrive, late = std::move(late)](std::span<Slot> granted) {
        for (const Late& each : late) {
          arrive(each.request, each.staged, granted, each.kept.get())
              .OnDone([ready = each.ready](const Status& status) {
                ready.Complete(status);
              });
        }
        for (const Late& each : late) {
          if (each.kept->close) std::exchange(each.kept->close, {})();
        }
      }));
  return windows;
}

HostWindow ShardStore::Prepare(const WindowRequest& request) {
  HostWindow window;
  window.chunk = request.chunk;
  window.state = request.state;
  window.range = request.range;
  window.mode = request.mode;
  window.cause = request.cause;
  ++open_windows_;
  if (request.mode == WindowMode::kScratch) return window;
  Shard& shard = At(request.chunk, request.state);
  Piece& piece = PieceAt(shard, request.range);
  CASTOR_CHECK(!piece.writing);
  piece.writing = request.mode != WindowMode::kRead;
  CASTOR_CHECK(!piece.writing || piece.windows == 0);
  ++piece.windows;
  ++shard.holds;
  return window;
}

Event ShardStore::Arrive(const WindowRequest& request, Slot staging,
                         std::byte** data) {
  if (request.mode == WindowMode::kScratch) {
    CASTOR_CHECK_LE(request.range.size(), staging.size);
    const RunEvent copy =
        Describe(request.chunk, request.state, Tier::kDevice, Tier::kHost,
                 request.range.size(), request.cause);
    Count(copy);
    *data = staging.data;
    from_device_->Wait(staging.free_after);
    from_device_->Wait(request.after);
    return Copy(*from_device_, staging.data, request.from, copy);
  }
  Shard& shard = At(request.chunk, request.state);
  Piece& piece = PieceAt(shard, request.range);
  const Place home = PlaceOf(shard, piece);
  const Bytes begin = request.range.begin - piece.range.begin;
  const Bytes size = request.range.size();
  if (shard.home == Tier::kHost) {
    *data = home.data + begin.count();
    return request.mode == WindowMode::kRead ? piece.written
                                             : WriteReady(piece);
  }
  if (shard.home == Tier::kNvme) {
    *data = staging.data + begin.count();
    // Part of an extent cannot be written alone, so the rest is read as well.
    const bool whole = size == piece.range.size();
    if (request.mode == WindowMode::kWrite && whole) return staging.free_after;
    Event read =
        MoveExtent(home, staging.data, Both(piece.written, staging.free_after),
                   Describe(request.chunk, request.state, Tier::kNvme,
                            Tier::kHost, home.extent, request.cause));
    AddReader(piece, read);
    return read;
  }
  *data = staging.data;
  if (request.mode == WindowMode::kWrite) return staging.free_after;
  const RunEvent copy = Describe(request.chunk, request.state, Tier::kDevice,
                                 Tier::kHost, size, request.cause);
  Count(copy);
  from_device_->Wait(staging.free_after);
  from_device_->Wait(piece.written);
  Event read =
      Copy(*from_device_, staging.data, home.data + begin.count(), copy);
  AddReader(piece, read);
  return read;
}

void ShardStore::CloseWindow(HostWindow window, const Event& after) {
  CASTOR_CHECK_GT(open_windows_, 0);
  --open_windows_;
  if (window.mode != WindowMode::kScratch) {
    Piece& piece = PieceAt(At(window.chunk, window.state), window.range);
    CASTOR_CHECK_GT(piece.windows, 0);
    --piece.windows;
    piece.writing = false;
  }
  // One that nobody used may not be ready yet.
  const Event used = Both(window.ready, after);
  const bool has_arrived =
      window.data != nullptr || window.staged->data != nullptr;
  const std::shared_ptr<HostWindow::Staged> staged = window.staged;
  auto close = [this, window = std::move(window), used] {
    Depart(window, used);
    if (window.mode != WindowMode::kScratch) {
      ReleaseHold(At(window.chunk, window.state));
    }
  };
  // A slot that is lent goes back at once: windows wait for slots. A slot that
  // is still to come goes back on its arrival, never behind windows that wait.
  if (has_arrived) return close();
  staged->close = std::move(close);
}

void ShardStore::Depart(const HostWindow& window, const Event& used) {
  Slot staging;
  if (window.staged != nullptr) staging = window.staged->slot;
  if (window.mode == WindowMode::kScratch) {
    staging_->Give(std::move(staging), used);
    return;
  }
  Shard& shard = At(window.chunk, window.state);
  Piece& piece = PieceAt(shard, window.range);
  const Place home = PlaceOf(shard, piece);
  const bool read_only = window.mode == WindowMode::kRead;
  if (shard.home == Tier::kHost) {
    if (read_only) {
      AddReader(piece, used);
    } else {
      SetWritten(shard, piece, used);
    }
    return;
  }
  Event end = used;
  if (!read_only && shard.home == Tier::kNvme) {
    end = MoveExtent(home, staging.data, Both(WriteReady(piece), used),
                     Describe(window.chunk, window.state, Tier::kHost,
                              Tier::kNvme, home.extent, window.cause));
    SetWritten(shard, piece, end);
  } else if (!read_only) {
    const RunEvent copy =
        Describe(window.chunk, window.state, Tier::kHost, Tier::kDevice,
                 window.range.size(), window.cause);
    Count(copy);
    back_to_device_->Wait(used);
    back_to_device_->Wait(WriteReady(piece));
    end = Copy(*back_to_device_,
               home.data + (window.range.begin - piece.range.begin).count(),
               staging.data, copy);
    SetWritten(shard, piece, end);
  }
  staging_->Give(std::move(staging), end);
}

}  // namespace castor
