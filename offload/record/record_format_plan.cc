// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "offload/record/frame_bytes.h"
#include "offload/record/record_format.h"

namespace castor {
namespace {

constexpr size_t kPlanBytes = 20;   // of a plan without its classes
constexpr size_t kClassBytes = 40;  // of a class without its prices
constexpr size_t kShardsBytes = 16;
constexpr size_t kPriceBytes = 12;
constexpr int64_t kMaxSlotBytes = int64_t{1} << 60;
constexpr uint32_t kOptimal = 1;
constexpr uint32_t kPriced = 2;
// Some slots hold shards: how many of them, and of these, follow.
constexpr uint32_t kShards = 4;
// In records of earlier versions: a number follows that is no longer used.
constexpr uint32_t kUnused = 8;

void AppendReal(double value, std::string* out) {
  AppendInteger(std::bit_cast<uint64_t>(value), out);
}

// A number that is not negative; else the reader's payload is none of a plan.
bool TakeReal(ByteReader* reader, double* value) {
  *value = std::bit_cast<double>(reader->Take<uint64_t>());
  return std::isfinite(*value) && *value >= 0;
}

bool TakeClass(ByteReader* reader, int32_t moments, RunPlanClass* read) {
  read->slot_bytes = reader->Take<int64_t>();
  read->slots = reader->Take<int64_t>();
  bool sane = read->slot_bytes >= 0 && read->slot_bytes <= kMaxSlotBytes &&
              read->slots >= 0;
  sane = TakeReal(reader, &read->cost) && sane;
  sane = TakeReal(reader, &read->lower_bound) && sane;
  const auto flags = reader->Take<uint32_t>();
  const auto prices = reader->Take<uint32_t>();
  read->optimal = (flags & kOptimal) != 0;
  read->priced = (flags & kPriced) != 0;
  if ((flags & kShards) != 0) {
    read->shard_slots = reader->Take<int64_t>();
    read->shards = reader->Take<int64_t>();
    sane = sane && read->shard_slots > 0 && read->shard_slots <= read->slots &&
           read->shards >= 0;
  }
  if ((flags & kUnused) != 0) reader->Take<int64_t>();
  sane = sane && flags <= (kOptimal | kPriced | kShards | kUnused) &&
         (read->priced || prices == 0) &&
         prices <= reader->left() / kPriceBytes;
  if (reader->failed() || !sane) return false;
  int32_t before = -1;
  read->prices.resize(prices);
  for (RunSlotPrice& change : read->prices) {
    change.moment = reader->Take<int32_t>();
    sane = TakeReal(reader, &change.price) && sane;
    sane = sane && change.moment > before && change.moment < moments;
    before = change.moment;
  }
  return sane;
}

}  // namespace

void AppendPlanFrame(const RunPlanInfo& info, std::string* out) {
  FrameBuilder frame(static_cast<uint32_t>(FrameType::kPlan), out);
  AppendInteger(info.rank, out);
  AppendInteger(info.step, out);
  AppendInteger(uint32_t{info.in_seconds}, out);
  AppendInteger(info.moments, out);
  AppendInteger(static_cast<uint32_t>(info.classes.size()), out);
  size_t room = kMaxFramePayload - kPlanBytes -
                info.classes.size() * (kClassBytes + kShardsBytes);
  for (const RunPlanClass& slots : info.classes) {
    const bool priced =
        slots.priced && slots.prices.size() <= room / kPriceBytes;
    const size_t prices = priced ? slots.prices.size() : 0;
    room -= prices * kPriceBytes;
    AppendInteger(slots.slot_bytes, out);
    AppendInteger(slots.slots, out);
    AppendReal(slots.cost, out);
    AppendReal(slots.lower_bound, out);
    const bool shards = slots.shard_slots > 0;
    AppendInteger((slots.optimal ? kOptimal : 0) | (priced ? kPriced : 0) |
                      (shards ? kShards : 0),
                  out);
    AppendInteger(static_cast<uint32_t>(prices), out);
    if (shards) {
      AppendInteger(slots.shard_slots, out);
      AppendInteger(slots.shards, out);
    }
    for (size_t i = 0; i < prices; ++i) {
      AppendInteger(slots.prices[i].moment, out);
      AppendReal(slots.prices[i].price, out);
    }
  }
  frame.Finish();
}

bool DecodePlan(std::string_view payload, RunPlanInfo* info) {
  ByteReader reader(payload);
  RunPlanInfo read;
  read.rank = reader.Take<int32_t>();
  read.step = reader.Take<int32_t>();
  const auto flags = reader.Take<uint32_t>();
  read.in_seconds = flags == 1;
  read.moments = reader.Take<int32_t>();
  const auto classes = reader.Take<uint32_t>();
  if (reader.failed() || read.rank < 0 || read.step < 0 || flags > 1 ||
      read.moments < 0 || classes > reader.left() / kClassBytes) {
    return false;
  }
  read.classes.resize(classes);
  for (RunPlanClass& each : read.classes) {
    if (!TakeClass(&reader, read.moments, &each)) return false;
  }
  if (reader.failed() || reader.left() != 0) return false;
  *info = std::move(read);
  return true;
}

}  // namespace castor
