// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// `castor search` as a user runs it: a process with its own streams.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/param_spec.h"
#include "tests/tools/models/model_files.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kCastor[] = "tools/castor";
constexpr char kGpt2Xl[] = "tools/models/configs/gpt2-xl/config.json";
constexpr char kLlama[] = "tools/models/configs/llama-3-8b/config.json";

ProcessOutcome Castor(std::vector<std::string> args,
                      const std::string& input = "") {
  args.insert(args.begin(), kCastor);
  return RunProcess(args, input);
}

// The document, after checking that the run succeeded.
json Document(std::vector<std::string> args, const std::string& input = "") {
  args.push_back("--json");
  const ProcessOutcome outcome = Castor(std::move(args), input);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.back(), '\n');
  return json::parse(outcome.out);
}

// Next-fit by the words of the design, independent of the library's: elements
// allocated and chunks opened for `sizes` at chunk size `c`.
struct Packed {
  int64_t allocated = 0;
  int64_t chunks = 0;
};

Packed PackAgain(const std::vector<int64_t>& sizes, int64_t c, int64_t q,
                 int64_t a) {
  Packed packed;
  int64_t open_until = -1;  // end of the open chunk's last parameter
  for (const int64_t size : sizes) {
    if (size == 0) continue;
    if (size > c) {
      open_until = -1;
      packed.allocated += (size + q - 1) / q * q;
      ++packed.chunks;
      continue;
    }
    const int64_t start = (open_until + a - 1) / a * a;
    if (open_until < 0 || start + size > c) {
      packed.allocated += c;
      ++packed.chunks;
      open_until = size;
    } else {
      open_until = start + size;
    }
  }
  return packed;
}

// Everything in a one-group document that can be checked from the sizes alone.
void CheckDocument(const json& document, const std::vector<int64_t>& sizes,
                   int64_t world, int64_t align, int64_t bytes_each) {
  const int64_t q = 128 * world;
  EXPECT_EQ(document["schema"], "castor.search/1");
  EXPECT_EQ(document["alignment"]["q_elements"], q);
  EXPECT_EQ(document["alignment"]["a_elements"], align);
  int64_t payload = 0;
  for (const int64_t size : sizes) payload += size;
  EXPECT_EQ(document["model"]["elements"], payload);
  EXPECT_EQ(document["model"]["parameters"], payload);
  EXPECT_EQ(document["model"]["tensors"], sizes.size());

  ASSERT_FALSE(document["candidates"].empty());
  int64_t least_waste = INT64_MAX;
  for (const json& candidate : document["candidates"]) {
    const int64_t c = candidate["chunk_elements"];
    const Packed packed = PackAgain(sizes, c, q, align);
    EXPECT_EQ(c % q, 0);
    EXPECT_EQ(candidate["mode"], "uniform");
    EXPECT_EQ(candidate["chunk_bytes"], c * bytes_each);
    EXPECT_EQ(candidate["chunks"], packed.chunks);
    EXPECT_EQ(candidate["allocated_elements"], packed.allocated);
    EXPECT_EQ(candidate["waste_elements"], packed.allocated - payload);
    EXPECT_EQ(candidate["waste_bytes"],
              (packed.allocated - payload) * bytes_each);
    EXPECT_DOUBLE_EQ(candidate["waste_fraction"],
                     static_cast<double>(packed.allocated - payload) /
                         static_cast<double>(packed.allocated));
    least_waste = std::min(least_waste, packed.allocated - payload);
    std::vector<int64_t> oversize;
    for (const int64_t size : sizes) {
      if (size > c) oversize.push_back((size + q - 1) / q * q);
    }
    EXPECT_EQ(candidate["oversize_chunks"], oversize.size());
    std::sort(oversize.begin(), oversize.end());
    oversize.erase(std::unique(oversize.begin(), oversize.end()),
                   oversize.end());
    int64_t gathered = 3 * c;
    for (const int64_t size : oversize) gathered += size;
    EXPECT_EQ(candidate["gathered_bytes"], gathered * bytes_each);
  }
  EXPECT_EQ(document["best"]["waste_elements"], least_waste);
  EXPECT_THAT(document["candidates"], testing::Contains(document["best"]));
  EXPECT_THAT(document["candidates"],
              testing::Contains(document["recommended"]));

  // The certificate: no gap, and its bound follows from its numbers.
  const json& certificate = document["certificate"];
  int64_t next = certificate["intervals"][0]["from_elements"];
  int64_t bound = INT64_MAX;
  for (const json& interval : certificate["intervals"]) {
    EXPECT_EQ(interval["from_elements"], next);
    const int64_t from = interval["from_elements"];
    const int64_t to = interval["to_elements"];
    EXPECT_GE(to, from);
    const int64_t oversize = interval["oversize_elements"];
    const int64_t chunks = interval["chunks"];
    const Packed at_end = PackAgain(sizes, to, q, align);
    EXPECT_EQ(at_end.allocated, chunks * to + oversize);
    bound = std::min(bound, from * chunks + oversize - payload);
    next = to + q;
  }
  EXPECT_EQ(certificate["lower_bound_waste_elements"], bound);
  EXPECT_EQ(certificate["optimal"], bound == least_waste);
}

TEST(CastorSearchTest, ShowsAPageForPeople) {
  const ProcessOutcome outcome = Castor({"search", kGpt2Xl});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("gpt2-xl: gpt2, 580 tensors, "
                                     "1,557,611,200 parameters"));
  EXPECT_THAT(outcome.out, HasSubstr("Order       family"));
  EXPECT_THAT(outcome.out, HasSubstr("Proved"));
  EXPECT_THAT(outcome.out, HasSubstr("Recommended"));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(Castor({"search", kLlama}).out,
              HasSubstr("291 tensors, 8,030,261,248 parameters"));
}

TEST(CastorSearchTest, FindsTheSizesThatAreKnownForLlama3) {
  // Published with the exact search that this one descends from: 218,116,096
  // elements in 34 chunks, of which 2 oversize, for 8 ranks.
  const json document = Document({"search", kLlama, "--world", "8"});
  EXPECT_EQ(document["best"]["chunk_elements"], 218'116'096);
  EXPECT_EQ(document["best"]["chunks"], 34);
  EXPECT_EQ(document["best"]["oversize_chunks"], 2);
  EXPECT_EQ(document["certificate"]["optimal"], true);
  EXPECT_EQ(document["model"]["order"], "family");
}

TEST(CastorSearchTest, AgreesWithASecondPackerOnRandomLists) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    std::vector<int64_t> sizes;
    std::string list;
    for (size_t i = 0, count = 1 + random() % 40; i < count; ++i) {
      sizes.push_back(static_cast<int64_t>(random() % 5000));
      list += "p" + std::to_string(i) + "\t" + std::to_string(sizes.back()) +
              "\tF32\n";
    }
    const int64_t world = 1 + static_cast<int64_t>(random() % 3);
    const int64_t align = random() % 2 == 0 ? 64 : 192;
    const json document = Document(
        {"search", "-", "--order", "file", "--min", "4KiB", "--max", "24KiB",
         "--world", std::to_string(world), "--align", std::to_string(align)},
        list);
    CheckDocument(document, sizes, world, align, 4);
    if (testing::Test::HasFailure()) FAIL() << list;
  }
}

TEST(CastorSearchTest, ReadsEveryFormatToTheSameAnswer) {
  const TempFolder folder;
  const std::vector<ParamSpec> model = {{"w.1", {100, 30}, DType::kBF16},
                                        {"w.2", {77}, DType::kBF16},
                                        {"w.10", {50, 50}, DType::kBF16}};
  const std::string tsv =
      "w.1\t100,30\tBF16\nw.2\t77\tBF16\nw.10\t50,50\tBF16\n";
  const std::string list = R"([{"name":"w.1","shape":[100,30],"dtype":"BF16"},)"
                           R"({"name":"w.2","shape":[77],"dtype":"bfloat16"},)"
                           R"({"name":"w.10","shape":[50,50],"dtype":"BF16"}])";
  folder.Write("m.tsv", tsv);
  folder.Write("m.json", list);
  WriteSafetensors(folder, "m/m.safetensors", model);
  WriteSafetensors(folder, "s/m-1.safetensors", {model[0], model[2]});
  WriteSafetensors(folder, "s/m-2.safetensors", {model[1]});
  folder.Write("s/m.safetensors.index.json",
               R"({"weight_map":{"w.1":"m-1.safetensors",)"
               R"("w.2":"m-2.safetensors","w.10":"m-1.safetensors"}})");
  const auto answer = [](json document) {
    document["model"].erase("name");
    document["model"].erase("source");
    return document.dump();
  };
  const std::vector<std::string> limits = {"--min", "1KiB", "--max", "16KiB"};
  const auto search = [&](const std::string& model_path,
                          const std::string& input = "") {
    std::vector<std::string> args = {"search", model_path};
    args.insert(args.end(), limits.begin(), limits.end());
    return answer(Document(args, input));
  };
  const std::string expected = search(folder.At("m.tsv"));
  EXPECT_EQ(search(folder.At("m.json")), expected);
  EXPECT_EQ(search("-", tsv), expected);
  EXPECT_EQ(search("-", list), expected);
  EXPECT_EQ(search(folder.At("m/m.safetensors")), expected);
  EXPECT_EQ(search(folder.At("m")), expected);
  EXPECT_EQ(search(folder.At("s/m.safetensors.index.json")), expected);
  EXPECT_EQ(search(folder.At("s")), expected);
}

TEST(CastorSearchTest, GivesTheSameBytesTwice) {
  for (const std::string form : {"--json", "--plain", ""}) {
    std::vector<std::string> args = {"search", kLlama, "--world", "3"};
    if (!form.empty()) args.push_back(form);
    const ProcessOutcome first = Castor(args);
    EXPECT_EQ(first.exit_code, 0) << first.err;
    EXPECT_EQ(first.out, Castor(args).out);
  }
}

TEST(CastorSearchTest, KeepsNotesOffTheResult) {
  const ProcessOutcome outcome =
      Castor({"search", "-", "--json"}, "b\t2\tF32\na\t2\tF32\n");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, StartsWith("castor: note: the list is packed in "
                                      "natural order"));
  EXPECT_TRUE(json::accept(outcome.out));
}

TEST(CastorSearchTest, ListsSeveralGroups) {
  const json document =
      Document({"search", "-"}, "a\t200\tF32\nb\t300\tBF16\nc\t5\tF32\n");
  ASSERT_EQ(document["best"].size(), 2u);
  EXPECT_EQ(document["best"][0]["group"], "F32");
  EXPECT_EQ(document["best"][0]["allocated_elements"], 384);
  EXPECT_EQ(document["certificate"][1]["group"], "BF16");
  EXPECT_EQ(document["model"]["total_bytes"], 4 * 205 + 2 * 300);
  const json one = Document({"search", "-", "--dtype", "bf16"},
                            "a\t200\tF32\nb\t300\tBF16\nc\t5\tF32\n");
  EXPECT_EQ(one["best"]["chunk_bytes"], 2 * 640);
}

TEST(CastorSearchTest, AnswersForAnEmptyModel) {
  const json document = Document({"search", "-"}, "");
  EXPECT_TRUE(document["candidates"].empty());
  EXPECT_TRUE(document["best"].is_null());
  EXPECT_EQ(Castor({"search", "-"}, "").exit_code, 0);
}

TEST(CastorSearchTest, SaysNoWhereNothingFitsTheDevice) {
  const ProcessOutcome outcome =
      Castor({"search", kLlama, "--device-budget", "100MiB"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("104857600 bytes"));
  const json fits = Document({"search", kLlama, "--device-budget", "2GiB"});
  EXPECT_LE(fits["recommended"]["gathered_bytes"], int64_t{2} << 30);
}

}  // namespace
}  // namespace castor
