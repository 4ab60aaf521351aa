// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/trace_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "chunk/base/ids.h"
#include "collectives/memory/held_moments.h"
#include "placement/policy/compute_spread.h"

namespace castor {
namespace {

constexpr Elements kAlign{64};

// By moment: its own times, or else bytes.
std::vector<double> WeightsOf(const TraceFile& trace) {
  const StepTrace& step = trace.step;
  if (!step.compute_ns.empty()) {
    return std::vector<double>(step.compute_ns.begin(), step.compute_ns.end());
  }
  std::vector<Bytes> bytes;
  for (const TraceChunk& chunk : trace.chunks) bytes.push_back(chunk.gathered);
  return ComputeWeights(step.accesses, bytes);
}

}  // namespace

Result<ChunkLayout> LayoutOfTrace(const TraceFile& trace,
                                  std::optional<DType> given, int world) {
  std::vector<ParamPlace> places;
  std::vector<ChunkInfo> chunks;
  std::vector<GroupInfo> groups;
  std::map<std::tuple<Bytes, bool, DType>, int32_t> group_of;
  for (size_t c = 0; c < trace.chunks.size(); ++c) {
    const TraceChunk& from = trace.chunks[c];
    if (given && from.dtype && given != from.dtype) {
      return InvalidArgument(fmt::format(
          "--dtype says {}, and the trace that chunk {} is {}: leave --dtype "
          "away",
          DTypeName(*given), c, DTypeName(*from.dtype)));
    }
    const DType dtype = given ? *given : from.dtype.value_or(kAssumedDType);
    const int64_t bits = DTypeBits(dtype);
    if (from.gathered <= Bytes(0) || from.gathered.count() * 8 % bits != 0) {
      return InvalidArgument(fmt::format(
          "chunk {} has {} bytes, which is no number of {} elements: say of "
          "which type the parameters are with --dtype",
          c, from.gathered.count(), DTypeName(dtype)));
    }
    const Elements size = RoundUp(Elements(from.gathered.count() * 8 / bits),
                                  ChunkQuantum(world));
    const ChunkId id(static_cast<int32_t>(c));
    const auto [group, is_new] =
        group_of.try_emplace({from.gathered, from.trainable, dtype},
                             static_cast<int32_t>(groups.size()));
    if (is_new) {
      groups.push_back({dtype, from.trainable, size, {}});
    }
    groups[static_cast<size_t>(group->second)].chunks.push_back(id);
    places.push_back({id, Elements(0), size});
    chunks.push_back(
        {group->second, size, size, size, false, {ParamId(id.value())}});
  }
  return ChunkLayout(world, kAlign, std::move(places), std::move(chunks),
                     std::move(groups));
}

std::vector<ParamSpec> ParamsOfTrace(const ChunkLayout& layout) {
  std::vector<ParamSpec> params;
  for (size_t c = 0; c < layout.chunks().size(); ++c) {
    const ChunkInfo& chunk = layout.chunks()[c];
    const GroupInfo& group = layout.groups()[static_cast<size_t>(chunk.group)];
    params.push_back({fmt::format("chunk.{}", c),
                      {chunk.size.count()},
                      group.dtype,
                      group.trainable});
  }
  return params;
}

Status CheckSameChunks(std::span<const TraceChunk> trace,
                       std::span<const TraceChunk> other) {
  if (trace.size() != other.size()) {
    return InvalidArgument(fmt::format("it has {} chunks in place of {}",
                                       other.size(), trace.size()));
  }
  for (size_t c = 0; c < trace.size(); ++c) {
    const auto text = [](const TraceChunk& chunk) {
      return fmt::format(
          "{} bytes{}, {}", chunk.gathered.count(),
          chunk.dtype ? fmt::format(" of {}", DTypeName(*chunk.dtype)) : "",
          chunk.trainable ? "trainable" : "frozen");
    };
    const bool types_differ =
        trace[c].dtype && other[c].dtype && trace[c].dtype != other[c].dtype;
    if (trace[c].gathered == other[c].gathered &&
        trace[c].trainable == other[c].trainable && !types_differ) {
      continue;
    }
    return InvalidArgument(fmt::format("chunk {} of it is {} in place of {}", c,
                                       text(other[c]), text(trace[c])));
  }
  return OkStatus();
}

Bytes MostLeased(const StepTrace& step) {
  Bytes most;
  for (const LeaseChange& change : step.leases) {
    most = std::max(most, change.bytes);
  }
  return most;
}

SealOptions DeclaredBy(const ChunkLayout& layout, const StepTrace& step) {
  SealOptions declared;
  declared.largest_lease = MostLeased(step);
  declared.held = HeldMomentsOf(layout, step.accesses);
  return declared;
}

StepTrace WithComputeTime(const TraceFile& trace, int64_t total_ns) {
  StepTrace step = trace.step;
  std::vector<int64_t> shares = ShareOut(WeightsOf(trace), total_ns);
  if (!shares.empty()) step.compute_ns = std::move(shares);
  return step;
}

double ComputeWeight(const TraceFile& trace) {
  double sum = 0;
  for (const double weight : WeightsOf(trace)) sum += weight;
  return sum;
}

StepTrace WithEvaluations(StepTrace step, int64_t passes) {
  EvaluationPass pass;
  std::vector<ChunkId> held;
  for (size_t i = 0; i < step.accesses.size() &&
                     step.accesses[i].kind != AccessKind::kGradOpen;
       ++i) {
    const Access& access = step.accesses[i];
    pass.accesses.push_back(access);
    if (!step.compute_ns.empty()) pass.compute_ns.push_back(step.compute_ns[i]);
    if (access.kind == AccessKind::kUse) {
      held.push_back(access.chunk);
    } else {
      held.erase(std::find(held.begin(), held.end(), access.chunk));
    }
  }
  for (const ChunkId chunk : held) {
    pass.accesses.push_back({AccessKind::kUseEnd, chunk});
    if (!step.compute_ns.empty()) pass.compute_ns.push_back(0);
  }
  if (pass.accesses.empty()) return step;
  step.evaluations.insert(step.evaluations.begin(), static_cast<size_t>(passes),
                          pass);
  return step;
}

}  // namespace castor
