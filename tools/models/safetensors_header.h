// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_SAFETENSORS_HEADER_H_
#define CASTOR_TOOLS_MODELS_SAFETENSORS_HEADER_H_

// The header of somebody's safetensors file (chunk/safetensors_format.h).
// Thread-safe.

#include "chunk/base/status.h"
#include "chunk/safetensors_format.h"
#include "tools/models/input_file.h"

namespace castor {

// Reads 8 + N bytes of `file` at most. Malformed names the file and the tensor
// or byte. REQUIRES: file.is_regular().
Result<SafetensorsHeader> ReadSafetensorsHeader(const InputFile& file);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_SAFETENSORS_HEADER_H_
