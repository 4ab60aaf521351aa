// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_DEVICE_H_
#define CASTOR_OFFLOAD_DEVICE_H_

// A Device is one accelerator as Castor uses it: memory of its own, lanes that
// run in order, and a handful of operations queued on them. The simulated
// device (offload/twin/simulated_device.h) is its software twin; hardware lies
// behind the same class, and none of its types shows here.
//
// Queued operations return at once and run in their lane's order, beside what
// the lane's Run, Wait and Record queue. Nothing here synchronizes the device
// or blocks the host except where it says so. Device memory is touched through
// queued operations only: whether the host can address it is a fact of the
// device (DeviceFacts), not a promise. Copies to the device and copies from it
// belong on lanes of their own, so that both directions of the link work at
// once.
//
// Failure. Operations that fail fail their lane, as offload/lane.h describes:
// later work of the lane is skipped, events recorded later fail. A failure of
// the device itself (not of host work, nor of an event that a lane waited for)
// sticks to the device too: it surfaces at the next operation of every lane,
// and at the next MakeSlab, MakeHostSlab and AdoptStream. A broken precondition
// ends the process.
//
// Thread-safe, but for queueing: on one lane that is for one thread at a time,
// on different lanes for different threads at once. Lanes and slabs of a device
// go before the device does; events that are done may stay.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/lane.h"
#include "offload/memory/slab.h"

namespace castor {

// What an optimizer pass works on: offload/kernels/optimizer.h.
struct OptimizerBuffers;
struct OptimizerScalars;

struct DeviceFacts {
  std::string name;  // for people: "NVIDIA H100 80GB HBM3", "simulated device"
  Bytes total;       // memory of the device
  Bytes free;        // of it, when asked
  int numa_node = -1;  // of the host, nearest to the device; -1: not known
  // The host may read and write device memory where nothing queued does.
  bool host_addressable = false;
};

enum class CopyKind : uint8_t { kToDevice, kFromDevice, kWithinDevice };

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceFacts facts() const = 0;

  // `size` of zeroed device memory, aligned to 256 bytes at least. Unavailable,
  // with both numbers, where the device has less. Blocks while the device
  // works: for the start, never inside a step. REQUIRES: size >= 0.
  virtual Result<Slab> MakeSlab(Bytes size) = 0;

  // Host memory that this device copies at full speed (zeroed; pinned and near
  // the device where that means something), as MakeHostSlab of slab.h makes it
  // and with its fallbacks, each said once. Blocks. REQUIRES: size >= 0.
  virtual Result<Slab> MakeHostSlab(Bytes size, const HostSlabOptions& options,
                                    HostSlabFacts* facts = nullptr) = 0;

  // A new lane of the device. Never null: where the device refuses one, and
  // where it failed before, the lane fails with that before it runs anything.
  virtual std::unique_ptr<Lane> MakeLane(std::string name,
                                         Lane::OnFailure on_failure = {}) = 0;

  // A lane over a stream that the trainer made and keeps: the value of its
  // cudaStream_t (null is the default stream). The stream outlives the lane.
  // Unavailable, with a sentence, where the device knows no streams.
  virtual Result<std::unique_ptr<Lane>> AdoptStream(
      void* stream, std::string name, Lane::OnFailure on_failure = {}) = 0;

  // Queued operations. Pointers are to device memory except where CopyKind says
  // host. REQUIRES, for each:
  // - the lane is one of this device;
  // - the memory is valid until the operation has run;
  // - ranges that it reads and ranges that it writes do not overlap;
  // - nobody else touches them unless ordered by lanes and events;
  // - sizes and counts are not negative.

  // Copies `size` bytes of any alignment. The host side lies in a slab of
  // MakeHostSlab; other host memory is legal, but slow, and may block the
  // caller until it is copied.
  virtual void Copy(Lane& lane, std::byte* to, const std::byte* from,
                    Bytes size, CopyKind kind) = 0;

  // The same, unless `wanted` says no. It is asked once, on any thread, when
  // what the lane waits for on the host is over and the copy would begin, or
  // would be given to the hardware; not where the lane has failed.
  using Wanted = std::function<bool()>;
  virtual void CopyIf(Lane& lane, std::byte* to, const std::byte* from,
                      Bytes size, CopyKind kind, Wanted wanted) = 0;

  // Sets each of `size` bytes of any alignment to `value`, or to zero.
  virtual void Fill(Lane& lane, std::byte* to, Bytes size, std::byte value) = 0;
  void Zero(Lane& lane, std::byte* to, Bytes size) {
    Fill(lane, to, size, std::byte{0});
  }

  // Widens low precision to fp32 exactly, or rounds fp32 to low precision, to
  // the bits that offload/kernels/convert.h gives. Exactly one of the dtypes is
  // kF32. Element alignment.
  virtual void Convert(Lane& lane, const std::byte* from, DType from_dtype,
                       std::byte* to, DType to_dtype, Elements count) = 0;

  // total[i] = round(total[i] + part[i]), to the bits of AddInto of
  // offload/kernels/reduce.h. Element alignment.
  virtual void AddInto(Lane& lane, std::byte* total, const std::byte* part,
                       DType dtype, Elements count) = 0;

  // data[i] = round(data[i] * factor), to the bits of Scale of
  // offload/kernels/reduce.h. Element alignment.
  virtual void Scale(Lane& lane, std::byte* data, DType dtype, Elements count,
                     float factor) = 0;

  // Adds the squares of `count` gradient elements exactly, to the total that
  // AddSquares of offload/kernels/exact_sum.h gives: `words` are the
  // ExactSum::kWords of one, 8-byte aligned, zeroed before the first call.
  // Carries need not be done: the reader puts the words into an ExactSum, whose
  // words() does them. The range starts at a multiple of 64 elements from its
  // parameter's start. REQUIRES: fewer than 2^31 blocks of 64 elements are
  // added to one sum.
  virtual void AddSquares(Lane& lane, const std::byte* grad, DType dtype,
                          Elements count, uint64_t* words) = 0;

  // One fused optimizer pass over `count` elements, to the bits of
  // OptimizerStep of offload/kernels/optimizer.h. The structs are copied by the
  // call; the pointers in `buffers` are to device memory. Element alignment.
  virtual void Optimize(Lane& lane, const OptimizerBuffers& buffers,
                        Elements count, const OptimizerScalars& scalars,
                        float grad_factor) = 0;

  // Calls `call` in the lane's order, on any thread, with the lane's stream:
  // the call queues its work on device memory there. The stream is null where
  // the call itself does that work. Its failure is the lane's.
  using StreamCall = std::function<Status(void* stream)>;
  virtual void Call(Lane& lane, StreamCall call) {
    lane.Run([call = std::move(call)] { return call(nullptr); });
  }

  // Returns when every time that a lane was to note (Lane::NoteTime), and that
  // no lane holds back any more, is noted. Blocks.
  virtual void FinishTimes() {}

  // The first failure of the device itself; ok while there is none. Does not
  // ask the device: what failed is known at the latest when an event recorded
  // after it is done.
  virtual Status status() const = 0;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_DEVICE_H_
