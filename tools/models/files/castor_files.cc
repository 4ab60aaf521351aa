// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/castor_files.h"

#include "placement/machine/tier_model_file.h"
#include "tools/cli/atomic_file.h"
#include "tools/models/files/input_file.h"

namespace castor {

Result<LayoutFile> ReadLayoutFile(const std::string& path) {
  return ParseFile(path, kMaxLayoutBytes, ParseLayout);
}

Result<TierModel> ReadMachineFile(const std::string& path) {
  return ParseFile(path, kMaxTierModelBytes, ParseTierModel);
}

Result<TraceFile> ReadTraceFile(const std::string& path) {
  return ParseFile(path, kMaxTraceBytes, ParseTrace);
}

Status WriteTraceFile(const std::string& path, const TraceFile& trace) {
  return WriteFileAtomically(path, WriteTrace(trace));
}

}  // namespace castor
