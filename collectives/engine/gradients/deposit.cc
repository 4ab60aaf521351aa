// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <utility>

#include "collectives/engine/gradients/gradient_reducer.h"
#include "offload/kernels/reduce.h"

namespace castor::internal {

Event GradientReducer::Deposit(ChunkId chunk, const PassingGrad& reduced,
                               bool first) {
  std::byte* const from = reduced.data;
  const StateKind kind = StateKind::kGrad;
  const bool squares = norm_.counting();
  const bool on_device = memory_.store().home(chunk, kind) == Tier::kDevice;
  if (on_device && from == memory_.store().device_data(chunk, kind)) {
    memory_.store().SetWritten(chunk, kind, reduced.ready);
    if (squares) norm_.Count(chunk);
    return reduced.ready;
  }
  const ShardRange kept = model_.kept(kind, chunk);
  const Bytes bytes = memory_.store().bytes(chunk, kind);
  if (first && !on_device) {
    const Event stored =
        memory_.store().Store(chunk, kind, {Bytes(0), bytes}, from,
                              reduced.ready, RunCause::kGradient);
    if (!squares) return stored;
    memory_.device_lane().Wait(reduced.ready);
    norm_.AddOnDevice(chunk, kept, from);
    const Event both[] = {stored, memory_.device_lane().Record()};
    return AllOf(both);
  }
  if (first) copies_ += bytes;
  const DType dtype = model_.GradDType(chunk);
  HomePass pass;
  pass.chunk = chunk;
  pass.range = kept;
  pass.cause = RunCause::kGradient;
  pass.passing = &reduced;
  pass.uses = {{kind, first ? WindowMode::kWrite : WindowMode::kReadWrite}};
  pass.on_device = [&](const StateBytes& at) {
    Device& device = memory_.device();
    if (first) {
      device.Copy(memory_.device_lane(), at.of(kind), at.passing, bytes,
                  CopyKind::kWithinDevice);
    } else {
      device.AddInto(memory_.device_lane(), at.of(kind), at.passing, dtype,
                     Elements(bytes.count() * 8 / DTypeBits(dtype)));
    }
    if (squares) norm_.AddOnDevice(chunk, kept, at.of(kind));
  };
  pass.on_host = [&](ShardRange part) {
    const Bytes size = model_.RangeBytes(chunk, kind, part).size();
    return HomePass::HostWork{
        DepositBytes(size, /*adds=*/true) +
            (squares ? SquaresBytes(size) : Bytes(0)),
        [this, chunk, part, squares, dtype](const StateBytes& at) {
          AddInto(at.of(StateKind::kGrad), at.passing, dtype,
                  (part.end - part.begin).count());
          if (squares) norm_.AddOnHost(chunk, part, at.of(StateKind::kGrad));
        }};
  };
  return passes_.Run(std::move(pass));
}

}  // namespace castor::internal
