// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/param_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/layout/tensor_fields.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/quote.h"
#include "chunk/text/strict_json.h"

namespace castor {
namespace {

// What precedes the next `separator`, which is consumed.
std::string_view TakeField(std::string_view* rest, char separator) {
  const size_t end = rest->find(separator);
  const std::string_view field = rest->substr(0, end);
  rest->remove_prefix(end == rest->npos ? rest->size() : end + 1);
  return field;
}

Result<std::vector<int64_t>> ParseDims(std::string_view text) {
  std::vector<int64_t> shape;
  if (text.empty()) return shape;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view dim = text.substr(0, comma);
    uint64_t value = 0;
    const auto [stop, error] =
        std::from_chars(dim.data(), dim.data() + dim.size(), value);
    if (error != std::errc() || stop != dim.data() + dim.size() ||
        value > std::numeric_limits<int64_t>::max()) {
      return Malformed(
          fmt::format("its dimension {} is no whole number from 0 "
                      "to 9223372036854775807",
                      Quoted(dim)));
    }
    if (shape.size() == kMaxRank) {
      return Malformed(
          fmt::format("its shape has more than {} dimensions", kMaxRank));
    }
    shape.push_back(static_cast<int64_t>(value));
    if (comma == text.npos) return shape;
    text.remove_prefix(comma + 1);
  }
}

constexpr std::string_view kWhole = "whole";
constexpr std::string_view kStates = "states=";

// What an optimizer does with the parameter: `whole`, `states=1`, or both.
Status ParseUpdate(std::string_view text, ParamSpec* spec) {
  std::string_view left = text;
  spec->whole = TakeField(&left, ',') == kWhole;
  if (text == kWhole) return OkStatus();
  const std::string_view states = spec->whole ? left : text;
  const std::string_view count =
      states.starts_with(kStates) ? states.substr(kStates.size()) : "";
  if (count.size() != 1 || count[0] < '0' || count[0] > '9') {
    return Malformed(fmt::format(
        "its fourth field is {} where whole, states= with a digit, or both "
        "with a comma between them belong",
        Quoted(text)));
  }
  spec->states = count[0] - '0';
  return OkStatus();
}

std::string UpdateText(const ParamSpec& spec) {
  std::string text = spec.whole ? fmt::format("\t{}", kWhole) : "";
  if (spec.states < 0) return text;
  return fmt::format("{}{}{}{}", text, spec.whole ? "," : "\t", kStates,
                     spec.states);
}

// A zero byte ends a name for whoever reads it as a C string.
Status CheckName(std::string_view name) {
  if (name.empty()) return Malformed("the name is empty");
  if (name.find('\0') == name.npos) return OkStatus();
  return Malformed(fmt::format("the name {} holds a zero byte", Quoted(name)));
}

Result<ParamSpec> ParseLine(std::string_view line) {
  const size_t first_tab = line.find('\t');
  const size_t second_tab =
      first_tab == line.npos ? line.npos : line.find('\t', first_tab + 1);
  if (second_tab == line.npos) {
    return Malformed(fmt::format(
        "{} is not three fields with tabs between them: name, dimensions with "
        "commas between them, dtype",
        Quoted(line)));
  }
  ParamSpec spec;
  spec.name = TakeField(&line, '\t');
  CASTOR_RETURN_IF_ERROR(CheckName(spec.name));
  const std::string where = fmt::format("parameter {}", Quoted(spec.name));
  Result<std::vector<int64_t>> shape = ParseDims(TakeField(&line, '\t'));
  if (!shape.ok()) return shape.status().WithContext(where);
  spec.shape = *std::move(shape);
  const bool has_update = line.find('\t') != line.npos;
  const Result<DType> dtype =
      ReadDType(TakeField(&line, '\t'), DTypeSpelling::kLenient);
  if (!dtype.ok()) return dtype.status().WithContext(where);
  spec.dtype = *dtype;
  const Result<Bytes> bytes = TensorBytes(spec.shape, spec.dtype);
  if (!bytes.ok()) return bytes.status().WithContext(where);
  if (has_update) {
    CASTOR_RETURN_IF_ERROR(ParseUpdate(line, &spec).WithContext(where));
  }
  return spec;
}

constexpr std::string_view kHold = "hold";
constexpr std::string_view kGrads = "grads";
constexpr std::string_view kSeparate = "separate";
constexpr std::string_view kReuse = "reuse";

// The lines that say what a step does, read one after the other.
class StepLines {
 public:
  explicit StepLines(const std::vector<ParamSpec>& params) {
    for (const ParamSpec& spec : params) {
      ids_.emplace(spec.name, ParamId(static_cast<int32_t>(ids_.size())));
    }
  }

  // `line` begins with a tab.
  Status Add(std::string_view line) {
    line.remove_prefix(1);
    const std::string_view word = TakeField(&line, '\t');
    if (!begun_) return Begin(word, line);
    if (word == kHold) return Names(line, &step_.uses.emplace_back().hold);
    if (word != kGrads) {
      return Malformed(fmt::format("{} where {} or {} belongs", Quoted(word),
                                   kHold, kGrads));
    }
    if (step_.uses.empty() || !step_.uses.back().grads.empty()) {
      return Malformed(fmt::format("{} follows the {} of its operation, once",
                                   kGrads, kHold));
    }
    if (line.empty()) return Malformed(fmt::format("{} names none", kGrads));
    return Names(line, &step_.uses.back().grads);
  }

  DeclaredStep Take() { return std::move(step_); }

 private:
  Status Begin(std::string_view word, std::string_view mode) {
    begun_ = true;
    step_.grads_in_place = mode == kReuse;
    if (word == "step" && (mode == kReuse || mode == kSeparate)) {
      return OkStatus();
    }
    return Malformed(fmt::format(
        "the name is empty; a line that begins with a tab tells of the step, "
        "and the first of these is a tab, step, a tab, and {} or {}",
        kSeparate, kReuse));
  }

  Status Names(std::string_view line, std::vector<ParamId>* ids) const {
    while (!line.empty()) {
      const std::string_view name = TakeField(&line, '\t');
      const auto found = ids_.find(std::string(name));
      if (found == ids_.end()) {
        return Malformed(
            fmt::format("the step uses {}, which is not listed", Quoted(name)));
      }
      ids->push_back(found->second);
    }
    return OkStatus();
  }

  std::unordered_map<std::string, ParamId> ids_;
  DeclaredStep step_;
  bool begun_ = false;
};

// Depth 1 is a parameter, 2 a field of it, 3 a dimension.
class ListHandler final : public JsonHandler {
 public:
  std::vector<ParamSpec> Take() { return std::move(params_); }

  Status Open(const JsonPath& path, JsonContainer container) override {
    const bool object = container == JsonContainer::kObject;
    if (path.empty()) {
      if (object) return WrongType(path, "an object", "an array");
      return OkStatus();
    }
    if (path.size() == 1) {
      if (!object) return WrongType(path, "an array", "an object");
      spec_ = ParamSpec{};
      has_name_ = has_shape_ = has_dtype_ = false;
      return OkStatus();
    }
    CASTOR_RETURN_IF_ERROR(KnownField(path));
    if (object || path.size() > 2 || path[1].key != "shape") {
      return WrongType(path, object ? "an object" : "an array",
                       path.size() > 2 ? "a dimension" : "another type");
    }
    has_shape_ = true;
    return OkStatus();
  }

  Status Close(const JsonPath& path) override {
    if (path.size() != 1) return OkStatus();
    std::string_view missing;
    if (!has_dtype_) missing = "dtype";
    if (!has_shape_) missing = "shape";
    if (!has_name_) missing = "name";
    if (!missing.empty()) {
      return Malformed(
          fmt::format("element {} has no {}", path[0].index, missing));
    }
    const Result<Bytes> bytes = TensorBytes(spec_.shape, spec_.dtype);
    if (!bytes.ok()) return bytes.status().WithContext(Where(path));
    if (!names_.insert(spec_.name).second) {
      return Malformed(
          fmt::format("{} is listed twice; names are unique", Where(path)));
    }
    params_.push_back(std::move(spec_));
    return OkStatus();
  }

  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    if (path.size() < 2) {
      return WrongType(path, JsonScalarText(scalar),
                       path.empty() ? "an array" : "an object");
    }
    CASTOR_RETURN_IF_ERROR(KnownField(path));
    if (path.size() == 3) {
      return AppendDim(scalar, &spec_.shape).WithContext(Where(path));
    }
    const std::string& field = path[1].key;
    if (field == "shape") {
      return WrongType(path, JsonScalarText(scalar), "an array");
    }
    if (scalar.kind != JsonKind::kString) {
      return WrongType(path, JsonScalarText(scalar), "a string");
    }
    if (field == "name") {
      spec_.name = scalar.text;
      has_name_ = true;
      return CheckName(spec_.name)
          .WithContext(fmt::format("element {}", path[0].index));
    }
    const Result<DType> dtype = ReadDType(scalar.text, DTypeSpelling::kLenient);
    if (!dtype.ok()) return dtype.status().WithContext(Where(path));
    spec_.dtype = *dtype;
    has_dtype_ = true;
    return OkStatus();
  }

 private:
  // The element, by name where that is known already.
  std::string Where(const JsonPath& path) const {
    return has_name_ ? fmt::format("parameter {}", Quoted(spec_.name))
                     : fmt::format("element {}", path[0].index);
  }

  Status WrongType(const JsonPath& path, std::string_view is,
                   std::string_view belongs) const {
    return Malformed(fmt::format("{} is {} where {} belongs",
                                 JsonPathText(path), is, belongs));
  }

  Status KnownField(const JsonPath& path) const {
    static const std::vector<std::string> kFields = {"name", "shape", "dtype"};
    const std::string& field = path[1].key;
    if (std::find(kFields.begin(), kFields.end(), field) != kFields.end()) {
      return OkStatus();
    }
    return Malformed(fmt::format("{}: unknown key {}{}", Where(path),
                                 Quoted(field), SuggestName(field, kFields)));
  }

  std::vector<ParamSpec> params_;
  std::unordered_set<std::string> names_;
  ParamSpec spec_;  // being read
  bool has_name_ = false;
  bool has_shape_ = false;
  bool has_dtype_ = false;
};

}  // namespace

Result<ParamList> ParseTsvList(std::string_view text) {
  ParamList list;
  std::unordered_map<std::string, int64_t> line_of;
  std::optional<StepLines> step;
  int64_t number = 0;
  while (!text.empty()) {
    std::string_view line = TakeField(&text, '\n');
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::string where = fmt::format("line {}", number);
    if (line.front() == '\t') {
      if (!step) step.emplace(list.params);
      CASTOR_RETURN_IF_ERROR(step->Add(line).WithContext(where));
      continue;
    }
    if (step) {
      return Malformed(fmt::format(
          "{}: parameters stand before the lines that say what a step does",
          where));
    }
    Result<ParamSpec> spec = ParseLine(line);
    if (!spec.ok()) return spec.status().WithContext(where);
    const auto [seen, is_new] = line_of.emplace(spec->name, number);
    if (!is_new) {
      return Malformed(fmt::format(
          "{}: parameter {} was listed in line {} already; names are unique",
          where, Quoted(spec->name), seen->second));
    }
    list.params.push_back(*std::move(spec));
  }
  if (step) list.step = step->Take();
  return list;
}

std::string WriteTsvList(std::span<const ParamSpec> params,
                         const DeclaredStep& step) {
  std::string text;
  for (const ParamSpec& spec : params) {
    text += fmt::format("{}\t{}\t{}{}\n", spec.name, fmt::join(spec.shape, ","),
                        DTypeName(spec.dtype), UpdateText(spec));
  }
  text += fmt::format("\tstep\t{}\n", step.grads_in_place ? kReuse : kSeparate);
  const auto add = [&](std::string_view word, const std::vector<ParamId>& ids) {
    text += fmt::format("\t{}", word);
    for (const ParamId id : ids) {
      text += fmt::format("\t{}", params[id.index()].name);
    }
    text += '\n';
  };
  for (const ParamUse& use : step.uses) {
    add(kHold, use.hold);
    if (!use.grads.empty()) add(kGrads, use.grads);
  }
  return text;
}

Result<std::vector<ParamSpec>> ParseJsonList(std::string_view text) {
  ListHandler handler;
  CASTOR_RETURN_IF_ERROR(ReadStrictJson(text, handler));
  return handler.Take();
}

}  // namespace castor
