// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/memory_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/stable_sort.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/text/units_text.h"
#include "collectives/sealing/run_chunks.h"
#include "offload/memory/range_allocator.h"
#include "placement/run_event.h"
#include "tools/report/pickle_writer.h"
#include "tools/report/statistics/intervals.h"

namespace castor {
namespace {

// More than any tier holds. Numbers in JavaScript are exact a little beyond.
constexpr int64_t kMostBytes = int64_t{1} << 50;

// Where the first device begins: an address of 0 reads like a mistake.
constexpr uint64_t kFirstAddress = uint64_t{1} << 32;
constexpr uint64_t kAddressGranule = uint64_t{1} << 30;

struct Block {
  Interval time;
  bool stays = false;  // it is there when the record ends
  int64_t bytes = 0;
  std::string words;
  int64_t offset = 0;  // from the device's first address
};

struct Change {
  int64_t ns = 0;
  bool frees = false;
  size_t block = 0;
};

// One tier of one rank.
struct Device {
  std::vector<Block> blocks;
  std::vector<Change> changes;  // in order of time
  int64_t size = 0;
  uint64_t address = 0;
};

std::string WordsOf(const Residency& copy, const RunChunkInfo& info) {
  const bool ahead = copy.fetched == RunCause::kPrefetch;
  return fmt::format("chunk {}: {} ({})", copy.chunk, FewNames(info.params),
                     ahead ? "fetched ahead" : "fetched when asked for");
}

class Exporter {
 public:
  Exporter(const RunRecord& record, const StepRange& steps, std::ostream& out)
      : record_(record), events_(EventsOf(record, steps)), pickle_(out) {
    if (!events_.empty()) begin_ns_ = end_ns_ = events_.front().begin_ns;
    for (const RunEvent& event : events_) {
      end_ns_ = std::max(end_ns_, event.end_ns);
    }
  }

  void Write() {
    for (const RunRankInfo& rank : record_.ranks) AddHomes(rank.rank);
    AddCopies();
    AddLeases();
    for (auto& [key, device] : devices_) Place(&device);
    AddRests();
    std::erase_if(devices_,
                  [](const auto& entry) { return entry.second.size == 0; });
    uint64_t next = kFirstAddress;
    for (auto& [key, device] : devices_) {
      device.address = next;
      const auto size = static_cast<uint64_t>(device.size);
      next += (size / kAddressGranule + 1) * kAddressGranule;
    }
    pickle_.BeginDict();
    pickle_.Text("segments");
    WriteSegments();
    pickle_.Text("device_traces");
    WriteTraces();
    pickle_.EndDict();
    pickle_.Finish();
  }

 private:
  using Key = std::pair<int32_t, Tier>;  // of a device

  // Larger ones come from damaged records only.
  void AddBlock(const Key& key, Block block) {
    if (block.bytes <= 0 || block.bytes > kMostBytes) return;
    devices_[key].blocks.push_back(std::move(block));
  }

  // When `step` began on the rank; nothing if the events end before.
  std::optional<int64_t> BeginOf(int32_t rank, int32_t step) const {
    for (const RunEvent& event : events_) {
      if (event.rank == rank && event.step >= step) return event.begin_ns;
    }
    return std::nullopt;
  }

  void AddHomes(int32_t rank) {
    // From when on which of them hold.
    std::vector<std::pair<int64_t, const RunHomesInfo*>> homes;
    for (const RunHomesInfo& info : record_.homes) {
      if (info.rank != rank) continue;
      const std::optional<int64_t> begin = BeginOf(rank, info.step);
      if (homes.empty()) {
        homes.push_back({begin_ns_, &info});
      } else if (begin && *begin <= homes.back().first) {
        homes.back().second = &info;
      } else if (begin) {
        homes.push_back({*begin, &info});
      }
    }
    const StateNames names = record_.states();
    for (const Tier tier : kAllTiers) {
      for (int state = 0; state < kStateKinds; ++state) {
        const auto bytes_of = [&](size_t i) {
          return homes[i].second->home_bytes[state][TierIndex(tier)];
        };
        for (size_t i = 0, next = 0; i < homes.size(); i = next) {
          const int64_t bytes = bytes_of(i);
          next = i + 1;
          while (next < homes.size() && bytes_of(next) == bytes) ++next;
          const bool stays = next == homes.size();
          AddBlock(
              {rank, tier},
              {.time = {homes[i].first, stays ? end_ns_ : homes[next].first},
               .stays = stays,
               .bytes = bytes,
               .words = fmt::format("{} at home on {}, {}",
                                    names.of(StateKind(state)), TierName(tier),
                                    FormatSize(Bytes(bytes)))});
        }
      }
    }
  }

  void AddCopies() {
    std::map<int32_t, const std::vector<RunChunkInfo>*> chunks;
    for (const RunRankInfo& rank : record_.ranks) {
      chunks[rank.rank] = &rank.chunks;
    }
    for (const Residency& copy : FindResidencies(events_)) {
      const auto of_rank = chunks.find(copy.rank);
      const auto chunk = static_cast<size_t>(copy.chunk);
      if (of_rank == chunks.end() || chunk >= of_rank->second->size()) continue;
      const RunChunkInfo& info = (*of_rank->second)[chunk];
      AddBlock({copy.rank, Tier::kDevice},
               {.time = copy.time,
                .stays = copy.released == RunCause::kNone &&
                         copy.time.end == end_ns_,
                .bytes = info.bytes,
                .words = WordsOf(copy, info)});
    }
  }

  void AddLeases() {
    for (const RunEvent& event : events_) {
      if (event.kind != RunEventKind::kLease) continue;
      AddBlock(
          {event.rank, Tier::kDevice},
          {.time = {event.begin_ns, event.end_ns},
           .bytes = event.bytes,
           .words = fmt::format("lease, {}", FormatSize(Bytes(event.bytes)))});
    }
  }

  // Finds an address for each block, and what happens when.
  static void Place(Device* device) {
    StableSort(&device->blocks, [](const Block& a, const Block& b) {
      return a.time.begin < b.time.begin;
    });
    RangeAllocator range(Bytes(0), Bytes(kMostBytes), Bytes(1));
    using End = std::pair<int64_t, size_t>;
    std::priority_queue<End, std::vector<End>, std::greater<>> ends;
    const auto free_until = [&](int64_t ns) {
      while (!ends.empty() && ends.top().first <= ns) {
        const auto [end, index] = ends.top();
        ends.pop();
        const Block& block = device->blocks[index];
        range.Give(Bytes(block.offset), Bytes(block.bytes));
        device->changes.push_back({end, true, index});
      }
    };
    for (size_t i = 0; i < device->blocks.size(); ++i) {
      Block& block = device->blocks[i];
      free_until(block.time.begin);
      const std::optional<Bytes> begin =
          range.Take(Bytes(block.bytes), Bytes(1));
      if (!begin) {
        // In a damaged record only: there is no such block.
        block.stays = false;
        continue;
      }
      block.offset = begin->count();
      device->size = std::max(device->size, block.offset + block.bytes);
      device->changes.push_back({block.time.begin, false, i});
      if (!block.stays) ends.push({block.time.end, i});
    }
    free_until(INT64_MAX);
  }

  // The levels of the tiers, less what was placed: the least of each rank and
  // tier is one more block, above all others.
  void AddRests() {
    std::map<Key, std::vector<std::pair<int64_t, int64_t>>> levels;
    // Those before the first event tell what was in use when it happened.
    for (const RunEvent& event : record_.events) {
      if (event.kind != RunEventKind::kTierBytes) continue;
      if (event.begin_ns > end_ns_) continue;
      levels[{event.rank, event.to}].push_back(
          {std::max(event.begin_ns, begin_ns_), event.bytes});
    }
    for (auto& [key, of_tier] : levels) {
      // Levels of one time are in the order in which they were recorded.
      StableSort(&of_tier, [](const auto& a, const auto& b) {
        return a.first < b.first;
      });
      Device& device = devices_[key];
      const int64_t rest = LeastRest(device, of_tier);
      if (rest <= 0 || rest > kMostBytes - device.size) continue;
      device.changes.insert(device.changes.begin(),
                            {begin_ns_, false, device.blocks.size()});
      device.blocks.push_back(
          {.time = {begin_ns_, end_ns_},
           .stays = true,
           .bytes = rest,
           .words = fmt::format(
               "slots without a copy, staging and buffers, at least {}",
               FormatSize(Bytes(rest))),
           .offset = device.size});
      device.size += rest;
    }
  }

  static int64_t LeastRest(
      const Device& device,
      const std::vector<std::pair<int64_t, int64_t>>& levels) {
    int64_t least = INT64_MAX;
    int64_t placed = 0;
    auto change = device.changes.begin();
    const auto apply = [&] {
      const int64_t bytes = device.blocks[change->block].bytes;
      placed += change->frees ? -bytes : bytes;
      ++change;
    };
    for (size_t i = 0; i < levels.size(); ++i) {
      const auto [ns, level] = levels[i];
      const bool last = i + 1 == levels.size();
      const int64_t until = last ? INT64_MAX : levels[i + 1].first;
      // Of several levels of one time the last holds.
      if (ns == until) continue;
      while (change != device.changes.end() && change->ns <= ns) apply();
      least = std::min(least, level - placed);
      while (change != device.changes.end() && change->ns < until) {
        const int64_t now = change->ns;
        while (change != device.changes.end() && change->ns == now) apply();
        least = std::min(least, level - placed);
      }
    }
    return least == INT64_MAX ? 0 : least;
  }

  void WriteFrames(const Key& key, const std::string& words) {
    const auto frame = [this](const std::string& name) {
      pickle_.BeginDict();
      pickle_.DictText("name", name);
      pickle_.DictText("filename", "castor");
      pickle_.DictInt("line", 0);
      pickle_.EndDict();
    };
    pickle_.Text("frames");
    pickle_.BeginList();
    if (!words.empty()) frame(words);
    frame(fmt::format("rank {}, {}", key.first, TierName(key.second)));
    pickle_.EndList();
  }

  void WriteSegments() {
    pickle_.BeginList();
    int64_t index = 0;
    for (const auto& [key, device] : devices_) {
      std::vector<const Block*> left;
      int64_t left_bytes = 0;
      for (const Block& block : device.blocks) {
        if (!block.stays) continue;
        left.push_back(&block);
        left_bytes += block.bytes;
      }
      std::sort(left.begin(), left.end(), [](const Block* a, const Block* b) {
        return a->offset < b->offset;
      });
      pickle_.BeginDict();
      pickle_.DictInt("device", index++);
      pickle_.DictInt("address", AddressOf(device, 0));
      pickle_.DictInt("total_size", device.size);
      pickle_.DictInt("allocated_size", left_bytes);
      pickle_.DictInt("active_size", left_bytes);
      pickle_.DictInt("requested_size", left_bytes);
      pickle_.DictInt("stream", 0);
      pickle_.DictText("segment_type", "large");
      pickle_.Text("is_expandable");
      pickle_.Bool(false);
      WriteFrames(key, "");
      pickle_.Text("blocks");
      pickle_.BeginList();
      // The blocks fill their segment, gaps are blocks too.
      int64_t at = 0;
      for (const Block* block : left) {
        WriteBlock(key, device, at, block->offset - at, nullptr);
        WriteBlock(key, device, block->offset, block->bytes, block);
        at = block->offset + block->bytes;
      }
      WriteBlock(key, device, at, device.size - at, nullptr);
      pickle_.EndList();
      pickle_.EndDict();
    }
    pickle_.EndList();
  }

  // A gap where `block` is null.
  void WriteBlock(const Key& key, const Device& device, int64_t offset,
                  int64_t size, const Block* block) {
    if (size == 0) return;
    pickle_.BeginDict();
    pickle_.DictInt("address", AddressOf(device, offset));
    pickle_.DictInt("size", size);
    pickle_.DictInt("requested_size", block != nullptr ? size : 0);
    pickle_.DictText("state",
                     block != nullptr ? "active_allocated" : "inactive");
    if (block != nullptr) {
      WriteFrames(key, block->words);
    } else {
      pickle_.Text("frames");
      pickle_.BeginList();
      pickle_.EndList();
    }
    pickle_.EndDict();
  }

  void WriteTraces() {
    pickle_.BeginList();
    int64_t index = 0;
    for (const auto& [key, device] : devices_) {
      pickle_.BeginList();
      const auto write = [&](std::string_view action, int64_t ns,
                             int64_t offset, int64_t size,
                             const std::string& words) {
        pickle_.BeginDict();
        pickle_.DictText("action", action);
        pickle_.DictInt("addr", AddressOf(device, offset));
        pickle_.DictInt("size", size);
        pickle_.DictInt("stream", 0);
        pickle_.DictInt("device", index);
        pickle_.DictInt("time_us", (ns - begin_ns_) / 1000);
        WriteFrames(key, words);
        pickle_.EndDict();
      };
      write("segment_alloc", begin_ns_, 0, device.size, "");
      for (const Change& change : device.changes) {
        const Block& block = device.blocks[change.block];
        if (change.frees) {
          for (const char* action : {"free_requested", "free_completed"}) {
            write(action, change.ns, block.offset, block.bytes, block.words);
          }
        } else {
          write("alloc", change.ns, block.offset, block.bytes, block.words);
        }
      }
      pickle_.EndList();
      ++index;
    }
    pickle_.EndList();
  }

  // Damaged records may speak of so many devices that addresses wrap around.
  static int64_t AddressOf(const Device& device, int64_t offset) {
    return static_cast<int64_t>(device.address + static_cast<uint64_t>(offset));
  }

  const RunRecord& record_;
  const std::vector<RunEvent> events_;  // by begin
  PickleWriter pickle_;
  std::map<Key, Device> devices_;
  int64_t begin_ns_ = 0;
  int64_t end_ns_ = 0;
};

}  // namespace

void WriteMemorySnapshot(const RunRecord& record, const StepRange& steps,
                         std::ostream& out) {
  Exporter(record, steps, out).Write();
}

}  // namespace castor
