// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/doctor_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "tools/cli/text_forms.h"
#include "tools/commands/machine_forms.h"

namespace castor {
namespace {

constexpr Severity kOrder[] = {Severity::kBlocks, Severity::kHurts,
                               Severity::kOk};

int64_t CountOf(const DoctorReport& report, Severity severity) {
  return std::count_if(
      report.findings.begin(), report.findings.end(),
      [severity](const Finding& one) { return one.severity == severity; });
}

// A label before a line that is never broken, so that it can be copied.
std::string Unbroken(std::string_view label, std::string_view text) {
  return fmt::format("{:<12}{}\n", label, text);
}

std::string FindingText(const Finding& finding, Emphasis emphasis) {
  std::string text =
      Paragraph(SeverityName(finding.severity),
                fmt::format("{}: {}", finding.subject, finding.fact));
  const bool is_bad = finding.severity != Severity::kOk;
  if (is_bad && emphasis == Emphasis::kTerminal) {
    text = "\x1b[1m" + text.substr(0, text.size() - 1) + "\x1b[0m\n";
  }
  if (!is_bad) return text;
  return text + Paragraph("", finding.consequence) +
         Unbroken("  fix", finding.fix);
}

}  // namespace

std::string DoctorText(const DoctorReport& report, Emphasis emphasis) {
  std::string text;
  if (report.topology) {
    text += Paragraph("Machine", TopologyText(*report.topology)) + "\n";
  }
  for (const Severity severity : kOrder) {
    for (const Finding& finding : report.findings) {
      if (finding.severity == severity) text += FindingText(finding, emphasis);
    }
  }
  text += fmt::format(
      "\n{} ok, {} hurt, {} block\n", CountOf(report, Severity::kOk),
      CountOf(report, Severity::kHurts), CountOf(report, Severity::kBlocks));
  if (CountOf(report, Severity::kBlocks) == 0) {
    text += Unbroken("Next", "castor probe -o machine.json   how fast it is");
  }
  return text;
}

JsonValue DoctorJson(const DoctorReport& report) {
  JsonValue json;
  json["schema"] = "castor.doctor/1";
  for (const Severity severity : kOrder) {
    json[SeverityName(severity)] = CountOf(report, severity);
  }
  json["findings"] = JsonValue::Array();
  for (const Finding& finding : report.findings) {
    JsonValue& one = json["findings"].Append(
        JsonValue::Object({{"id", finding.id},
                           {"severity", SeverityName(finding.severity)},
                           {"subject", finding.subject},
                           {"fact", finding.fact}}));
    if (finding.severity == Severity::kOk) continue;
    one["consequence"] = finding.consequence;
    one["fix"] = finding.fix;
  }
  json["topology"] =
      report.topology ? TopologyJson(*report.topology) : JsonValue();
  return json;
}

Status DoctorStatus(const DoctorReport& report) {
  std::vector<std::string> blocking;
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::kBlocks) {
      blocking.push_back(finding.subject);
    }
  }
  if (blocking.empty()) return OkStatus();
  return Unavailable(fmt::format(
      "{} of {} findings {}: {}; the fixes are above", blocking.size(),
      report.findings.size(), blocking.size() == 1 ? "blocks" : "block",
      JoinedWithAnd(blocking)));
}

}  // namespace castor
