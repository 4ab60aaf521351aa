// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FILES_CASTOR_FILES_H_
#define CASTOR_TOOLS_MODELS_FILES_CASTOR_FILES_H_

// Layouts, machines and traces from a path, for every program that takes one;
// for plans see plan_reader.h. "-" is the standard input. InvalidArgument where
// nothing is at `path`, Malformed where it is no such file; both name `path`.
// Pure functions of the files, thread-safe.

#include <string>

#include "chunk/base/status.h"
#include "chunk/layout_file.h"
#include "placement/tier_model.h"
#include "placement/trace/trace_file.h"

namespace castor {

Result<LayoutFile> ReadLayoutFile(const std::string& path);

// A machine's speeds (placement/machine/tier_model_file.h).
Result<TierModel> ReadMachineFile(const std::string& path);

// A step's trace.
Result<TraceFile> ReadTraceFile(const std::string& path);

// Whole or not at all (tools/cli/atomic_file.h). REQUIRES: as WriteTrace.
Status WriteTraceFile(const std::string& path, const TraceFile& trace);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FILES_CASTOR_FILES_H_
