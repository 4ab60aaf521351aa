// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRACE_TRACE_FILE_H_
#define CASTOR_PLACEMENT_TRACE_TRACE_FILE_H_

// The text of a step's trace with what a planner must know of its chunks, to be
// recorded on one machine and planned or replayed on another. A chunk and a
// moment have a line each:
//
//   {
//   "schema": "castor.trace/1",
//   "rank": 0,
//   "world": 4,
//   "shard_group": 2,
//   "optimizer_span": "world",
//   "updates_early": true,
//   "chunks": [
//   {"class": 0, "gathered_bytes": 4096, "shard_bytes": 2048,
//    "trainable": true, "dtype": "BF16"}              (in one line)
//   ],
//   "params": [
//   "wte.weight",
//   "ln.weight"
//   ],
//   "moments": [
//   {"moment": 0, "access": "use", "chunk": 0, "leased_bytes": 512,
//    "compute_ns": 1200},                             (in one line)
//   {"moment": 1, "access": "use_end", "chunk": 0, "compute_ns": 0}
//   ],
//   "evaluations": [
//   {"evaluation": 0, "before": 1, "access": "use", "chunk": 0,
//    "compute_ns": 800},                              (in one line)
//   {"evaluation": 0, "before": 1, "access": "use_end", "chunk": 0,
//    "compute_ns": 0}                                 (in one line)
//   ],
//   "missing_grads": [
//   {"chunk": 0, "param": "wte.spare"}
//   ],
//   "lease_ends": [
//   {"use": 0, "before": 2}
//   ]
//   }
//
// `shard_group` may be left out: the ranks that share one set of shards, where
// these are not all; and `optimizer_span`: among which ranks optimizer states
// are cut then, `group` (where it is left out) or `world`. `updates_early` is
// false where it is left out: chunks are updated in the backward, as soon as
// their gradients are reduced. Chunks are numbered
// from 0 in the order in which they stand. A class is of chunks whose gathered
// copies take slots of one size; classes are numbered so that none is above the
// number of its chunk. `dtype` is the type of a chunk's parameters, as
// safetensors names it; it stands in every chunk or, in files of before, in
// none. `params` may be left out: the names of all parameters in the order in
// which the step first used them, which a layout may be packed in; those that
// it did not use come last. `access` is one of use, use_end, grad_open,
// grad_close. `leased_bytes` stands where it changes, and is 0 before that;
// `lease_gap_bytes`, which earlier versions wrote, is ignored.
// `compute_ns` stands in every moment or in none. `evaluations` may be left
// out: uses that are none of the step, of passes that are numbered in order,
// each before the moment of that number. `missing_grads` may be left out: the
// trained parameters that had no gradient in the step on this rank, of chunks
// that had one; so may their names. `lease_ends` may be left out: the leases,
// by the moment of their use, that this rank ended at another time than the
// trace has, each before the moment of that number. Pure functions,
// thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "placement/trace/step_trace.h"

namespace castor {

inline constexpr char kTraceSchema[] = "castor.trace/1";

// A larger chunk, so that no sum over chunks overflows, and a longer text are
// refused.
inline constexpr Bytes kMaxTraceChunk{int64_t{1} << 40};
inline constexpr uint64_t kMaxTraceBytes = uint64_t{256} << 20;

struct TraceChunk {
  int32_t slot_class = 0;
  Bytes gathered;                   // of the whole chunk, parameter dtype
  Bytes shard;                      // of this rank's slice of it
  bool trainable = true;            // its copies do not outlive the step
  std::optional<DType> dtype = {};  // empty: nobody said

  friend bool operator==(const TraceChunk&, const TraceChunk&) = default;
};

struct TraceFile {
  int32_t rank = 0;
  int32_t world = 1;
  int32_t shard_group = 0;         // ranks that share one set of shards; 0: all
  bool spans_world = false;        // optimizer states are cut among all ranks
  std::vector<TraceChunk> chunks;  // by ChunkId
  // In the order of first use, each once; empty where nobody knows.
  std::vector<std::string> params;
  StepTrace step;

  friend bool operator==(const TraceFile&, const TraceFile&) = default;
};

// The chunks of a layout. Classes are numbered in the order of the first chunk
// of each, as the engine numbers them.
std::vector<TraceChunk> TraceChunks(const ChunkLayout& layout);

// Malformed, naming the first that is at fault, where some have a type and
// others have none, or the bytes of one are no whole number of elements.
Status CheckTraceTypes(std::span<const TraceChunk> chunks);

// Malformed, naming the first that is at fault, where these are no parameters
// of a trace: names are UTF-8, not empty, and each stands once.
Status CheckTraceParams(std::span<const std::string> params);

// The same trace gives the same text, which ParseTrace reads back as it was.
// REQUIRES: a rank of the world, which shard groups divide, classes numbered as
// above, bytes up to kMaxTraceChunk, chunks and parameters that the checks
// above accept, a step that ValidateStep accepts for the chunks.
std::string WriteTrace(const TraceFile& trace);

// Malformed for every text that is no trace, naming the key and the byte, or
// the moment: another schema, keys that are unknown (the nearest known one is
// named), missing or given twice, numbers out of their limits, moments out of
// order, and whatever ValidateStep refuses. Memory stays in proportion to the
// text.
Result<TraceFile> ParseTrace(std::string_view text);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TRACE_TRACE_FILE_H_
