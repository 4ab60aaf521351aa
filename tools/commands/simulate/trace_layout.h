// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_TRACE_LAYOUT_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_TRACE_LAYOUT_H_

// What an engine is told at Seal, found again in the trace of a step: a trace
// knows chunks and not parameters, so there is one parameter for each chunk;
// and steps made of recorded ones. Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/zero_options.h"
#include "placement/trace/step_trace.h"
#include "placement/trace/trace_file.h"

namespace castor {

// Of a trace that does not say of which type its parameters are.
inline constexpr DType kAssumedDType = DType::kBF16;

// Chunks of as many bytes as the trace's, rounded up where `world` ranks cannot
// share them evenly. Parameters are of the type `given`, else as the trace
// says, else as assumed. InvalidArgument where the trace contradicts what is
// given, or a chunk's bytes are no elements of its type, or none.
Result<ChunkLayout> LayoutOfTrace(const TraceFile& trace,
                                  std::optional<DType> given, int world);

// The parameters of that layout: chunk.0, chunk.1 and so on.
std::vector<ParamSpec> ParamsOfTrace(const ChunkLayout& layout);

// InvalidArgument, naming the first that differs, where `other` has not the
// chunks of `trace`, whatever ranks share them. Types count where both have
// them.
Status CheckSameChunks(std::span<const TraceChunk> trace,
                       std::span<const TraceChunk> other);

// Most bytes on lease at one time.
Bytes MostLeased(const StepTrace& step);

// What the trainer holds in a micro-batch, and has on lease: what it would
// declare. REQUIRES: the step is one of the layout's chunks.
SealOptions DeclaredBy(const ChunkLayout& layout, const StepTrace& step);

// The same step with `total_ns` of compute: its own times scaled, or where it
// has none each use of a chunk, and each gradient, for as long as its bytes.
// Unchanged where nothing is used. REQUIRES: 0 <= total_ns <= kMaxStepNs.
StepTrace WithComputeTime(const TraceFile& trace, int64_t total_ns);

// By what that time is shared out: its own times, or bytes. So those of two
// steps, if both have times or neither has, are as the times they take.
double ComputeWeight(const TraceFile& trace);

// The same step with `passes` evaluations before its first access: what its
// first micro-batch uses before a gradient opens, for as long.
StepTrace WithEvaluations(StepTrace step, int64_t passes);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_TRACE_LAYOUT_H_
