// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/record_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/record/frame_bytes.h"

namespace castor {
namespace {

// A byte above 127 and a line end, so that a file converted as if it were text
// no longer has it.
constexpr std::string_view kMagic =
    "\x93"
    "CASTOR\n";
static_assert(kMagic.size() == 8);

static_assert(FrameBuilder::kHeaderBytes == kFrameHeaderBytes);

constexpr size_t kMaxNameBytes = 255;
static_assert(kMaxNameBytes == kMostMarkBytes);
constexpr size_t kMaxChunkNames = 65'535;  // of all parameters of a chunk
constexpr size_t kChunkBytes = 10;         // of a chunk without its name
constexpr size_t kRankBytes = 44;          // of a rank without its chunks
// Of the names of an optimizer's states, in the most.
constexpr size_t kStatesBytes =
    1 + kMaxOptimizerStates * (1 + kMaxStateNameBytes);
constexpr size_t kStatesOfVersion1 = 5;
constexpr size_t kEndBytes = 24;
constexpr size_t kDocumentBytes = 8;  // of a document without its text

// Times this far from the clock's start, 73 years, and sizes this large, 1 EiB,
// are no run's; refusing them keeps every difference within 64 bits.
constexpr int64_t kMaxNs = int64_t{1} << 61;
constexpr int64_t kMaxBytes = int64_t{1} << 60;
// No process has more memory for an arena to be in.
constexpr int64_t kMaxArenaNumber = int64_t{1} << 48;

uint32_t TypeOf(FrameType type) { return static_cast<uint32_t>(type); }

void AppendEvent(const RunEvent& event, std::string* out) {
  char bytes[kEventBytes] = {};
  char* to = bytes;
  to = StoreInteger(event.begin_ns, to);
  to = StoreInteger(event.end_ns, to);
  to = StoreInteger(event.bytes, to);
  to = StoreInteger(event.rank, to);
  to = StoreInteger(event.step, to);
  to = StoreInteger(event.moment, to);
  to = StoreInteger(event.chunk, to);
  to = StoreInteger(static_cast<uint8_t>(event.kind), to);
  to = StoreInteger(static_cast<uint8_t>(event.cause), to);
  to = StoreInteger(static_cast<uint8_t>(event.state), to);
  to = StoreInteger(static_cast<uint8_t>(event.from), to);
  StoreInteger(static_cast<uint8_t>(event.to), to);
  out->append(bytes, kEventBytes);
}

bool TakeEvent(ByteReader* reader, RunEvent* event) {
  event->begin_ns = reader->Take<int64_t>();
  event->end_ns = reader->Take<int64_t>();
  event->bytes = reader->Take<int64_t>();
  event->rank = reader->Take<int32_t>();
  event->step = reader->Take<int32_t>();
  event->moment = reader->Take<int32_t>();
  event->chunk = reader->Take<int32_t>();
  const auto kind = reader->Take<uint8_t>();
  const auto cause = reader->Take<uint8_t>();
  const auto state = reader->Take<uint8_t>();
  const auto from = reader->Take<uint8_t>();
  const auto to = reader->Take<uint8_t>();
  reader->TakeText(3);
  event->kind = static_cast<RunEventKind>(kind);
  event->cause = static_cast<RunCause>(cause);
  event->state = static_cast<StateKind>(state);
  event->from = static_cast<Tier>(from);
  event->to = static_cast<Tier>(to);
  return !reader->failed() && kind < kRunEventKinds && cause < kRunCauses &&
         state < kStateKinds && from < kAllTiers.size() &&
         to < kAllTiers.size() && event->begin_ns >= -kMaxNs &&
         event->begin_ns <= event->end_ns && event->end_ns <= kMaxNs &&
         event->bytes >= 0 && event->bytes <= kMaxBytes && event->rank >= 0 &&
         event->step >= 0 && event->moment >= -1 && event->chunk >= -1;
}

// An arena's numbers, in the order in which they are written.
constexpr int64_t RunArenaInfo::*kArenaNumbers[] = {
    &RunArenaInfo::budget_bytes,   &RunArenaInfo::in_use_bytes,
    &RunArenaInfo::peak_bytes,     &RunArenaInfo::requested_bytes,
    &RunArenaInfo::buffers,        &RunArenaInfo::allocated,
    &RunArenaInfo::refused,        &RunArenaInfo::live_bytes,
    &RunArenaInfo::active_bytes,   &RunArenaInfo::resident_bytes,
    &RunArenaInfo::retained_bytes, &RunArenaInfo::metadata_bytes,
};

bool TakeStates(ByteReader* reader, StateNames* states) {
  std::vector<std::string> names(reader->Take<uint8_t>());
  for (std::string& name : names) {
    name = reader->TakeText(reader->Take<uint8_t>());
  }
  if (reader->failed() || !AreOptimizerStates(names)) return false;
  *states = StateNames(std::move(names));
  return true;
}

void AppendName(std::string_view name, std::string* out) {
  name = name.substr(0, kMaxNameBytes);
  AppendInteger(static_cast<uint16_t>(name.size()), out);
  out->append(name);
}

}  // namespace

void AppendRecordHeader(std::string* out) {
  std::string header(kMagic);
  AppendInteger(kRecordVersion, &header);
  const uint64_t hash = XXH3_64bits(header.data(), header.size());
  AppendInteger(static_cast<uint32_t>(hash), &header);
  out->append(header);
}

void AppendRankFrame(const RunRankInfo& info, std::string* out) {
  FrameBuilder frame(TypeOf(FrameType::kRank), out);
  constexpr size_t kRoom = kMaxFramePayload - kRankBytes - kStatesBytes;
  const size_t most_chunks = kRoom / kChunkBytes;
  const size_t chunks = std::min(info.chunks.size(), most_chunks);
  AppendInteger(info.rank, out);
  AppendInteger(info.world, out);
  AppendInteger(info.stage, out);
  for (const int64_t budget : info.budget_bytes) AppendInteger(budget, out);
  AppendInteger(static_cast<uint64_t>(chunks), out);
  size_t room = kRoom - chunks * kChunkBytes;
  for (size_t i = 0; i < chunks; ++i) {
    const RunChunkInfo& chunk = info.chunks[i];
    const std::string_view name =
        std::string_view(chunk.params)
            .substr(0, std::min(kMaxChunkNames, room));
    room -= name.size();
    AppendInteger(chunk.bytes, out);
    AppendInteger(static_cast<uint16_t>(name.size()), out);
    out->append(name);
  }
  AppendInteger(static_cast<uint8_t>(info.states.optimizer_states()), out);
  for (const std::string& name : info.states.of_optimizer()) {
    AppendInteger(static_cast<uint8_t>(name.size()), out);
    out->append(name);
  }
  frame.Finish();
}

void AppendEventsFrame(std::span<const RunEvent> events, int64_t dropped_so_far,
                       std::string* out) {
  CASTOR_CHECK_LE(sizeof(dropped_so_far) + events.size() * kEventBytes,
                  kMaxFramePayload);
  FrameBuilder frame(TypeOf(FrameType::kEvents), out);
  AppendInteger(dropped_so_far, out);
  for (const RunEvent& event : events) AppendEvent(event, out);
  frame.Finish();
}

void AppendArenaFrame(const RunArenaInfo& info, std::string* out) {
  FrameBuilder frame(TypeOf(FrameType::kArena), out);
  AppendInteger(info.rank, out);
  AppendInteger(uint32_t{info.locked} | uint32_t{info.bound} << 1, out);
  for (const auto number : kArenaNumbers) AppendInteger(info.*number, out);
  AppendName(info.name, out);
  AppendName(info.allocator, out);
  frame.Finish();
}

void AppendHomesFrame(const RunHomesInfo& info, std::string* out) {
  FrameBuilder frame(TypeOf(FrameType::kHomes), out);
  AppendInteger(info.rank, out);
  AppendInteger(info.step, out);
  for (const int64_t budget : info.budget_bytes) AppendInteger(budget, out);
  for (const auto& tiers : info.home_bytes) {
    for (const int64_t bytes : tiers) AppendInteger(bytes, out);
  }
  frame.Finish();
}

void AppendMarkFrame(const RunMark& mark, std::string* out) {
  FrameBuilder frame(TypeOf(FrameType::kMark), out);
  AppendInteger(mark.at_ns, out);
  AppendInteger(mark.rank, out);
  AppendInteger(mark.step, out);
  AppendName(mark.words, out);
  frame.Finish();
}

bool FitsDocument(const RunDocument& info) {
  return info.text.size() <= kMaxFramePayload - kDocumentBytes;
}

void AppendDocumentFrame(const RunDocument& info, std::string* out) {
  CASTOR_CHECK(FitsDocument(info));
  FrameBuilder frame(TypeOf(FrameType::kDocument), out);
  AppendInteger(info.rank, out);
  AppendInteger(info.step, out);
  out->append(info.text);
  frame.Finish();
}

void AppendEndFrame(const RecordTotals& totals, std::string* out) {
  FrameBuilder frame(TypeOf(FrameType::kEnd), out);
  AppendInteger(totals.ranks, out);
  AppendInteger(totals.events, out);
  AppendInteger(totals.dropped, out);
  frame.Finish();
}

Status CheckRecordHeader(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic.substr(0, bytes.size()) ||
      bytes.empty()) {
    return Malformed(
        "this is not a record of a Castor run: it does not start with the "
        "eight bytes 93 43 41 53 54 4f 52 0a; record one with --record FILE");
  }
  if (bytes.size() < kRecordHeaderBytes) {
    return Malformed(fmt::format(
        "the record ends inside its header, after {} of {} bytes: nothing in "
        "it can be read; record the run again",
        bytes.size(), kRecordHeaderBytes));
  }
  ByteReader reader(bytes.substr(kMagic.size()));
  const auto version = reader.Take<uint32_t>();
  const auto check = reader.Take<uint32_t>();
  const uint64_t hash = XXH3_64bits(bytes.data(), kMagic.size() + 4);
  if (check != static_cast<uint32_t>(hash)) {
    return Malformed(
        "the record's header is damaged: its check at byte 12 does not match "
        "bytes 0 to 11; copy the file again, or record the run again");
  }
  if (version == 0 || version > kRecordVersion) {
    return Malformed(fmt::format(
        "the record has format version {}, this castor reads versions 1 to "
        "{}; read it with the castor that wrote it",
        version, kRecordVersion));
  }
  return OkStatus();
}

FrameHeader ParseFrameHeader(std::string_view bytes) {
  CASTOR_CHECK_GE(bytes.size(), kFrameHeaderBytes);
  ByteReader reader(bytes);
  FrameHeader header;
  header.type = reader.Take<uint32_t>();
  header.length = reader.Take<uint32_t>();
  header.checksum = reader.Take<uint64_t>();
  return header;
}

bool ChecksumHolds(const FrameHeader& header, std::string_view payload) {
  return header.length == payload.size() &&
         header.checksum == FrameChecksum(header.type, header.length, payload);
}

bool DecodeRank(std::string_view payload, RunRankInfo* info) {
  ByteReader reader(payload);
  RunRankInfo read;
  read.rank = reader.Take<int32_t>();
  read.world = reader.Take<int32_t>();
  read.stage = reader.Take<int32_t>();
  bool sane = read.rank >= 0 && read.world > read.rank && read.stage >= 0 &&
              read.stage <= 3;
  for (int64_t& budget : read.budget_bytes) {
    budget = reader.Take<int64_t>();
    sane = sane && budget >= 0 && budget <= kMaxBytes;
  }
  const auto chunks = reader.Take<uint64_t>();
  sane = sane && chunks <= reader.left() / kChunkBytes;
  if (reader.failed() || !sane) return false;
  read.chunks.resize(chunks);
  for (RunChunkInfo& chunk : read.chunks) {
    chunk.bytes = reader.Take<int64_t>();
    chunk.params = reader.TakeText(reader.Take<uint16_t>());
    sane = sane && chunk.bytes >= 0 && chunk.bytes <= kMaxBytes;
  }
  // Version 1 has no names: there were Adam's.
  if (sane && reader.left() > 0) sane = TakeStates(&reader, &read.states);
  if (reader.failed() || reader.left() != 0 || !sane) return false;
  *info = std::move(read);
  return true;
}

bool DecodeEvents(std::string_view payload, std::vector<RunEvent>* events,
                  int64_t* dropped_so_far) {
  ByteReader reader(payload);
  const auto dropped = reader.Take<int64_t>();
  if (reader.failed() || dropped < 0 || reader.left() % kEventBytes != 0) {
    return false;
  }
  const size_t before = events->size();
  events->resize(before + reader.left() / kEventBytes);
  for (size_t i = before; i < events->size(); ++i) {
    if (!TakeEvent(&reader, &(*events)[i])) {
      events->resize(before);
      return false;
    }
  }
  *dropped_so_far = dropped;
  return true;
}

bool DecodeEnd(std::string_view payload, RecordTotals* totals) {
  if (payload.size() != kEndBytes) return false;
  ByteReader reader(payload);
  totals->ranks = reader.Take<int64_t>();
  totals->events = reader.Take<int64_t>();
  totals->dropped = reader.Take<int64_t>();
  return true;
}

bool DecodeArena(std::string_view payload, RunArenaInfo* info) {
  ByteReader reader(payload);
  RunArenaInfo read;
  read.rank = reader.Take<int32_t>();
  const auto flags = reader.Take<uint32_t>();
  read.locked = (flags & 1) != 0;
  read.bound = (flags & 2) != 0;
  bool sane = read.rank >= 0 && flags <= 3;
  for (const auto number : kArenaNumbers) {
    read.*number = reader.Take<int64_t>();
    sane = sane && read.*number >= 0 && read.*number <= kMaxArenaNumber;
  }
  read.name = reader.TakeText(reader.Take<uint16_t>());
  read.allocator = reader.TakeText(reader.Take<uint16_t>());
  if (reader.failed() || reader.left() != 0 || !sane) return false;
  *info = std::move(read);
  return true;
}

bool DecodeHomes(std::string_view payload, RunHomesInfo* info) {
  ByteReader reader(payload);
  RunHomesInfo read;
  read.rank = reader.Take<int32_t>();
  read.step = reader.Take<int32_t>();
  bool sane = read.rank >= 0 && read.step >= 0;
  const auto take = [&](int64_t& bytes) {
    bytes = reader.Take<int64_t>();
    sane = sane && bytes >= 0 && bytes <= kMaxBytes;
  };
  for (int64_t& budget : read.budget_bytes) take(budget);
  const size_t states = reader.left() / sizeof(read.home_bytes[0]);
  if (states != kStateKinds && states != kStatesOfVersion1) return false;
  for (size_t k = 0; k < states; ++k) {
    for (int64_t& bytes : read.home_bytes[k]) take(bytes);
  }
  if (reader.failed() || reader.left() != 0 || !sane) return false;
  *info = read;
  return true;
}

bool DecodeMark(std::string_view payload, RunMark* mark) {
  ByteReader reader(payload);
  RunMark read;
  read.at_ns = reader.Take<int64_t>();
  read.rank = reader.Take<int32_t>();
  read.step = reader.Take<int32_t>();
  read.words = reader.TakeText(reader.Take<uint16_t>());
  if (reader.failed() || reader.left() != 0 || read.at_ns < -kMaxNs ||
      read.at_ns > kMaxNs || read.rank < 0 || read.step < 0) {
    return false;
  }
  *mark = std::move(read);
  return true;
}

bool DecodeDocument(std::string_view payload, RunDocument* info) {
  ByteReader reader(payload);
  RunDocument read;
  read.rank = reader.Take<int32_t>();
  read.step = reader.Take<int32_t>();
  read.text = reader.TakeText(reader.left());
  if (reader.failed() || read.rank < 0 || read.step < 0) return false;
  *info = std::move(read);
  return true;
}

}  // namespace castor
