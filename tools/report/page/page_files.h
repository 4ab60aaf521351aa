// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_PAGE_PAGE_FILES_H_
#define CASTOR_TOOLS_REPORT_PAGE_PAGE_FILES_H_

// The files of this folder and d3, as the build puts them into the program.

#include <string_view>

namespace castor {

extern const std::string_view kPageHtml;
extern const std::string_view kPageStyle;
extern const std::string_view kRunSections;
extern const std::string_view kPlanSections;
// In the order in which they run; kMainScript last.
extern const std::string_view kCommonScript;
extern const std::string_view kRunScripts;
extern const std::string_view kPlanScripts;
extern const std::string_view kMainScript;
extern const std::string_view kD3;
extern const std::string_view kD3Licence;

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_PAGE_PAGE_FILES_H_
