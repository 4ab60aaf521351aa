// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/sealing/layout_choice.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "chunk/layout/size_family.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "chunk/search/chunk_bounds.h"
#include "chunk/search/search_certificate.h"
#include "collectives/sealing/seal_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<ParamSpec> Params(int64_t count, int64_t elements) {
  std::vector<ParamSpec> params;
  for (int64_t p = 0; p < count; ++p) {
    params.push_back({"p" + std::to_string(p), {elements}, DType::kF32, true});
  }
  return params;
}

// One chunk and its gradient at a time.
SealOptions Growing() {
  SealOptions declared;
  declared.grow = true;
  return declared;
}

Result<ChunkLayout> Chosen(const std::vector<ParamSpec>& params,
                           const ZeroOptions& options, int world = 1) {
  return ChooseLayout(params, options, ShardingOf(options, world, 0),
                      BudgetsOf(options, Bytes(0)), Growing());
}

TEST(LayoutChoiceTest, MakesTheLayoutThatOptionsAskFor) {
  const std::vector<ParamSpec> params = Params(4, 1024);
  ZeroOptions options;
  options.chunk_size = KiB(4);
  const Result<ChunkLayout> given = LayoutOf(params, options, 1);
  ASSERT_THAT(given, IsOk());
  EXPECT_EQ(given->chunks().size(), 4u);
  options.chunk_size = Bytes(300);
  EXPECT_THAT(LayoutOf(params, options, 2),
              StatusIs(ErrorCode::kInvalidArgument,
                       AllOf(HasSubstr("chunks of 300 bytes are too small"),
                             HasSubstr("at least 1024 bytes"))));
  options.chunk_size.reset();
  options.min_chunk = KiB(4);
  options.max_chunk = KiB(8);
  const Result<ChunkLayout> searched = LayoutOf(params, options, 1);
  ASSERT_THAT(searched, IsOk());
  for (const GroupInfo& group : searched->groups()) {
    EXPECT_LE(BytesOf(group.chunk_size, group.dtype), KiB(8));
  }
  options.max_chunk = KiB(2);
  EXPECT_THAT(LayoutOf(params, options, 1),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("the largest chunk of 2048 bytes is less")));
  // One that is there is taken as it is, or refused.
  options.layout =
      std::make_shared<const LayoutFile>(LayoutFile{params, *given});
  ASSERT_THAT(LayoutOf(params, options, 1), IsOk());
  EXPECT_EQ(LayoutOf(params, options, 1)->chunks().size(), 4u);
  EXPECT_THAT(LayoutOf(params, options, 2),
              StatusIs(ErrorCode::kInvalidArgument, testing::_));
}

// Norms beside matrices, by their type or by what their moments are kept in.
TEST(LayoutChoiceTest, AGroupThatFillsNoChunkHasASmallerOne) {
  std::vector<ParamSpec> params = Params(12, 1 << 20);
  params[3] = {"norm", {700}, DType::kBF16, true};
  params[7] = {"bias", {1000}, DType::kF32, true};
  ZeroOptions options;
  options.device_budget = options.host_budget = MiB(256);
  for (const DType moments : {DType::kF32, DType::kBlocks8}) {
    options.optimizer.moment_dtype = moments;
    const Result<ChunkLayout> layout = Chosen(params, options, 2);
    ASSERT_THAT(layout, IsOk());
    EXPECT_EQ(layout->groups().size(), IsBlocks8(moments) ? 3u : 2u);
    EXPECT_EQ(layout->chunk(layout->place(ParamId(3)).chunk).size,
              Elements(768));
    const ChunkInfo& of_bias = layout->chunk(layout->place(ParamId(7)).chunk);
    const ChunkInfo& of_matrix = layout->chunk(layout->place(ParamId(0)).chunk);
    if (IsBlocks8(moments)) {
      EXPECT_EQ(of_bias.size, Elements(1024));
      EXPECT_GT(of_matrix.size, Elements(1 << 20));
    } else {
      EXPECT_GT(of_bias.size, Elements(1 << 20));
    }
  }
}

TEST(LayoutChoiceTest, MakesChunksSmallerUntilTheBudgetsServe) {
  const std::vector<ParamSpec> params = Params(64, 1024);
  ZeroOptions options;
  options.host_budget = MiB(4);
  options.device_budget = KiB(256);
  const Result<ChunkLayout> roomy = Chosen(params, options);
  ASSERT_THAT(roomy, IsOk());
  // A chunk and its gradient: what an eighth of this budget would give is more
  // than host memory has staging for.
  options.host_budget = KiB(64 * 12 + 48);
  options.nvme = {{"x", KiB(64 * 16)}};
  const Result<ChunkLayout> tight = Chosen(params, options);
  ASSERT_THAT(tight, IsOk());
  EXPECT_THAT(Chosen(params, options), IsOk());
  EXPECT_LE(tight->groups()[0].chunk_size, roomy->groups()[0].chunk_size);
  // What nothing serves is refused with what would.
  options.device_budget = KiB(4);
  EXPECT_THAT(Chosen(params, options),
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("raise the device budget by ")));
}

TEST(LayoutChoiceTest, ALargerBudgetNeverFailsWhereASmallerOneFits) {
  std::mt19937_64 random(TestSeed(61));
  int turned = 0;
  for (int round = 0; round < TestRounds(60); ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    std::vector<ParamSpec> params;
    const size_t count = 2 + random() % 30;
    for (size_t p = 0; p < count; ++p) {
      params.push_back({"p" + std::to_string(p),
                        {static_cast<int64_t>(1 + random() % 20'000)},
                        random() % 2 == 0 ? DType::kF32 : DType::kBF16,
                        random() % 5 != 0});
    }
    ZeroOptions options;
    options.stage = static_cast<int>(random() % 4);
    const int world = static_cast<int>(1 + random() % 3);
    const Bytes model = ModelBytes(params);
    options.device_budget = KiB(1);
    options.host_budget = model * static_cast<int64_t>(random() % 5);
    if (random() % 2 == 0) options.nvme = {{"x", MiB(64)}};
    bool fits = false;
    for (int raise = 0; raise < 40; ++raise) {
      const Result<ChunkLayout> layout = Chosen(params, options, world);
      if (!layout.ok()) {
        ASSERT_EQ(layout.status().code(), ErrorCode::kInfeasible)
            << layout.status();
      }
      ASSERT_TRUE(layout.ok() || !fits) << layout.status();
      turned += raise > 0 && layout.ok() != fits;
      fits = layout.ok();
      const auto part = static_cast<int64_t>(random() % 16);
      (random() % 2 == 0 ? options.device_budget : options.host_budget) +=
          model * part / 64;
    }
  }
  EXPECT_GT(turned, TestRounds(20));
}

TEST(LayoutChoiceTest, WhatStaysWholeGetsTheSizesThatASearchRecommends) {
  std::vector<ParamSpec> params = Params(40, 300'000);
  for (size_t p = 0; p < params.size(); ++p) {
    params[p].shape = {static_cast<int64_t>(1000 + p * p * 701)};
    params[p].whole = p % 3 == 0;
    params[p].states = p % 3 == 0 ? 1 : 2;  // Muon for these, else AdamW
  }
  ZeroOptions options;
  options.stage = 1;
  options.device_budget = GiB(1);
  const int world = 4;
  const Result<ChunkLayout> chosen = Chosen(params, options, world);
  ASSERT_THAT(chosen, IsOk());

  SearchOptions search;
  search.pack = {.world = world, .align = options.align, .shards = world};
  const ChunkBounds bounds = BoundsFor(params, options, world, GiB(1)).front();
  search.min_chunk = bounds.least;
  search.max_chunk = bounds.most;
  search.modes = {SearchMode::kUniform, SearchMode::kLayer};
  const SearchResult found = SearchChunkSize(params, search).value();
  ASSERT_EQ(found.groups.size(), 1u);
  ASSERT_EQ(chosen->groups().size(), 2u);
  for (const GroupInfo& group : chosen->groups()) {
    EXPECT_EQ(group.chunk_size, found.groups[0].recommended.chunk_size);
  }
  EXPECT_EQ(chosen->allocated_bytes(),
            BytesOf(found.groups[0].recommended.allocated, DType::kF32));
  const std::vector<SizeFamily> families =
      SizeFamilies(params, search.pack).value();
  EXPECT_THAT(
      VerifyCertificate(
          std::get<SearchCertificate>(found.groups[0].modes.at(0).certificate),
          families[0], search.pack, found.groups[0].best.waste),
      IsOk());
}

TEST(LayoutChoiceTest, SaysWhatAGivenChunkSizeWastes) {
  const std::vector<ParamSpec> params = Params(3, 1000);
  ZeroOptions options;
  const auto said = [&](Bytes size) {
    options.chunk_size = size;
    const Result<ChunkLayout> layout = LayoutOf(params, options, 1);
    EXPECT_THAT(layout, IsOk());
    return WastedByGivenSize(*layout, params, options, 1);
  };
  EXPECT_EQ(said(KiB(4)), "");
  EXPECT_THAT(said(KiB(6)),
              AllOf(HasSubstr("chunks of 6144 bytes waste 53.6 %"),
                    HasSubstr("picks 3072 bytes of F32, which wastes 2.4 %")));
}

}  // namespace
}  // namespace castor
