// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/ckpt/ckpt_diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/json_value.h"
#include "chunk/base/quote.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/tensor_digest.h"
#include "placement/run_event.h"
#include "tools/cli/json_out.h"
#include "tools/cli/text_forms.h"
#include "tools/cli/text_table.h"
#include "tools/commands/ckpt/tensor_distance.h"

namespace castor {
namespace {

constexpr size_t kMostRows = 20;
constexpr int64_t kPiece = int64_t{1} << 20;
static_assert(kPiece % kDigestElements == 0);

struct Difference {
  std::string tensor;
  std::string what;  // empty: the values, by `distance`
  TensorDistance distance;
};

struct Comparison {
  std::string paths[2];
  int64_t steps[2] = {0, 0};
  int64_t compared = 0;  // tensors that both have
  std::vector<Difference> differences;
};

std::string TypeText(const SavedParam& param, DType dtype) {
  return fmt::format("{} [{}]", DTypeName(dtype), fmt::join(param.shape, ", "));
}

// A tensor as it is read: what is damaged is compared with nothing.
class Side {
 public:
  Side(const CheckpointReader& reader, size_t param, const SavedState& state)
      : reader_(reader), param_(param), state_(state) {}

  Status Read(int64_t begin, int64_t count, std::vector<std::byte>* to) {
    to->resize(static_cast<size_t>(count * (DTypeBits(state_.dtype) / 8)));
    CASTOR_RETURN_IF_ERROR(
        reader_.Read(param_, state_, begin, count, to->data()));
    digest_ += DigestOfElements(to->data(), state_.dtype, begin, count);
    return OkStatus();
  }

  // REQUIRES: all of it was read.
  Status Check() const {
    if (digest_ == state_.digest) return OkStatus();
    const CheckpointManifest& manifest = reader_.manifest();
    return DataLoss(fmt::format(
        "{}: tensor {} in {} does not hold what was saved; copy the checkpoint "
        "again, or compare another",
        QuotedPath(reader_.folder()),
        Quoted(TensorNameOf(manifest.params[param_].name, state_.state)),
        Quoted(manifest.files[static_cast<size_t>(state_.file)].name)));
  }

 private:
  const CheckpointReader& reader_;
  const size_t param_;
  const SavedState& state_;
  uint64_t digest_ = 0;
};

// Of two tensors of one shape and type.
Result<TensorDistance> Measure(const CheckpointReader& a, size_t in_a,
                               const SavedState& of_a,
                               const CheckpointReader& b, size_t in_b,
                               const SavedState& of_b) {
  CASTOR_ASSIGN_OR_RETURN(
      const Elements elements,
      CountElements(a.manifest().params[in_a].shape, of_a.dtype));
  Side first(a, in_a, of_a);
  Side second(b, in_b, of_b);
  TensorDistance distance;
  std::vector<std::byte> left;
  std::vector<std::byte> right;
  for (int64_t begin = 0; begin < elements.count(); begin += kPiece) {
    const int64_t count = std::min(kPiece, elements.count() - begin);
    CASTOR_RETURN_IF_ERROR(first.Read(begin, count, &left));
    CASTOR_RETURN_IF_ERROR(second.Read(begin, count, &right));
    AddDistance(left.data(), right.data(), of_a.dtype, count, &distance);
  }
  CASTOR_RETURN_IF_ERROR(first.Check());
  CASTOR_RETURN_IF_ERROR(second.Check());
  return distance;
}

class Comparing {
 public:
  Comparing(const CheckpointReader& a, const CheckpointReader& b)
      : a_(a), b_(b) {}

  Result<Comparison> Run() {
    std::unordered_map<std::string_view, size_t> in_b;
    const std::vector<SavedParam>& params = b_.manifest().params;
    for (size_t p = 0; p < params.size(); ++p) in_b.emplace(params[p].name, p);
    for (size_t p = 0; p < a_.manifest().params.size(); ++p) {
      const std::string& name = a_.manifest().params[p].name;
      const auto at = in_b.find(name);
      if (at == in_b.end()) {
        Add(name, "only in the first");
        continue;
      }
      CASTOR_RETURN_IF_ERROR(Compare(p, at->second));
      in_b.erase(at);
    }
    for (const SavedParam& param : params) {
      if (in_b.contains(param.name)) Add(param.name, "only in the second");
    }
    return std::move(result_);
  }

 private:
  void Add(std::string tensor, std::string what) {
    result_.differences.push_back({std::move(tensor), std::move(what), {}});
  }

  Status Compare(size_t in_a, size_t in_b) {
    const SavedParam& a = a_.manifest().params[in_a];
    const SavedParam& b = b_.manifest().params[in_b];
    if (a.steps != b.steps) {
      Add(a.name,
          fmt::format("{} updates and {}", Grouped(a.steps), Grouped(b.steps)));
    }
    for (int k = 0; k < kStateKinds; ++k) {
      const StateKind kind = static_cast<StateKind>(k);
      const SavedState* of_a = a.Find(kind);
      const SavedState* of_b = b.Find(kind);
      if (of_a == nullptr && of_b == nullptr) continue;
      const std::string name = TensorNameOf(a.name, kind);
      if (of_a == nullptr || of_b == nullptr) {
        Add(name, of_b == nullptr ? "only in the first" : "only in the second");
        continue;
      }
      ++result_.compared;
      if (a.shape != b.shape || of_a->dtype != of_b->dtype) {
        Add(name, fmt::format("{} and {}", TypeText(a, of_a->dtype),
                              TypeText(b, of_b->dtype)));
        continue;
      }
      CASTOR_ASSIGN_OR_RETURN(const TensorDistance distance,
                              Measure(a_, in_a, *of_a, b_, in_b, *of_b));
      if (distance.differing > 0) {
        result_.differences.push_back({name, "", distance});
      }
    }
    return OkStatus();
  }

  const CheckpointReader& a_;
  const CheckpointReader& b_;
  Comparison result_;
};

std::string Text(const Comparison& comparison) {
  std::string text;
  for (int i = 0; i < 2; ++i) {
    text += fmt::format("{} step {}: {}\n", i == 0 ? "first,  " : "second, ",
                        comparison.steps[i], comparison.paths[i]);
  }
  const size_t count = comparison.differences.size();
  if (count == 0) {
    return fmt::format("{}equal: all {} tensors, to the last bit\n", text,
                       Grouped(comparison.compared));
  }
  TextTable table({{"tensor", TextTable::Align::kLeft},
                   {"differ"},
                   {"of"},
                   {"max ULP"},
                   {"max difference"},
                   {"", TextTable::Align::kLeft}});
  for (size_t i = 0; i < std::min(count, kMostRows); ++i) {
    const Difference& each = comparison.differences[i];
    const TensorDistance& distance = each.distance;
    if (!each.what.empty()) {
      table.AddRow({Shown(each.tensor), "", "", "", "", each.what});
      continue;
    }
    table.AddRow({Shown(each.tensor), Grouped(distance.differing),
                  Grouped(distance.elements),
                  Grouped(static_cast<int64_t>(distance.max_ulp)),
                  fmt::format("{:.3g}", distance.max_difference),
                  distance.nans > 0
                      ? fmt::format("{} not a number", Grouped(distance.nans))
                      : ""});
  }
  text += table.Render(Emphasis::kNone);
  if (count > kMostRows) {
    text += fmt::format("  ... and {} more: --json\n", count - kMostRows);
  }
  return text;
}

JsonValue Json(const Comparison& comparison) {
  JsonValue differences = JsonValue::Array();
  for (const Difference& each : comparison.differences) {
    JsonValue row = JsonValue::Object({{"tensor", each.tensor}});
    if (!each.what.empty()) {
      row["problem"] = each.what;
    } else {
      row["elements"] = each.distance.elements;
      row["differing"] = each.distance.differing;
      row["nans"] = each.distance.nans;
      row["max_ulp"] = each.distance.max_ulp;
      row["max_difference"] = each.distance.max_difference;
    }
    differences.Append(std::move(row));
  }
  return JsonValue::Object({{"schema", "castor.ckpt.diff/1"},
                            {"first", comparison.paths[0]},
                            {"second", comparison.paths[1]},
                            {"first_step", comparison.steps[0]},
                            {"second_step", comparison.steps[1]},
                            {"equal", comparison.differences.empty()},
                            {"compared_tensors", comparison.compared},
                            {"differences", std::move(differences)}});
}

}  // namespace

Status RunCkptDiff(const CkptRequest& request, const Console& console) {
  CASTOR_ASSIGN_OR_RETURN(const std::string first,
                          FindCheckpoint(request.directory, request.step));
  CASTOR_ASSIGN_OR_RETURN(const std::string second,
                          FindCheckpoint(request.other, request.step));
  CASTOR_ASSIGN_OR_RETURN(const CheckpointReader a,
                          CheckpointReader::Open(first));
  CASTOR_ASSIGN_OR_RETURN(const CheckpointReader b,
                          CheckpointReader::Open(second));
  CASTOR_ASSIGN_OR_RETURN(Comparison comparison, Comparing(a, b).Run());
  comparison.paths[0] = first;
  comparison.paths[1] = second;
  comparison.steps[0] = a.manifest().step;
  comparison.steps[1] = b.manifest().step;
  if (request.json) {
    WriteJson(Json(comparison), console.out);
  } else {
    console.out << Text(comparison);
  }
  if (comparison.differences.empty()) return OkStatus();
  return Infeasible(fmt::format(
      "the checkpoints differ in {}",
      Plural(static_cast<int64_t>(comparison.differences.size()), "place")));
}

}  // namespace castor
