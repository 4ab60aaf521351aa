// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <map>
#include <string_view>
#include <unordered_set>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/text/json_value.h"
#include "chunk/text/quote.h"
#include "placement/trace/trace_access_names.h"
#include "placement/trace/trace_file.h"

namespace castor {

std::vector<TraceChunk> TraceChunks(const ChunkLayout& layout) {
  // A slot's size on every device of the engine.
  constexpr Bytes kSlotAlign{512};
  std::map<Bytes, int32_t> classes;
  std::vector<TraceChunk> chunks;
  chunks.reserve(layout.chunks().size());
  for (const ChunkInfo& info : layout.chunks()) {
    const GroupInfo& group = layout.groups()[static_cast<size_t>(info.group)];
    TraceChunk chunk;
    chunk.gathered = BytesOf(info.size, group.dtype);
    chunk.shard = BytesOf(info.size / layout.world(), group.dtype);
    chunk.trainable = group.trainable;
    chunk.dtype = group.dtype;
    chunk.slot_class = classes
                           .try_emplace(RoundUp(chunk.gathered, kSlotAlign),
                                        static_cast<int32_t>(classes.size()))
                           .first->second;
    chunks.push_back(chunk);
  }
  return chunks;
}

Status CheckTraceTypes(std::span<const TraceChunk> chunks) {
  for (size_t c = 0; c < chunks.size(); ++c) {
    const std::optional<DType>& dtype = chunks[c].dtype;
    if (dtype.has_value() != chunks[0].dtype.has_value()) {
      return Malformed(fmt::format(
          "chunk {} has {} dtype, unlike the chunks before it: it stands in "
          "every chunk or in none",
          c, dtype ? "a" : "no"));
    }
    if (dtype && chunks[c].gathered.count() * 8 % DTypeBits(*dtype) != 0) {
      return Malformed(fmt::format(
          "chunk {} has {} bytes, which is no whole number of {} elements", c,
          chunks[c].gathered.count(), DTypeName(*dtype)));
    }
  }
  return OkStatus();
}

Status CheckTraceParams(std::span<const std::string> params) {
  std::unordered_set<std::string_view> names;
  for (const std::string& name : params) {
    if (name.empty() || JsonText(name).empty() || !names.insert(name).second) {
      return Malformed(fmt::format(
          "{} cannot be a name in \"params\": names are UTF-8, not empty, and "
          "each is given once",
          Quoted(name)));
    }
  }
  return OkStatus();
}

namespace {

void WriteEvaluations(const std::vector<EvaluationPass>& evaluations,
                      std::string* text) {
  if (evaluations.empty()) return;
  *text += "],\n\"evaluations\": [\n";
  std::string_view between;
  for (size_t e = 0; e < evaluations.size(); ++e) {
    const EvaluationPass& pass = evaluations[e];
    for (size_t i = 0; i < pass.accesses.size(); ++i) {
      fmt::format_to(
          std::back_inserter(*text),
          R"({}{{"evaluation": {}, "before": {}, "access": "{}", "chunk": {})",
          between, e, pass.moment, internal::AccessKey(pass.accesses[i].kind),
          pass.accesses[i].chunk.value());
      if (!pass.compute_ns.empty()) {
        fmt::format_to(std::back_inserter(*text), R"(, "compute_ns": {})",
                       pass.compute_ns[i]);
      }
      between = "},\n";
    }
  }
  *text += "}\n";
}

void WriteMissingGrads(const std::vector<MissingGrad>& missing,
                       std::string* text) {
  if (missing.empty()) return;
  *text += "],\n\"missing_grads\": [\n";
  std::string_view between;
  for (const auto& [chunk, param] : missing) {
    fmt::format_to(std::back_inserter(*text), R"({}{{"chunk": {})", between,
                   chunk.value());
    if (!param.empty()) *text += R"(, "param": )" + JsonText(param);
    between = "},\n";
  }
  *text += "}\n";
}

void WriteLeaseEnds(const std::vector<LeaseEnd>& ends, std::string* text) {
  if (ends.empty()) return;
  *text += "],\n\"lease_ends\": [\n";
  std::string_view between;
  for (const LeaseEnd& end : ends) {
    fmt::format_to(std::back_inserter(*text), R"({}{{"use": {}, "before": {})",
                   between, end.use, end.before);
    between = "},\n";
  }
  *text += "}\n";
}

}  // namespace

std::string WriteTrace(const TraceFile& trace) {
  CASTOR_CHECK(ValidateStep(trace.step, trace.chunks.size()).ok());
  CASTOR_CHECK(CheckTraceTypes(trace.chunks).ok());
  CASTOR_CHECK(CheckTraceParams(trace.params).ok());
  CASTOR_CHECK(trace.shard_group == 0 || trace.world % trace.shard_group == 0);
  std::string text =
      fmt::format("{{\n\"schema\": \"{}\",\n\"rank\": {},\n\"world\": {},\n",
                  kTraceSchema, trace.rank, trace.world);
  if (trace.shard_group > 0) {
    text += fmt::format("\"shard_group\": {},\n", trace.shard_group);
  }
  if (trace.spans_world) text += "\"optimizer_span\": \"world\",\n";
  if (trace.step.updates_early) text += "\"updates_early\": true,\n";
  text += "\"chunks\": [\n";
  const auto out = std::back_inserter(text);
  const auto end_line = [&](bool last) { text += last ? "}\n" : "},\n"; };
  for (size_t i = 0; i < trace.chunks.size(); ++i) {
    const TraceChunk& chunk = trace.chunks[i];
    fmt::format_to(out,
                   R"({{"class": {}, "gathered_bytes": {}, "shard_bytes": {}, )"
                   R"("trainable": {})",
                   chunk.slot_class, chunk.gathered.count(),
                   chunk.shard.count(), chunk.trainable);
    if (chunk.dtype) {
      fmt::format_to(out, R"(, "dtype": "{}")", DTypeName(*chunk.dtype));
    }
    end_line(i + 1 == trace.chunks.size());
  }
  if (!trace.params.empty()) {
    text += "],\n\"params\": [\n";
    for (size_t i = 0; i < trace.params.size(); ++i) {
      text += JsonText(trace.params[i]);
      text += i + 1 == trace.params.size() ? "\n" : ",\n";
    }
  }
  text += "],\n\"moments\": [\n";
  const StepTrace& step = trace.step;
  auto change = step.leases.begin();
  for (size_t i = 0; i < step.accesses.size(); ++i) {
    fmt::format_to(out, R"({{"moment": {}, "access": "{}", "chunk": {})", i,
                   internal::AccessKey(step.accesses[i].kind),
                   step.accesses[i].chunk.value());
    if (change != step.leases.end() &&
        change->moment == static_cast<int32_t>(i)) {
      fmt::format_to(out, R"(, "leased_bytes": {})", change->bytes.count());
      ++change;
    }
    if (!step.compute_ns.empty()) {
      fmt::format_to(out, R"(, "compute_ns": {})", step.compute_ns[i]);
    }
    end_line(i + 1 == step.accesses.size());
  }
  WriteEvaluations(step.evaluations, &text);
  WriteMissingGrads(step.missing_grads, &text);
  WriteLeaseEnds(step.lease_ends, &text);
  return text + "]\n}\n";
}

}  // namespace castor
