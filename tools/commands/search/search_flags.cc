// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/layout/tensor_fields.h"
#include "tools/cli/bounded_program.h"
#include "tools/cli/flags.h"
#include "tools/cli/text/command_text.h"
#include "tools/commands/search/search_run.h"

namespace castor {
namespace {

constexpr char kFooter[] =
    R"(MODEL is one of these. Castor reads headers only, never weights, and nothing online.
  a folder     with .safetensors files or a config.json
  a file       .safetensors, *.safetensors.index.json or config.json
  a name       ORG/NAME or ORG/NAME@REVISION of a model in this machine's Hugging Face cache
  a list       lines name<TAB>d0,d1,...<TAB>DTYPE, and <TAB>whole for what its optimizer updates
               as a whole; or JSON [{"name":"w","shape":[2,3],"dtype":"BF16"}]

Of a config.json of a family that Castor does not know, it asks the transformers library of a
Python: the one of --python, else the wheel's, else python3. Models' own code is never run.

A PATTERN of --freeze and --only matches whole names. * stands for any characters, dots too, ?
for one, [a-z] for one of a set. Both flags may be repeated.

SIZE is 24GiB (2^30), 24GB (10^9), 1.5GiB, 512KiB or bytes.

Modes: uniform is one size from --min to --max. layer has the sizes that hold one repeat of a
layer in 1 to 8 chunks; they are recommended from 8MiB, or --min if less, to --max.

Castor recommends the smallest chunk that wastes at most 1 % of the model more than the best, or
one up to a quarter larger that wastes less. castor plan and a training take the same size where
that fits. The bounds leave a model of 160MiB or more about 16 chunks.

SPEED is 24GB/s or 22GiB/s. A comma and the latency of one transfer may follow: 24GB/s,10us. A
castor.machine/1 file has all speeds.

Examples:
  castor search ./Llama-3-8B --world 8
  castor search config.json --dtype bf16 --device-budget 8GiB
  castor search model.safetensors --explain --json
  castor search config.json --h2d 24GB/s,10us --d2h 24GB/s,10us
  castor search config.json --world 8 -o layout.json
  castor search meta-llama/Llama-3.1-8B --freeze '*embed_tokens*' --freeze 'lm_head.*'
  castor search ./lora --only '*.lora_[AB].*'
  castor search - < list.tsv
)";

bool IsGiven(const SearchFlags& flags, std::string_view flag) {
  return std::find(flags.given.begin(), flags.given.end(), flag) !=
         flags.given.end();
}

// A model is given, or the zoo and nothing that is for one model.
Status CheckModel(const SearchFlags& flags) {
  const SearchRequest& request = flags.request;
  if (!request.zoo) {
    if (!request.model.empty()) return OkStatus();
    return InvalidArgument(
        "MODEL is missing (flags and values: castor search --help)");
  }
  if (!request.model.empty()) {
    return InvalidArgument(
        "--zoo searches models that Castor knows; leave out MODEL");
  }
  constexpr std::string_view kForZoo[] = {"--zoo",      "--min",   "--max",
                                          "--world",    "--align", "--mode",
                                          "--prefetch", "--json",  "--plain"};
  if (std::all_of(
          flags.given.begin(), flags.given.end(), [&](const std::string& flag) {
            return std::find(std::begin(kForZoo), std::end(kForZoo), flag) !=
                   std::end(kForZoo);
          })) {
    return OkStatus();
  }
  return InvalidArgument(
      "--zoo takes --min, --max, --world, --align, --mode, "
      "--prefetch, --json and --plain; the other flags are for one "
      "MODEL");
}

Status CheckTogether(const SearchFlags& flags) {
  CASTOR_RETURN_IF_ERROR(CheckModel(flags));
  const SearchRequest& request = flags.request;
  const std::string& trace = request.read.trace_file;
  if ((request.read.order == ParamOrder::kTrace) != !trace.empty()) {
    return InvalidArgument(
        trace.empty()
            ? "--order trace needs the trace of a step: give --trace FILE, as "
              "train_gpt --trace FILE records it"
            : "--trace is for --order trace: give both or neither");
  }
  if (trace == "-" && request.model == "-") {
    return InvalidArgument(
        "MODEL and --trace cannot both be the standard input: give one of them "
        "as a file");
  }
  if (!IsGiven(flags, "--pick")) return OkStatus();
  if (request.chunk) {
    return InvalidArgument(
        "--pick and --chunk each say what is written and explained; give one "
        "of them");
  }
  if (request.output.empty() && !request.explain) {
    return InvalidArgument(fmt::format(
        "--pick {} says what -o writes and --explain explains; give one of "
        "those too",
        ChoicePickName(request.pick)));
  }
  return OkStatus();
}

// What is searched for.
OptionTable SearchedTable(SearchFlags* flags) {
  SearchRequest* const r = &flags->request;
  OptionTable t;
  t.Switch("", &r->zoo)
      .Flag("--zoo",
            "search public models that Castor knows, instead of MODEL");
  t.Add(SearchRows(&flags->search));
  t.Text("", &flags->dtype)
      .Flag("--dtype",
            "type of every parameter, for example bf16 (the model's own)");
  t.Choice("", &r->read.order, ParamOrderName,
           {ParamOrder::kFamily, ParamOrder::kFile, ParamOrder::kNatural,
            ParamOrder::kTrace})
      .Flag("--order",
            "order of packing (a list: file; else family where known, else "
            "natural)");
  t.Text("", &r->read.trace_file)
      .Form("FILE")
      .Flag("--trace",
            "step whose first uses are the order, with --order trace");
  t.Choice("", &r->read.expert_layout, ExpertLayoutName,
           {ExpertLayout::kFused, ExpertLayout::kPerExpert})
      .Flag("--expert-layout",
            "how the trainer holds experts (both are searched)");
  t.Text("", &r->read.python)
      .Form("PYTHON")
      .Flag("--python",
            "whose transformers library tells families that Castor does not "
            "know (the wheel's, else python3)");
  t.Texts(&r->read.freeze)
      .Flag("--freeze", "PATTERN of names that are not trained; repeatable");
  t.Texts(&r->read.only)
      .Flag("--only", "PATTERN of names that alone are trained; repeatable");
  t.Size("", &r->chunk).Flag("--chunk", "also look at this chunk size");
  t.Text("", &r->machine_file)
      .Form("FILE")
      .Flag("--machine", "speeds of this machine's links, for modelled times");
  return t;
}

}  // namespace

std::string_view ChoicePickName(ChoicePick pick) {
  switch (pick) {
    case ChoicePick::kRecommended:
      return "recommended";
    case ChoicePick::kBest:
      return "best";
    case ChoicePick::kChunk:
      return "chunk";
  }
  return "unknown";
}

std::string_view ChoicePickText(ChoicePick pick) {
  return pick == ChoicePick::kChunk ? "--chunk" : ChoicePickName(pick);
}

void DeclareSearchFlags(CLI::App& app, SearchFlags* flags) {
  SearchRequest* const r = &flags->request;
  AddOptionalPositional(app, "MODEL", &r->model,
                        "what to read: see below; - is a list on stdin");
  OptionTable t = SearchedTable(flags);
  t.Switch("", &r->explain)
      .Flag("--explain", "say by cause and by chunk where the waste is");
  t.Text("", &r->output)
      .Form("FILE")
      .Flag("-o,--output", "write the layout to this file");
  t.Choice("", &r->pick, ChoicePickName,
           {ChoicePick::kRecommended, ChoicePick::kBest})
      .Flag("--pick", "what to write and explain (recommended, or --chunk)");
  t.Switch("", &flags->json).Flag("--json", "print one JSON document");
  t.Switch("", &flags->plain).Flag("--plain", "print tab-separated lines");
  for (Option row : t.rows()) {
    DeclareOption(app, row.Default(""), &flags->given);
  }
  SetHelpFooter(app, kFooter);
}

Result<SearchRequest> CheckSearchFlags(const SearchFlags& flags) {
  CASTOR_RETURN_IF_ERROR(CheckTogether(flags));
  SearchRequest request = flags.request;
  SearchFlags own = flags;
  SearchFlags usual;
  request.flags = GivenFlagsText(SearchedTable(&own), SearchedTable(&usual));
  request.read.python = PythonToAsk(request.read.python);
  CASTOR_ASSIGN_OR_RETURN(request.form, FormOf(flags.json, flags.plain));
  if (!flags.dtype.empty()) {
    const Result<DType> dtype = ReadDType(flags.dtype, DTypeSpelling::kLenient);
    if (!dtype.ok()) {
      return InvalidArgument(
          fmt::format("--dtype: {}", dtype.status().message()));
    }
    request.read.dtype = *dtype;
  }
  CASTOR_ASSIGN_OR_RETURN(
      request.search, CheckSearchWords(flags.search, OptionSpelling::kFlag));
  request.rule_asked_for = !flags.search.rule.empty();
  if (request.chunk) request.pick = ChoicePick::kChunk;
  return request;
}

}  // namespace castor
