// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/flags.h"
#include "tools/commands/search/search_request.h"

namespace castor {
namespace {

constexpr int64_t kMaxWorld = 1 << 20;
constexpr int64_t kMaxAlign = int64_t{1} << 30;
constexpr int64_t kMaxPrefetchDepth = 1024;

constexpr char kFooter[] =
    R"(MODEL is a folder with .safetensors files or a config.json, one such file, a
*.safetensors.index.json, ORG/NAME or ORG/NAME@REVISION of a model in the
Hugging Face cache of this machine, or a list: lines name<TAB>d0,d1,...<TAB>DTYPE,
or JSON [{"name":"w","shape":[2,3],"dtype":"BF16"}]. Only headers are read, never
weights, and nothing is read online.

A PATTERN of --freeze and --only is matched with whole names: * stands for any
characters, dots too, ? for one, [a-z] for one of a set. Both may be repeated.

SIZE is 24GiB (2^30), 24GB (10^9), 1.5GiB, 512KiB or bytes.

Modes: uniform is one size from --min to --max; layer the sizes that hold one repeat
of a layer in 1 to 8 chunks.

SPEED is 24GB/s or 22GiB/s, with a comma and the latency of one transfer where it
counts: 24GB/s,10us. A castor.machine/1 file has them all.

Examples:
  castor search ./Llama-3-8B --world 8
  castor search config.json --dtype bf16 --device-budget 8GiB
  castor search model.safetensors --explain --json
  castor search config.json --h2d 24GB/s,10us --d2h 24GB/s,10us
  castor search config.json --world 8 -o layout.json
  castor search meta-llama/Llama-3.1-8B --freeze '*embed_tokens*' --freeze 'lm_head.*'
  castor search ./lora --only '*.lora_[AB].*'
  castor search - --order file < list.tsv
)";

}  // namespace

void DeclareSearchFlags(CLI::App& app, SearchFlags* flags) {
  AddOptionalPositional(app, "MODEL", &flags->model,
                        "what to read: see below; - is a list on stdin");
  AddSwitch(app, "--zoo", &flags->zoo,
            "search public models that Castor knows, instead of MODEL");
  AddSizeFlag(app, "--min", &flags->min, "least chunk size (32MiB)");
  AddSizeFlag(app, "--max", &flags->max, "largest chunk size (512MiB)");
  AddIntFlag(app, "--world", &flags->world, 1, kMaxWorld,
             "ranks that share a chunk (1)");
  AddIntFlag(app, "--align", &flags->align, 64, kMaxAlign,
             "parameters start at multiples of N elements (64)");
  AddTextFlag(app, "--dtype", &flags->dtype,
              "type of every parameter, for example bf16 (the model's own)");
  AddChoiceFlag(app, "--mode", &flags->mode, {"uniform", "layer", "all"},
                "how sizes are chosen: see below (all)");
  RefuseFlag(app, "--classes",
             "all chunks of a group have one size; use --mode uniform or "
             "--mode layer");
  AddIntFlag(app, "--prefetch-depth", &flags->prefetch_depth, 0,
             kMaxPrefetchDepth,
             "chunks gathered ahead of use, on top of two (1)");
  AddSizeFlag(app, "--device-budget", &flags->device_budget,
              "recommend only what fits these bytes");
  AddChoiceFlag(app, "--order", &flags->order,
                {"family", "file", "natural", "trace"},
                "order of packing (family where known, else natural)");
  AddTextFlag(app, "--trace", &flags->trace,
              "step whose first uses are the order, with --order trace",
              "FILE");
  AddChoiceFlag(app, "--expert-layout", &flags->expert_layout,
                {"fused", "per-expert"},
                "how the trainer holds experts (both are searched)");
  AddTextListFlag(app, "--freeze", &flags->freeze,
                  "PATTERN of names that are not trained; repeatable");
  AddTextListFlag(app, "--only", &flags->only,
                  "PATTERN of names that alone are trained; repeatable");
  AddSizeFlag(app, "--chunk", &flags->chunk, "also look at this chunk size");
  AddSwitch(app, "--explain", &flags->explain,
            "say by cause and by chunk where the waste is");
  AddTextFlag(app, "-o,--output", &flags->output,
              "write the layout to this file", "FILE");
  AddChoiceFlag(app, "--pick", &flags->pick, {"recommended", "best"},
                "what to write and explain (recommended, or --chunk)");
  AddChoiceFlag(app, "--rule", &flags->rule,
                {"gemini", "patrickstar", "elixir", "all"},
                "what the rules of other systems pick");
  AddTextFlag(app, "--machine", &flags->machine,
              "speeds of this machine's links, for modelled times", "FILE");
  AddTextFlag(app, "--h2d", &flags->h2d, "host to device", "SPEED");
  AddTextFlag(app, "--d2h", &flags->d2h, "device to host", "SPEED");
  AddTextFlag(app, "--all-gather", &flags->all_gather,
              "bus bandwidth between ranks", "SPEED");
  AddTextFlag(app, "--reduce-scatter", &flags->reduce_scatter,
              "the same for gradients", "SPEED");
  AddSwitch(app, "--json", &flags->json, "print one JSON document");
  AddSwitch(app, "--plain", &flags->plain, "print tab-separated lines");
  SetHelpFooter(app, kFooter);
}

}  // namespace castor
