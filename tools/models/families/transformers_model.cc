// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/families/transformers_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/quote.h"
#include "tools/models/families/transformers_script.h"

namespace castor {
namespace {

// Takes lines off the beginning of an answer.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  bool empty() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  // The fields of the next line, one at least.
  std::vector<std::string> Next() {
    const std::string_view line = Take(&rest_, '\n');
    std::vector<std::string> fields;
    for (std::string_view left = line; fields.empty() || !left.empty();) {
      fields.emplace_back(Take(&left, '\t'));
    }
    return fields;
  }

 private:
  static std::string_view Take(std::string_view* text, char end) {
    const size_t at = text->find(end);
    const std::string_view taken = text->substr(0, at);
    text->remove_prefix(at == text->npos ? text->size() : at + 1);
    return taken;
  }

  std::string_view rest_;
};

// A line of another program, whose middle may matter: as much as of a path.
std::string QuotedWhole(std::string_view line) { return QuotedPath(line); }

// `python`'s answer to the script, or why there is none.
Result<std::string> Ask(std::string_view json, const std::string& python,
                        const ProgramLimits& limits) {
  ProgramAnswer answer = RunBounded(
      {python, "-c", std::string(kTransformersScript)}, json, limits);
  switch (answer.end) {
    case ProgramEnd::kNotStarted:
      return Unavailable(fmt::format(
          "{} cannot be started: {}; name a Python that has torch and "
          "transformers by --python",
          QuotedPath(python), answer.refused));
    case ProgramEnd::kTooLong:
      return Unavailable(fmt::format(
          "{} did not answer within {} s, and was stopped; try again when the "
          "machine is less busy",
          QuotedPath(python),
          std::chrono::duration<double>(limits.time).count()));
    case ProgramEnd::kTooMuch:
      return Unavailable(
          fmt::format("{} answered with more than {} bytes, and was stopped",
                      QuotedPath(python), limits.output_bytes));
    case ProgramEnd::kExited:
      break;
  }
  if (answer.exit_code == 0) return std::move(answer.output);
  return Unavailable(fmt::format(
      "{} ended with {}{}", QuotedPath(python),
      answer.exit_code < 0 ? "a signal"
                           : fmt::format("code {}", answer.exit_code),
      answer.last_said.empty() ? "" : ": " + QuotedWhole(answer.last_said)));
}

Status NoAnswer(const std::string& python, std::string_view why) {
  return Unavailable(fmt::format("{} gave no answer that Castor reads: {}",
                                 QuotedPath(python), why));
}

// Neither side knows the family; `lines` are the library's.
Status UnknownFamily(const std::string& model_type, std::string_view library,
                     Lines lines) {
  std::vector<std::string> known = KnownFamilies();
  while (!lines.empty()) known.push_back(lines.Next().front());
  const std::optional<std::string> nearest = NearestName(model_type, known);
  return InvalidArgument(
      fmt::format("{} does not know it either{}", library,
                  nearest ? fmt::format("; did you mean {}?", *nearest) : ""));
}

// What follows a first line that promises a list.
Status ReadList(Lines lines, FamilyModel* model) {
  while (!lines.empty()) {
    std::vector<std::string> fields = lines.Next();
    if (fields.size() == 1 && fields[0].empty()) break;
    if (fields.size() != 3 || fields[0] != "tied") {
      return Malformed(
          fmt::format("a line begins with {}", Quoted(fields.front())));
    }
    model->tied.push_back({std::move(fields[1]), std::move(fields[2])});
  }
  CASTOR_ASSIGN_OR_RETURN(ParamList list, ParseTsvList(lines.rest()));
  if (list.params.empty()) return Malformed("the list is empty");
  model->params = std::move(list.params);
  return OkStatus();
}

}  // namespace

Result<FamilyModel> AskTransformers(std::string_view json,
                                    const ConfigValues& config,
                                    const std::string& python,
                                    const ProgramLimits& limits) {
  const ConfigValues whole = config.Whole();
  FamilyModel model;
  CASTOR_ASSIGN_OR_RETURN(model.family, whole.model_type());
  CASTOR_ASSIGN_OR_RETURN(const std::string architecture, whole.architecture());
  CASTOR_ASSIGN_OR_RETURN(const DType dtype, config.dtype());
  CASTOR_ASSIGN_OR_RETURN(const std::string answer, Ask(json, python, limits));
  Lines lines(answer);
  const std::vector<std::string> first = lines.Next();
  if (first[0] == "missing" && first.size() == 2) {
    return Unavailable(
        fmt::format("{} has no {} to ask; install torch and transformers "
                    "there, name a Python that has them by --python",
                    QuotedPath(python), Quoted(first[1])));
  }
  if (first.size() < 2) return NoAnswer(python, "its first line is no such");
  model.library = "transformers " + first[1];
  if (first[0] == "unknown") {
    return UnknownFamily(model.family, model.library, lines);
  }
  if (first[0] == "refused" && first.size() == 3) {
    return Malformed(fmt::format("{} makes no model of it: {}", model.library,
                                 QuotedWhole(first[2])));
  }
  if (first[0] != "list" || first.size() < 3) {
    return NoAnswer(python, "its first line is no such");
  }
  if (Status status = ReadList(lines, &model); !status.ok()) {
    return NoAnswer(python, status.message());
  }
  if (first.size() > 3) model.base_prefix = first[3];
  for (ParamSpec& spec : model.params) spec.dtype = dtype;
  model.quantized = config.quantized();
  model.notes.push_back(
      fmt::format("the parameters are those that {} registers for {}, as {}",
                  model.library, model.family, first[2]));
  if (!architecture.empty() && architecture != first[2]) {
    model.notes.push_back(
        fmt::format("the config names the architecture {}, which {} does not "
                    "have for {}",
                    Quoted(architecture), model.library, model.family));
  }
  // What is no truth value to Castor may be one to the library.
  const Result<bool> ties = whole.BoolOrNull("tie_word_embeddings", true);
  // Of a model with an encoder, embeddings are one tensor whatever it says.
  const auto head = std::find_if(
      model.tied.begin(), model.tied.end(), [](const TiedName& each) {
        return each.name.find("head") != each.name.npos;
      });
  if (ties.ok() && !*ties && head != model.tied.end()) {
    model.notes.push_back(
        fmt::format("the config says tie_word_embeddings false, and {} has {} "
                    "tied to {} all the same",
                    model.library, head->name, head->to));
  }
  return model;
}

}  // namespace castor
