// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/file_kind.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "offload/record/record_format.h"
#include "tools/models/input_file.h"

namespace castor {
namespace {

// A document begins with its schema.
constexpr uint64_t kBeginning = 4096;

std::string Beginning(const std::string& path) {
  const Result<InputFile> file = InputFile::OpenRegular(path);
  if (!file.ok()) return "";
  Result<std::string> text =
      file->ReadAt(0, std::min(kBeginning, file->size()));
  return text.ok() ? *std::move(text) : std::string();
}

}  // namespace

std::string_view FileKindName(FileKind kind) {
  switch (kind) {
    case FileKind::kRecord:
      return "the record of a run";
    case FileKind::kPlan:
      return "a plan";
    case FileKind::kPlanReport:
      return "what castor plan --json printed";
    case FileKind::kSimulation:
      return "what castor simulate --json printed";
    case FileKind::kLayout:
      return "a layout";
    case FileKind::kTrace:
      return "the trace of a step";
    case FileKind::kOther:
      return "none of Castor's files";
  }
  return "";
}

FileKind KindOfFile(const std::string& path) {
  const std::string text = Beginning(path);
  std::string record;
  AppendRecordHeader(&record);
  constexpr size_t kMagic = 8;
  if (text.compare(0, kMagic, record, 0, kMagic) == 0) {
    return FileKind::kRecord;
  }
  constexpr std::pair<std::string_view, FileKind> kSchemas[] = {
      {"\"castor.plan/1\"", FileKind::kPlan},
      {"\"castor.plan-report/1\"", FileKind::kPlanReport},
      {"\"castor.simulation/1\"", FileKind::kSimulation},
      {"\"castor.layout/1\"", FileKind::kLayout},
      {"\"castor.trace/1\"", FileKind::kTrace}};
  for (const auto& [schema, kind] : kSchemas) {
    if (text.find(schema) != text.npos) return kind;
  }
  return FileKind::kOther;
}

}  // namespace castor
