// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/layer_certificate.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/search/mode_search.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::HasSubstr;

// One of 1000, then 128, 256 and 100 three times, then 128 as if once more.
const std::vector<Elements> kSizes = {
    Elements(1000), Elements(128), Elements(256), Elements(100),
    Elements(128),  Elements(256), Elements(100), Elements(128),
    Elements(256),  Elements(100), Elements(128)};
constexpr int64_t kPayload = 1000 + 3 * (128 + 256 + 100) + 128;

// By hand, for Q = 128. A layer takes one chunk of 512 (128 and 256 and 100 end
// at 484), and two of 384 (128 and 256, then 100); at 256, the least that holds
// all, three. The group at 512: 1024 for the first, then four chunks, 3072 in
// all. At 384: 1024, then 128 + 256 | 100 + 128 (from 128 to 256), not 256 more
// | 256 + 100 | 128 + 256 | 100 + 128: five, 2944 in all. At 256: 1024, then
// 128 | 256 | 100 + 128 | 256 | 100 + 128 | 256 | 100 + 128: seven, 2816.
LayerCertificate ByHand() {
  LayerCertificate certificate;
  certificate.repeat = {1, 3, 3};
  certificate.steps = {{1, Elements(512), Elements(3072 - kPayload)},
                       {2, Elements(384), Elements(2944 - kPayload)}};
  for (int64_t m = 3; m <= 8; ++m) {
    certificate.steps.push_back({m, Elements(256), Elements(2816 - kPayload)});
  }
  return certificate;
}

Status Verify(const LayerCertificate& certificate,
              Elements best_waste = Elements(2816 - kPayload)) {
  return VerifyLayerCertificate(certificate, kSizes, {}, best_waste);
}

TEST(VerifyLayerCertificateTest, AcceptsAProof) {
  EXPECT_THAT(Verify(ByHand()), IsOk());
}

TEST(VerifyLayerCertificateTest, RefusesLayersThatAreNotThere) {
  LayerCertificate certificate = ByHand();
  certificate.repeat = {1, 3, 4};
  EXPECT_THAT(Verify(certificate),
              StatusIs(ErrorCode::kMalformed, HasSubstr("4 times 3")));
  certificate.repeat = {0, 3, 3};
  EXPECT_THAT(Verify(certificate),
              StatusIs(ErrorCode::kMalformed, HasSubstr("do not repeat")));
  const int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const LayerRepeat& repeat :
       {LayerRepeat{-1, 3, 3}, LayerRepeat{1, 0, 3}, LayerRepeat{1, 3, 1},
        LayerRepeat{1, -3, -3}, LayerRepeat{kMost, 3, 3},
        LayerRepeat{1, kMost, 3}, LayerRepeat{1, 3, kMost}}) {
    certificate.repeat = repeat;
    EXPECT_THAT(Verify(certificate),
                StatusIs(ErrorCode::kMalformed, HasSubstr("must be two")));
  }
}

TEST(VerifyLayerCertificateTest, RefusesARunThatIsPartOfALongerOne) {
  LayerCertificate certificate = ByHand();
  certificate.repeat = {1, 3, 2};
  EXPECT_THAT(Verify(certificate),
              StatusIs(ErrorCode::kMalformed, HasSubstr("more than 2 times")));
  certificate.repeat = {2, 3, 3};
  EXPECT_THAT(Verify(certificate),
              StatusIs(ErrorCode::kMalformed, HasSubstr("begin before")));
}

TEST(VerifyLayerCertificateTest, RefusesLayersWithoutElements) {
  LayerCertificate certificate = ByHand();
  certificate.repeat = {0, 1, 2};
  const std::vector<Elements> sizes = {Elements(0), Elements(0), Elements(5)};
  EXPECT_THAT(VerifyLayerCertificate(certificate, sizes, {}, Elements(0)),
              StatusIs(ErrorCode::kMalformed, HasSubstr("no elements")));
}

TEST(VerifyLayerCertificateTest, RefusesASizeThatIsNotTheLeast) {
  LayerCertificate certificate = ByHand();
  certificate.steps[1] = certificate.steps[0];
  certificate.steps[1].chunks_per_repeat = 2;
  EXPECT_THAT(
      Verify(certificate),
      StatusIs(ErrorCode::kMalformed, HasSubstr("384 elements hold a layer")));
  certificate.steps[1].chunk_size = Elements(256);
  EXPECT_THAT(Verify(certificate),
              StatusIs(ErrorCode::kMalformed, HasSubstr("in 3, not in 2")));
  certificate.steps[1].chunk_size = Elements(128);
  EXPECT_THAT(Verify(certificate),
              StatusIs(ErrorCode::kMalformed, HasSubstr("largest parameter")));
  certificate.steps[1].chunk_size = Elements(-384);
  EXPECT_THAT(Verify(certificate),
              StatusIs(ErrorCode::kMalformed, HasSubstr("largest parameter")));
}

TEST(VerifyLayerCertificateTest, RefusesSizesThatWouldOverflow) {
  LayerCertificate certificate = ByHand();
  certificate.steps[0].chunk_size =
      Elements(std::numeric_limits<int64_t>::max() / 128 * 128);
  EXPECT_FALSE(Verify(certificate).ok());
}

TEST(VerifyLayerCertificateTest, RefusesAnotherBest) {
  EXPECT_THAT(Verify(ByHand(), Elements(2816 - kPayload + 1)),
              StatusIs(ErrorCode::kMalformed, HasSubstr("least of the steps")));
  EXPECT_FALSE(Verify(ByHand(), Elements(2816 - kPayload - 1)).ok());
}

TEST(VerifyLayerCertificateTest, RefusesOtherParametersAndOptions) {
  const Elements best(2816 - kPayload);
  std::vector<Elements> sizes = kSizes;
  sizes[0] += Elements(1);
  EXPECT_FALSE(VerifyLayerCertificate(ByHand(), sizes, {}, best).ok());
  EXPECT_FALSE(VerifyLayerCertificate(ByHand(), {}, {}, best).ok());
  const PackOptions eight = {.world = 8, .align = Elements(64)};
  EXPECT_FALSE(VerifyLayerCertificate(ByHand(), kSizes, eight, best).ok());
  const PackOptions none = {.world = 0, .align = Elements(64)};
  EXPECT_THAT(VerifyLayerCertificate(ByHand(), kSizes, none, best),
              StatusIs(ErrorCode::kInvalidArgument));
}

using Tamper = std::function<void(LayerCertificate*)>;

// One change of every field, both ways, at every step.
std::vector<std::pair<std::string, Tamper>> AllTampers(Elements quantum) {
  std::vector<std::pair<std::string, Tamper>> tampers;
  const auto add = [&tampers](std::string what, Tamper tamper) {
    tampers.emplace_back(std::move(what), std::move(tamper));
  };
  for (const int64_t step : {1, -1}) {
    add("first", [step](auto* c) { c->repeat.first += step; });
    add("params", [step](auto* c) { c->repeat.params += step; });
    add("repeats", [step](auto* c) { c->repeat.repeats += step; });
    for (size_t i = 0; i < static_cast<size_t>(kMaxChunksPerRepeat); ++i) {
      add("m", [=](auto* c) { c->steps[i].chunks_per_repeat += step; });
      add("size", [=](auto* c) { c->steps[i].chunk_size += Elements(step); });
      add("size by Q",
          [=](auto* c) { c->steps[i].chunk_size += quantum * step; });
      add("waste", [=](auto* c) { c->steps[i].waste += Elements(step); });
    }
  }
  add("no steps", [](auto* c) { c->steps.clear(); });
  for (std::ptrdiff_t i = 0; i < kMaxChunksPerRepeat; ++i) {
    add("left out", [i](auto* c) { c->steps.erase(c->steps.begin() + i); });
    add("twice", [i](auto* c) {
      const LayerStep step = c->steps[static_cast<size_t>(i)];
      c->steps.insert(c->steps.begin() + i, step);
    });
  }
  add("a ninth", [](auto* c) {
    c->steps.push_back(c->steps.back());
    c->steps.back().chunks_per_repeat = kMaxChunksPerRepeat + 1;
  });
  return tampers;
}

TEST(VerifyLayerCertificateTest, RefusesATamperedFieldAnywhere) {
  std::mt19937_64 random(TestSeed(42));
  int verified = 0;
  for (int round = 0; round < 300; ++round) {
    const PackOptions options = {.world = round % 2 == 0 ? 1 : 3,
                                 .align = Elements(64)};
    const Elements quantum = ChunkQuantum(options.world);
    std::vector<Elements> sizes =
        RandomSizes(random, 5, quantum.count(), 12 * quantum.count());
    const std::vector<Elements> layer =
        RandomSizes(random, 12, quantum.count(), 6 * quantum.count());
    for (int i = 0; i < 3; ++i) {
      sizes.insert(sizes.end(), layer.begin(), layer.end());
    }
    const std::vector<PackedGroup> groups = {{sizes}};
    ModeSearchInput input;
    input.groups = groups;
    for (const Elements size : sizes) input.payload += size;
    input.dtype = DType::kU8;
    input.quantum = quantum;
    input.min_size = quantum;
    input.max_size = quantum;
    input.pack = options;
    const std::optional<ModeSearch> found = SearchLayer(input);
    if (!found) continue;
    ++verified;
    const auto& proof = std::get<LayerCertificate>(found->result.certificate);
    const auto verify = [&](const LayerCertificate& certificate) {
      return VerifyLayerCertificate(certificate, sizes, options,
                                    found->result.best.waste);
    };
    SCOPED_TRACE(testing::Message() << "round " << round);
    ASSERT_THAT(verify(proof), IsOk());
    for (const auto& [what, tamper] : AllTampers(quantum)) {
      LayerCertificate tampered = proof;
      tamper(&tampered);
      EXPECT_FALSE(verify(tampered).ok()) << what;
    }
  }
  EXPECT_GT(verified, 200);
}

}  // namespace
}  // namespace castor
