// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/quote.h"
#include "tools/cli/flags.h"
#include "tools/commands/ckpt/ckpt.h"
#include "tools/commands/registry.h"

namespace castor {
namespace {

constexpr char kFooter[] =
    R"(ACTION is
  ls       steps, sizes and tensors, from manifests alone
  verify   read every byte; exit code 3 where a file is missing or has other bytes, or an old
           checkpoint has no digest of its manifest
  convert  write the weights to the folder -o, as a plain model
  diff     which tensors of DIR and OTHER differ, by how much; exit code 3 where any does

DIR is a checkpoint, or the folder of a training. In a folder ls and verify go through all
checkpoints, convert and diff take the latest, and --step names one. convert takes a plain model
too: a .safetensors file, an *.index.json, or a folder of them as Hugging Face has it.

Examples:
  castor ckpt ls run
  castor ckpt verify run --step 20
  castor ckpt convert run -o model --dtype f32 --max-shard-size 2GB
  castor ckpt diff run/step-00000010 run/step-00000020 --json
)";

class CkptCommand final : public Command {
 public:
  std::string_view name() const override { return "ckpt"; }
  std::string_view summary() const override {
    return "what checkpoints hold: list, verify, convert, compare";
  }

  void Declare(CLI::App& app) override {
    AddPositional(app, "ACTION", &action_, "ls, verify, convert or diff");
    AddPositional(app, "DIR", &request_.directory,
                  "a checkpoint, or a folder of them");
    AddOptionalPositional(app, "OTHER", &request_.other,
                          "what diff compares DIR with");
    AddIntFlag(app, "--step", &request_.step, 0, INT32_MAX,
               "the checkpoint of this step");
    AddSwitch(app, "--tensors", &request_.tensors,
              "ls: a line for each tensor of the last checkpoint");
    AddTextFlag(app, "-o,--output", &request_.out, "convert: folder to make",
                "DIR");
    AddChoiceFlag(app, "--dtype", &dtype_, {"f32", "bf16", "f16"},
                  "convert: type of all weights (default: each as it is)");
    AddSizeFlag(app, "--max-shard-size", &max_file_,
                "convert: most bytes of a file (default 5GB)");
    AddSwitch(app, "--json", &json_, "print one JSON document");
    SetHelpFooter(app, kFooter);
  }

  Status Run(const Console& console) override {
    const struct {
      std::string name;
      Status (*run)(const CkptRequest&, const Console&);
    } actions[] = {{"ls", RunCkptList},
                   {"verify", RunCkptVerify},
                   {"convert", RunCkptConvert},
                   {"diff", RunCkptDiff}};
    std::vector<std::string> names;
    for (const auto& action : actions) {
      names.push_back(action.name);
      if (action_ != action.name) continue;
      CASTOR_RETURN_IF_ERROR(CheckFlags());
      if (!dtype_.empty()) request_.dtype = ParseDType(dtype_);
      request_.max_file = max_file_.value_or(kDefaultMaxFile);
      if (json_) request_.form = Form::kJson;
      return action.run(request_, console);
    }
    return InvalidArgument(fmt::format("unknown action {}{}", Quoted(action_),
                                       SuggestName(action_, names)));
  }

 private:
  Status CheckFlags() const {
    const struct {
      std::string_view flag;
      std::string_view action;
      bool given;
    } only[] = {{"--tensors", "ls", request_.tensors},
                {"-o", "convert", !request_.out.empty()},
                {"--dtype", "convert", !dtype_.empty()},
                {"--max-shard-size", "convert", max_file_.has_value()},
                {"OTHER", "diff", !request_.other.empty()}};
    for (const auto& each : only) {
      if (!each.given || action_ == each.action) continue;
      return InvalidArgument(fmt::format("{} is for {}, and this is {}",
                                         each.flag, each.action, action_));
    }
    if (action_ == "convert" && request_.out.empty()) {
      return InvalidArgument("convert needs -o DIR, a folder to make");
    }
    if (action_ == "diff" && request_.other.empty()) {
      return InvalidArgument("diff needs two checkpoints: DIR and OTHER");
    }
    if (max_file_.has_value() && *max_file_ <= Bytes(0)) {
      return InvalidArgument("--max-shard-size must be at least a byte");
    }
    return OkStatus();
  }

  CkptRequest request_;
  std::string action_;
  std::string dtype_;
  std::optional<Bytes> max_file_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCkptCommand() {
  return std::make_unique<CkptCommand>();
}

}  // namespace castor
