// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/safetensors_header.h"

#include <cstdint>

namespace castor {

Result<SafetensorsHeader> ReadSafetensorsHeader(const InputFile& file) {
  return ReadSafetensorsHeader(file.path(), file.size(),
                               [&](uint64_t offset, uint64_t length) {
                                 return file.ReadAt(offset, length);
                               });
}

}  // namespace castor
