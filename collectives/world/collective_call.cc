// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/world/collective_call.h"

#include <fmt/format.h>

#include <string_view>
#include <tuple>
#include <vector>

#include "collectives/rank_scope.h"

namespace castor::internal {
namespace {

std::string_view KindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "all-gather";
    case CollectiveKind::kReduceScatter:
      return "reduce-scatter";
    case CollectiveKind::kAllReduce:
      return "all-reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "unknown";
}

std::string_view OpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
  }
  return "unknown";
}

std::string DescribeScope(const RankScope& scope) {
  if (scope == RankScope()) return "";
  switch (scope.among) {
    case Among::kWorld:
      return fmt::format(", sliced for groups of {}", scope.group);
    case Among::kGroup:
      return fmt::format(", in groups of {}", scope.group);
    case Among::kReplicas:
      return fmt::format(", across groups of {}", scope.group);
  }
  return "";
}

std::string DescribeSize(const CollectiveCall& call) {
  switch (call.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
      return fmt::format(", {} {} elements per rank{}", call.count,
                         DTypeName(call.dtype), DescribeScope(call.tag.scope));
    case CollectiveKind::kAllReduce:
      return fmt::format(", {} of {} {} elements", OpName(call.op), call.count,
                         DTypeName(call.dtype));
    case CollectiveKind::kBroadcast:
      return fmt::format(", {} bytes from rank {}", call.count, call.root);
    case CollectiveKind::kBarrier:
      return "";
  }
  return "";
}

auto Key(const CollectiveCall& call) {
  return std::tie(call.kind, call.tag.chunk, call.tag.moment, call.tag.purpose,
                  call.tag.scope.among, call.tag.scope.group, call.count,
                  call.dtype, call.op, call.root);
}

}  // namespace

bool SameCall(const CollectiveCall& a, const CollectiveCall& b) {
  return Key(a) == Key(b);
}

std::string Describe(const CollectiveCall& call) {
  std::string text(KindName(call.kind));
  if (call.tag.chunk.valid()) {
    text += fmt::format(" of chunk {}", call.tag.chunk.value());
  }
  if (call.tag.moment >= 0)
    text += fmt::format(" at moment {}", call.tag.moment);
  text += fmt::format(" (\"{}\"{})", call.tag.purpose, DescribeSize(call));
  return text;
}

std::string DescribeRanks(std::span<const int> ranks) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    runs.push_back(end - i == 1
                       ? fmt::format("{}", ranks[i])
                       : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    i = end;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i > 0) text += i + 1 == runs.size() ? " and " : ", ";
    text += runs[i];
  }
  return text;
}

Status MismatchError(int64_t position, int rank, const CollectiveCall& call,
                     int other_rank, const CollectiveCall& other_call) {
  const bool reduces = call.kind == CollectiveKind::kReduceScatter ||
                       other_call.kind == CollectiveKind::kReduceScatter;
  return FailedPrecondition(fmt::format(
      "ranks disagree on operation {} of their world: rank {} calls {}, rank "
      "{} calls {}. All ranks must make the same calls in the same order: look "
      "for a branch, a parameter order or a size that differs between ranks{}",
      position, rank, Describe(call), other_rank, Describe(other_call),
      reduces
          ? ". If a rank lacks a gradient that others have, declare at "
            "Seal(), as the last moment, that all gradients are held together"
          : ""));
}

Status TimeoutError(int64_t position, const CollectiveCall& call,
                    std::span<const int> missing, int64_t waited_ns) {
  return Aborted(fmt::format(
      "{} did not come to operation {} of the world, {}, in {:.3g} s. They "
      "hang, "
      "died, or make other calls: look at what they do, or raise the timeout "
      "if they are only slow",
      DescribeRanks(missing), position, Describe(call),
      static_cast<double>(waited_ns) * 1e-9));
}

Status LeftError(int64_t position, const CollectiveCall& call, int rank) {
  return Aborted(fmt::format(
      "rank {} has left the world before operation {}, {}: its communicator is "
      "destroyed. Look at why that rank ended early",
      rank, position, Describe(call)));
}

Status SkippedError(int64_t position, const CollectiveCall& call, int rank) {
  return Aborted(fmt::format(
      "rank {} skips operation {} of the world, {}, because an earlier "
      "operation of its lane failed: look at the error of that rank",
      rank, position, Describe(call)));
}

}  // namespace castor::internal
