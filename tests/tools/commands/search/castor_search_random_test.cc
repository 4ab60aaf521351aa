// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The JSON document of `castor search` against the parameters' sizes: costs
// against a second packer that is written out here, and proofs with the
// library's verifiers, from the document's numbers alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout/size_family.h"
#include "chunk/param_spec.h"
#include "chunk/search/layer_certificate.h"
#include "chunk/search/search_certificate.h"
#include "chunk/text/json_value.h"
#include "tests/support/test_rounds.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

// What a document was made from: one group of parameters, in order.
struct SearchedModel {
  std::vector<int64_t> sizes;
  std::vector<bool> whole;  // by parameter
  int64_t world = 1;
  int64_t align = 64;
  int64_t bytes_each = 4;
  int64_t gathered_slots = 3;
};

int64_t RoundedUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct Packed {
  int64_t allocated = 0;
  int64_t chunks = 0;
  int64_t oversize_chunks = 0;
  std::set<int64_t> oversize_sizes;
};

// Next-fit: what a chunk does not hold is oversize and closes the open one.
Packed PackAgain(const SearchedModel& model, int64_t chunk_size) {
  const int64_t q = 128 * model.world;
  Packed packed;
  int64_t end = chunk_size;  // of the last parameter in the open chunk
  for (size_t i = 0; i < model.sizes.size(); ++i) {
    const int64_t size = model.sizes[i];
    if (size == 0) continue;
    const bool oversize = size > chunk_size;
    int64_t start = RoundedUp(end, model.align);
    if (model.whole[i]) {
      const int64_t shard = chunk_size / model.world;
      const int64_t border = (start / shard + 1) * shard;
      if (start + size > border) start = RoundedUp(start, shard);
    }
    if (!oversize && start + size <= chunk_size) {
      end = start + size;
      continue;
    }
    ++packed.chunks;
    packed.allocated += oversize ? RoundedUp(size, q) : chunk_size;
    end = oversize ? chunk_size : size;
    if (!oversize) continue;
    ++packed.oversize_chunks;
    packed.oversize_sizes.insert(RoundedUp(size, q));
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
  const int64_t chunk_size = candidate["chunk_elements"].integer();
  const int64_t payload = PayloadOf(model);
  EXPECT_EQ(chunk_size % (128 * model.world), 0);
  const Packed packed = PackAgain(model, chunk_size);
  EXPECT_EQ(candidate["chunk_bytes"], chunk_size * model.bytes_each);
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
  int64_t gathered = model.gathered_slots * chunk_size;
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

// The model as the library knows it.
std::vector<ParamSpec> SpecsOf(const SearchedModel& model) {
  std::vector<ParamSpec> specs;
  for (size_t i = 0; i < model.sizes.size(); ++i) {
    ParamSpec& spec = specs.emplace_back();
    spec.shape = {model.sizes[i]};
    spec.whole = model.whole[i];
  }
  return specs;
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
  pack.shards = pack.world;
  const Elements bound(proof["lower_bound_waste_elements"].integer());
  EXPECT_EQ(proof["optimal"], bound == Elements(best_waste));
  Status status;
  if (proof["mode"] == "uniform") {
    SearchCertificate certificate;
    for (const JsonValue& one : proof["intervals"]) {
      certificate.intervals.push_back(
          {Elements(one["from_elements"].integer()),
           Elements(one["to_elements"].integer()), one["chunks"].integer(),
           Elements(one["oversize_elements"].integer())});
    }
    ASSERT_FALSE(certificate.intervals.empty());
    certificate.min_size = certificate.intervals.front().from;
    certificate.max_size = certificate.intervals.back().to;
    certificate.lower_bound_waste = bound;
    certificate.optimal = proof["optimal"].boolean();
    const std::vector<SizeFamily> families =
        SizeFamilies(SpecsOf(model), pack).value();
    ASSERT_EQ(families.size(), 1u);
    status =
        VerifyCertificate(certificate, families[0], pack, Elements(best_waste));
  } else {
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
  }
  EXPECT_TRUE(status.ok()) << status;
}

// Fails the running test for the first number of each kind that is wrong.
void CheckDocument(const JsonValue& document, const SearchedModel& model) {
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

TEST(CastorSearchRandomTest, AgreesWithASecondPackerOnRandomLists) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < TestRounds(20); ++round) {
    std::vector<int64_t> sizes;
    std::string list;
    for (size_t i = 0, count = 1 + random() % 40; i < count; ++i) {
      sizes.push_back(static_cast<int64_t>(random() % 5000));
    }
    if (round % 2 == 0) {
      // A model of layers: the whole list again and again.
      const std::vector<int64_t> layer(sizes.begin() + 1, sizes.end());
      for (size_t i = 0, more = random() % 4; i < more; ++i) {
        sizes.insert(sizes.end(), layer.begin(), layer.end());
      }
    }
    // In every third list an optimizer updates some parameters as a whole.
    std::vector<bool> whole;
    for (size_t i = 0; i < sizes.size(); ++i) {
      whole.push_back(round % 3 == 0 && sizes[i] < 3000 && random() % 2 == 0);
      list += "p" + std::to_string(i) + "\t" + std::to_string(sizes[i]) +
              "\tF32" + (whole.back() ? "\twhole\n" : "\n");
    }
    const int64_t world = 1 + static_cast<int64_t>(random() % 3);
    const int64_t align = random() % 2 == 0 ? 64 : 192;
    const int64_t depth = static_cast<int64_t>(random() % 3);
    const ProcessOutcome outcome = RunProcess(
        {"tools/castor", "search", "-", "--json", "--order", "file", "--min",
         "4KiB", "--max", "24KiB", "--world", std::to_string(world), "--align",
         std::to_string(align), "--prefetch", std::to_string(depth)},
        list);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    CheckDocument(ParseJson(outcome.out).value(),
                  {.sizes = sizes,
                   .whole = whole,
                   .world = world,
                   .align = align,
                   .bytes_each = 4,
                   .gathered_slots = depth + 2});
    if (HasFailure()) FAIL() << list;
  }
}

}  // namespace
}  // namespace castor
