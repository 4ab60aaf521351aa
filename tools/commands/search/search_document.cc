// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/size_family.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "tools/cli/text/text_forms.h"

namespace castor {
namespace {

constexpr size_t kLeastRows = 2;  // the best and the recommended one
constexpr size_t kMostRows = 10;  // more do not help to choose

std::string_view OrderMeaning(ParamOrder order) {
  switch (order) {
    case ParamOrder::kFamily:
      return "as the reference code registers them";
    case ParamOrder::kFile:
      return "as the file has them";
    case ParamOrder::kNatural:
      return "by name, numbers as numbers";
    case ParamOrder::kTrace:
      return "as the step of --trace first used them, by your choice";
  }
  return "";
}

std::string_view ExpertsMeaning(ExpertLayout layout) {
  return layout == ExpertLayout::kFused ? "a tensor for all of a layer"
                                        : "a tensor for each";
}

void SayModel(const SearchReport& report, Document* doc) {
  const ModelList& model = report.model;
  const SearchTotals totals = TotalsOf(report.result);
  const auto& groups = report.result.groups;
  doc->Say("Model",
           fmt::format(
               "{}: {}{}, {}, {}{}", Shown(model.name),
               model.family.empty() ? "" : model.family + ", ",
               Plural(std::ssize(model.params), "tensor"),
               Plural(totals.elements, "parameter"), FormatSize(totals.bytes),
               groups.size() == 1
                   ? fmt::format(" of {}", DTypeName(groups.front().dtype))
                   : ""));
  doc->Say("Read from",
           fmt::format("{} (no weights read)", Shown(model.source)));
  doc->Say("Order",
           fmt::format("{}: parameters are packed {}",
                       ParamOrderName(model.order), OrderMeaning(model.order)));
  // A line for each reason, with an example.
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const DroppedTensor& tensor : model.dropped) {
    by_reason[tensor.reason].push_back(tensor.name);
  }
  for (const auto& [reason, names] : by_reason) {
    doc->Say("Left out",
             fmt::format("{} ({}): {}{}", Plural(std::ssize(names), "tensor"),
                         reason, Quoted(names.front()),
                         names.size() > 1 ? ", ..." : ""));
  }
}

// What parameters that stay whole ask of the chunk size.
void SayWhole(const SearchReport& report, Document* doc) {
  const PackOptions& pack = report.search.pack;
  const Result<std::vector<SizeFamily>> families =
      SizeFamilies(report.model.params, pack);
  CASTOR_CHECK(families.ok());  // the search had them
  for (const SizeFamily& family : *families) {
    if (family.whole == 0) continue;
    doc->Say("Whole",
             fmt::format("{} of {} that no border between {} shards may cut: "
                         "chunks of {} at least",
                         Plural(family.whole, "parameter"),
                         DTypeName(family.dtype), pack.shards,
                         FormatSize(BytesOf(family.least, family.dtype))));
  }
}

void SayOptions(const SearchOptions& options, Document* doc) {
  const PackOptions& pack = options.pack;
  const Elements quantum = ChunkQuantum(pack.world);
  doc->Say("Chunks",
           fmt::format("{} to {}, multiples of {} elements ({}), aligned to "
                       "{}, {} gathered",
                       FormatSize(options.min_chunk),
                       FormatSize(options.max_chunk), Grouped(quantum.count()),
                       Plural(pack.world, "rank"), Grouped(pack.align.count()),
                       Grouped(options.gathered_slots)));
}

SearchedModel ModelOf(const SearchReport& report) {
  const ModelList& model = report.model;
  return {.name = model.name,
          .family = model.family,
          .source = model.source,
          .order = ParamOrderName(model.order),
          .tensors = std::ssize(model.params),
          .dropped = ListOf(model.dropped, [](const DroppedTensor& tensor) {
            return Fields({{"name", tensor.name}, {"reason", tensor.reason}});
          })};
}

// "uniform, 416MiB (218,103,808 elements of BF16), 34 chunks"
std::string ChoiceText(const ChunkSizeCandidate& chosen, DType dtype) {
  std::string text = fmt::format(
      "{}, {} ({} elements of {}), {}", SearchModeName(chosen.mode),
      FormatSizeExact(chosen.chunk_bytes), Grouped(chosen.chunk_size.count()),
      DTypeName(dtype), Plural(chosen.chunks, "chunk"));
  if (chosen.oversize_chunks == 0) return text;
  return text +
         fmt::format(
             "; {} larger than that {} of its own, {} of the bytes",
             Plural(chosen.oversize_chunks, "parameter"),
             chosen.oversize_chunks == 1 ? "has a chunk" : "have each a chunk",
             Value::Share(chosen.oversize_allocated.count(),
                          chosen.allocated.count())
                 .Page());
}

// A section of the page for each group. `rows` of candidates are shown.
void SayGroups(const SearchReport& report, bool brief, size_t rows,
               Document* doc) {
  const auto& groups = report.result.groups;
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupSearchResult& group = groups[g];
    if (g > 0) doc->Gap();
    if (groups.size() > 1) {
      doc->Say(
          "Group",
          fmt::format("{}: {}, {}", GroupName(group),
                      Plural(group.params, "tensor"),
                      FormatSize(BytesToHold(group.payload, group.dtype))));
    }
    const int64_t left_out = AddCandidates(report, g, rows, doc);
    if (left_out > 0) {
      doc->Say("Not shown", fmt::format("{}: --plain or --json",
                                        Plural(left_out, "more chunk size")));
    }
    doc->Say("Recommended", ChoiceText(group.recommended, group.dtype));
    SayProofs(group, report.search.pack, brief, doc);
  }
}

void SayExperts(const SearchReport& report, std::string_view remark,
                size_t rows, Document* doc) {
  doc->Gap();
  doc->Say("Experts",
           fmt::format("{} ({}){}", ExpertLayoutName(*report.experts),
                       ExpertsMeaning(*report.experts), remark));
  SayGroups(report, /*brief=*/true, rows, doc);
}

std::string NextText(const SearchReport& report) {
  const std::string next =
      fmt::format("castor search {}{}", ShellWord(report.request.model),
                  report.request.flags);
  if (!report.request.output.empty())
    return next + " --explain   where the waste is";
  if (!report.search.device_budget) {
    return next + " --device-budget 8GiB   what fits a device";
  }
  return fmt::format("{}{} -o layout.json   where every parameter lies", next,
                     report.other_layouts.empty()
                         ? ""
                         : fmt::format(" --expert-layout {}",
                                       ExpertLayoutName(*report.experts)));
}

// What holds for all groups.
void SayClosing(const SearchReport& report, Document* doc) {
  if (report.result.groups.size() > 1) {
    const SearchTotals totals =
        TotalsOf(report.result, &GroupSearchResult::recommended);
    doc->Gap();
    doc->Say(
        "All groups",
        fmt::format("{} as recommended, {} wasted, {} gathered",
                    Plural(totals.chunks, "chunk"), FormatSize(totals.waste),
                    FormatSize(totals.gathered)));
  }
  doc->Say("Rule", report.result.recommended_rule);
  SayMachine(report, doc);
  SayRule(report, doc);
  if (!report.request.output.empty()) {
    doc->Say("Written",
             fmt::format("{}: the layout of {}", Shown(report.request.output),
                         ChoicePickText(report.request.pick)));
  }
  doc->SayUnbroken("Next", NextText(report));
}

Document DocumentOf(const SearchReport& report, size_t rows) {
  Document doc;
  const JsonValue json = SearchJson(ModelOf(report), report.findings());
  for (const std::string& key : json.keys()) doc.Set(key, json[key]);
  SayModel(report, &doc);
  SayOptions(report.search, &doc);
  SayWhole(report, &doc);
  doc.Gap();
  doc.Add(AllCandidates(report), Form::kPlain);
  if (report.result.groups.empty()) {
    doc.Text("The model has no parameters, so there is nothing to pack.\n");
  } else if (report.other_layouts.empty()) {
    SayGroups(report, report.result.groups.size() > 1, rows, &doc);
  } else {
    SayExperts(report, ", as in the model", rows, &doc);
    for (const SearchReport& other : report.other_layouts) {
      SayExperts(other, "", rows, &doc);
    }
  }
  if (report.choice) {
    JsonValue choice = Fields(
        {{"pick", ChoicePickName(report.request.pick)},
         {"candidate", ChosenJson(report.findings(), report.choice->groups)}});
    if (!report.request.output.empty())
      choice["output"] = report.request.output;
    doc.Set("choice", choice);
    if (report.request.explain) doc.Add("explain", ExplainDocument(report));
  }
  if (!report.other_layouts.empty()) {
    JsonValue layouts;
    const auto add = [&layouts](const SearchReport& one) {
      layouts[ExpertLayoutName(*one.experts)] =
          SearchedJson(ModelOf(one), one.findings());
    };
    add(report);
    for (const SearchReport& other : report.other_layouts) add(other);
    doc.Set("expert_layouts", layouts);
  }
  if (!report.result.groups.empty()) SayClosing(report, &doc);
  return doc;
}

}  // namespace

Document SearchDocument(const SearchReport& report) {
  // What is left of the screen is for more rows.
  Document least = DocumentOf(report, kLeastRows);
  const std::string page = least.Page();
  const auto lines =
      static_cast<size_t>(std::count(page.begin(), page.end(), '\n'));
  size_t sections = report.result.groups.size();
  for (const SearchReport& other : report.other_layouts) {
    sections += other.result.groups.size();
  }
  if (sections == 0) return least;
  const size_t spare = kPageLines - std::min(kPageLines, lines);
  return DocumentOf(report, std::min(kMostRows, kLeastRows + spare / sections));
}

}  // namespace castor
