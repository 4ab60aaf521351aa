// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_FILE_KIND_H_
#define CASTOR_TOOLS_COMMANDS_FILE_KIND_H_

// Which of the files that Castor writes is at a path, by how it begins. Reads;
// thread-safe.

#include <cstdint>
#include <string>
#include <string_view>

#include "chunk/base/status.h"

namespace castor {

enum class FileKind : uint8_t {
  kRecord,      // of a run (offload/record/record_format.h)
  kPlan,        // castor.plan/1
  kPlanReport,  // what castor plan --json prints
  kSimulation,  // what castor simulate --json prints
  kLayout,      // castor.layout/1
  kTrace,       // castor.trace/1
  kOther,       // anything else, or nothing that can be read
};

// "the record of a run", "a plan", ...: for messages.
std::string_view FileKindName(FileKind kind);

// That it is one in the end is for its reader to say.
FileKind KindOfFile(const std::string& path);

// `status` of reading `path` as something else, where the file is of a kind of
// Castor's: what the file is, what reads it, and what to give in its place.
// `wanted`: "the trace of a step (train_gpt --trace)".
Status NameOtherKind(Status status, const std::string& path,
                     std::string_view wanted);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_FILE_KIND_H_
