// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/trace_reader.h"

#include "chunk/base/quote.h"
#include "tools/cli/atomic_file.h"
#include "tools/models/input_file.h"

namespace castor {

Result<TraceFile> ReadTraceFile(const std::string& path) {
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  CASTOR_ASSIGN_OR_RETURN(const std::string text, file.ReadAll(kMaxTraceBytes));
  Result<TraceFile> trace = ParseTrace(text);
  if (!trace.ok()) return trace.status().WithContext(QuotedPath(path));
  return trace;
}

Status WriteTraceFile(const std::string& path, const TraceFile& trace) {
  return WriteFileAtomically(path, WriteTrace(trace));
}

}  // namespace castor
