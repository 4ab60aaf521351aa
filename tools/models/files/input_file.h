// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FILES_INPUT_FILE_H_
#define CASTOR_TOOLS_MODELS_FILES_INPUT_FILE_H_

// A file of somebody else's, opened for reading, of which no more is read than
// asked for. Owns its descriptor; move-only. Thread-compatible.

#include <cstdint>
#include <string>

#include "chunk/base/status.h"
#include "chunk/text/quote.h"

namespace castor {

class InputFile {
 public:
  // InvalidArgument where nothing is there, Malformed where a link leads to
  // nothing, IoError where the system refuses, each naming `path`. "-" is the
  // standard input.
  static Result<InputFile> Open(const std::string& path);

  // The same, but InvalidArgument for anything that cannot be read at an
  // offset. A pipe that an index names is not waited for.
  static Result<InputFile> OpenRegular(const std::string& path);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  bool is_regular() const { return is_regular_; }
  uint64_t size() const { return size_; }  // 0 where not regular

  // Exactly `length` bytes at `offset`. REQUIRES: is_regular(), and the range
  // lies inside size(). Malformed where the file has become shorter since.
  Result<std::string> ReadAt(uint64_t offset, uint64_t length) const;

  // The rest of the file or stream. Malformed where that is above `limit`.
  Result<std::string> ReadAll(uint64_t limit);

 private:
  enum class Wait { kNever, kForWriter };  // of a pipe
  static Result<InputFile> OpenWith(const std::string& path, Wait wait);
  InputFile(std::string path, int fd, bool owned);

  std::string path_;
  int fd_ = -1;
  bool owned_ = false;  // the standard input is not closed
  bool is_regular_ = false;
  uint64_t size_ = 0;
};

// What `parse` makes of the whole file, of which at most `limit` bytes are
// read; its failure names the file.
template <typename Parse>
auto ParseFile(const std::string& path, uint64_t limit, const Parse& parse)
    -> decltype(parse(std::string())) {
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  CASTOR_ASSIGN_OR_RETURN(const std::string text, file.ReadAll(limit));
  auto parsed = parse(text);
  if (!parsed.ok()) return parsed.status().WithContext(QuotedPath(path));
  return parsed;
}

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FILES_INPUT_FILE_H_
