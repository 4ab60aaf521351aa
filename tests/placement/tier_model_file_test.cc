// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/tier_model_file.h"

#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "placement/tier_model.h"
#include "tests/support/byte_mutator.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kWhole[] = R"({
  "schema": "castor.machine/1",
  "links": {
    "host_to_device": {"bytes_per_second": 55000000000, "latency_ns": 9000},
    "device_to_host": {"bytes_per_second": 50000000000, "latency_ns": 8000},
    "nvme_read": {"latency_ns": 80000, "bytes_per_second": 6800000000},
    "nvme_write": {"bytes_per_second": 3000000000, "latency_ns": 0}
  },
  "collectives": {
    "all_gather": {"bytes_per_second": 340000000000, "step_latency_ns": 3400},
    "reduce_scatter": {"bytes_per_second": 1, "step_latency_ns": 600000000000}
  }
}
)";

TEST(TierModelFileTest, ReadsEveryLinkAndCollective) {
  const TierModel want = {.host_to_device = LinkModel{55'000'000'000, 9'000},
                          .device_to_host = LinkModel{50'000'000'000, 8'000},
                          .nvme_read = LinkModel{6'800'000'000, 80'000},
                          .nvme_write = LinkModel{3'000'000'000, 0},
                          .all_gather = RingModel{340'000'000'000, 3'400},
                          .reduce_scatter = RingModel{1, 600'000'000'000}};
  EXPECT_THAT(ParseTierModel(kWhole), IsOkAndHolds(want));
}

TEST(TierModelFileTest, LeavesUnknownWhatIsNotThere) {
  EXPECT_THAT(ParseTierModel(R"({"schema":"castor.machine/1"})"),
              IsOkAndHolds(TierModel()));
  EXPECT_THAT(
      ParseTierModel(
          R"({"links":{},"collectives":{},"schema":"castor.machine/1"})"),
      IsOkAndHolds(TierModel()));
  const Result<TierModel> one = ParseTierModel(
      R"({"schema":"castor.machine/1","links":{"nvme_read":
          {"bytes_per_second":5,"latency_ns":6}}})");
  TierModel want;
  want.nvme_read = LinkModel{5, 6};
  EXPECT_THAT(one, IsOkAndHolds(want));
}

struct Broken {
  std::string body;  // what follows the schema
  std::string message;
};

class TierModelFileBrokenTest : public testing::TestWithParam<Broken> {};

TEST_P(TierModelFileBrokenTest, IsMalformedAndNamesThePlace) {
  EXPECT_THAT(
      ParseTierModel(R"({"schema":"castor.machine/1",)" + GetParam().body +
                     "}"),
      StatusIs(ErrorCode::kMalformed,
               AllOf(HasSubstr(GetParam().message), HasSubstr("(at byte "))));
}

INSTANTIATE_TEST_SUITE_P(
    All, TierModelFileBrokenTest,
    testing::Values(
        Broken{
            R"("lnks":{})",
            R"(the document holds the unknown key "lnks"; did you mean links?)"},
        Broken{
            R"("links":{"nvme_raed":{}})",
            R"("links" holds the unknown key "nvme_raed"; did you mean nvme_read?)"},
        Broken{R"("collectives":{"nvme_read":{}})", "known are all_gather"},
        Broken{
            R"("links":{"nvme_read":{"latency":1}})",
            R"("links"."nvme_read" holds the unknown key "latency"; did you mean latency_ns?)"},
        Broken{R"("links":{"nvme_read":{"step_latency_ns":1}})",
               R"(unknown key "step_latency_ns"; did you mean latency_ns?)"},
        Broken{R"("collectives":{"all_gather":{"latency_ns":1}})",
               "did you mean step_latency_ns?"},
        Broken{R"("links":{"nvme_read":{"bytes_per_second":1}})",
               R"("links"."nvme_read" has no "latency_ns")"},
        Broken{R"("links":{"nvme_read":{"latency_ns":1}})",
               R"("links"."nvme_read" has no "bytes_per_second")"},
        Broken{R"("collectives":{"all_gather":{"bytes_per_second":1}})",
               R"("collectives"."all_gather" has no "step_latency_ns")"},
        Broken{R"("links":{"nvme_read":{"bytes_per_second":0}})",
               "is 0 where a whole number from 1 to 1000000000000000 belongs"},
        Broken{R"("links":{"nvme_read":{"bytes_per_second":1000000000000001}})",
               "is 1000000000000001 where"},
        Broken{R"("links":{"nvme_read":{"bytes_per_second":5e10}})",
               "where a whole number"},
        Broken{R"("links":{"nvme_read":{"latency_ns":-1}})",
               "is -1 where a whole number from 0 to 600000000000 belongs"},
        Broken{R"("links":{"nvme_read":{"latency_ns":600000000001}})",
               "is 600000000001 where"},
        Broken{R"("links":{"nvme_read":{"latency_ns":"9us"}})",
               R"(is "9us" where a whole number)"},
        Broken{R"("links":{"nvme_read":{"latency_ns":{}}})",
               "is an object where a number belongs"},
        Broken{R"("links":{"nvme_read":{"latency_ns":[1]}})",
               "is an array where a number belongs"},
        Broken{R"("links":{"nvme_read":7})", "is 7 where an object belongs"},
        Broken{R"("links":[])", "is an array where an object belongs"},
        Broken{R"("links":null)", "is null where an object belongs"},
        Broken{R"("links":{},"links":{})", R"(holds the key "links" twice)"},
        Broken{R"("links":{"nvme_read":{"latency_ns":1,"latency_ns":1}})",
               R"("links"."nvme_read" holds the key "latency_ns" twice)"},
        Broken{R"("links":{)", "this is not JSON"}));

TEST(TierModelFileTest, RefusesAnotherSchemaOrNone) {
  EXPECT_THAT(ParseTierModel(R"({"schema":"castor.machine/2","new":1})"),
              StatusIs(ErrorCode::kMalformed,
                       HasSubstr("this version reads \"castor.machine/1\"")));
  EXPECT_THAT(ParseTierModel(R"({"links":{}})"),
              StatusIs(ErrorCode::kMalformed,
                       HasSubstr("the document has no \"schema\"")));
  EXPECT_THAT(ParseTierModel("[]"),
              StatusIs(ErrorCode::kMalformed,
                       HasSubstr("is an array where an object belongs")));
  EXPECT_THAT(ParseTierModel("7"), StatusIs(ErrorCode::kMalformed));
  EXPECT_THAT(ParseTierModel(std::string((1 << 20) + 1, ' ')),
              StatusIs(ErrorCode::kMalformed, HasSubstr("1048577 bytes")));
}

TEST(TierModelFileTest, EndsInAModelOrInMalformedWhateverIsDamaged) {
  std::vector<std::string> tokens = ParserTokens();
  tokens.insert(tokens.end(), {"\"latency_ns\"", "\"links\"", "1", "7"});
  ByteMutator mutator(TestSeed(1), tokens);
  int read = 0;
  for (int round = 0; round < 10'000; ++round) {
    const std::string text = mutator.Mutate(kWhole);
    const Result<TierModel> model = ParseTierModel(text);
    if (!model.ok()) {
      ASSERT_EQ(model.status().code(), ErrorCode::kMalformed) << text;
      continue;
    }
    ++read;
    for (const auto& link : {model->host_to_device, model->device_to_host,
                             model->nvme_read, model->nvme_write}) {
      if (!link) continue;
      ASSERT_GT(link->bytes_per_second, 0) << text;
      ASSERT_GE(link->latency_ns, 0) << text;
    }
  }
  // Damage to spaces and digits leaves a model.
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace castor
