// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <vector>

#include "tools/cli/text/document.h"
#include "tools/commands/registry.h"
#include "tools/commands/search/search_document.h"
#include "tools/commands/search/search_run.h"
#include "tools/zoo/zoo.h"

namespace castor {
namespace {

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
      CASTOR_ASSIGN_OR_RETURN(const std::vector<ZooRow> rows,
                              SearchZoo(request.search));
      Print(ZooDocument(rows, request.search), request.form, console);
      return OkStatus();
    }
    CASTOR_ASSIGN_OR_RETURN(const SearchReport report,
                            RunSearch(request, console));
    Print(SearchDocument(report), request.form, console);
    return OkStatus();
  }

 private:
  SearchFlags flags_;
};

}  // namespace

std::unique_ptr<Command> MakeSearchCommand() {
  return std::make_unique<SearchCommand>();
}

}  // namespace castor
