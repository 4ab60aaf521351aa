// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/search_certificate.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "chunk/chunk_size_search.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/chunk/search_input.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::HasSubstr;

const std::vector<Elements> kSizes = {
    Elements(100), Elements(300), Elements(700), Elements(90), Elements(128)};

// By hand, for Q = 128 and allowed sizes 256, 384 and 512: at 256, 300 and 700
// are oversize (384 and 768) and the rest takes two chunks, 1664 in all; at 384
// 700 is oversize and 100 and 300 do not fit together, 3 * 384 + 768 = 1920; at
// 512 they do, 2 * 512 + 768 = 1792. The payload is 1318.
SearchCertificate ByHand() {
  SearchCertificate certificate;
  certificate.min_size = Elements(256);
  certificate.max_size = Elements(512);
  certificate.lower_bound_waste = Elements(1664 - 1318);
  certificate.optimal = true;
  certificate.intervals = {
      {Elements(256), Elements(256), 2, Elements(1152)},
      {Elements(384), Elements(384), 3, Elements(768)},
      {Elements(512), Elements(512), 2, Elements(768)},
  };
  return certificate;
}

Status Verify(const SearchCertificate& certificate,
              Elements best_waste = Elements(346)) {
  return VerifyCertificate(certificate, kSizes, {}, best_waste);
}

TEST(VerifyCertificateTest, AcceptsAProof) {
  EXPECT_THAT(Verify(ByHand()), IsOk());
}

TEST(VerifyCertificateTest, AcceptsAWeakerBoundThatDoesNotClaimTheOptimum) {
  SearchCertificate certificate = ByHand();
  // One interval for 384 and 512: 384 * 2 + 768 = 1536 bounds it.
  certificate.intervals.pop_back();
  certificate.intervals[1] = {Elements(384), Elements(512), 2, Elements(768)};
  certificate.lower_bound_waste = Elements(1536 - 1318);
  certificate.optimal = false;
  EXPECT_THAT(Verify(certificate), IsOk());
  certificate.optimal = true;
  EXPECT_THAT(Verify(certificate),
              StatusIs(ErrorCode::kMalformed, HasSubstr("says optimal")));
}

TEST(VerifyCertificateTest, RefusesTwoOversizeSetsInOneInterval) {
  SearchCertificate certificate = ByHand();
  certificate.intervals.erase(certificate.intervals.begin());
  certificate.intervals[0].from = Elements(256);
  EXPECT_THAT(Verify(certificate),
              StatusIs(ErrorCode::kMalformed,
                       HasSubstr("two oversize sets: a parameter of 300")));
}

TEST(VerifyCertificateTest, RefusesABestBelowTheBound) {
  EXPECT_THAT(Verify(ByHand(), Elements(345)),
              StatusIs(ErrorCode::kMalformed, HasSubstr("below the proven")));
}

TEST(VerifyCertificateTest, RefusesOtherParameters) {
  std::vector<Elements> sizes = kSizes;
  sizes[0] += Elements(1);
  EXPECT_THAT(VerifyCertificate(ByHand(), sizes, {}, Elements(346)),
              StatusIs(ErrorCode::kMalformed));
  EXPECT_THAT(
      VerifyCertificate(ByHand(), std::vector<Elements>(), {}, Elements(346)),
      StatusIs(ErrorCode::kMalformed));
}

TEST(VerifyCertificateTest, RefusesOtherOptions) {
  EXPECT_THAT(
      VerifyCertificate(ByHand(), kSizes, {.world = 8, .align = Elements(64)},
                        Elements(346)),
      StatusIs(ErrorCode::kMalformed));
  EXPECT_THAT(
      VerifyCertificate(ByHand(), kSizes, {.world = 0, .align = Elements(64)},
                        Elements(346)),
      StatusIs(ErrorCode::kInvalidArgument));
}

TEST(VerifyCertificateTest, RefusesSizesThatWouldOverflow) {
  SearchCertificate certificate = ByHand();
  certificate.max_size =
      Elements(std::numeric_limits<int64_t>::max() / 128 * 128);
  certificate.intervals.back().to = certificate.max_size;
  EXPECT_FALSE(Verify(certificate).ok());
}

using Tamper = std::function<void(SearchCertificate*)>;

// One change of every field, both ways, at every interval.
std::vector<std::pair<std::string, Tamper>> AllTampers(
    const SearchCertificate& certificate, Elements quantum) {
  std::vector<std::pair<std::string, Tamper>> tampers;
  const auto add = [&tampers](std::string what, Tamper tamper) {
    tampers.emplace_back(std::move(what), std::move(tamper));
  };
  for (const Elements step :
       {quantum, quantum * -1, Elements(1), Elements(-1)}) {
    add("min_size", [step](auto* c) { c->min_size += step; });
    add("max_size", [step](auto* c) { c->max_size += step; });
    add("lower_bound_waste", [step](auto* c) { c->lower_bound_waste += step; });
    for (size_t i = 0; i < certificate.intervals.size(); ++i) {
      add("from", [step, i](auto* c) { c->intervals[i].from += step; });
      add("to", [step, i](auto* c) { c->intervals[i].to += step; });
      add("oversize", [step, i](auto* c) { c->intervals[i].oversize += step; });
    }
  }
  add("optimal", [](auto* c) { c->optimal = !c->optimal; });
  add("no intervals", [](auto* c) { c->intervals.clear(); });
  for (size_t i = 0; i < certificate.intervals.size(); ++i) {
    add("chunks + 1", [i](auto* c) { ++c->intervals[i].chunks; });
    add("chunks - 1", [i](auto* c) { --c->intervals[i].chunks; });
    const auto at = static_cast<std::ptrdiff_t>(i);
    add("left out",
        [at](auto* c) { c->intervals.erase(c->intervals.begin() + at); });
    add("twice", [at](auto* c) {
      c->intervals.insert(c->intervals.begin() + at, c->intervals[at]);
    });
    if (i == 0) continue;
    add("merged", [at](auto* c) {
      c->intervals[at].from = c->intervals[at - 1].from;
      c->intervals.erase(c->intervals.begin() + at - 1);
    });
  }
  return tampers;
}

TEST(VerifyCertificateTest, RefusesATamperedFieldAnywhere) {
  std::mt19937_64 random(TestSeed(41));
  for (int round = 0; round < 200; ++round) {
    const PackOptions options = {.world = round % 2 == 0 ? 1 : 3,
                                 .align = Elements(64)};
    const Elements quantum = ChunkQuantum(options.world);
    const std::vector<Elements> sizes =
        RandomSizes(random, 30, quantum.count(), 12 * quantum.count());
    if (sizes.empty()) continue;
    SearchOptions search;
    search.min_chunk = BytesOf(quantum * 3, DType::kU8);
    search.max_chunk = BytesOf(quantum * 20, DType::kU8);
    search.pack = options;
    const SearchResult found =
        SearchChunkSize(ParamsOf(sizes, DType::kU8), search).value();
    const GroupSearchResult& group = found.groups[0];
    const auto verify = [&](const SearchCertificate& certificate) {
      return VerifyCertificate(certificate, sizes, options, group.best.waste);
    };
    SCOPED_TRACE(testing::Message() << "round " << round);
    const SearchCertificate& proof = ProofOf(group);
    ASSERT_THAT(verify(proof), IsOk());
    for (const auto& [what, tamper] : AllTampers(proof, quantum)) {
      SearchCertificate tampered = proof;
      tamper(&tampered);
      EXPECT_FALSE(verify(tampered).ok()) << what;
    }
  }
}

}  // namespace
}  // namespace castor
