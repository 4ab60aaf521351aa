// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/machine_reader.h"

#include "chunk/base/quote.h"
#include "placement/tier_model_file.h"
#include "tools/models/input_file.h"

namespace castor {

Result<TierModel> ReadMachineFile(const std::string& path) {
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  CASTOR_ASSIGN_OR_RETURN(const std::string text,
                          file.ReadAll(kMaxTierModelBytes));
  Result<TierModel> machine = ParseTierModel(text);
  if (!machine.ok()) return machine.status().WithContext(QuotedPath(path));
  return machine;
}

}  // namespace castor
