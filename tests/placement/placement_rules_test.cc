// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/placement_rules.h"

#include <optional>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/run_event.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kParam = static_cast<size_t>(StateKind::kParam);
constexpr size_t kMaster = static_cast<size_t>(StateKind::kMaster);

// bf16: chunk 0 is the embedding alone, 1 and 2 a layer each. fp32: chunk 3.
class PlacementRulesTest : public testing::Test {
 protected:
  Result<std::vector<ChunkBindings>> Bind(
      const std::vector<PlacementRule>& rules) const {
    return BindChunks(rules, params_, layout_, names_);
  }

  StateNames names_;
  std::vector<ParamSpec> params_ = {
      {"embed.weight", {1024}, DType::kBF16, true},
      {"h.0.w", {200}, DType::kBF16, true},
      {"h.0.b", {20}, DType::kBF16, true},
      {"h.1.w", {200}, DType::kBF16, true},
      {"h.1.b", {20}, DType::kBF16, true},
      {"gate", {30}, DType::kF32, true},
      {"none", {0}, DType::kBF16, true}};
  ChunkLayout layout_ =
      PackChunks(params_, std::vector<Elements>{Elements(384), Elements(128)},
                 PackOptions())
          .value();
};

TEST_F(PlacementRulesTest, ARuleForOneParameterBindsItsChunk) {
  const auto bindings = Bind({{.glob = "h.1.b", .tier = Tier::kNvme}});
  ASSERT_THAT(bindings, IsOk());
  ASSERT_EQ(bindings->size(), 4u);
  for (size_t k = 0; k < static_cast<size_t>(names_.states()); ++k) {
    EXPECT_EQ((*bindings)[2][k], (StateBinding{0, ParamId(4), Tier::kNvme}));
    for (const size_t c : {0, 1, 3}) EXPECT_EQ((*bindings)[c][k].rule, -1);
  }
}

TEST_F(PlacementRulesTest, TheFirstRuleThatMatchesHolds) {
  const auto bindings =
      Bind({{.glob = "h.0.*", .state = "master", .tier = Tier::kDevice},
            {.glob = "h.*", .tier = Tier::kNvme},
            {.glob = "*", .dtype = DType::kBF16, .tier = Tier::kHost}});
  ASSERT_THAT(bindings, IsOk());
  EXPECT_EQ((*bindings)[0][kParam], (StateBinding{2, ParamId(0), Tier::kHost}));
  EXPECT_EQ((*bindings)[1][kMaster],
            (StateBinding{0, ParamId(1), Tier::kDevice}));
  EXPECT_EQ((*bindings)[1][kParam], (StateBinding{1, ParamId(1), Tier::kNvme}));
  EXPECT_EQ((*bindings)[2][kMaster],
            (StateBinding{1, ParamId(3), Tier::kNvme}));
  EXPECT_EQ((*bindings)[3][kParam].rule, -1);
}

TEST_F(PlacementRulesTest, MatchesBySizeTypeAndCallback) {
  const auto large =
      Bind({{.least = Bytes(2048), .most = Bytes(2048), .tier = Tier::kNvme},
            {.dtype = DType::kF32, .tier = Tier::kDevice}});
  ASSERT_THAT(large, IsOk());
  EXPECT_EQ((*large)[0][kParam].tier, Tier::kNvme);
  EXPECT_EQ((*large)[0][kParam].rule, 0);
  EXPECT_EQ((*large)[1][kParam].rule, -1);
  EXPECT_EQ((*large)[3][kParam].rule, 1);

  int asked = 0;
  PlacementRule callback = {.glob = "h.*"};
  callback.decide = [&](const ParamSpec& spec,
                        StateKind state) -> std::optional<Tier> {
    ++asked;
    if (state == StateKind::kParam) return std::nullopt;
    return spec.name[2] == '0' ? Tier::kHost : Tier::kNvme;
  };
  const auto decided = Bind({callback});
  ASSERT_THAT(decided, IsOk());
  EXPECT_EQ(asked, 4 * names_.states());
  EXPECT_EQ((*decided)[1][kMaster].tier, Tier::kHost);
  EXPECT_EQ((*decided)[2][kMaster].tier, Tier::kNvme);
  EXPECT_EQ((*decided)[1][kParam].rule, -1);
}

TEST_F(PlacementRulesTest, TwoTiersForOneChunkAreAnErrorThatNamesBoth) {
  EXPECT_THAT(
      Bind({{.glob = "*.b", .tier = Tier::kDevice},
            {.glob = "h.1.w", .state = "exp_avg", .tier = Tier::kNvme}}),
      StatusIs(ErrorCode::kInvalidArgument,
               AllOf(HasSubstr("rule 1 (\"h.1.w\": exp_avg on nvme) puts "
                               "exp_avg of \"h.1.w\" on nvme"),
                     HasSubstr("but rule 0 (\"*.b\": all on device) puts "
                               "exp_avg of \"h.1.b\" on device"),
                     HasSubstr("both lie in chunk 2"))));
  // To one tier by two rules is none.
  EXPECT_THAT(Bind({{.glob = "*.b", .tier = Tier::kNvme},
                    {.glob = "h.1.w", .tier = Tier::kNvme}}),
              IsOk());
}

TEST_F(PlacementRulesTest, ARuleForAStateThatIsNotKeptIsAMistake) {
  EXPECT_THAT(
      Bind({{.glob = "h.*"}, {.state = "exp_avg_qs", .tier = Tier::kHost}}),
      StatusIs(ErrorCode::kInvalidArgument,
               AllOf(HasSubstr("rule 1 (\"*\": exp_avg_qs on host) is for "
                               "state \"exp_avg_qs\", and the optimizer keeps "
                               "exp_avg, exp_avg_sq"),
                     HasSubstr("did you mean exp_avg_sq?"))));
  names_ = StateNames({"momentum_buffer"});
  EXPECT_THAT(Bind({{.state = "exp_avg"}}),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("the optimizer keeps momentum_buffer; known "
                                 "are param, grad, master, momentum_buffer")));
  const auto bindings =
      Bind({{.state = "momentum_buffer", .tier = Tier::kNvme}});
  ASSERT_THAT(bindings, IsOk());
  EXPECT_EQ((*bindings)[0][3], (StateBinding{0, ParamId(0), Tier::kNvme}));
  EXPECT_EQ((*bindings)[0][4].rule, -1);
  names_ = StateNames(std::vector<std::string>());
  EXPECT_THAT(Bind({{.state = "exp_avg"}}),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("the optimizer keeps no state of its own")));
}

TEST_F(PlacementRulesTest, ARuleThatMatchesNothingIsAMistake) {
  EXPECT_THAT(Bind({{.glob = "embed.wieght"}}),
              StatusIs(ErrorCode::kInvalidArgument,
                       AllOf(HasSubstr("rule 0 (\"embed.wieght\""),
                             HasSubstr("is \"embed.weight\" meant?"))));
  EXPECT_THAT(Bind({{.least = GiB(1)}}),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("matches none of the 7 parameters")));
  // One without elements lies in no chunk, but it is there.
  EXPECT_THAT(Bind({{.glob = "none"}}), IsOk());
  EXPECT_EQ(RuleText({.glob = "a",
                      .dtype = DType::kF32,
                      .least = Bytes(1),
                      .most = Bytes(2),
                      .state = "grad",
                      .tier = Tier::kHost}),
            "\"a\" F32 of at least 1 bytes of at most 2 bytes: grad on host");
}

}  // namespace
}  // namespace castor
