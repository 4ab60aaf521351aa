// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/record_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

// A byte above 127 and a line end, so that a file converted as if it were text
// no longer has it.
constexpr std::string_view kMagic =
    "\x93"
    "CASTOR\n";
static_assert(kMagic.size() == 8);

constexpr size_t kMaxNameBytes = 255;
constexpr size_t kChunkBytes = 10;  // of a chunk without its name
constexpr size_t kRankBytes = 44;   // of a rank without its chunks
constexpr size_t kEndBytes = 24;

// Times this far from the clock's start, 73 years, and sizes this large, 1 EiB,
// are no run's; refusing them keeps every difference within 64 bits.
constexpr int64_t kMaxNs = int64_t{1} << 61;
constexpr int64_t kMaxBytes = int64_t{1} << 60;
// No process has more memory for an arena to be in.
constexpr int64_t kMaxArenaNumber = int64_t{1} << 48;

template <typename T>
char* Store(T value, char* to) {
  const auto bits = static_cast<std::make_unsigned_t<T>>(value);
  for (size_t i = 0; i < sizeof(T); ++i) {
    to[i] = static_cast<char>(bits >> (8 * i) & 0xff);
  }
  return to + sizeof(T);
}

template <typename T>
void Append(T value, std::string* out) {
  char bytes[sizeof(T)];
  Store(value, bytes);
  out->append(bytes, sizeof(T));
}

// Reads integers off the front of a payload; once one is missing it stays
// failed and reads zeros.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Take() {
    if (bytes_.size() < sizeof(T)) {
      failed_ = true;
      return T{};
    }
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      bits |= uint64_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
    }
    bytes_.remove_prefix(sizeof(T));
    return static_cast<T>(bits);
  }

  std::string_view TakeText(size_t size) {
    if (bytes_.size() < size) {
      failed_ = true;
      return {};
    }
    const std::string_view text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return text;
  }

  size_t left() const { return bytes_.size(); }
  bool failed() const { return failed_; }

 private:
  std::string_view bytes_;
  bool failed_ = false;
};

uint64_t Checksum(uint32_t type, uint32_t length, std::string_view payload) {
  const uint64_t seed = uint64_t{type} << 32 | length;
  return XXH3_64bits_withSeed(payload.data(), payload.size(), seed);
}

// Makes room for a frame's header, and fills it in once its payload stands.
class FrameBuilder {
 public:
  FrameBuilder(FrameType type, std::string* out)
      : type_(static_cast<uint32_t>(type)), out_(out), start_(out->size()) {
    out_->append(kFrameHeaderBytes, '\0');
  }
  size_t payload_size() const {
    return out_->size() - start_ - kFrameHeaderBytes;
  }
  void Finish() {
    CASTOR_CHECK_LE(payload_size(), kMaxFramePayload);
    const auto length = static_cast<uint32_t>(payload_size());
    const std::string_view payload =
        std::string_view(*out_).substr(start_ + kFrameHeaderBytes);
    const uint64_t checksum = Checksum(type_, length, payload);
    char* header = out_->data() + start_;
    Store(checksum, Store(length, Store(type_, header)));
  }

 private:
  uint32_t type_;
  std::string* out_;
  size_t start_;
};

void AppendEvent(const RunEvent& event, std::string* out) {
  char bytes[kEventBytes] = {};
  char* to = bytes;
  to = Store(event.begin_ns, to);
  to = Store(event.end_ns, to);
  to = Store(event.bytes, to);
  to = Store(event.rank, to);
  to = Store(event.step, to);
  to = Store(event.moment, to);
  to = Store(event.chunk, to);
  to = Store(static_cast<uint8_t>(event.kind), to);
  to = Store(static_cast<uint8_t>(event.cause), to);
  to = Store(static_cast<uint8_t>(event.state), to);
  to = Store(static_cast<uint8_t>(event.from), to);
  Store(static_cast<uint8_t>(event.to), to);
  out->append(bytes, kEventBytes);
}

bool TakeEvent(Reader* reader, RunEvent* event) {
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

void AppendName(std::string_view name, std::string* out) {
  name = name.substr(0, kMaxNameBytes);
  Append(static_cast<uint16_t>(name.size()), out);
  out->append(name);
}

}  // namespace

void AppendRecordHeader(std::string* out) {
  std::string header(kMagic);
  Append(kRecordVersion, &header);
  const uint64_t hash = XXH3_64bits(header.data(), header.size());
  Append(static_cast<uint32_t>(hash), &header);
  out->append(header);
}

void AppendRankFrame(const RunRankInfo& info, std::string* out) {
  FrameBuilder frame(FrameType::kRank, out);
  const size_t most_chunks = (kMaxFramePayload - kRankBytes) / kChunkBytes;
  const size_t chunks = std::min(info.chunks.size(), most_chunks);
  Append(info.rank, out);
  Append(info.world, out);
  Append(info.stage, out);
  for (const int64_t budget : info.budget_bytes) Append(budget, out);
  Append(static_cast<uint64_t>(chunks), out);
  size_t room = kMaxFramePayload - kRankBytes - chunks * kChunkBytes;
  for (size_t i = 0; i < chunks; ++i) {
    const RunChunkInfo& chunk = info.chunks[i];
    const std::string_view name =
        std::string_view(chunk.params).substr(0, std::min(kMaxNameBytes, room));
    room -= name.size();
    Append(chunk.bytes, out);
    Append(static_cast<uint16_t>(name.size()), out);
    out->append(name);
  }
  frame.Finish();
}

void AppendEventsFrame(std::span<const RunEvent> events, int64_t dropped_so_far,
                       std::string* out) {
  FrameBuilder frame(FrameType::kEvents, out);
  Append(dropped_so_far, out);
  for (const RunEvent& event : events) AppendEvent(event, out);
  frame.Finish();
}

void AppendArenaFrame(const RunArenaInfo& info, std::string* out) {
  FrameBuilder frame(FrameType::kArena, out);
  Append(info.rank, out);
  Append(uint32_t{info.locked} | uint32_t{info.bound} << 1, out);
  for (const auto number : kArenaNumbers) Append(info.*number, out);
  AppendName(info.name, out);
  AppendName(info.allocator, out);
  frame.Finish();
}

void AppendEndFrame(const RecordTotals& totals, std::string* out) {
  FrameBuilder frame(FrameType::kEnd, out);
  Append(totals.ranks, out);
  Append(totals.events, out);
  Append(totals.dropped, out);
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
  Reader reader(bytes.substr(kMagic.size()));
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
  Reader reader(bytes);
  FrameHeader header;
  header.type = reader.Take<uint32_t>();
  header.length = reader.Take<uint32_t>();
  header.checksum = reader.Take<uint64_t>();
  return header;
}

bool ChecksumHolds(const FrameHeader& header, std::string_view payload) {
  return header.length == payload.size() &&
         header.checksum == Checksum(header.type, header.length, payload);
}

bool DecodeRank(std::string_view payload, RunRankInfo* info) {
  Reader reader(payload);
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
  if (reader.failed() || reader.left() != 0 || !sane) return false;
  *info = std::move(read);
  return true;
}

bool DecodeEvents(std::string_view payload, std::vector<RunEvent>* events,
                  int64_t* dropped_so_far) {
  Reader reader(payload);
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
  Reader reader(payload);
  totals->ranks = reader.Take<int64_t>();
  totals->events = reader.Take<int64_t>();
  totals->dropped = reader.Take<int64_t>();
  return true;
}

bool DecodeArena(std::string_view payload, RunArenaInfo* info) {
  Reader reader(payload);
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

}  // namespace castor
