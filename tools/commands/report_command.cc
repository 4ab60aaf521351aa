// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <langinfo.h>
#include <locale.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "tools/cli/document.h"
#include "tools/cli/flags.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/registry.h"
#include "tools/report/run_report.h"
#include "tools/report/run_times.h"

namespace castor {
namespace {

constexpr char kFooter[] =
    R"(FILE is what a run wrote with --record. One that was cut off is shown as far as it
can be read, with exit code 6.

Examples:
  castor report run.rec
  castor report run.rec --steps 2-30
  castor report run.rec --chrome run.json     (open it in https://ui.perfetto.dev)
  castor report run.rec --json
)";

// Whether the user's locale writes UTF-8.
bool WritesUtf8() {
  const locale_t locale = newlocale(LC_CTYPE_MASK, "", nullptr);
  if (locale == nullptr) return false;
  const bool utf8 = std::strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
  freelocale(locale);
  return utf8;
}

class ReportCommand final : public Command {
 public:
  std::string_view name() const override { return "report"; }
  std::string_view summary() const override {
    return "where chunks were in a recorded run, and who waited for what";
  }

  void Declare(CLI::App& app) override {
    AddPositional(app, "FILE", &request_.file, "the record of a run");
    AddIntFlag(app, "--step", &step_, 1, INT32_MAX, "look at this step only");
    AddTextFlag(app, "--steps", &steps_,
                "look at these steps only, for example 2-30");
    AddTextFlag(app, "--chrome", &request_.chrome,
                "also write a trace as Chrome JSON to this file");
    AddSwitch(app, "--json", &json_, "print one JSON document");
    AddSwitch(app, "--plain", &plain_, "print tab-separated lines");
    SetHelpFooter(app, kFooter);
  }

  Status Run(const Console& console) override {
    CASTOR_ASSIGN_OR_RETURN(request_.form, FormOf(json_, plain_));
    if (step_ > 0 && !steps_.empty()) {
      return InvalidArgument("--step and --steps exclude each other");
    }
    if (step_ > 0) steps_ = std::to_string(step_);
    if (!steps_.empty()) {
      CASTOR_ASSIGN_OR_RETURN(request_.steps, ParseStepRange(steps_));
    }
    if (console.out_is_terminal && WritesUtf8()) {
      request_.ink = StripInk::kBlocks;
    }
    return RunReport(request_, console);
  }

 private:
  ReportRequest request_;
  int64_t step_ = 0;  // 0: not given
  std::string steps_;
  bool json_ = false;
  bool plain_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeReportCommand() {
  return std::make_unique<ReportCommand>();
}

}  // namespace castor
