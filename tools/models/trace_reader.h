// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_TRACE_READER_H_
#define CASTOR_TOOLS_MODELS_TRACE_READER_H_

// A step's trace in a file, for every command that takes or makes one. Pure
// functions of the file, thread-safe.

#include <string>

#include "chunk/base/status.h"
#include "placement/trace_file.h"

namespace castor {

// "-" is the standard input. InvalidArgument where nothing is at `path`,
// Malformed where it is no trace; both name `path`.
Result<TraceFile> ReadTraceFile(const std::string& path);

// Whole or not at all (tools/cli/atomic_file.h). REQUIRES: as WriteTrace.
Status WriteTraceFile(const std::string& path, const TraceFile& trace);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_TRACE_READER_H_
