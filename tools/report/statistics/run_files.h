// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_STATISTICS_RUN_FILES_H_
#define CASTOR_TOOLS_REPORT_STATISTICS_RUN_FILES_H_

// Ranks that are processes record a file each, RUN.0, RUN.1 and so on: read as
// one record under the name RUN. Pure functions but for the files, thread-safe.

#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "offload/record/record_reader.h"

namespace castor {

// `path` itself where there is such a file; else path.0, path.1 and so on as
// far as there are; else `path`.
std::vector<std::string> RecordFilesOf(const std::string& path);

// What all of them hold together, which is not complete where one of them is
// not. InvalidArgument, naming two files, where they are of other worlds, of
// one rank, or of hosts whose clocks differ. Fails as ReadRecord.
Result<RunRecord> ReadRun(const std::string& path);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_STATISTICS_RUN_FILES_H_
