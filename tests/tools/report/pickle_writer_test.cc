// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/pickle_writer.h"

#include <cstdint>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/tools/report/from_pickle.h"

namespace castor {
namespace {

TEST(PickleWriterTest, WritesOpcodesThatEveryReaderKnows) {
  std::ostringstream out;
  PickleWriter pickle(out);
  pickle.BeginDict();
  pickle.DictInt("a", 1);
  pickle.DictText("b", "a");
  pickle.EndDict();
  pickle.Finish();
  using std::string_literals::operator""s;
  EXPECT_EQ(out.str(),
            "\x80\x02}("
            "X\x01\x00\x00\x00"
            "ar\x00\x00\x00\x00K\x01"
            "X\x01\x00\x00\x00"
            "br\x01\x00\x00\x00"
            "j\x00\x00\x00\x00"
            "u."s);
}

TEST(PickleWriterTest, PythonReadsWhatWasWritten) {
  std::ostringstream out;
  PickleWriter pickle(out);
  pickle.BeginList();
  pickle.None();
  pickle.Bool(true);
  pickle.Bool(false);
  pickle.BeginList();
  pickle.EndList();
  pickle.BeginDict();
  pickle.EndDict();
  pickle.BeginDict();
  pickle.Text("key");
  pickle.BeginList();
  pickle.Text("gr\xc3\xbc\xc3\x9f");
  pickle.Text("\xff\xc3(");
  pickle.EndList();
  pickle.EndDict();
  pickle.EndList();
  pickle.Finish();
  EXPECT_EQ(FromPickle(out.str()), ParseJson(R"([null, true, false, [], {},
                          {"key": ["gr\u00fc\u00df", "\\xff\\xc3("]}])")
                                       .value());
}

TEST(PickleWriterTest, IntegersOfEachSizeComeBack) {
  std::vector<int64_t> numbers = {INT64_MIN, INT64_MAX, INT64_C(1) << 40, -1};
  for (const int64_t edge : {0, 0xff, 0xffff, INT32_MAX, INT32_MIN}) {
    for (const int64_t by : {-1, 0, 1}) numbers.push_back(edge + by);
  }
  std::ostringstream out;
  PickleWriter pickle(out);
  pickle.BeginList();
  for (const int64_t number : numbers) pickle.Int(number);
  pickle.EndList();
  pickle.Finish();
  const JsonValue read = FromPickle(out.str());
  ASSERT_EQ(read.size(), numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(read[i], numbers[i]);
}

TEST(PickleWriterTest, LongListsAndDictsComeInBatches) {
  for (const int count : {999, 1000, 1001, 2500}) {
    std::ostringstream out;
    PickleWriter pickle(out);
    pickle.BeginList();
    for (int i = 0; i < count; ++i) pickle.Int(i);
    pickle.BeginDict();
    for (int i = 0; i < count; ++i) pickle.DictInt(std::to_string(i), i);
    pickle.EndDict();
    pickle.EndList();
    pickle.Finish();
    const JsonValue read = FromPickle(out.str());
    const auto size = static_cast<size_t>(count);
    ASSERT_EQ(read.size(), size + 1);
    EXPECT_EQ(read[size - 1], count - 1);
    EXPECT_EQ(read[size].size(), size);
    EXPECT_EQ(read[size][std::to_string(count - 1)], count - 1);
  }
}

}  // namespace
}  // namespace castor
