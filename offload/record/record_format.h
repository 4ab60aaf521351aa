// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_RECORD_RECORD_FORMAT_H_
#define CASTOR_OFFLOAD_RECORD_RECORD_FORMAT_H_

// The bytes of a record file; README.md of this folder is its specification.
// In short, all integers little endian:
//
//   | magic 8 | version 4 | check 4 |                          header
//   | type 4 | length 4 | checksum 8 | payload of length |     frame
//   | frame | frame | ...
//
// A frame's checksum covers its type, its length and its payload, so whatever
// passes it is what was written. A file that was cut off holds whole frames up
// to the cut; one that was closed ends with an end frame. Pure functions,
// thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "placement/run_event.h"

namespace castor {

inline constexpr uint32_t kRecordVersion = 2;
inline constexpr size_t kRecordHeaderBytes = 16;
inline constexpr size_t kFrameHeaderBytes = 16;
inline constexpr size_t kEventBytes = 48;
// No frame's payload is longer, so that a broken length costs no memory.
inline constexpr size_t kMaxFramePayload = size_t{16} << 20;

enum class FrameType : uint32_t {
  kRank = 1,      // what is known of one rank
  kEvents = 2,    // events, and how many were dropped so far
  kEnd = 3,       // the record was closed: what it holds
  kArena = 4,     // what is known of a rank's pinned arena
  kPlan = 5,      // what proves a rank's plan, and prices its slots
  kHomes = 6,     // where a rank's states are at home from a step on
  kMark = 7,      // the trainer's own words of a moment
  kDocument = 8,  // a text that describes the run
};

struct FrameHeader {
  uint32_t type = 0;  // of a FrameType, or unknown to this version
  uint32_t length = 0;
  uint64_t checksum = 0;
};

// What an end frame promises.
struct RecordTotals {
  int64_t ranks = 0;
  int64_t events = 0;
  int64_t dropped = 0;

  friend bool operator==(const RecordTotals&, const RecordTotals&) = default;
};

void AppendRecordHeader(std::string* out);
// Names that would not fit are left out.
void AppendRankFrame(const RunRankInfo& info, std::string* out);
// REQUIRES: the events fit kMaxFramePayload.
void AppendEventsFrame(std::span<const RunEvent> events, int64_t dropped_so_far,
                       std::string* out);
// Names that are too long are cut.
void AppendArenaFrame(const RunArenaInfo& info, std::string* out);
// Prices that would not fit are left out. REQUIRES: the classes fit.
void AppendPlanFrame(const RunPlanInfo& info, std::string* out);
void AppendHomesFrame(const RunHomesInfo& info, std::string* out);
// Words that are too long are cut.
void AppendMarkFrame(const RunMark& mark, std::string* out);
// REQUIRES: FitsDocument(info).
void AppendDocumentFrame(const RunDocument& info, std::string* out);
bool FitsDocument(const RunDocument& info);
void AppendEndFrame(const RecordTotals& totals, std::string* out);

// Malformed when `bytes` do not start a record that this version can read.
Status CheckRecordHeader(std::string_view bytes);

// REQUIRES: `bytes` holds kFrameHeaderBytes.
FrameHeader ParseFrameHeader(std::string_view bytes);
bool ChecksumHolds(const FrameHeader& header, std::string_view payload);

// These decode a payload whose checksum holds, of whichever version. False when
// it is no such payload all the same: lengths that do not add up, a kind or a
// tier that does not exist, a negative size, an end before its begin, moments
// out of order, names that no optimizer's states have.
bool DecodeRank(std::string_view payload, RunRankInfo* info);
// Appends to `events`; leaves it alone on failure.
bool DecodeEvents(std::string_view payload, std::vector<RunEvent>* events,
                  int64_t* dropped_so_far);
bool DecodeEnd(std::string_view payload, RecordTotals* totals);
bool DecodeArena(std::string_view payload, RunArenaInfo* info);
bool DecodePlan(std::string_view payload, RunPlanInfo* info);
bool DecodeHomes(std::string_view payload, RunHomesInfo* info);
bool DecodeMark(std::string_view payload, RunMark* mark);
bool DecodeDocument(std::string_view payload, RunDocument* info);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_RECORD_RECORD_FORMAT_H_
