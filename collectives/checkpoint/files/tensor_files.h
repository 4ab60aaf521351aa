// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_FILES_TENSOR_FILES_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_FILES_TENSOR_FILES_H_

// Which safetensors files hold which tensors, and at which bytes, before any of
// them is written: it depends on the tensors only, so all ranks find the same,
// and a model's files are the same bytes whatever it was trained on. One file
// is STEM.safetensors; several are STEM-00001-of-00003.safetensors and so on,
// with STEM.safetensors.index.json, as Hugging Face names and reads them. Pure
// functions, thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"

namespace castor {

// What Hugging Face takes for one file.
inline constexpr Bytes kDefaultMaxFile{5'000'000'000};

struct TensorFile {
  std::string name;
  std::string head;  // all bytes before the data
  uint64_t bytes = 0;
  // Indices of its tensors, in the order of their data.
  std::vector<size_t> tensors;
};

struct TensorPlace {
  size_t file = 0;      // index into `files`
  uint64_t offset = 0;  // in the file
};

struct TensorFiles {
  std::vector<TensorFile> files;
  std::vector<TensorPlace> places;  // by index of the tensor
  // Of several files; both empty where there is one.
  std::string index_name;
  std::string index;
};

// Files of at most `max_file` of data, or one tensor. Tensors of wide types
// come first, so that all lie aligned; else they keep their order. No tensors,
// no files. InvalidArgument where a name cannot be written.
Result<TensorFiles> PlanTensorFiles(std::string_view stem,
                                    std::span<const ParamSpec> tensors,
                                    Bytes max_file);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_FILES_TENSOR_FILES_H_
