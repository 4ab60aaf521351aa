// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/chunk_layout.h"

#include <functional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace castor {
namespace {

// Two ranks, Q = 256. Group 0 (bf16): chunk 0 holds parameters 0 and 1, chunk 1
// is oversize with parameter 2; parameter 3 is empty. Group 1 (f32, frozen):
// chunk 2 with parameter 4.
struct Parts {
  int world = 2;
  Elements align{64};
  std::vector<ParamPlace> places = {
      {ChunkId(0), Elements(0), Elements(100)},
      {ChunkId(0), Elements(128), Elements(300)},
      {ChunkId(1), Elements(0), Elements(700)},
      {ChunkId(), Elements(0), Elements(0)},
      {ChunkId(2), Elements(0), Elements(1)},
  };
  std::vector<ChunkInfo> chunks = {
      {0,
       Elements(512),
       Elements(428),
       Elements(400),
       false,
       {ParamId(0), ParamId(1)}},
      {0, Elements(768), Elements(700), Elements(700), true, {ParamId(2)}},
      {1, Elements(256), Elements(1), Elements(1), false, {ParamId(4)}},
  };
  std::vector<GroupInfo> groups = {
      {DType::kBF16, true, Elements(512), {ChunkId(0), ChunkId(1)}},
      {DType::kF32, false, Elements(256), {ChunkId(2)}},
  };

  ChunkLayout Build() const {
    return ChunkLayout(world, align, places, chunks, groups);
  }
};

TEST(ChunkLayoutTest, AnswersWhereThingsAre) {
  const ChunkLayout layout = Parts().Build();
  EXPECT_EQ(layout.world(), 2);
  EXPECT_EQ(layout.align(), Elements(64));
  EXPECT_EQ(layout.quantum(), Elements(256));
  EXPECT_EQ(layout.place(ParamId(1)).offset, Elements(128));
  EXPECT_EQ(layout.place(ParamId(1)).chunk, ChunkId(0));
  EXPECT_FALSE(layout.place(ParamId(3)).chunk.valid());
  EXPECT_TRUE(layout.chunk(ChunkId(1)).oversize);
  EXPECT_EQ(layout.dtype(ChunkId(1)), DType::kBF16);
  EXPECT_EQ(layout.dtype(ChunkId(2)), DType::kF32);
}

TEST(ChunkLayoutTest, ShardsAreEqualAndCoverTheChunk) {
  const ChunkLayout layout = Parts().Build();
  EXPECT_EQ(layout.shard(ChunkId(1), 0).begin, Elements(0));
  EXPECT_EQ(layout.shard(ChunkId(1), 0).end, Elements(384));
  EXPECT_EQ(layout.shard(ChunkId(1), 1).begin, Elements(384));
  EXPECT_EQ(layout.shard(ChunkId(1), 1).end, Elements(768));
}

TEST(ChunkLayoutTest, SumsGroupsInElementsAndAllInBytes) {
  const ChunkLayout layout = Parts().Build();
  EXPECT_EQ(layout.allocated(0), Elements(1280));
  EXPECT_EQ(layout.payload(0), Elements(1100));
  EXPECT_EQ(layout.waste(0), Elements(180));
  EXPECT_EQ(layout.waste(1), Elements(255));
  EXPECT_EQ(layout.allocated_bytes(), Bytes(1280 * 2 + 256 * 4));
  EXPECT_EQ(layout.payload_bytes(), Bytes(1100 * 2 + 4));
}

TEST(ChunkLayoutTest, MayBeEmpty) {
  const ChunkLayout layout(1, Elements(64), {}, {}, {});
  EXPECT_EQ(layout.allocated_bytes(), Bytes(0));
  EXPECT_EQ(layout.payload_bytes(), Bytes(0));
}

TEST(ChunkLayoutDeathTest, PartsThatDisagreeAreRefused) {
  const std::vector<std::pair<const char*, std::function<void(Parts*)>>> bad = {
      {"no rank", [](Parts* p) { p->world = 0; }},
      {"alignment below 64", [](Parts* p) { p->align = Elements(32); }},
      {"overlap",
       [](Parts* p) {
         p->places[1].offset = Elements(64);
         p->chunks[0].used = Elements(364);
       }},
      {"offset not aligned",
       [](Parts* p) {
         p->places[1].offset = Elements(130);
         p->chunks[0].used = Elements(430);
       }},
      {"beyond the chunk",
       [](Parts* p) {
         p->places[1].offset = Elements(256);
         p->chunks[0].used = Elements(556);
       }},
      {"used is not the end",
       [](Parts* p) { p->chunks[0].used += Elements(1); }},
      {"payload is not the sum",
       [](Parts* p) { p->chunks[0].payload += Elements(1); }},
      {"size is not a multiple of Q",
       [](Parts* p) { p->chunks[1].size = Elements(769); }},
      {"size is not that of the group",
       [](Parts* p) { p->chunks[0].size = Elements(768); }},
      {"oversize but small",
       [](Parts* p) { p->groups[0].chunk_size = Elements(768); }},
      {"parameter in another chunk",
       [](Parts* p) { p->places[0].chunk = ChunkId(1); }},
      {"chunk in another group", [](Parts* p) { p->chunks[2].group = 0; }},
      {"chunk in no group", [](Parts* p) { p->groups[1].chunks.clear(); }},
      {"chunk that does not exist",
       [](Parts* p) { p->groups[1].chunks = {ChunkId(3)}; }},
      {"parameter listed nowhere",
       [](Parts* p) {
         p->places[3] = {ChunkId(2), Elements(64), Elements(1)};
       }},
      {"parameter that does not exist",
       [](Parts* p) { p->chunks[2].params = {ParamId(9)}; }},
      {"empty parameter in a chunk",
       [](Parts* p) { p->places[3].chunk = ChunkId(2); }},
      {"chunk without parameters",
       [](Parts* p) {
         p->places[4] = {};
         p->chunks[2] = {1, Elements(256), Elements(0), Elements(0), false, {}};
       }},
  };
  for (const auto& [what, spoil] : bad) {
    Parts parts;
    spoil(&parts);
    EXPECT_DEATH(parts.Build(), "CHECK") << what;
  }
}

TEST(ChunkLayoutDeathTest, RanksAreThoseOfTheWorld) {
  const ChunkLayout layout = Parts().Build();
  EXPECT_DEATH(layout.shard(ChunkId(0), 2), "CHECK");
  EXPECT_DEATH(layout.shard(ChunkId(0), -1), "CHECK");
}

}  // namespace
}  // namespace castor
