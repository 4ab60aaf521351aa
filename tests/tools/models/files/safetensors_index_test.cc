// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/safetensors_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "tests/tools/models/model_files.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

std::string MessageOf(const Status& status) {
  return std::string(status.message());
}

TEST(SafetensorsIndexTest, ReadsTheMapAndPassesOverTheRest) {
  const auto index = ParseSafetensorsIndex(
      R"({"metadata":{"total_size":24,"total_parameters":6,"x":[{}]},
          "weight_map":{"b":"m-2.safetensors","a":"m-1.safetensors",
                        "c":"m-2.safetensors"},"extra":[1,{"y":2}]})");
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->total_size, 24u);
  EXPECT_THAT(index->tensors_by_shard,
              ElementsAre(Pair("m-1.safetensors", ElementsAre("a")),
                          Pair("m-2.safetensors", ElementsAre("b", "c"))));
}

TEST(SafetensorsIndexTest, DoesWithoutATotalSize) {
  for (const std::string metadata : {R"("metadata":{},)", R"("metadata":null,)",
                                     "", R"("metadata":{"total_size":1.5},)"}) {
    const auto index =
        ParseSafetensorsIndex("{" + metadata + R"("weight_map":{}})");
    ASSERT_TRUE(index.ok()) << index.status();
    EXPECT_EQ(index->total_size, std::nullopt);
  }
}

struct Hostile {
  std::string json;
  std::string message;
};

class HostileIndexTest : public testing::TestWithParam<Hostile> {};

TEST_P(HostileIndexTest, IsMalformedAndNamesThePlace) {
  const auto index = ParseSafetensorsIndex(GetParam().json);
  ASSERT_FALSE(index.ok());
  EXPECT_EQ(ExitCode(index.status().code()), 4);
  EXPECT_THAT(MessageOf(index.status()), HasSubstr(GetParam().message));
}

std::string MapTo(const std::string& shard) {
  return R"({"weight_map":{"w":")" + shard + R"("}})";
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileIndexTest,
    testing::Values(
        Hostile{"", "not JSON"}, Hostile{"[]", "an array"},
        Hostile{"7", "the document is 7"}, Hostile{"{}", "has no weight_map"},
        Hostile{R"({"weight_map":null})", "\"weight_map\" is null"},
        Hostile{R"({"weight_map":[]})", "\"weight_map\" is an array"},
        Hostile{R"({"weight_map":{"w":7}})",
                "\"weight_map\".\"w\" is 7 where a file name belongs"},
        Hostile{R"({"weight_map":{"w":{}}})", "\"weight_map\".\"w\" is an"},
        Hostile{R"({"weight_map":{"w":"a.safetensors","w":"b.safetensors"}})",
                R"("weight_map" holds the key "w" twice)"},
        Hostile{R"({"weight_map":{},"weight_map":{}})", "twice"},
        Hostile{MapTo(""), R"(tensor "w" to shard "", which is empty)"},
        Hostile{MapTo(".."), "is a folder"},
        Hostile{MapTo("../a.safetensors"), "holds a path separator"},
        Hostile{MapTo("/etc/passwd"), "holds a path separator"},
        Hostile{MapTo("a/../b.safetensors"), "holds a path separator"},
        Hostile{MapTo("..\\\\a.safetensors"), "holds a path separator"},
        Hostile{MapTo("a\\u0000.safetensors"), "holds a zero byte"},
        Hostile{MapTo("pytorch_model-1.bin"), "does not end in .safetensors"}));

const std::vector<ParamSpec> kFirst = {{"w.1", {2}, DType::kF32}};
const std::vector<ParamSpec> kSecond = {{"w.2", {3}, DType::kF32},
                                        {"w.3", {1}, DType::kF32}};

Result<ShardedHeaders> ReadMapped(const TempFolder& folder,
                                  const std::string& map) {
  const auto index = ParseSafetensorsIndex(R"({"weight_map":)" + map + "}");
  CASTOR_CHECK(index.ok());
  return ReadShards(*index, folder.path());
}

const std::string kMap = R"({"w.1":"m-2.safetensors","w.2":"m-10.safetensors",)"
                         R"("w.3":"m-10.safetensors"})";

TEST(SafetensorsIndexTest, ReadsShardsInNaturalOrder) {
  const TempFolder folder;
  WriteSafetensors(folder, "m-2.safetensors", kFirst);
  WriteSafetensors(folder, "m-10.safetensors", kSecond);
  const auto shards = ReadMapped(folder, kMap);
  ASSERT_TRUE(shards.ok()) << shards.status();
  EXPECT_EQ(shards->shards, 2u);
  EXPECT_THAT(shards->notes, IsEmpty());
  std::vector<std::string> names;
  for (const auto& entry : shards->entries) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("w.1", "w.2", "w.3"));
}

TEST(SafetensorsIndexTest, NotesATotalSizeThatIsWrong) {
  const TempFolder folder;
  WriteSafetensors(folder, "m.safetensors", kFirst);
  const auto index = ParseSafetensorsIndex(
      R"({"metadata":{"total_size":9},"weight_map":{"w.1":"m.safetensors"}})");
  const auto shards = ReadShards(*index, folder.path());
  ASSERT_TRUE(shards.ok());
  EXPECT_THAT(shards->notes,
              ElementsAre(HasSubstr("total_size of 9 bytes, the shards' "
                                    "headers 8")));
}

TEST(SafetensorsIndexTest, NamesAllMissingShards) {
  const TempFolder folder;
  const Status one = [&] {
    WriteSafetensors(folder, "m-2.safetensors", kFirst);
    return ReadMapped(folder, kMap).status();
  }();
  EXPECT_EQ(ExitCode(one.code()), 4);
  EXPECT_THAT(MessageOf(one), HasSubstr("1 of 2 shards are missing"));
  EXPECT_THAT(MessageOf(one), HasSubstr("\"m-10.safetensors\""));

  std::string map = "{";
  for (int i = 0; i < 30; ++i) {
    const std::string n = std::to_string(i);
    map += (i == 0 ? "" : ",") + ("\"t" + n + "\":\"s" + n) + ".safetensors\"";
  }
  const Status many = ReadMapped(folder, map + "}").status();
  EXPECT_THAT(MessageOf(many), HasSubstr("30 of 30 shards are missing"));
  EXPECT_THAT(MessageOf(many), HasSubstr("\"s9.safetensors\", ..."));
}

TEST(SafetensorsIndexTest, RefusesAShardThatDisagrees) {
  const TempFolder folder;
  WriteSafetensors(folder, "m-2.safetensors", kFirst);
  WriteSafetensors(folder, "m-10.safetensors", kFirst);
  const Status status = ReadMapped(folder, kMap).status();
  EXPECT_EQ(ExitCode(status.code()), 4);
  EXPECT_THAT(MessageOf(status), HasSubstr("shard \"m-10.safetensors\""));
  EXPECT_THAT(MessageOf(status), HasSubstr("\"w.1\" is in the shard"));

  WriteSafetensors(folder, "m-10.safetensors", {kSecond[0]});
  EXPECT_THAT(MessageOf(ReadMapped(folder, kMap).status()),
              HasSubstr("tensor \"w.3\" is in the index but not in the shard"));
}

TEST(SafetensorsIndexTest, NamesTheShardThatIsBroken) {
  const TempFolder folder;
  folder.Write("m-2.safetensors", "\1");
  WriteSafetensors(folder, "m-10.safetensors", kSecond);
  const Status status = ReadMapped(folder, kMap).status();
  EXPECT_EQ(ExitCode(status.code()), 4);
  EXPECT_THAT(MessageOf(status), HasSubstr("m-2.safetensors\" holds 1 bytes"));
}

TEST(SafetensorsIndexTest, DoesNotWaitForAPipe) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo(folder.At("m.safetensors").c_str(), 0600), 0);
  const Status status = ReadMapped(folder, R"({"w":"m.safetensors"})").status();
  EXPECT_EQ(ExitCode(status.code()), 4) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("no regular file"));
}

}  // namespace
}  // namespace castor
