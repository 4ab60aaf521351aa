// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/page/page.h"

#include <string_view>

#include "chunk/base/check.h"
#include "tools/report/page/page_files.h"

namespace castor {
namespace {

// JSON in a script element: nothing in it may look like the element's end, or
// like a comment's begin.
std::string InScript(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

void Replace(std::string_view mark, std::string_view by, std::string* page) {
  const size_t at = page->find(mark);
  CASTOR_CHECK(at != std::string::npos);
  page->replace(at, mark.size(), by);
}

std::string Page(std::string_view command, std::string_view sections,
                 std::string_view drawing, const JsonValue& document) {
  std::string scripts = "/*\n";
  scripts += kD3Licence;
  scripts += "*/\n";
  for (const std::string_view part :
       {kD3, kCommonScript, drawing, kMainScript}) {
    scripts += part;
  }
  std::string page(kPageHtml);
  // What comes last in the page goes first: a document may hold any text.
  Replace("@SCRIPTS@", scripts, &page);
  Replace("@COMMAND@", command, &page);
  Replace("@SECTIONS@", sections, &page);
  Replace("@STYLE@", kPageStyle, &page);
  Replace("@DOCUMENT@", InScript(document.Dump()), &page);
  return page;
}

}  // namespace

std::string RunPage(const JsonValue& document) {
  return Page("castor report", kRunSections, kRunScripts, document);
}

std::string PlanPage(const JsonValue& document) {
  return Page("castor plan", kPlanSections, kPlanScripts, document);
}

}  // namespace castor
