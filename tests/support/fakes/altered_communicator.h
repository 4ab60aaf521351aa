// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_ALTERED_COMMUNICATOR_H_
#define CASTOR_TESTS_SUPPORT_FAKES_ALTERED_COMMUNICATOR_H_

// A communicator that does what another one does, but for what a test has it do
// to gradients: tests that compare trainings are shown to notice. Of memory
// that the host addresses. Thread-compatible, as communicators are.

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "offload/kernels/convert.h"
#include "offload/lane.h"

namespace castor {

class AlteredCommunicator final : public Communicator {
 public:
  // Works on `count` elements at `data`.
  using Change = std::function<void(std::byte* data, DType dtype, int64_t count,
                                    const CollectiveTag& tag)>;
  struct Options {
    // Called with the lane of every reduction, before it is queued there; may
    // be empty.
    std::function<void(Lane& lane)> first = {};
    Change before = {};  // what this rank gives to a reduction; may be empty
    Change after = {};   // what it gets of one; may be empty
    // Adds from the last rank to the first, and not the other way round.
    bool backwards = false;
    Bytes buffers = {};  // beside those of the inner one
  };

  // `inner` must outlive it.
  AlteredCommunicator(Communicator* inner, Options options)
      : inner_(inner), options_(std::move(options)) {}

  int rank() const override { return inner_->rank(); }
  int world() const override { return inner_->world(); }
  void AllGather(Lane& lane, const void* shard, void* chunk,
                 Elements shard_elements, DType dtype,
                 const CollectiveTag& tag) override {
    inner_->AllGather(lane, shard, chunk, shard_elements, dtype, tag);
  }
  void ReduceScatter(Lane& lane, const void* chunk, void* shard,
                     Elements shard_elements, DType dtype,
                     const CollectiveTag& tag) override {
    const int64_t count = shard_elements.count();
    if (options_.first) options_.first(lane);
    if (options_.before) {
      auto* const data =
          const_cast<std::byte*>(static_cast<const std::byte*>(chunk));
      lane.Run([this, data, dtype, count, tag] {
        options_.before(data, dtype, count * world(), tag);
        return OkStatus();
      });
    }
    if (options_.backwards) {
      AddBackwards(lane, chunk, shard, shard_elements, dtype, tag);
    } else {
      inner_->ReduceScatter(lane, chunk, shard, shard_elements, dtype, tag);
    }
    if (options_.after) {
      lane.Run([this, shard, dtype, count, tag] {
        options_.after(static_cast<std::byte*>(shard), dtype, count, tag);
        return OkStatus();
      });
    }
  }
  void AllReduce(Lane& lane, void* data, Elements elements, DType dtype,
                 ReduceOp op, const CollectiveTag& tag) override {
    inner_->AllReduce(lane, data, elements, dtype, op, tag);
  }
  void Broadcast(Lane& lane, void* data, Bytes bytes, int root,
                 const CollectiveTag& tag) override {
    inner_->Broadcast(lane, data, bytes, root, tag);
  }
  void Barrier(Lane& lane, const CollectiveTag& tag) override {
    inner_->Barrier(lane, tag);
  }
  void Abort(Status reason) override { inner_->Abort(std::move(reason)); }
  Status Health() const override { return inner_->Health(); }
  Bytes buffer_bytes() const override {
    return inner_->buffer_bytes() + options_.buffers;
  }
  CommunicatorStats stats() const override { return inner_->stats(); }

 private:
  // Every rank has all that the others give, and adds it up by itself.
  void AddBackwards(Lane& lane, const void* chunk, void* shard,
                    Elements shard_elements, DType dtype,
                    const CollectiveTag& tag) {
    const Elements whole = shard_elements * world();
    const auto all = std::make_shared<std::vector<std::byte>>(
        static_cast<size_t>(BytesOf(whole, dtype).count()) *
        static_cast<size_t>(world()));
    inner_->AllGather(lane, chunk, all->data(), whole, dtype, tag);
    lane.Run([this, all, shard, shard_elements, whole, dtype] {
      const auto count = static_cast<size_t>(shard_elements.count());
      std::vector<float> sum(count, 0.0f);
      std::vector<float> part(count);
      for (int r = world(); r-- > 0;) {
        const std::byte* const from =
            all->data() + BytesOf(whole * r, dtype).count() +
            BytesOf(shard_elements * rank(), dtype).count();
        ConvertToFloat(from, dtype, shard_elements.count(), part.data());
        for (size_t i = 0; i < count; ++i) sum[i] += part[i];
      }
      ConvertFromFloat(sum.data(), shard_elements.count(), dtype, shard);
      return OkStatus();
    });
  }

  Communicator* const inner_;
  const Options options_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_ALTERED_COMMUNICATOR_H_
