// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/machine/tier_model_file.h"

#include <cstdint>
#include <random>
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
    "host_to_device_duplex":
        {"bytes_per_second": 41000000000, "latency_ns": 9100},
    "device_to_host_duplex":
        {"bytes_per_second": 40000000000, "latency_ns": 9200},
    "nvme_read": {"latency_ns": 80000, "bytes_per_second": 6800000000},
    "nvme_write": {"bytes_per_second": 3000000000, "latency_ns": 0},
    "nvme_mixed": {"bytes_per_second": 3500000000, "latency_ns": 20000}
  },
  "collectives": {
    "all_gather": {"bytes_per_second": 340000000000, "step_latency_ns": 3400},
    "reduce_scatter": {"bytes_per_second": 1000000, "step_latency_ns": 600000000000}
  },
  "memory": {"bytes_per_second": 190000000000},
  "optimizer": {"bytes_per_second": 1000000000000000}
}
)";

TierModel Whole() {
  return {.host_to_device = LinkModel{55'000'000'000, 9'000},
          .device_to_host = LinkModel{50'000'000'000, 8'000},
          .host_to_device_duplex = LinkModel{41'000'000'000, 9'100},
          .device_to_host_duplex = LinkModel{40'000'000'000, 9'200},
          .nvme_read = LinkModel{6'800'000'000, 80'000},
          .nvme_write = LinkModel{3'000'000'000, 0},
          .nvme_mixed = LinkModel{3'500'000'000, 20'000},
          .all_gather = RingModel{340'000'000'000, 3'400},
          .reduce_scatter = RingModel{1'000'000, 600'000'000'000},
          .memory = RateModel{190'000'000'000},
          .optimizer = RateModel{1'000'000'000'000'000}};
}

TEST(TierModelFileTest, ReadsEveryLinkCollectiveAndRate) {
  EXPECT_THAT(ParseTierModel(kWhole), IsOkAndHolds(Whole()));
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
          {"bytes_per_second":5000000,"latency_ns":6}}})");
  TierModel want;
  want.nvme_read = LinkModel{5'000'000, 6};
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
        Broken{R"("links":{"nvme_read":{"bytes_per_second":1000000}})",
               R"("links"."nvme_read" has no "latency_ns")"},
        Broken{R"("links":{"nvme_read":{"latency_ns":1}})",
               R"("links"."nvme_read" has no "bytes_per_second")"},
        Broken{R"("collectives":{"all_gather":{"bytes_per_second":1000000}})",
               R"("collectives"."all_gather" has no "step_latency_ns")"},
        Broken{R"("links":{"nvme_read":{"bytes_per_second":0}})",
               "is 0 where a whole number from 1000000 to 1000000000000000 "
               "belongs"},
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
        Broken{R"("memory":{"latency_ns":1})",
               R"("memory" holds the unknown key "latency_ns"; known are )"
               "bytes_per_second"},
        Broken{R"("memory":{})", R"("memory" has no "bytes_per_second")"},
        Broken{R"("optimizer":{"bytes_per_second":0})", "is 0 where a whole"},
        // Slower than any step's nanoseconds could say.
        Broken{R"("memory":{"bytes_per_second":999999})",
               "is 999999 where a whole number from 1000000"},
        Broken{R"("optimizer":{"bytes_per_second":999999})", "from 1000000"},
        Broken{R"("links":{"device_to_host":{"bytes_per_second":999999}})",
               "from 1000000"},
        Broken{R"("collectives":{"all_gather":{"bytes_per_second":999999}})",
               "from 1000000"},
        Broken{R"("optimizer":{"bytes_per_second":{}})",
               "is an object where a number belongs"},
        Broken{R"("optimizer":9)", "is 9 where an object belongs"},
        Broken{R"("optimiser":{})", "did you mean optimizer?"},
        Broken{R"("links":{"memory":{}})", R"(the unknown key "memory")"},
        Broken{R"("links":{)", "this is not JSON"}));

// Everything of a model may be there or not, and every number is kept.
TEST(TierModelFileTest, ReadsBackWhatItWrites) {
  EXPECT_EQ(FormatTierModel({}), "{\n  \"schema\": \"castor.machine/1\"\n}\n");
  EXPECT_THAT(ParseTierModel(FormatTierModel(Whole())), IsOkAndHolds(Whole()));
  std::mt19937_64 random(TestSeed(2));
  const auto below = [&random](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  const auto maybe = [&](auto* entry, auto make) {
    if (random() % 2 == 0) *entry = make();
  };
  const auto rate = [&] {
    return kMinBytesPerSecond +
           below(kMaxBytesPerSecond - kMinBytesPerSecond + 1);
  };
  const auto link = [&] { return LinkModel{rate(), below(kMaxLatencyNs + 1)}; };
  const auto ring = [&] { return RingModel{rate(), below(kMaxLatencyNs + 1)}; };
  const auto shared = [&] { return RateModel{rate()}; };
  for (int round = 0; round < 500; ++round) {
    TierModel model;
    for (auto member :
         {&TierModel::host_to_device, &TierModel::device_to_host,
          &TierModel::host_to_device_duplex, &TierModel::device_to_host_duplex,
          &TierModel::nvme_read, &TierModel::nvme_write,
          &TierModel::nvme_mixed}) {
      maybe(&(model.*member), link);
    }
    maybe(&model.all_gather, ring);
    maybe(&model.reduce_scatter, ring);
    maybe(&model.memory, shared);
    maybe(&model.optimizer, shared);
    const std::string text = FormatTierModel(model);
    ASSERT_THAT(ParseTierModel(text), IsOkAndHolds(model)) << text;
  }
}

TEST(TierModelFileDeathTest, WritesNoLinkWithoutASpeed) {
  EXPECT_DEATH(FormatTierModel({.nvme_read = LinkModel{0, 1}}),
               "bytes_per_second");
}

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
    if (model->memory) {
      ASSERT_GT(model->memory->bytes_per_second, 0) << text;
    }
    ASSERT_THAT(ParseTierModel(FormatTierModel(*model)), IsOkAndHolds(*model));
  }
  // Damage to spaces and digits leaves a model.
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace castor
