// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_UPDATE_WORK_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_UPDATE_WORK_H_

// Part of OptimizerPass (optimizer_pass.h).
//
// The optimizer's pass over a range of a chunk, detached from the engine for
// the work of a lane: Castor's own update in one fused pass, or calls of the
// program's.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "chunk/base/dtype.h"
#include "collectives/custom_update.h"
#include "collectives/engine/engine_model.h"
#include "collectives/engine/gradients/program_update.h"
#include "collectives/engine/memory/home_pass.h"
#include "offload/device.h"
#include "offload/kernels/optimizer.h"
#include "offload/lane.h"
#include "offload/worker_pool.h"
#include "placement/state_kind.h"

namespace castor::internal {

struct UpdateWork {
  struct Piece {
    Segment segment;
    bool update = false;  // no rank had a gradient: left as it was
    // The segment's gradient, where that is borrowed; null: in the chunk's.
    std::byte* grad = nullptr;
    // Of Castor's own updates.
    OptimizerScalars scalars;
    MomentRounding rounding;
    // Of the program's.
    bool cuts = true;  // its calls may begin and end in the parameter
    int64_t step = 0;
    double lr = 0;
  };
  std::vector<Piece> pieces;
  float factor = 1;
  DType dtype = DType::kF32;  // of parameters
  DType grad_dtype = DType::kF32;
  DType moment_dtype = DType::kF32;  // of the first, where blocks differ
  int64_t elements = 0;              // of the range
  // Null: Castor's own update.
  std::shared_ptr<ProgramUpdate> program;

  std::byte* grad = nullptr;
  std::byte* param = nullptr;   // in `dtype`
  std::byte* master = nullptr;  // null: the parameter is its own master
  // Of the optimizer's, null where it has none.
  std::array<std::byte*, kMaxOptimizerStates> states = {};
  // Where new values go, in place of the above; null: over the old ones.
  std::byte* new_values = nullptr;  // of the master, or the parameter
  std::array<std::byte*, kMaxOptimizerStates> new_states = {};

  // Takes the places of all states. A gradient on its way goes before the one
  // at home.
  void Place(const StateBytes& at);

  // On the host, where the buffers are. `begun`: of WorkerPool::ParallelFor.
  void Run(WorkerPool& workers, UniqueFunction<void()>* begun) const;
  // Queues it on the device, where the buffers are: the homes, in which what is
  // not updated follows its master already, unless it was `overwritten`.
  void Queue(Device& device, Lane& lane, bool overwritten) const;

 private:
  OptimizerBuffers BuffersOf(const Piece& piece) const;
  std::byte* MomentAt(std::byte* data, int64_t at) const {
    return data == nullptr ? nullptr
                           : data + BytesOf(Elements(at), moment_dtype).count();
  }
  std::byte* StateAt(size_t index, int64_t at) const {
    return MomentAt(states[index], at);
  }
  // Old bytes between pieces, where new ones go elsewhere.
  void CopyAside(int64_t from, int64_t to) const;
  // `done`: from the beginning of the piece.
  std::byte* GradAt(const Piece& piece, int64_t done) const {
    std::byte* const begin = piece.grad != nullptr ? piece.grad : grad;
    const int64_t at = piece.grad != nullptr ? 0 : piece.segment.offset;
    return begin + (at + done) * DTypeBits(grad_dtype) / 8;
  }
  void Restore(Device& device, Lane& lane, const Segment& segment) const;
  // A window on low-precision parameters is written whole: what is not updated
  // follows its master, padding included.
  void CopyDown(int64_t from, int64_t to) const;

  // Runs for the program, in calls of about `most` elements. Gradients are
  // those of the work.
  std::vector<std::vector<UpdateRun>> Calls(int64_t most) const;
  void RunProgram() const;
  void CallOnHost(std::span<UpdateRun> runs, std::vector<float>& grads) const;
  void QueueProgram(Device& device, Lane& lane) const;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_GRADIENTS_UPDATE_WORK_H_
