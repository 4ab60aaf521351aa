// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/doctor_report.h"

#include <string>

#include "gtest/gtest.h"

namespace castor {
namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

DoctorReport Report() {
  DoctorReport report;
  report.findings = {
      {.id = "swap", .subject = "swap", .fact = "none"},
      Hurting({.id = "memlock", .subject = "locked memory", .fact = "8 MiB"},
              "pages may move", "ulimit -l unlimited"),
      Blocking({.id = "folder", .subject = "folder /x", .fact = "missing"},
               "nothing can be kept there", "mkdir -p /x")};
  return report;
}

TEST(DoctorReportTest, WhatBlocksComesFirst) {
  EXPECT_EQ(DoctorText(Report(), Emphasis::kNone),
            "blocks      folder /x: missing\n"
            "            nothing can be kept there\n"
            "  fix       mkdir -p /x\n"
            "hurts       locked memory: 8 MiB\n"
            "            pages may move\n"
            "  fix       ulimit -l unlimited\n"
            "ok          swap: none\n"
            "\n"
            "1 ok, 1 hurt, 1 block\n");
  const std::string bold = DoctorText(Report(), Emphasis::kTerminal);
  EXPECT_TRUE(Has(bold, "\x1b[1mblocks      folder /x: missing\x1b[0m\n"));
  EXPECT_TRUE(Has(bold, "\nok          swap: none\n"));
}

TEST(DoctorReportTest, SaysWhatNextWhereNothingBlocks) {
  DoctorReport report = Report();
  report.findings.pop_back();
  report.topology.emplace();
  report.topology->packages = 1;
  const std::string text = DoctorText(report, Emphasis::kNone);
  EXPECT_TRUE(Has(text, "Machine     1 package"));
  EXPECT_TRUE(Has(text, "\nNext        castor probe"));
  EXPECT_TRUE(DoctorStatus(report).ok());
}

TEST(DoctorReportTest, WhatBlocksIsAFailure) {
  const Status status = DoctorStatus(Report());
  EXPECT_EQ(status.code(), ErrorCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "1 of 3 findings blocks: folder /x; the fixes are above");
}

TEST(DoctorReportTest, IsADocument) {
  DoctorReport report = Report();
  JsonValue json = DoctorJson(report);
  EXPECT_EQ(json["schema"], "castor.doctor/1");
  EXPECT_EQ(json["blocks"], 1);
  EXPECT_EQ(json["hurts"], 1);
  EXPECT_EQ(json["ok"], 1);
  ASSERT_EQ(json["findings"].size(), 3u);
  EXPECT_EQ(json["findings"][0], JsonValue::Object({{"id", "swap"},
                                                    {"severity", "ok"},
                                                    {"subject", "swap"},
                                                    {"fact", "none"}}));
  EXPECT_EQ(json["findings"][2]["severity"], "blocks");
  EXPECT_EQ(json["findings"][2]["fix"], "mkdir -p /x");
  EXPECT_TRUE(json["topology"].is_null());
  report.topology.emplace();
  report.topology->cores = 4;
  json = DoctorJson(report);
  EXPECT_EQ(json["topology"]["cores"], 4);
}

}  // namespace
}  // namespace castor
