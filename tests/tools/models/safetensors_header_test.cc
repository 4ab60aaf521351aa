// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "tests/tools/models/model_files.h"
#include "tools/models/files/input_file.h"
#include "tools/models/files/safetensors_index.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Result<SafetensorsHeader> ReadBytes(const std::string& bytes) {
  const TempFolder folder;
  const Result<InputFile> file =
      InputFile::OpenRegular(folder.Write("a.safetensors", bytes));
  return ReadSafetensorsHeader(*file);
}

TEST(SafetensorsHeaderTest, ReadsTensorsInTheOrderOfTheirData) {
  const auto header = ReadBytes(SafetensorsFile(
      R"({"__metadata__":{"format":"pt","a":"b"},)"
      R"("second":{"dtype":"F32","shape":[2],"data_offsets":[6,14]},)"
      R"("first":{"shape":[1,3],"data_offsets":[0,6],"dtype":"BF16"}}   )",
      14));
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->entries.size(), 2u);
  EXPECT_EQ(header->entries[0].name, "first");
  EXPECT_EQ(header->entries[0].dtype, DType::kBF16);
  EXPECT_THAT(header->entries[0].shape, ElementsAre(1, 3));
  EXPECT_EQ(header->entries[1].name, "second");
  EXPECT_EQ(header->entries[1].begin, 6u);
  EXPECT_EQ(header->entries[1].end, 14u);
  EXPECT_THAT(header->metadata,
              ElementsAre(Pair("format", "pt"), Pair("a", "b")));
}

TEST(SafetensorsHeaderTest, AllowsEmptyFilesScalarsAndTensorsOfNoBytes) {
  EXPECT_TRUE(ReadBytes(SafetensorsFile("{}", 0)).ok());
  const auto header = ReadBytes(SafetensorsFile(
      R"({"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("none":{"dtype":"F32","shape":[0,9],"data_offsets":[4,4]},)"
      R"("a":{"dtype":"F4","shape":[2],"data_offsets":[4,5]},)"
      R"("end":{"dtype":"I64","shape":[0],"data_offsets":[5,5]}})",
      5));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->entries.size(), 4u);
  EXPECT_EQ(header->entries[1].name, "none");
}

TEST(SafetensorsHeaderTest, ReadsNoMoreThanTheHeaderOfAHugeFile) {
  const TempFolder folder;
  const std::string path = WriteSafetensors(
      folder, "huge.safetensors",
      {{"w", {int64_t{1} << 20, int64_t{1} << 20}, DType::kBF16}});
  const Result<InputFile> file = InputFile::OpenRegular(path);
  ASSERT_EQ(file->size() >> 41, 1u);
  const auto header = ReadSafetensorsHeader(*file);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->entries[0].end, uint64_t{1} << 41);
}

struct Hostile {
  std::string what;
  std::string bytes;
  std::string message;
};

class HostileSafetensorsTest : public testing::TestWithParam<Hostile> {};

TEST_P(HostileSafetensorsTest, IsMalformedAndNamesThePlace) {
  const auto header = ReadBytes(GetParam().bytes);
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(ExitCode(header.status().code()), 4) << header.status();
  const std::string message(header.status().message());
  EXPECT_THAT(message, HasSubstr("a.safetensors"));
  EXPECT_THAT(message, HasSubstr(GetParam().message));
  EXPECT_LT(message.size(), 800u);
}

std::string WithLength(uint64_t length, std::string_view rest) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) {
    bytes += static_cast<char>(length >> shift & 0xFF);
  }
  return bytes.append(rest);
}

// One tensor "w" with these fields, and so many bytes of data.
std::string Tensor(std::string_view fields, uint64_t data_bytes) {
  return SafetensorsFile(R"({"w":{)" + std::string(fields) + "}}", data_bytes);
}

std::string Tensors(std::string_view entries, uint64_t data_bytes) {
  return SafetensorsFile("{" + std::string(entries) + "}", data_bytes);
}

const std::string kGood = R"("dtype":"U8","shape":[4],"data_offsets":[0,4])";

INSTANTIATE_TEST_SUITE_P(
    Length, HostileSafetensorsTest,
    testing::Values(
        Hostile{"nothing", "", "holds 0 bytes"},
        Hostile{"seven bytes", "\1\0\0\0\0\0\0", "begins with 8 bytes"},
        Hostile{"longer than the file", WithLength(100, "{}"),
                "100 bytes long, but only 2 bytes follow"},
        Hostile{"near 2^64", WithLength(~uint64_t{0}, "{}"),
                "18446744073709551615 bytes long"},
        Hostile{"2^64 - 8", WithLength(~uint64_t{0} - 7, "{}"),
                "but only 2 bytes follow"},
        Hostile{"no header", WithLength(0, ""), "does not begin with {"},
        Hostile{"a pointer", "version https://git-lfs.github.com/spec/v1\n",
                "Git LFS pointer"}));

INSTANTIATE_TEST_SUITE_P(
    Text, HostileSafetensorsTest,
    testing::Values(
        Hostile{"first byte", SafetensorsFile(" {}", 0),
                "does not begin with {"},
        Hostile{"an array", SafetensorsFile("[]", 0), "does not begin with {"},
        Hostile{"newline padding", SafetensorsFile("{}\n", 0),
                "a closing brace and spaces belong (at byte 10)"},
        Hostile{"zero padding", SafetensorsFile(std::string("{}\0\0", 4), 0),
                "(at byte 11)"},
        Hostile{"zero inside", SafetensorsFile(std::string("{}\0{}", 5), 0),
                "byte 10 is zero"},
        Hostile{"two documents", SafetensorsFile("{}{}", 0), "not JSON"},
        Hostile{"cut off", SafetensorsFile(R"({"__metadata__":{})", 0),
                "not JSON"},
        Hostile{"not UTF-8", SafetensorsFile("{\"\xff\":{}}", 0), "not JSON"},
        Hostile{"duplicate tensor",
                Tensors(R"("w":{)" + kGood + R"(},"w":{)" + kGood + "}", 4),
                R"(holds the key "w" twice)"},
        Hostile{"duplicate field", Tensor(kGood + R"(,"dtype":"U8")", 4),
                R"("w" holds the key "dtype" twice)"},
        Hostile{"duplicate metadata",
                Tensors(R"("__metadata__":{"a":"1","a":"2"})", 0),
                R"("__metadata__" holds the key "a" twice)"}));

INSTANTIATE_TEST_SUITE_P(
    Fields, HostileSafetensorsTest,
    testing::Values(
        Hostile{"tensor no object", Tensors(R"("w":3)", 0),
                R"("w" is 3 where an object belongs)"},
        Hostile{"tensor an array", Tensors(R"("w":[])", 0),
                R"("w" is an array)"},
        Hostile{"no dtype", Tensor(R"("shape":[],"data_offsets":[0,0])", 0),
                R"(tensor "w": it has no dtype)"},
        Hostile{"no shape", Tensor(R"("dtype":"U8","data_offsets":[0,1])", 1),
                R"(tensor "w": it has no shape)"},
        Hostile{"no offsets", Tensor(R"("dtype":"U8","shape":[1])", 1),
                R"(tensor "w": it has no data_offsets)"},
        Hostile{"unknown field", Tensor(kGood + R"(,"shap":[])", 4),
                R"(tensor "w": unknown key "shap"; did you mean shape?)"},
        Hostile{"unknown dtype",
                Tensor(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])", 4),
                R"(tensor "w": dtype "F33" is unknown)"},
        Hostile{"dtype in lower case",
                Tensor(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])", 4),
                R"(dtype "f32" is unknown)"},
        Hostile{"dtype a number",
                Tensor(R"("dtype":4,"shape":[1],"data_offsets":[0,4])", 4),
                "its dtype is 4 where a string belongs"},
        Hostile{"shape a number",
                Tensor(R"("dtype":"U8","shape":4,"data_offsets":[0,4])", 4),
                "its shape is 4 where an array belongs"},
        Hostile{"shape nested",
                Tensor(R"("dtype":"U8","shape":[[4]],"data_offsets":[0,4])", 4),
                "its shape holds an array where none belongs"},
        Hostile{
            "shape an object",
            Tensor(R"("dtype":"U8","shape":{"a":4},"data_offsets":[0,4])", 4),
            "its shape holds an object where none belongs"},
        Hostile{"negative dimension",
                Tensor(R"("dtype":"U8","shape":[-4],"data_offsets":[0,4])", 4),
                R"(tensor "w": its shape holds -4)"},
        Hostile{"float dimension",
                Tensor(R"("dtype":"U8","shape":[4.0],"data_offsets":[0,4])", 4),
                R"(tensor "w": its shape holds 4)"},
        Hostile{"dimension of 2^63",
                Tensor(R"("dtype":"U8","shape":[9223372036854775808],)"
                       R"("data_offsets":[0,4])",
                       4),
                "its shape holds 9223372036854775808"},
        Hostile{"dimension of 2^64",
                Tensor(R"("dtype":"U8","shape":[18446744073709551616],)"
                       R"("data_offsets":[0,4])",
                       4),
                "a dimension is a whole number"},
        Hostile{"shape overflow to 4",
                Tensor(R"("dtype":"U8","shape":[4294967296,4294967296,4],)"
                       R"("data_offsets":[0,4])",
                       4),
                R"(tensor "w": shape [4294967296, 4294967296, 4])"},
        Hostile{"rank",
                Tensor(R"("dtype":"U8","shape":[1)" +
                           [] {
                             std::string ones;
                             for (int i = 0; i < 64; ++i) ones += ",1";
                             return ones;
                           }() +
                           R"(],"data_offsets":[0,1])",
                       1),
                "more than 64 dimensions"},
        Hostile{"half a byte",
                Tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])", 1),
                R"(tensor "w": 3 elements of F4 (4 bits each) do not end)"},
        Hostile{"metadata a number", Tensors(R"("__metadata__":{"a":1})", 0),
                R"("__metadata__"."a" is no string)"},
        Hostile{"metadata nested", Tensors(R"("__metadata__":{"a":{}})", 0),
                R"("__metadata__"."a" is no string)"},
        Hostile{"metadata null", Tensors(R"("__metadata__":null)", 0),
                R"("__metadata__" is null)"}));

INSTANTIATE_TEST_SUITE_P(
    Offsets, HostileSafetensorsTest,
    testing::Values(
        Hostile{"one number",
                Tensor(R"("dtype":"U8","shape":[4],"data_offsets":[4])", 4),
                R"(tensor "w": its data_offsets are 1 numbers, not 2)"},
        Hostile{"three numbers",
                Tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0,4,4])", 4),
                "are 3 numbers"},
        Hostile{"negative",
                Tensor(R"("dtype":"U8","shape":[4],"data_offsets":[-4,0])", 4),
                "its data_offsets hold -4"},
        Hostile{"a string",
                Tensor(R"("dtype":"U8","shape":[4],"data_offsets":["0",4])", 4),
                "its data_offsets hold \"0\""},
        Hostile{"backwards",
                Tensor(R"("dtype":"U8","shape":[4],"data_offsets":[4,0])", 4),
                R"(tensor "w": its data_offsets [4, 0] do not span the 4)"},
        Hostile{"too short",
                Tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,4])", 4),
                "[0, 4] do not span the 16 bytes"},
        Hostile{"a hole at the start",
                Tensor(R"("dtype":"U8","shape":[4],"data_offsets":[4,8])", 8),
                R"(tensor "w": its data begins at byte 4, but the header)"},
        Hostile{"a hole",
                Tensors(R"("w":{)" + kGood +
                            R"(},"v":{"dtype":"U8",)"
                            R"("shape":[2],"data_offsets":[5,7]})",
                        7),
                R"(tensor "v": its data begins at byte 5, but "w" ends at )"
                "byte 4: a hole of 1 bytes"},
        Hostile{"an overlap",
                Tensors(R"("w":{)" + kGood +
                            R"(},"v":{"dtype":"U8",)"
                            R"("shape":[2],"data_offsets":[3,5]})",
                        5),
                "an overlap of 1 bytes"},
        Hostile{"the same place",
                Tensors(R"("w":{)" + kGood + R"(},"v":{)" + kGood + "}", 4),
                "an overlap of 4 bytes"},
        Hostile{"an empty tensor inside another",
                Tensors(R"("w":{)" + kGood +
                            R"(},"v":{"dtype":"U8",)"
                            R"("shape":[0],"data_offsets":[2,2]})",
                        4),
                "an overlap of 2 bytes"},
        Hostile{"beyond the file", Tensor(kGood, 3),
                "end at byte 4 of the data, but the file holds 3 bytes"},
        Hostile{"near 2^64",
                Tensor(R"("dtype":"U8","shape":[4],"data_offsets":)"
                       "[18446744073709551611,18446744073709551615]",
                       4),
                "a hole of 18446744073709551611 bytes"},
        Hostile{"more data", Tensor(kGood, 5), "something that is no tensor"},
        Hostile{"data without tensors", SafetensorsFile("{}", 1),
                "the file holds 1 bytes"}));

TEST(SafetensorsHeaderTest, RefusesAHeaderAboveTheCapWithoutReadingIt) {
  const TempFolder folder;
  const uint64_t length = kMaxSafetensorsHeader + 1;
  const std::string path = folder.WriteSparse(
      "a.safetensors", WithLength(length, "{"), 8 + length + 100);
  const auto header = ReadSafetensorsHeader(*InputFile::OpenRegular(path));
  EXPECT_EQ(header.status().code(), ErrorCode::kMalformed);
  EXPECT_THAT(std::string(header.status().message()),
              HasSubstr("more than 100000000 is refused"));
}

TEST(SafetensorsHeaderTest, KeepsATerminalSafeFromNames) {
  const auto header = ReadBytes(Tensors(
      "\"\\u001b[2J" + std::string(100'000, 'a') + R"(":{"dtype":"X"})", 0));
  const std::string message(header.status().message());
  EXPECT_THAT(message, HasSubstr("\"\\x1b[2Jaaa"));
  EXPECT_LT(message.size(), 600u);
}

}  // namespace
}  // namespace castor
