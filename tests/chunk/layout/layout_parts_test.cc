// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/layout_parts.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// One rank: chunk 0 holds "a" and "b", chunk 1 is oversize with "c", chunk 2
// holds "f", which is frozen; "e" is empty.
LayoutParts Parts() {
  LayoutParts parts;
  parts.world = 1;
  parts.align = 64;
  parts.quantum = 128;
  parts.groups = {{DType::kF32, true, 256}, {DType::kF32, false, 128}};
  parts.chunks = {{0, 256, false}, {0, 384, true}, {1, 128, false}};
  parts.params = {{"a", {100}, DType::kF32, true},
                  {"b", {10, 12}, DType::kF32, true},
                  {"c", {300}, DType::kF32, true},
                  {"e", {0}, DType::kF32, true},
                  {"f", {1}, DType::kF32, false}};
  parts.places = {{0, 0}, {0, 128}, {1, 0}, {-1, -1}, {2, 64}};
  return parts;
}

TEST(LayoutPartsTest, BecomeALayoutWhereTheyFit) {
  const Result<ChunkLayout> layout = AssembleLayout(Parts());
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->world(), 1);
  EXPECT_EQ(layout->place(ParamId(1)).offset, Elements(128));
  EXPECT_EQ(layout->place(ParamId(1)).size, Elements(120));
  EXPECT_FALSE(layout->place(ParamId(3)).chunk.valid());
  EXPECT_EQ(layout->chunk(ChunkId(0)).used, Elements(248));
  EXPECT_EQ(layout->chunk(ChunkId(0)).payload, Elements(220));
  EXPECT_TRUE(layout->chunk(ChunkId(1)).oversize);
  EXPECT_EQ(layout->groups()[0].chunks.size(), 2u);
  EXPECT_EQ(layout->place(ParamId(4)).offset, Elements(64));
}

TEST(LayoutPartsTest, AGroupMayHaveNoChunks) {
  LayoutParts parts;
  parts.world = 2;
  parts.align = 64;
  parts.quantum = 256;
  parts.groups = {{DType::kF32, true, 256}};
  parts.params = {{"e", {0}, DType::kF32, true}};
  parts.places = {{-1, -1}};
  EXPECT_THAT(AssembleLayout(parts), IsOk());
}

struct Contradiction {
  std::string message;
  std::function<void(LayoutParts&)> make;
};

class LayoutPartsContradictionTest
    : public testing::TestWithParam<Contradiction> {};

TEST_P(LayoutPartsContradictionTest, IsMalformedAndNamed) {
  LayoutParts parts = Parts();
  GetParam().make(parts);
  EXPECT_THAT(AssembleLayout(parts),
              StatusIs(ErrorCode::kMalformed, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, LayoutPartsContradictionTest,
    testing::Values(
        Contradiction{"world of 0 ranks", [](auto& p) { p.world = 0; }},
        Contradiction{"world of 0 ranks", [](auto& p) { p.world = kMax; }},
        Contradiction{"groups 0 and 1 both hold trainable F32, in chunks of "
                      "256 and 128 elements",
                      [](auto& p) { p.groups[1].trainable = true; }},
        Contradiction{"alignment of 96 elements",
                      [](auto& p) { p.align = 96; }},
        Contradiction{"alignment of 0 elements", [](auto& p) { p.align = 0; }},
        Contradiction{"2 ranks need multiples of 256",
                      [](auto& p) { p.world = 2; }},
        Contradiction{"a chunk of group 1 has 0 elements",
                      [](auto& p) { p.groups[1].chunk_elements = 0; }},
        Contradiction{"a chunk of group 1 has 192 elements; a chunk's size is "
                      "a positive multiple of 128",
                      [](auto& p) { p.groups[1].chunk_elements = 192; }},
        Contradiction{"a chunk of group 0 has 9223372036854775680 elements",
                      [](auto& p) { p.groups[0].chunk_elements = kMax - 127; }},
        Contradiction{"chunk 0 has 100 elements",
                      [](auto& p) { p.chunks[0].elements = 100; }},
        Contradiction{"chunk 0 has 384 elements, and chunks of its group 0 "
                      "have 256",
                      [](auto& p) { p.chunks[0].elements = 384; }},
        Contradiction{"chunk 1 belongs to group 2 of 2",
                      [](auto& p) { p.chunks[1].group = 2; }},
        Contradiction{"chunk 1 belongs to group -1 of 2",
                      [](auto& p) { p.chunks[1].group = -1; }},
        Contradiction{"up to chunk 4 its chunks hold more than", [](auto& p) {
                        for (int i = 0; i < 4; ++i) {
                          p.chunks.push_back({0, int64_t{1} << 54, true});
                        }
                      }}));

INSTANTIATE_TEST_SUITE_P(
    Chunks, LayoutPartsContradictionTest,
    testing::Values(
        Contradiction{"chunk 3 holds no parameter",
                      [](auto& p) {
                        p.chunks.push_back({0, 256, false});
                      }},
        Contradiction{"chunk 0 is called oversize and holds 2 parameters of "
                      "220 elements",
                      [](auto& p) { p.chunks[0].oversize = true; }},
        Contradiction{"oversize is one that holds a single parameter of more "
                      "than 256",
                      [](auto& p) { p.params[2].shape = {256}; }},
        Contradiction{"chunk 1 is oversize and has 512 elements; its parameter "
                      "ends at 300, which rounds up to 384",
                      [](auto& p) { p.chunks[1].elements = 512; }}));

INSTANTIATE_TEST_SUITE_P(
    Params, LayoutPartsContradictionTest,
    testing::Values(
        Contradiction{"the name of parameter 2 is empty",
                      [](auto& p) { p.params[2].name.clear(); }},
        Contradiction{"parameter 4 \"a\": the name was given already",
                      [](auto& p) { p.params[4].name = "a"; }},
        Contradiction{"parameter 0 \"a\": shape [3037000500, 3037000500]",
                      [](auto& p) {
                        p.params[0].shape = {3037000500, 3037000500};
                      }},
        Contradiction{"has the negative dimension -1",
                      [](auto& p) { p.params[0].shape = {-1}; }},
        Contradiction{"parameter 3 \"e\": it has no elements, so no chunk",
                      [](auto& p) {
                        p.places[3] = {0, 0};
                      }},
        Contradiction{"parameter 0 \"a\": it lies in chunk -1 of 3",
                      [](auto& p) {
                        p.places[0] = {-1, -1};
                      }},
        Contradiction{"parameter 0 \"a\": it lies in chunk 3 of 3",
                      [](auto& p) { p.places[0].chunk = 3; }},
        Contradiction{"it is trainable BF16, and chunk 0 holds trainable F32",
                      [](auto& p) { p.params[1].dtype = DType::kBF16; }},
        Contradiction{"it is frozen F32, and chunk 0 holds trainable F32",
                      [](auto& p) { p.params[1].trainable = false; }},
        Contradiction{"its offset 130 is no multiple of the alignment of 64",
                      [](auto& p) { p.places[1].offset = 130; }},
        Contradiction{"its offset -64 is no multiple",
                      [](auto& p) { p.places[1].offset = -64; }},
        Contradiction{"it begins at 64 in chunk 0, where those before it reach "
                      "to 100",
                      [](auto& p) { p.places[1].offset = 64; }},
        Contradiction{"its 120 elements from 192 on reach beyond the 256 of "
                      "chunk 0",
                      [](auto& p) { p.places[1].offset = 192; }},
        Contradiction{"its 120 elements from 9223372036854775744 on reach",
                      [](auto& p) { p.places[1].offset = kMax - 63; }},
        Contradiction{"it lies in chunk 0, and one before it in chunk 1",
                      [](auto& p) { std::swap(p.places[0], p.places[2]); }}));

// Any numbers at all: nothing overflows, and what is accepted passes the
// layout's own CHECKs.
TEST(LayoutPartsTest, BearAnyNumbers) {
  std::mt19937_64 random(TestSeed(3));
  const int64_t likely[] = {-1,
                            0,
                            1,
                            64,
                            100,
                            128,
                            256,
                            384,
                            512,
                            kMax,
                            kMax - 127,
                            -kMax - 1,
                            2,
                            3,
                            192,
                            1 << 30,
                            int64_t{1} << 55};
  const auto number = [&]() -> int64_t {
    return random() % 8 == 0 ? static_cast<int64_t>(random())
                             : likely[random() % std::size(likely)];
  };
  int accepted = 0;
  for (int round = 0; round < 100'000; ++round) {
    LayoutParts parts = Parts();
    for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
      const auto pick = [&](auto& list) -> auto& {
        return list[random() % list.size()];
      };
      switch (random() % 9) {
        case 0:
          parts.world = number();
          break;
        case 1:
          parts.align = number();
          break;
        case 2:
          parts.quantum = number();
          break;
        case 3:
          pick(parts.groups).chunk_elements = number();
          break;
        case 4:
          pick(parts.chunks) = {number(), number(), random() % 2 == 0};
          break;
        case 5:
          pick(parts.chunks).elements = number();
          break;
        case 6:
          pick(parts.params).shape = {number(), number()};
          break;
        case 7:
          pick(parts.places) = {number(), number()};
          break;
        case 8:
          pick(parts.places).offset = number();
          break;
      }
    }
    const Result<ChunkLayout> layout = AssembleLayout(parts);
    if (!layout.ok()) {
      ASSERT_EQ(layout.status().code(), ErrorCode::kMalformed);
      continue;
    }
    ++accepted;
    ASSERT_GE(layout->allocated_bytes(), layout->payload_bytes());
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace castor
