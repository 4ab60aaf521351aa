// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_SHARDS_HOST_WINDOW_H_
#define CASTOR_OFFLOAD_SHARDS_HOST_WINDOW_H_

// A shard's bytes in host memory for a while: what a ShardStore lends to work
// that runs on the host. Values; made and used on the owner thread, but for
// HostBytes, which work on a lane may hold. Part of the shard store
// (shard_store.h).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "placement/run_event.h"

namespace castor {

struct ByteRange {
  Bytes begin;
  Bytes end;
  Bytes size() const { return end - begin; }
};

enum class WindowMode : uint8_t {
  kRead,
  kWrite,
  kReadWrite,
  kScratch,  // a copy of device memory, for work that adds it to a window
};

struct WindowRequest {
  ChunkId chunk;
  StateKind state = StateKind::kParam;
  ByteRange range;  // of kScratch: its size is how much is copied
  WindowMode mode = WindowMode::kRead;
  RunCause cause = RunCause::kNone;
  // Of work (window_work.h): new bytes go into the shard's spare place.
  bool aside = false;
  // Of kScratch: what is copied, once `after` is done.
  const std::byte* from = nullptr;
  Event after = {};
};

// Where bytes in host memory are, for work that runs when they are ready.
class HostBytes {
 public:
  HostBytes() = default;
  HostBytes(std::byte* data) : data_(data) {}  // NOLINT: a place is one
  explicit HostBytes(std::shared_ptr<std::byte* const> late)
      : late_(std::move(late)) {}

  // REQUIRES: they are ready.
  std::byte* get() const { return late_ != nullptr ? *late_ : data_; }

 private:
  std::byte* data_ = nullptr;
  std::shared_ptr<std::byte* const> late_;
};

// Between OpenWindow and CloseWindow.
struct HostWindow {
  // Of the range asked for; null while the window waits for a staging slot.
  std::byte* data = nullptr;
  // The bytes are there, and may be written. Of kScratch: they are copied, and
  // the device memory may be reused.
  Event ready;

  // For work that may be queued before the window has its slot.
  HostBytes bytes() const {
    if (data != nullptr || staged == nullptr) return data;
    return HostBytes(std::shared_ptr<std::byte* const>(staged, &staged->data));
  }

  // The rest is the store's.
  struct Staged {
    Slot slot;  // not valid while the window waits for it
    std::byte* data = nullptr;
    std::function<void()> close;  // it was closed while it waited
  };
  ChunkId chunk;
  StateKind state = StateKind::kParam;
  ByteRange range;
  WindowMode mode = WindowMode::kRead;
  RunCause cause = RunCause::kNone;
  Tier home = Tier::kHost;
  std::shared_ptr<Staged> staged;  // null where the home itself is host memory
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_SHARDS_HOST_WINDOW_H_
