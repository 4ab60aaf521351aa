// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_TEXT_DATA_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_TEXT_DATA_H_

// Part of a training (trainer.h). Text to train on: the bytes of a file, or of
// all files under a folder in the order of their paths. A byte is a token.
// Immutable once loaded.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/status.h"

namespace castor::gpt {

// Which sequences: a run gives every combination bytes of its own.
struct BatchKey {
  uint64_t seed = 0;
  int64_t step = 0;
  int rank = 0;
  int micro_batch = 0;
};

class TextData {
 public:
  // Reads `path`. In a folder, hidden files, files that hold a zero byte in
  // their first 8 KiB, and second names of the same file are passed over.
  // Unavailable where something cannot be read; Malformed where less than
  // `least_bytes` are found.
  static Result<TextData> Load(const std::filesystem::path& path,
                               int64_t least_bytes);
  // Whether Load takes the bytes of a file that is in its folder. False where
  // the file cannot be read.
  static bool Takes(const std::filesystem::path& file);
  explicit TextData(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}

  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  int64_t files() const { return files_; }
  // Of all bytes: XXH3.
  uint64_t digest() const;

  // `batch` sequences from random places (by counter: the same for the same
  // key): tokens, and targets, which are the tokens that follow. REQUIRES:
  // size() > seq; both spans hold batch * seq.
  void Sample(const BatchKey& key, int batch, int seq, std::span<int> tokens,
              std::span<int> targets) const;

 private:
  std::vector<uint8_t> bytes_;
  int64_t files_ = 1;
};

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_TEXT_DATA_H_
