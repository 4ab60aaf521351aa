// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/frame_bytes.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(FrameBytesTest, IntegersAreLittleEndianAndComeBack) {
  std::string bytes;
  AppendInteger(uint32_t{0x01020304}, &bytes);
  AppendInteger(int64_t{-2}, &bytes);
  EXPECT_EQ(bytes.substr(0, 4), "\x04\x03\x02\x01");
  ByteReader reader(bytes);
  EXPECT_EQ(reader.Take<uint32_t>(), 0x01020304u);
  EXPECT_EQ(reader.Take<int64_t>(), -2);
  EXPECT_EQ(reader.left(), 0u);
  EXPECT_FALSE(reader.failed());
}

TEST(FrameBytesTest, AReaderThatRanOutStaysFailed) {
  ByteReader reader("abc");
  EXPECT_EQ(reader.TakeText(2), "ab");
  EXPECT_EQ(reader.Take<uint16_t>(), 0);
  EXPECT_TRUE(reader.failed());
  EXPECT_EQ(reader.TakeText(1), "c");
  EXPECT_TRUE(reader.failed());
  EXPECT_EQ(ByteReader("").TakeText(1), "");
}

TEST(FrameBytesTest, AFrameIsItsHeaderThenItsPayload) {
  std::string bytes = "before";
  FrameBuilder frame(7, &bytes);
  bytes += "payload";
  frame.Finish();
  ByteReader reader(std::string_view(bytes).substr(6));
  EXPECT_EQ(reader.Take<uint32_t>(), 7u);
  EXPECT_EQ(reader.Take<uint32_t>(), 7u);  // bytes
  EXPECT_EQ(reader.Take<uint64_t>(), FrameChecksum(7, 7, "payload"));
  EXPECT_EQ(reader.TakeText(reader.left()), "payload");
}

TEST(FrameBytesTest, TheChecksumCoversTypeLengthAndPayload) {
  const uint64_t sum = FrameChecksum(1, 2, "ab");
  EXPECT_NE(sum, FrameChecksum(2, 2, "ab"));
  EXPECT_NE(sum, FrameChecksum(1, 3, "ab"));
  EXPECT_NE(sum, FrameChecksum(1, 2, "aB"));
}

}  // namespace
}  // namespace castor
