// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_PLACEMENT_RANDOM_STEP_H_
#define CASTOR_TESTS_PLACEMENT_RANDOM_STEP_H_

// Random traces of whole steps, with leases and times. Pure function of the
// generator.

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "placement/trace/trace_file.h"
#include "tests/placement/random_trace.h"

namespace castor {

inline TraceFile RandomTraceFile(std::mt19937_64& random) {
  const auto pick = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const RandomCase made =
      MakeRandomCase(random, static_cast<int>(1 + pick(9)),
                     static_cast<int>(pick(60)), 1, pick(2) == 0);
  TraceFile file;
  file.world = static_cast<int32_t>(1 + pick(64));
  file.rank = static_cast<int32_t>(pick(file.world));
  file.shard_group = static_cast<int32_t>(pick(file.world + 1));
  if (file.shard_group > 0 && file.world % file.shard_group != 0) {
    file.shard_group = 0;
  }
  file.spans_world = pick(2) == 0;
  file.step.updates_early = pick(3) == 0;
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  const bool typed = pick(3) > 0;
  for (size_t c = 0; c < made.problem.param_class.size(); ++c) {
    TraceChunk chunk;
    chunk.slot_class = static_cast<int32_t>(pick(static_cast<int64_t>(c) + 1));
    chunk.gathered = Bytes(pick(int64_t{1} << 40));
    if (typed) {
      chunk.dtype = kTypes[pick(3)];
      chunk.gathered = RoundDown(chunk.gathered, Bytes(4));
    }
    chunk.shard = Bytes(pick(1000));
    chunk.trainable = pick(2) == 0;
    file.chunks.push_back(chunk);
  }
  for (int64_t p = pick(2) * pick(9); p > 0; --p) {
    file.params.push_back("p." + std::to_string(p));
  }
  file.step.accesses = made.trace;
  const bool timed = pick(2) == 0;
  Bytes leased;
  for (size_t m = 0; m < made.trace.size(); ++m) {
    if (timed) file.step.compute_ns.push_back(pick(1'000'000));
    const Bytes now(pick(3) == 0 ? 512 * pick(4) : leased.count());
    if (now != leased) {
      file.step.leases.push_back({static_cast<int32_t>(m), now});
      leased = now;
    }
  }
  std::vector<bool> closed(file.chunks.size());
  for (size_t m = 0; m < made.trace.size(); ++m) {
    const auto [kind, chunk] = made.trace[m];
    if (kind == AccessKind::kGradClose) closed[chunk.index()] = true;
    if (kind == AccessKind::kUse && pick(4) == 0) {
      const auto left = static_cast<int64_t>(made.trace.size() - m);
      file.step.lease_ends.push_back(
          {static_cast<int32_t>(m),
           static_cast<int32_t>(static_cast<int64_t>(m) + 1 + pick(left))});
    }
  }
  for (size_t c = 0; c < closed.size(); ++c) {
    if (!closed[c] || pick(3) > 0) continue;
    file.step.missing_grads.push_back(
        {ChunkId(static_cast<int32_t>(c)),
         pick(2) == 0 ? "" : "missing." + std::to_string(c)});
  }
  int32_t before = 0;
  const auto chunks = static_cast<int64_t>(file.chunks.size());
  for (int64_t e = pick(2) * pick(4); e > 0; --e) {
    EvaluationPass pass;
    before += static_cast<int32_t>(
        pick(static_cast<int64_t>(made.trace.size()) - before + 1));
    pass.moment = before;
    for (int64_t uses = 1 + pick(3); uses > 0; --uses) {
      const ChunkId chunk(static_cast<int32_t>(pick(chunks)));
      pass.accesses.push_back({AccessKind::kUse, chunk});
      pass.accesses.push_back({AccessKind::kUseEnd, chunk});
    }
    if (timed) pass.compute_ns.assign(pass.accesses.size(), pick(1000));
    file.step.evaluations.push_back(std::move(pass));
  }
  return file;
}

}  // namespace castor

#endif  // CASTOR_TESTS_PLACEMENT_RANDOM_STEP_H_
