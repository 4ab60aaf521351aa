// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/gradients/update_work.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "offload/kernels/convert.h"
#include "offload/kernels/reduce.h"

namespace castor::internal {
namespace {

// Elements of one call of the program's update. A program makes several passes
// over them, which a core's cache holds: 1 MiB of each state.
constexpr int64_t kOnHost = int64_t{1} << 18;
// Kernels are launched one by one, and the device is to be busy with each.
constexpr int64_t kOnDevice = int64_t{1} << 24;

float* Floats(std::byte* data) { return reinterpret_cast<float*>(data); }

}  // namespace

void UpdateWork::Place(const StateBytes& at) {
  grad = at.passing != nullptr ? at.passing : at.of(StateKind::kGrad);
  param = at.of(StateKind::kParam);
  master = at.of(StateKind::kMaster);
  for (int i = 0; i < kMaxOptimizerStates; ++i) {
    states[static_cast<size_t>(i)] = at.of(OptimizerState(i));
    new_states[static_cast<size_t>(i)] = at.aside(OptimizerState(i));
  }
  if (master == nullptr) {
    new_values = at.aside(StateKind::kParam);
  } else {
    new_values = at.aside(StateKind::kMaster);
    if (std::byte* const low = at.aside(StateKind::kParam)) param = low;
  }
}

void UpdateWork::Run(WorkerPool& workers, UniqueFunction<void()>* begun) const {
  if (program != nullptr) return RunProgram();
  // One flow: no worker waits between the parameters of a chunk. Small
  // parameters share a range.
  struct Part {
    const Piece* piece;
    int64_t begin, end;
  };
  constexpr int64_t kRange = WorkerPool::kRange;
  std::vector<Part> parts;
  std::vector<size_t> ranges;  // the first part of each
  int64_t room = 0;            // in the last one
  int64_t written = 0;
  for (const Piece& piece : pieces) {
    if (!piece.update) continue;
    CopyDown(written, piece.segment.offset);
    CopyAside(written, piece.segment.offset);
    for (int64_t begin = 0; begin < piece.segment.count; begin += kRange) {
      const int64_t end = std::min(begin + kRange, piece.segment.count);
      if (end - begin > room) {
        ranges.push_back(parts.size());
        room = kRange;
      }
      room -= end - begin;
      parts.push_back({&piece, begin, end});
    }
    written = piece.segment.offset + piece.segment.count;
  }
  CopyDown(written, elements);
  CopyAside(written, elements);
  ranges.push_back(parts.size());
  workers.ParallelFor(
      (std::ssize(ranges) - 1) * kRange, master != nullptr ? master : param,
      [&](int64_t first, int64_t) {
        const auto range = static_cast<size_t>(first / kRange);
        for (size_t i = ranges[range]; i < ranges[range + 1]; ++i) {
          const auto& [piece, begin, end] = parts[i];
          OptimizerStep(SkipElements(BuffersOf(*piece), begin), end - begin,
                        piece->scalars, factor);
        }
      },
      begun);
}

void UpdateWork::CopyAside(int64_t from, int64_t to) const {
  if (from >= to) return;
  const auto copy = [&](const std::byte* old, std::byte* data, DType type) {
    if (data == nullptr) return;
    // A block in which a piece ends is written by the piece's update.
    const int64_t begin = BytesToHold(Elements(from), type).count();
    const int64_t end = BytesToHold(Elements(to), type).count();
    if (begin >= end) return;
    std::memcpy(data + begin, old + begin, static_cast<size_t>(end - begin));
  };
  copy(master != nullptr ? master : param, new_values, DType::kF32);
  for (size_t i = 0; i < states.size(); ++i) {
    copy(states[i], new_states[i], moment_dtype);
  }
}

void UpdateWork::Queue(Device& device, Lane& lane, bool overwritten) const {
  if (program != nullptr) QueueProgram(device, lane);
  for (const Piece& piece : pieces) {
    if (program != nullptr ? master != nullptr && (piece.update || overwritten)
                           : !piece.update && overwritten) {
      Restore(device, lane, piece.segment);
    } else if (program == nullptr && piece.update) {
      device.Optimize(lane, BuffersOf(piece), Elements(piece.segment.count),
                      piece.scalars, factor);
    }
  }
}

OptimizerBuffers UpdateWork::BuffersOf(const Piece& piece) const {
  const int64_t at = piece.segment.offset;
  const int64_t size = DTypeBits(dtype) / 8;
  OptimizerBuffers buffers;
  buffers.grad = GradAt(piece, 0);
  buffers.grad_dtype = grad_dtype;
  buffers.param = Floats(master != nullptr ? master : param) + at;
  buffers.exp_avg = StateAt(0, at);
  buffers.exp_avg_sq = StateAt(1, at);
  buffers.moment_dtype = moment_dtype;
  buffers.rounding = piece.rounding;
  if (new_values != nullptr || new_states[0] != nullptr ||
      new_states[1] != nullptr) {
    // Some states may be worked on where they are: on their way from a drive.
    buffers.new_param =
        new_values != nullptr ? Floats(new_values) + at : buffers.param;
    const auto to = [&](size_t i) {
      return new_states[i] != nullptr ? MomentAt(new_states[i], at)
                                      : StateAt(i, at);
    };
    buffers.new_exp_avg = to(0);
    buffers.new_exp_avg_sq = to(1);
  }
  if (master != nullptr) {
    buffers.low = param + at * size;
    buffers.low_dtype = dtype;
  }
  return buffers;
}

void UpdateWork::Restore(Device& device, Lane& lane,
                         const Segment& segment) const {
  device.Convert(lane, master + segment.offset * DTypeBits(DType::kF32) / 8,
                 DType::kF32, param + segment.offset * DTypeBits(dtype) / 8,
                 dtype, Elements(segment.count));
}

void UpdateWork::CopyDown(int64_t from, int64_t to) const {
  if (master == nullptr || from >= to) return;
  ConvertFromFloat(Floats(master) + from, to - from, dtype,
                   param + from * (DTypeBits(dtype) / 8));
}

std::vector<std::vector<UpdateRun>> UpdateWork::Calls(int64_t most) const {
  std::vector<std::vector<UpdateRun>> calls;
  int64_t left = 0;  // in the last call
  for (const Piece& piece : pieces) {
    if (!piece.update) continue;
    for (int64_t done = 0; done < piece.segment.count;) {
      const int64_t rest = piece.segment.count - done;
      const int64_t count = piece.cuts ? std::min(rest, most) : rest;
      if (count > left) {
        calls.emplace_back();
        left = std::max(most, count);
      }
      left -= count;
      const int64_t at = piece.segment.offset + done;
      UpdateRun& run = calls.back().emplace_back();
      run.param = piece.segment.param;
      run.first_element = piece.segment.begin + done;
      run.elements = count;
      run.step = piece.step;
      run.lr = piece.lr;
      run.values = Floats(master != nullptr ? master : param) + at;
      run.grad = GradAt(piece, done);
      for (size_t i = 0; i < states.size(); ++i) {
        run.states[i] = reinterpret_cast<float*>(StateAt(i, at));
      }
      done += count;
    }
  }
  return calls;
}

void UpdateWork::RunProgram() const {
  std::vector<float> grads;
  for (std::vector<UpdateRun>& runs : Calls(kOnHost)) CallOnHost(runs, grads);
  CopyDown(0, elements);
}

// Nobody reads a gradient after its update.
void UpdateWork::CallOnHost(std::span<UpdateRun> runs,
                            std::vector<float>& grads) const {
  if (grad_dtype != DType::kF32) {
    int64_t sum = 0;
    for (const UpdateRun& run : runs) sum += run.elements;
    grads.resize(static_cast<size_t>(sum));
    float* at = grads.data();
    for (UpdateRun& run : runs) {
      ConvertToFloat(static_cast<const std::byte*>(run.grad), grad_dtype,
                     run.elements, at);
      run.grad = at;
      at += run.elements;
    }
  }
  if (factor != 1) {
    for (const UpdateRun& run : runs) {
      Scale(static_cast<std::byte*>(run.grad), DType::kF32, run.elements,
            factor);
    }
  }
  UpdateCall call;
  call.runs = runs;
  program->Call(call);
}

void UpdateWork::QueueProgram(Device& device, Lane& lane) const {
  if (lane.runs_on_host()) {
    device.Call(lane, [work = *this](void*) {
      std::vector<float> grads;
      for (std::vector<UpdateRun>& runs : work.Calls(kOnHost)) {
        work.CallOnHost(runs, grads);
      }
      return OkStatus();
    });
    return;
  }
  for (std::vector<UpdateRun>& runs : Calls(kOnDevice)) {
    device.Call(lane, [runs = std::move(runs), program = program,
                       dtype = grad_dtype, factor = factor](void* stream) {
      UpdateCall call;
      call.runs = runs;
      call.grad_dtype = dtype;
      call.grad_factor = factor;
      call.on_device = true;
      call.stream = stream;
      program->Call(call);
      return OkStatus();
    });
  }
}

}  // namespace castor::internal
