// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/tools/commands/search/search_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "chunk/base/json_value.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_packer.h"
#include "chunk/layer_certificate.h"
#include "chunk/search_certificate.h"

namespace castor {
namespace {

int64_t RoundedUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct Packed {
  int64_t allocated = 0;
  int64_t chunks = 0;  // oversize ones included
  int64_t oversize_chunks = 0;
  std::set<int64_t> oversize_sizes;
};

// Next-fit in chunks of `chunk` elements; a larger parameter is oversize.
Packed PackAgain(const SearchedModel& model, int64_t chunk) {
  const int64_t q = 128 * model.world;
  Packed packed;
  std::optional<int64_t> open_until;  // end of the last parameter
  for (const int64_t size : model.sizes) {
    if (size == 0) continue;
    if (size > chunk) {
      open_until.reset();
      packed.allocated += RoundedUp(size, q);
      ++packed.chunks;
      ++packed.oversize_chunks;
      packed.oversize_sizes.insert(RoundedUp(size, q));
      continue;
    }
    if (open_until) {
      const int64_t start = RoundedUp(*open_until, model.align);
      if (start + size <= chunk) {
        open_until = start + size;
        continue;
      }
    }
    packed.allocated += chunk;
    ++packed.chunks;
    open_until = size;
  }
  return packed;
}

int64_t PayloadOf(const SearchedModel& model) {
  int64_t payload = 0;
  for (const int64_t size : model.sizes) payload += size;
  return payload;
}

void CheckCandidate(const JsonValue& candidate, const SearchedModel& model) {
  SCOPED_TRACE(candidate.Dump());
  const int64_t chunk = candidate["chunk_elements"].integer();
  const int64_t payload = PayloadOf(model);
  EXPECT_EQ(chunk % (128 * model.world), 0);
  const Packed packed = PackAgain(model, chunk);
  EXPECT_EQ(candidate["chunk_bytes"], chunk * model.bytes_each);
  EXPECT_EQ(candidate["chunks"], packed.chunks);
  EXPECT_EQ(candidate["oversize_chunks"], packed.oversize_chunks);
  EXPECT_EQ(candidate["allocated_elements"], packed.allocated);
  const int64_t waste = packed.allocated - payload;
  EXPECT_EQ(candidate["waste_elements"], waste);
  EXPECT_EQ(candidate["waste_bytes"], waste * model.bytes_each);
  EXPECT_DOUBLE_EQ(
      candidate["waste_fraction"].real(),
      packed.allocated == 0
          ? 0
          : static_cast<double>(waste) / static_cast<double>(packed.allocated));
  int64_t gathered = model.gathered_slots * chunk;
  for (const int64_t size : packed.oversize_sizes) gathered += size;
  EXPECT_EQ(candidate["gathered_bytes"], gathered * model.bytes_each);
}

// No other is better in one of the costs and as good in the rest, unless it is
// the best of its mode.
void CheckFront(const JsonValue& document) {
  const JsonValue& candidates = document["candidates"];
  std::map<std::string, int64_t> least;
  for (const JsonValue& c : candidates) {
    const std::string& mode = c["mode"].text();
    const int64_t waste = c["waste_elements"].integer();
    const auto [at, is_new] = least.emplace(mode, waste);
    if (!is_new) at->second = std::min(at->second, waste);
  }
  for (const JsonValue& c : candidates) {
    if (c["waste_elements"] == least[c["mode"].text()]) continue;
    for (const JsonValue& other : candidates) {
      bool better = false;
      bool worse = false;
      for (const char* cost : {"waste_elements", "chunks", "gathered_bytes"}) {
        const int64_t here = c[cost].integer();
        const int64_t there = other[cost].integer();
        better = better || there < here;
        worse = worse || there > here;
      }
      EXPECT_FALSE(better && !worse) << c << " beside " << other;
    }
  }
}

std::vector<CertificateInterval> Intervals(const JsonValue& list) {
  std::vector<CertificateInterval> intervals;
  for (const JsonValue& one : list) {
    intervals.push_back({Elements(one["from_elements"].integer()),
                         Elements(one["to_elements"].integer()),
                         one["chunks"].integer(),
                         Elements(one["oversize_elements"].integer())});
  }
  return intervals;
}

// The proof, rebuilt from what is printed, is one.
void CheckCertificate(const JsonValue& proof, const SearchedModel& model,
                      int64_t best_waste) {
  SCOPED_TRACE("mode " + proof["mode"].text());
  std::vector<Elements> sizes;
  for (const int64_t size : model.sizes) sizes.emplace_back(size);
  PackOptions pack;
  pack.world = static_cast<int>(model.world);
  pack.align = Elements(model.align);
  const Elements bound(proof["lower_bound_waste_elements"].integer());
  EXPECT_EQ(proof["optimal"], bound == Elements(best_waste));
  Status status;
  if (proof["mode"] == "uniform") {
    SearchCertificate certificate;
    certificate.intervals = Intervals(proof["intervals"]);
    ASSERT_FALSE(certificate.intervals.empty());
    certificate.min_size = certificate.intervals.front().from;
    certificate.max_size = certificate.intervals.back().to;
    certificate.lower_bound_waste = bound;
    certificate.optimal = proof["optimal"].boolean();
    status = VerifyCertificate(certificate, sizes, pack, Elements(best_waste));
  } else if (proof["mode"] == "layer") {
    LayerCertificate certificate;
    const JsonValue& repeat = proof["repeat"];
    certificate.repeat = {repeat["first"].integer(), repeat["params"].integer(),
                          repeat["repeats"].integer()};
    for (const JsonValue& step : proof["steps"]) {
      certificate.steps.push_back({step["chunks_per_repeat"].integer(),
                                   Elements(step["chunk_elements"].integer()),
                                   Elements(step["waste_elements"].integer())});
    }
    status =
        VerifyLayerCertificate(certificate, sizes, pack, Elements(best_waste));
  } else {
    ADD_FAILURE() << "no mode is called " << proof["mode"].Dump();
  }
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace

void CheckSearchDocument(const JsonValue& document,
                         const SearchedModel& model) {
  EXPECT_EQ(document["schema"], "castor.search/1");
  EXPECT_EQ(document["alignment"]["q_elements"], 128 * model.world);
  EXPECT_EQ(document["alignment"]["a_elements"], model.align);
  EXPECT_EQ(document["model"]["elements"], PayloadOf(model));
  EXPECT_EQ(document["model"]["parameters"], PayloadOf(model));
  EXPECT_EQ(document["model"]["tensors"], model.sizes.size());

  const JsonValue& candidates = document["candidates"];
  ASSERT_FALSE(candidates.empty());
  std::map<std::string, int64_t> least_waste;
  for (const JsonValue& candidate : candidates) {
    CheckCandidate(candidate, model);
    const int64_t waste = candidate["waste_elements"].integer();
    const auto [at, is_new] =
        least_waste.emplace(candidate["mode"].text(), waste);
    if (!is_new) at->second = std::min(at->second, waste);
  }
  CheckFront(document);
  EXPECT_THAT(candidates, testing::Contains(document["best"]));
  EXPECT_THAT(candidates, testing::Contains(document["recommended"]));
  for (const auto& [mode, waste] : least_waste) {
    EXPECT_LE(document["best"]["waste_elements"].integer(), waste) << mode;
  }
  EXPECT_EQ(document["certificate"]["mode"], document["best"]["mode"]);
  EXPECT_THAT(document["certificates"],
              testing::Contains(document["certificate"]));
  for (const JsonValue& proof : document["certificates"]) {
    const std::string& mode = proof["mode"].text();
    ASSERT_TRUE(least_waste.contains(mode)) << mode;
    CheckCertificate(proof, model, least_waste[mode]);
  }
  EXPECT_EQ(document["certificates"].size(), least_waste.size());
}

}  // namespace castor
