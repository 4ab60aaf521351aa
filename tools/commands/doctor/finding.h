// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DOCTOR_FINDING_H_
#define CASTOR_TOOLS_COMMANDS_DOCTOR_FINDING_H_

// One thing that `castor doctor` looked at. Values and pure functions.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace castor {

enum class Severity : uint8_t {
  kBlocks,  // what was asked for cannot be done
  kHurts,   // it is done slower, or with less
  kOk,
};

inline std::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kBlocks:
      return "blocks";
    case Severity::kHurts:
      return "hurts";
    case Severity::kOk:
      return "ok";
  }
  return "";
}

struct Finding {
  Severity severity = Severity::kOk;
  std::string id = {};       // for programs: "memlock"
  std::string subject = {};  // for people: "locked memory"
  std::string fact = {};     // with numbers
  // What follows for Castor, and what to do: empty where all is well.
  std::string consequence = {};
  std::string fix = {};
};

// The same with what is wrong about it.
inline Finding Hurting(Finding finding, std::string consequence,
                       std::string fix) {
  finding.severity = Severity::kHurts;
  finding.consequence = std::move(consequence);
  finding.fix = std::move(fix);
  return finding;
}
inline Finding Blocking(Finding finding, std::string consequence,
                        std::string fix) {
  finding = Hurting(std::move(finding), std::move(consequence), std::move(fix));
  finding.severity = Severity::kBlocks;
  return finding;
}

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DOCTOR_FINDING_H_
