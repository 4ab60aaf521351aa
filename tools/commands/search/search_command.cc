// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <memory>
#include <ostream>
#include <string>

#include "tools/cli/json_out.h"
#include "tools/cli/text_table.h"
#include "tools/commands/registry.h"
#include "tools/commands/search/search_flags.h"
#include "tools/commands/search/search_json.h"
#include "tools/commands/search/search_plain.h"
#include "tools/commands/search/search_report.h"
#include "tools/commands/search/search_request.h"
#include "tools/commands/search/search_run.h"
#include "tools/commands/search/search_text.h"
#include "tools/commands/search/zoo_report.h"

namespace castor {
namespace {

ZooForm FormOfZoo(SearchRequest::Form form) {
  switch (form) {
    case SearchRequest::Form::kPage:
      return ZooForm::kPage;
    case SearchRequest::Form::kPlain:
      return ZooForm::kPlain;
    case SearchRequest::Form::kJson:
      return ZooForm::kJson;
  }
  return ZooForm::kPage;
}

class SearchCommand final : public Command {
 public:
  std::string_view name() const override { return "search"; }
  std::string_view summary() const override {
    return "which chunk size wastes least for a model, and the proof";
  }

  void Declare(CLI::App& app) override { DeclareSearchFlags(app, &flags_); }

  Status Run(const Console& console) override {
    CASTOR_ASSIGN_OR_RETURN(const SearchRequest request,
                            CheckSearchFlags(flags_));
    if (request.zoo) {
      return RunZoo(console, FormOfZoo(request.form), request.search);
    }
    CASTOR_ASSIGN_OR_RETURN(const SearchReport report,
                            RunSearch(request, console));
    Write(report, request.form, console);
    return OkStatus();
  }

 private:
  static void Write(const SearchReport& report, SearchRequest::Form form,
                    const Console& console) {
    switch (form) {
      case SearchRequest::Form::kPage:
        console.out << SearchText(
            report, console.colour ? Emphasis::kTerminal : Emphasis::kNone);
        break;
      case SearchRequest::Form::kPlain:
        console.out << SearchPlain(report);
        break;
      case SearchRequest::Form::kJson:
        WriteJson(SearchJson(report), console.out);
        break;
    }
  }

  SearchFlags flags_;
};

}  // namespace

std::unique_ptr<Command> MakeSearchCommand() {
  return std::make_unique<SearchCommand>();
}

}  // namespace castor
