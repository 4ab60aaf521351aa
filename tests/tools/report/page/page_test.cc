// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/page/page.h"

#include <cstdint>
#include <string>

#include "chunk/text/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/tools/report/made_run.h"
#include "tools/report/report_document.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::Not;

// What stands between two texts.
std::string Between(const std::string& text, const std::string& begin,
                    const std::string& end) {
  const size_t from = text.find(begin) + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

TEST(PageTest, HoldsTheDocumentAsItIs) {
  JsonValue document = JsonValue::Object();
  const std::string evil = "</script><!-- @STYLE@ @DOCUMENT@ \"\\\xc3\xa9";
  document["headline"] = evil;
  const std::string page = RunPage(document);
  const std::string json = Between(
      page, "<script type=\"application/json\" id=\"document\">", "</script>");
  EXPECT_THAT(json, Not(HasSubstr("<")));
  ASSERT_OK_AND_ASSIGN(const JsonValue read, ParseJson(json));
  EXPECT_EQ(read, document);
  EXPECT_EQ(RunPage(document), page);
}

TEST(PageTest, NeedsNothingElse) {
  const std::string page = RunPage(JsonValue::Object());
  const std::string style = Between(page, "<style>", "</style>");
  EXPECT_THAT(style, Not(HasSubstr("@import")));
  EXPECT_THAT(style, Not(HasSubstr("url(")));
  // What surrounds the scripts.
  const std::string body = Between(page, "<body>", "<script");
  for (const char* loads : {"src=", "href=", "http"}) {
    EXPECT_THAT(body, Not(HasSubstr(loads)));
  }
  EXPECT_THAT(page, Not(HasSubstr("<script src")));
  EXPECT_THAT(page, Not(HasSubstr("<link")));
  EXPECT_THAT(page, Not(HasSubstr("@STYLE@")));
  EXPECT_THAT(page, Not(HasSubstr("@SCRIPTS@")));
  // The library that draws keeps its licence.
  EXPECT_THAT(page, HasSubstr("Redistribution and use in source and binary"));
  EXPECT_THAT(page, HasSubstr("castor.start()"));
}

TEST(PageTest, OfAPlanHasThePicturesOfOne) {
  const std::string run = RunPage(JsonValue::Object());
  const std::string plan = PlanPage(JsonValue::Object());
  for (const char* mark : {"@SECTIONS@", "@COMMAND@", "@SCRIPTS@", "@STYLE@"}) {
    EXPECT_THAT(run, Not(HasSubstr(mark)));
    EXPECT_THAT(plan, Not(HasSubstr(mark)));
  }
  EXPECT_THAT(run, HasSubstr("id=\"stalls\""));
  EXPECT_THAT(run, Not(HasSubstr("id=\"grid\"")));
  EXPECT_THAT(plan, HasSubstr("id=\"grid\""));
  EXPECT_THAT(plan, Not(HasSubstr("id=\"stalls\"")));
}

TEST(PageTest, OfManyStepsItShowsTheSlowest) {
  MadeRun run(1);
  for (int32_t step = 1; step <= 25'000; ++step) {
    run.At(0, step).Step(step * 100, step * 100 + (step == 777 ? 99 : 50));
  }
  const RunStatistics statistics = ComputeRunStatistics(run.record, {});
  const Document report =
      ReportDocument("run.rec", statistics, run.record.completeness);
  const JsonValue page = ForPage(report.Json());
  EXPECT_LE(page["steps"].size(), 1000u);
  EXPECT_EQ(page["steps_each"], 25);
  bool slowest = false;
  for (const JsonValue& step : page["steps"]) {
    slowest = slowest || step["step"] == JsonValue(777);
  }
  EXPECT_TRUE(slowest);
  EXPECT_EQ(report.Json()["steps"].size(), 25'000u);
}

}  // namespace
}  // namespace castor
