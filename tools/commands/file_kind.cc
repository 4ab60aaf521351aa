// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "chunk/text/quote.h"
#include "offload/record/record_format.h"
#include "tools/models/files/input_file.h"

namespace castor {
namespace {

// A document begins with its schema.
constexpr uint64_t kBeginning = 4096;

struct KnownKind {
  std::string_view schema;  // empty where it has none
  std::string_view words;
};

// By FileKind.
constexpr KnownKind kKinds[] = {
    {"", "the record of a run"},
    {"\"castor.plan/1\"", "a plan"},
    {"\"castor.plan-report/1\"", "what castor plan --json printed"},
    {"\"castor.simulation/1\"", "what castor simulate --json printed"},
    {"\"castor.layout/1\"", "a layout"},
    {"\"castor.trace/1\"", "the trace of a step"},
    {"", "none of Castor's files"}};

}  // namespace

std::string_view FileKindName(FileKind kind) {
  return kKinds[static_cast<size_t>(kind)].words;
}

FileKind KindOfFile(const std::string& path) {
  const Result<InputFile> file = InputFile::OpenRegular(path);
  if (!file.ok()) return FileKind::kOther;
  const Result<std::string> text =
      file->ReadAt(0, std::min(kBeginning, file->size()));
  if (!text.ok()) return FileKind::kOther;
  std::string record;
  AppendRecordHeader(&record);
  constexpr size_t kMagic = 8;
  if (text->compare(0, kMagic, record, 0, kMagic) == 0) {
    return FileKind::kRecord;
  }
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    const std::string_view schema = kKinds[i].schema;
    if (!schema.empty() && text->find(schema) != text->npos) {
      return static_cast<FileKind>(i);
    }
  }
  return FileKind::kOther;
}

Status NameOtherKind(Status status, const std::string& path,
                     std::string_view wanted) {
  // By FileKind.
  constexpr std::string_view kReaders[] = {
      "castor report", "train_gpt --plan",   "castor diff",
      "castor diff",   "train_gpt --layout", "castor simulate"};
  const auto kind = static_cast<size_t>(KindOfFile(path));
  if (status.code() != ErrorCode::kMalformed || kind >= std::size(kReaders)) {
    return status;
  }
  const std::string what = fmt::format(
      "{} is {}, which {} reads; give {}", QuotedPath(path),
      FileKindName(static_cast<FileKind>(kind)), kReaders[kind], wanted);
  // One of the right kind that is damaged says so itself.
  return wanted.starts_with(FileKindName(static_cast<FileKind>(kind)))
             ? status
             : Malformed(what);
}

}  // namespace castor
