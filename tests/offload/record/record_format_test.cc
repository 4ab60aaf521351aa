// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/record_format.h"

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/frame_bytes.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

// The payload of the one frame in `bytes`.
std::string_view Payload(std::string_view bytes, FrameType type) {
  const FrameHeader header = ParseFrameHeader(bytes);
  EXPECT_EQ(header.type, static_cast<uint32_t>(type));
  const std::string_view payload = bytes.substr(kFrameHeaderBytes);
  EXPECT_TRUE(ChecksumHolds(header, payload));
  return payload;
}

std::string PayloadOf(const RunRankInfo& info) {
  std::string bytes;
  AppendRankFrame(info, &bytes);
  return std::string(Payload(bytes, FrameType::kRank));
}
std::string PayloadOf(const RunArenaInfo& info) {
  std::string bytes;
  AppendArenaFrame(info, &bytes);
  return std::string(Payload(bytes, FrameType::kArena));
}
std::string PayloadOf(const RunPlanInfo& info) {
  std::string bytes;
  AppendPlanFrame(info, &bytes);
  return std::string(Payload(bytes, FrameType::kPlan));
}

// One byte less, or more, makes it another payload, but that so many bytes are
// one of version 1.
template <typename Info>
void ExpectRefusedUnlessWhole(const std::string& payload,
                              bool (*decode)(std::string_view, Info*),
                              size_t version1 = SIZE_MAX) {
  Info info;
  EXPECT_TRUE(decode(payload, &info));
  for (size_t size = 0; size < payload.size(); ++size) {
    if (size == version1) continue;
    EXPECT_FALSE(decode(payload.substr(0, size), &info)) << size;
  }
  EXPECT_FALSE(decode(payload + '\0', &info));
}

std::vector<RunEvent> Decoded(const RunEvent& event) {
  std::string bytes;
  AppendEventsFrame(std::span(&event, 1), 0, &bytes);
  std::vector<RunEvent> events;
  int64_t dropped = 0;
  DecodeEvents(Payload(bytes, FrameType::kEvents), &events, &dropped);
  return events;
}

TEST(RecordFormatTest, TheHeaderIsTheSpecifiedBytes) {
  std::string bytes;
  AppendRecordHeader(&bytes);
  ASSERT_EQ(bytes.size(), kRecordHeaderBytes);
  EXPECT_EQ(bytes.substr(0, 12),
            std::string("\x93\x43\x41\x53\x54\x4f\x52\x0a\x02\0\0\0", 12));
  EXPECT_THAT(CheckRecordHeader(bytes), IsOk());
}

TEST(RecordFormatTest, AnEventIsTheSpecifiedBytes) {
  RunEvent event;
  event.begin_ns = -2;
  event.end_ns = 0x0102030405060708;
  event.bytes = 0x1112131415161718;
  event.rank = 0x21222324;
  event.step = 0x31323334;
  event.moment = -1;
  event.chunk = 0x41424344;
  event.kind = RunEventKind::kDivergence;
  event.cause = RunCause::kStart;
  event.state = OptimizerState(1);
  event.from = Tier::kNvme;
  event.to = Tier::kHost;
  std::string bytes;
  AppendEventsFrame(std::span(&event, 1), 5, &bytes);
  const std::string_view payload = Payload(bytes, FrameType::kEvents);
  EXPECT_EQ(payload, std::string_view("\x05\0\0\0\0\0\0\0"
                                      "\xfe\xff\xff\xff\xff\xff\xff\xff"
                                      "\x08\x07\x06\x05\x04\x03\x02\x01"
                                      "\x18\x17\x16\x15\x14\x13\x12\x11"
                                      "\x24\x23\x22\x21"
                                      "\x34\x33\x32\x31"
                                      "\xff\xff\xff\xff"
                                      "\x44\x43\x42\x41"
                                      "\x0a\x08\x04\x02\x01\0\0\0",
                                      8 + kEventBytes));
}

TEST(RecordFormatTest, EventsComeBackAsTheyWere) {
  std::mt19937_64 random(TestSeed(20));
  for (const size_t count : {0u, 1u, 2u, 1000u}) {
    const std::vector<RunEvent> events = RandomEvents(random, count);
    std::string bytes;
    AppendEventsFrame(events, 7, &bytes);
    std::vector<RunEvent> read = {RunEvent()};
    int64_t dropped = 0;
    ASSERT_TRUE(
        DecodeEvents(Payload(bytes, FrameType::kEvents), &read, &dropped));
    EXPECT_EQ(dropped, 7);
    read.erase(read.begin());
    EXPECT_EQ(read, events);
  }
}

TEST(RecordFormatTest, RefusesEventsThatNoRunHas) {
  const RunEvent good;
  EXPECT_EQ(Decoded(good).size(), 1u);
  std::vector<RunEvent> bad(12, good);
  bad[0].end_ns = -1;
  bad[1].bytes = -1;
  bad[2].rank = -1;
  bad[3].step = -1;
  bad[4].moment = -2;
  bad[5].chunk = -2;
  bad[6].kind = static_cast<RunEventKind>(kRunEventKinds);
  bad[7].cause = static_cast<RunCause>(kRunCauses);
  bad[8].state = static_cast<StateKind>(kStateKinds);
  bad[9].from = static_cast<Tier>(3);
  bad[10].to = static_cast<Tier>(255);
  bad[11].end_ns = INT64_MAX;
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(Decoded(bad[i]).size(), 0u) << "case " << i;
  }
}

TEST(RecordFormatTest, ARankComesBackAsItWas) {
  for (const int chunks : {0, 1, 500}) {
    const RunRankInfo info = SomeRank(2, 5, chunks);
    RunRankInfo read;
    ASSERT_TRUE(DecodeRank(PayloadOf(info), &read));
    EXPECT_EQ(PayloadOf(read), PayloadOf(info));
    EXPECT_EQ(read.world, 5);
    EXPECT_EQ(read.chunks.size(), info.chunks.size());
  }
}

TEST(RecordFormatTest, NamesAreCutAndThenLeftOutWhereTheFrameIsFull) {
  RunRankInfo info = SomeRank(0, 1, 100'000);
  for (RunChunkInfo& chunk : info.chunks) chunk.params.assign(1000, 'x');
  info.chunks[1].params.assign(70'000, 'y');
  std::string bytes;
  AppendRankFrame(info, &bytes);
  EXPECT_LE(bytes.size(), kFrameHeaderBytes + kMaxFramePayload);
  RunRankInfo read;
  ASSERT_TRUE(DecodeRank(Payload(bytes, FrameType::kRank), &read));
  ASSERT_EQ(read.chunks.size(), info.chunks.size());
  EXPECT_EQ(read.chunks[0].params, std::string(1000, 'x'));
  EXPECT_EQ(read.chunks[1].params, std::string(65'535, 'y'));
  EXPECT_EQ(read.chunks.back().params, "");
  EXPECT_EQ(read.chunks.back().bytes, info.chunks.back().bytes);
}

TEST(RecordFormatTest, RefusesRanksThatDoNotAddUp) {
  const std::string payload = PayloadOf(SomeRank(0, 1, 3));
  ExpectRefusedUnlessWhole(payload, &DecodeRank,
                           payload.find("\x02\x07"
                                        "exp"));
  RunRankInfo info;
  for (const size_t at : {3u, 19u, 43u}) {  // rank, a budget, the chunk count
    std::string wrong = payload;
    wrong[at] = '\x80';
    EXPECT_FALSE(DecodeRank(wrong, &info)) << at;
  }
}

TEST(RecordFormatTest, TheOptimizersStatesKeepTheirNames) {
  for (const StateNames& names : {StateNames(), StateNames({"momentum_buffer"}),
                                  StateNames(std::vector<std::string>()),
                                  StateNames({"a", "b", "c", "d", "e", "f", "g",
                                              std::string(64, 'h')})}) {
    RunRankInfo info = SomeRank(0, 1, 2);
    info.states = names;
    RunRankInfo read;
    ASSERT_TRUE(DecodeRank(PayloadOf(info), &read));
    EXPECT_EQ(read.states, names);
  }
}

TEST(RecordFormatTest, ARankOfVersionOneHasAdamsStates) {
  RunRankInfo info = SomeRank(0, 1, 2);
  info.states = StateNames({"momentum_buffer"});
  std::string payload = PayloadOf(info);
  payload.resize(payload.size() - 2 - std::string("momentum_buffer").size());
  RunRankInfo read;
  ASSERT_TRUE(DecodeRank(payload, &read));
  EXPECT_EQ(read.states, StateNames());
}

TEST(RecordFormatTest, RefusesNamesThatNoStatesHave) {
  RunRankInfo info = SomeRank(0, 1, 2);
  info.states = StateNames(std::vector<std::string>());
  const std::string before = PayloadOf(info);
  const auto reads = [&](const std::vector<std::string>& names) {
    std::string payload = before;
    payload.back() = static_cast<char>(names.size());
    for (const std::string& name : names) {
      payload += static_cast<char>(name.size());
      payload += name;
    }
    RunRankInfo read;
    return DecodeRank(payload, &read);
  };
  EXPECT_TRUE(reads({"a", "b"}));
  EXPECT_TRUE(reads({std::string(64, 'x')}));
  EXPECT_FALSE(reads({std::string(65, 'x')}));
  EXPECT_FALSE(reads({"a", "b", "c", "d", "e", "f", "g", "h", "i"}));
  for (const char* name : {"", "\xff", "a b", "a/b", "..", "param", "all"}) {
    EXPECT_FALSE(reads({name})) << name;
  }
  EXPECT_FALSE(reads({"a", "a"}));
}

TEST(RecordFormatTest, AnArenaIsTheSpecifiedBytes) {
  RunArenaInfo info = SomeArena(0x21222324, "ab");
  info.allocator = "c";
  info.bound = true;
  const std::string payload = PayloadOf(info);
  ASSERT_EQ(payload.size(), 104u + 2 + 2 + 2 + 1);
  EXPECT_EQ(payload.substr(0, 24),
            std::string_view("\x24\x23\x22\x21\x03\0\0\0"
                             "\0\0\x10\0\0\0\0\0\x02\0\0\0\0\0\0\0",
                             24));
  for (size_t i = 1; i < 11; ++i) {
    EXPECT_EQ(payload[8 + 8 * i], static_cast<char>(i + 1)) << i;
  }
  EXPECT_EQ(payload.substr(104), std::string_view("\x02\0ab\x01\0c", 7));
}

TEST(RecordFormatTest, AnArenaComesBackAsItWas) {
  for (const bool bound : {false, true}) {
    RunArenaInfo info = SomeArena(3, "staging");
    info.bound = bound;
    info.locked = !bound;
    RunArenaInfo read;
    ASSERT_TRUE(DecodeArena(PayloadOf(info), &read));
    EXPECT_EQ(read, info);
  }
  RunArenaInfo read;
  ASSERT_TRUE(
      DecodeArena(PayloadOf(SomeArena(0, std::string(1000, 'x'))), &read));
  EXPECT_EQ(read.name, std::string(255, 'x'));
}

TEST(RecordFormatTest, RefusesArenasThatNoRunHas) {
  const std::string payload = PayloadOf(SomeArena(0, "staging"));
  ExpectRefusedUnlessWhole(payload, &DecodeArena);
  RunArenaInfo info;
  // The last bytes of the rank, of the flags, and of each number, which then is
  // negative or beyond every address space.
  std::vector<size_t> places = {3, 7};
  for (size_t at = 15; at < 104; at += 8) places.push_back(at);
  for (const size_t at : places) {
    std::string wrong = payload;
    wrong[at] = '\x80';
    EXPECT_FALSE(DecodeArena(wrong, &info)) << at;
    wrong[at] = '\x02';
    EXPECT_EQ(DecodeArena(wrong, &info), at == 3) << at;
  }
}

TEST(RecordFormatTest, APlanIsTheSpecifiedBytesAndComesBack) {
  const std::string payload = PayloadOf(SomePlan(0x21222324));
  ASSERT_EQ(payload.size(), 20u + 2 * 40 + 2 * 12);
  EXPECT_EQ(payload.substr(0, 36),
            std::string_view("\x24\x23\x22\x21\x01\0\0\0\x01\0\0\0"
                             "\x28\0\0\0\x02\0\0\0"
                             "\0\x10\0\0\0\0\0\0\x07\0\0\0\0\0\0\0",
                             36));
  EXPECT_EQ(payload.substr(36, 24),
            std::string_view("\0\0\0\0\0\0\xd0\x3f\0\0\0\0\0\0\xc0\x3f"
                             "\x02\0\0\0\x02\0\0\0",
                             24));
  RunPlanInfo read;
  ASSERT_TRUE(DecodePlan(payload, &read));
  EXPECT_EQ(read, SomePlan(0x21222324));
}

// Earlier versions said how many places leases left for shards.
TEST(RecordFormatTest, LentPlacesOfEarlierVersionsAreIgnored) {
  RunPlanInfo plan = SomePlan(0);
  plan.classes[0].shard_slots = 7;
  plan.classes[0].shards = 28;
  std::string bytes;
  AppendPlanFrame(plan, &bytes);
  std::string earlier(Payload(bytes, FrameType::kPlan));
  earlier[20 + 32] |= 8;                    // flags of the first class
  earlier.insert(20 + 40 + 16, 8, '\x05');  // behind its shards
  RunPlanInfo read;
  ASSERT_TRUE(DecodePlan(earlier, &read));
  EXPECT_EQ(read, plan);
}

TEST(RecordFormatTest, SlotsThatHoldShardsComeBack) {
  RunPlanInfo plan = SomePlan(0);
  plan.classes[0].shard_slots = 7;
  plan.classes[0].shards = 28;
  std::string bytes;
  AppendPlanFrame(plan, &bytes);
  const std::string_view payload = Payload(bytes, FrameType::kPlan);
  EXPECT_EQ(payload.size(), 20u + 2 * 40 + 16 + 2 * 12);
  RunPlanInfo read;
  ASSERT_TRUE(DecodePlan(payload, &read));
  EXPECT_EQ(read, plan);
  // Of seven slots eight hold none.
  plan.classes[0].shard_slots = 8;
  bytes.clear();
  AppendPlanFrame(plan, &bytes);
  EXPECT_FALSE(DecodePlan(Payload(bytes, FrameType::kPlan), &read));
}

TEST(RecordFormatTest, RefusesPlansThatNoRunHas) {
  const std::string payload = PayloadOf(SomePlan(0));
  ExpectRefusedUnlessWhole(payload, &DecodePlan);
  RunPlanInfo info;
  // The last bytes of rank, step, unit, moments and classes; of a class's
  // bytes, slots, cost, bound, flags and prices; of a moment and a price.
  for (const size_t at : {3u, 7u, 11u, 15u, 19u, 27u, 35u, 43u, 51u, 55u, 59u,
                          63u, 71u, 75u, 83u}) {
    std::string wrong = payload;
    wrong[at] = '\xff';
    EXPECT_FALSE(DecodePlan(wrong, &info)) << at;
  }
  // Moments out of order, and beyond the step; prices where there are none.
  for (const auto& [at, byte] :
       {std::pair(60, '\x11'), std::pair(72, '\x28'), std::pair(52, '\x01')}) {
    std::string wrong = payload;
    wrong[static_cast<size_t>(at)] = byte;
    EXPECT_FALSE(DecodePlan(wrong, &info)) << at;
  }
}

TEST(RecordFormatTest, PricesThatDoNotFitAreLeftOut) {
  RunPlanInfo plan = SomePlan(0);
  plan.moments = 1 << 21;
  plan.classes[0].prices.clear();
  for (int32_t m = 0; m < 1'400'000; ++m) {
    plan.classes[0].prices.push_back({m, static_cast<double>(m)});
  }
  RunPlanInfo read;
  ASSERT_TRUE(DecodePlan(PayloadOf(plan), &read));
  EXPECT_FALSE(read.classes[0].priced);
  EXPECT_TRUE(read.classes[0].prices.empty());
  EXPECT_EQ(read.classes[0].cost, 0.25);
}

TEST(RecordFormatTest, TotalsComeBackAsTheyWere) {
  const RecordTotals totals = {2, 1'000'000'000'000, 3};
  std::string bytes;
  AppendEndFrame(totals, &bytes);
  RecordTotals read;
  ASSERT_TRUE(DecodeEnd(Payload(bytes, FrameType::kEnd), &read));
  EXPECT_EQ(read, totals);
  EXPECT_FALSE(DecodeEnd("", &read));
  EXPECT_FALSE(DecodeEnd(bytes, &read));
}

TEST(RecordFormatTest, TheChecksumCoversTypeLengthAndPayload) {
  std::string bytes;
  AppendEndFrame({1, 2, 3}, &bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string wrong = bytes;
    wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(ChecksumHolds(ParseFrameHeader(wrong),
                               std::string_view(wrong).substr(16)))
        << bit;
  }
}

TEST(RecordFormatTest, SaysWhatIsWrongWithAHeader) {
  std::string header;
  AppendRecordHeader(&header);
  EXPECT_THAT(CheckRecordHeader(""),
              StatusIs(ErrorCode::kMalformed, Says("not a record")));
  EXPECT_THAT(CheckRecordHeader("{\"traceEvents\":[]}"),
              StatusIs(ErrorCode::kMalformed, Says("not a record")));
  EXPECT_THAT(CheckRecordHeader(header.substr(0, 11)),
              StatusIs(ErrorCode::kMalformed, Says("after 11 of 16")));
  std::string damaged = header;
  damaged[9] = 1;
  EXPECT_THAT(CheckRecordHeader(damaged),
              StatusIs(ErrorCode::kMalformed, Says("damaged")));
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

TEST(RecordFormatTest, HomesAndMarksComeBackAsTheyWere) {
  RunHomesInfo homes;
  homes.rank = 3;
  homes.step = 17;
  homes.budget_bytes[1] = 1 << 20;
  int64_t bytes = 0;
  for (auto& tiers : homes.home_bytes) {
    for (int64_t& tier : tiers) tier = ++bytes * 1000;
  }
  std::string frame;
  AppendHomesFrame(homes, &frame);
  const std::string payload(Payload(frame, FrameType::kHomes));
  EXPECT_EQ(payload.size(), 296u);
  RunHomesInfo read;
  ASSERT_TRUE(DecodeHomes(payload, &read));
  EXPECT_EQ(read, homes);
  ExpectRefusedUnlessWhole(payload, &DecodeHomes, 32 + 5 * 24);
  // Version 1 had five states.
  ASSERT_TRUE(DecodeHomes(payload.substr(0, 32 + 5 * 24), &read));
  EXPECT_EQ(read.home_bytes[4][2], homes.home_bytes[4][2]);
  EXPECT_EQ(read.home_bytes[5][0], 0);
  std::string negative = payload;
  negative[15] = '\x80';
  EXPECT_FALSE(DecodeHomes(negative, &read));

  const RunMark mark = {-5, 1, 4, "warm-up is over"};
  frame.clear();
  AppendMarkFrame(mark, &frame);
  const std::string words(Payload(frame, FrameType::kMark));
  RunMark seen;
  ASSERT_TRUE(DecodeMark(words, &seen));
  EXPECT_EQ(seen, mark);
  ExpectRefusedUnlessWhole(words, &DecodeMark);
  frame.clear();
  AppendMarkFrame({0, 0, 0, std::string(1000, 'x')}, &frame);
  ASSERT_TRUE(DecodeMark(Payload(frame, FrameType::kMark), &seen));
  EXPECT_EQ(seen.words.size(), kMostMarkBytes);
}

TEST(RecordFormatTest, DocumentsGoThereAndBack) {
  const RunDocument document = {3, 17, "{\"schema\": \"a/1\"}"};
  std::string frame;
  AppendDocumentFrame(document, &frame);
  const std::string payload(Payload(frame, FrameType::kDocument));
  RunDocument seen;
  ASSERT_TRUE(DecodeDocument(payload, &seen));
  EXPECT_EQ(seen, document);
  for (size_t size = 0; size < 8; ++size) {
    EXPECT_FALSE(DecodeDocument(payload.substr(0, size), &seen)) << size;
  }
  EXPECT_FALSE(FitsDocument({0, 1, std::string(kMaxFramePayload, ' ')}));
}

}  // namespace
}  // namespace castor
