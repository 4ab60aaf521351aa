// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "chunk/text/json_value.h"
#include "chunk/text/quote.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/files/tensor_digest.h"
#include "offload/kernels/convert.h"
#include "placement/run_event.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/ckpt/ckpt.h"

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
  int64_t compared = 0;  // tensors that both have
  std::vector<Difference> differences;
};

std::string TypeText(const SavedParam& param, DType dtype) {
  return fmt::format("{} [{}]", DTypeName(dtype), fmt::join(param.shape, ", "));
}

// A tensor as it is read: what is damaged is compared with nothing.
struct Tensor {
  const CheckpointReader& reader;
  size_t param;
  const SavedState& state;
  uint64_t digest = 0;
  std::vector<std::byte> data = {};  // the piece that was read last

  Status Read(int64_t begin, int64_t count) {
    data.resize(static_cast<size_t>(count * (DTypeBits(state.dtype) / 8)));
    CASTOR_RETURN_IF_ERROR(
        reader.Read(param, state, begin, count, data.data()));
    digest += DigestOfElements(data.data(), state.dtype, begin, count);
    return OkStatus();
  }

  // REQUIRES: all of it was read.
  Status Check() const {
    if (digest == state.digest) return OkStatus();
    const CheckpointManifest& manifest = reader.manifest();
    return DataLoss(fmt::format(
        "{}: tensor {} in {} does not hold what was saved; copy the checkpoint "
        "again, or compare another",
        QuotedPath(reader.folder()),
        Quoted(TensorNameOf(manifest.params[param].name, state.state)),
        Quoted(manifest.files[static_cast<size_t>(state.file)].name)));
  }
};

// Of two tensors of one shape and type.
Result<TensorDistance> Measure(Tensor a, Tensor b) {
  const DType dtype = a.state.dtype;
  CASTOR_ASSIGN_OR_RETURN(
      const Elements elements,
      CountElements(a.reader.manifest().params[a.param].shape, dtype));
  TensorDistance distance;
  for (int64_t begin = 0; begin < elements.count(); begin += kPiece) {
    const int64_t count = std::min(kPiece, elements.count() - begin);
    CASTOR_RETURN_IF_ERROR(a.Read(begin, count));
    CASTOR_RETURN_IF_ERROR(b.Read(begin, count));
    AddDistance(a.data.data(), b.data.data(), dtype, count, &distance);
  }
  CASTOR_RETURN_IF_ERROR(a.Check());
  CASTOR_RETURN_IF_ERROR(b.Check());
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
    std::vector<std::string_view> states;
    for (const SavedState& state : a.states) states.push_back(state.state);
    for (const SavedState& state : b.states) {
      if (a.Find(state.state) == nullptr) states.push_back(state.state);
    }
    for (const std::string_view state : states) {
      const SavedState* of_a = a.Find(state);
      const SavedState* of_b = b.Find(state);
      const std::string name = TensorNameOf(a.name, state);
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
                              Measure({a_, in_a, *of_a}, {b_, in_b, *of_b}));
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

JsonValue DifferenceJson(const Difference& difference) {
  if (!difference.what.empty()) {
    return Fields(
        {{"tensor", difference.tensor}, {"problem", difference.what}});
  }
  const TensorDistance& distance = difference.distance;
  return Fields({{"tensor", difference.tensor},
                 {"elements", distance.elements},
                 {"differing", distance.differing},
                 {"nans", distance.nans},
                 {"max_ulp", distance.max_ulp},
                 {"max_difference", distance.max_difference}});
}

Table DifferencesTable(const Comparison& comparison) {
  using Align = Table::Align;
  Table table({.most_rows = kMostRows}, {{"", "tensor", Align::kLeft},
                                         {"", "differ", Align::kRight},
                                         {"", "of", Align::kRight},
                                         {"", "max ULP", Align::kRight},
                                         {"", "max difference", Align::kRight},
                                         {"", " ", Align::kLeft}});
  for (const Difference& each : comparison.differences) {
    const Value name = Value::Name(each.tensor);
    if (!each.what.empty()) {
      table.Add({name, "", "", "", "", each.what});
      continue;
    }
    const TensorDistance& distance = each.distance;
    table.Add({name, distance.differing, distance.elements, distance.max_ulp,
               fmt::format("{:.3g}", distance.max_difference),
               distance.nans > 0
                   ? fmt::format("{} not a number", Grouped(distance.nans))
                   : ""});
  }
  return table;
}

// The place of a number among all of its type, from the least up.
int64_t Rank(uint32_t bits, int width) {
  const uint32_t sign = uint32_t{1} << (width - 1);
  const int64_t magnitude = bits & (sign - 1);
  return (bits & sign) != 0 ? -magnitude - 1 : magnitude;
}

uint32_t BitsAt(const std::byte* data, int width) {
  uint32_t bits = 0;
  std::memcpy(&bits, data, static_cast<size_t>(width / 8));  // little-endian
  return bits;
}

}  // namespace

void AddDistance(const void* a, const void* b, DType dtype, int64_t count,
                 TensorDistance* distance) {
  const int width = DTypeBits(dtype);
  const int64_t size = width / 8;
  const bool real =
      dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
  const std::byte* at_a = static_cast<const std::byte*>(a);
  const std::byte* at_b = static_cast<const std::byte*>(b);
  distance->elements += count;
  if (std::memcmp(a, b, static_cast<size_t>(count * size)) == 0) return;
  for (int64_t i = 0; i < count; ++i, at_a += size, at_b += size) {
    if (std::memcmp(at_a, at_b, static_cast<size_t>(size)) == 0) continue;
    ++distance->differing;
    if (!real) continue;
    float x = 0;
    float y = 0;
    ConvertToFloat(at_a, dtype, 1, &x);
    ConvertToFloat(at_b, dtype, 1, &y);
    if (std::isnan(x) || std::isnan(y)) {
      ++distance->nans;
      continue;
    }
    const int64_t steps =
        Rank(BitsAt(at_a, width), width) - Rank(BitsAt(at_b, width), width);
    distance->max_ulp =
        std::max(distance->max_ulp, static_cast<uint64_t>(std::abs(steps)));
    distance->max_difference =
        std::max(distance->max_difference,
                 std::abs(static_cast<double>(x) - static_cast<double>(y)));
  }
}

Status RunCkptDiff(const CkptRequest& request, const Console& console) {
  CASTOR_ASSIGN_OR_RETURN(const std::string first,
                          FindCheckpoint(request.directory, request.step));
  CASTOR_ASSIGN_OR_RETURN(const std::string second,
                          FindCheckpoint(request.other, request.step));
  CASTOR_ASSIGN_OR_RETURN(const CheckpointReader a,
                          CheckpointReader::Open(first));
  CASTOR_ASSIGN_OR_RETURN(const CheckpointReader b,
                          CheckpointReader::Open(second));
  CASTOR_ASSIGN_OR_RETURN(const Comparison comparison, Comparing(a, b).Run());
  const bool equal = comparison.differences.empty();
  Document document("castor.ckpt.diff/1");
  document.Set("first", first);
  document.Set("second", second);
  document.Set("first_step", a.manifest().step);
  document.Set("second_step", b.manifest().step);
  document.Set("equal", equal);
  document.Set("compared_tensors", comparison.compared);
  document.Set("differences", ListOf(comparison.differences, DifferenceJson));
  document.SayUnbroken("First",
                       fmt::format("step {}: {}", a.manifest().step, first));
  document.SayUnbroken("Second",
                       fmt::format("step {}: {}", b.manifest().step, second));
  if (equal) {
    document.Say("Equal", fmt::format("all {} tensors, to the last bit",
                                      Grouped(comparison.compared)));
  }
  document.Add(DifferencesTable(comparison));
  Print(document, request.form, console);
  if (equal) return OkStatus();
  return Infeasible(
      fmt::format("the checkpoints differ in {}",
                  Plural(std::ssize(comparison.differences), "place")));
}

}  // namespace castor
