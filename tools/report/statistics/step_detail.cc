// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/statistics/step_detail.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "chunk/base/stable_sort.h"
#include "placement/trace.h"
#include "tools/report/statistics/run_times.h"

namespace castor {
namespace {

// Pixels of a wide screen: what is shorter than one is joined with the next.
constexpr int64_t kPixels = 4000;
// Spans, and moves, of one rank: a page of eight ranks stays below 5 MiB.
constexpr size_t kMostItems = 12'000;
constexpr size_t kMostNames = 24;  // of one chunk

bool IsCopy(const RunEvent& event) {
  return event.kind == RunEventKind::kGather ||
         (event.kind == RunEventKind::kTransfer && event.to == Tier::kDevice &&
          event.state == StateKind::kParam &&
          (event.cause == RunCause::kDemand ||
           event.cause == RunCause::kPrefetch));
}

// Parameters on their way from the drive, to be copied to the device.
bool IsFetch(const RunEvent& event) {
  return event.kind == RunEventKind::kTransfer && event.from == Tier::kNvme &&
         event.state == StateKind::kParam && event.chunk >= 0 &&
         (event.cause == RunCause::kDemand ||
          event.cause == RunCause::kPrefetch);
}

std::optional<Interval> Clipped(const Interval& time, const Interval& window) {
  const Interval part = {std::max(time.begin, window.begin),
                         std::min(time.end, window.end)};
  if (part.begin > part.end || time.end < window.begin) return std::nullopt;
  return part;
}

// Joins neighbours of one key that are closer than `resolution`, or some times
// that where there are too many; of what is still too much, the longest stay.
// `key` compares all but the time.
template <typename Item, typename Key, typename Join>
void Thin(std::vector<Item>* items, int64_t resolution, const Key& key,
          const Join& join) {
  StableSort(items, [&](const Item& a, const Item& b) {
    return std::tuple(key(a), a.time.begin, a.time.end) <
           std::tuple(key(b), b.time.begin, b.time.end);
  });
  for (const int64_t times : {1, 2, 4, 8}) {
    std::vector<Item> kept;
    for (Item& item : *items) {
      if (!kept.empty() && key(kept.back()) == key(item) &&
          item.time.begin - kept.back().time.end < times * resolution) {
        Item& last = kept.back();
        last.time.end = std::max(last.time.end, item.time.end);
        join(&last, item);
      } else {
        kept.push_back(std::move(item));
      }
    }
    *items = std::move(kept);
    if (items->size() <= kMostItems) return;
  }
  std::vector<int64_t> lengths;
  for (const Item& item : *items) lengths.push_back(item.time.length());
  std::nth_element(lengths.begin(), lengths.begin() + kMostItems, lengths.end(),
                   std::greater<>());
  // As many of the least length as there is room for.
  const int64_t least = lengths[kMostItems];
  auto equal = static_cast<int64_t>(kMostItems) -
               std::ranges::count_if(
                   lengths, [&](int64_t length) { return length > least; });
  std::erase_if(*items, [&](const Item& item) {
    const int64_t length = item.time.length();
    return length < least || (length == least && equal-- <= 0);
  });
}

// A rank's events of one step, and what they show.
class RankBuilder {
 public:
  RankBuilder(const RunRecord& record, const RunSetup& setup,
              const StepWindow& window, int64_t origin)
      : record_(record), setup_(setup), window_(window), origin_(origin) {
    for (const RunEvent& event : record.events) {
      if (event.rank == window.rank) events_.push_back(event);
    }
    StableSort(&events_, [](const RunEvent& a, const RunEvent& b) {
      return a.begin_ns < b.begin_ns;
    });
    for (const Residency& residency : FindResidencies(events_)) {
      if (Clipped(residency.time, window_.time)) copies_.push_back(residency);
    }
    resolution_ = std::max<int64_t>(1, window.time.length() / kPixels);
  }

  RankDetail Build(std::vector<LinkId>* links) {
    detail_.rank = window_.rank;
    detail_.time = Moved(window_.time);
    TakeUses();
    AddPhases();
    AddCopies();
    AddEvents(links);
    for (const Tier tier : kAllTiers) AddTier(tier);
    Thin(
        &detail_.spans, resolution_,
        [](const ChunkSpan& s) { return std::pair(s.chunk, s.activity); },
        [](ChunkSpan*, const ChunkSpan&) {});
    Thin(
        &detail_.moves, resolution_,
        [](const LinkMove& m) {
          return std::tuple(m.link, m.chunk, m.state, m.cause);
        },
        [](LinkMove* to, const LinkMove& from) { to->bytes += from.bytes; });
    StableSort(&detail_.moves, [](const LinkMove& a, const LinkMove& b) {
      return a.time.begin < b.time.begin;
    });
    return std::move(detail_);
  }

 private:
  Interval Moved(const Interval& time) const {
    return {time.begin - origin_, time.end - origin_};
  }

  void AddSpan(int32_t chunk, ChunkActivity activity, const Interval& time) {
    const std::optional<Interval> part = Clipped(time, window_.time);
    if (!part || part->length() == 0) return;
    detail_.spans.push_back({chunk, activity, Moved(*part)});
  }

  void TakeUses() {
    for (const RunEvent& event : events_) {
      if (event.kind != RunEventKind::kUse) continue;
      uses_[event.chunk].push_back({event.begin_ns, event.end_ns});
      if (event.step == window_.step && event.moment >= 0) {
        last_use_ns_ = std::max(last_use_ns_, event.end_ns);
      }
    }
  }

  // The first use at this moment of the step's trace or behind it.
  int64_t BeginOf(size_t moment) const {
    const auto use = moments_.lower_bound(moment);
    return use == moments_.end() ? window_.time.end : use->second.begin;
  }

  // A backward begins with the last use before a gradient opens; a forward,
  // again, with the first use behind the last gradient of a micro-batch.
  void AddPhases() {
    const TraceFile* trace = setup_.TraceOf(window_.rank);
    if (trace == nullptr) return;
    moments_ =
        FindUses(trace->step.accesses, events_, window_.rank, window_.step);
    if (moments_.empty()) return;
    std::vector<bool> opened(trace->chunks.size(), false);
    std::vector<std::pair<std::string_view, int64_t>> starts = {
        {"forward", window_.time.begin}};
    size_t last_use = 0;
    std::optional<size_t> use_after_close;
    for (size_t i = 0; i < trace->step.accesses.size(); ++i) {
      const Access& access = trace->step.accesses[i];
      const size_t chunk = access.chunk.index();
      if (access.kind == AccessKind::kUse) {
        last_use = i;
        if (!use_after_close) use_after_close = i;
      } else if (access.kind == AccessKind::kGradClose) {
        use_after_close.reset();
      } else if (access.kind == AccessKind::kGradOpen) {
        if (opened[chunk]) {
          opened.assign(opened.size(), false);
          starts.emplace_back("forward", BeginOf(use_after_close.value_or(i)));
        }
        const bool first = std::none_of(opened.begin(), opened.end(),
                                        [](bool open) { return open; });
        if (first) starts.emplace_back("backward", BeginOf(last_use));
        opened[chunk] = true;
      }
    }
    if (last_use_ns_ > 0) starts.emplace_back("update", last_use_ns_);
    for (size_t i = 0; i < starts.size(); ++i) {
      const int64_t end =
          i + 1 < starts.size() ? starts[i + 1].second : window_.time.end;
      const std::optional<Interval> part =
          Clipped({starts[i].second, end}, window_.time);
      if (part && part->length() > 0) {
        detail_.phases.push_back({starts[i].first, Moved(*part)});
      }
    }
  }

  void AddCopies() {
    for (const Residency& residency : copies_) {
      const Interval& time = residency.time;
      int64_t there = time.begin;
      for (const RunEvent& event : events_) {
        if (event.begin_ns > time.end) break;
        if (event.chunk == residency.chunk && IsCopy(event) &&
            event.begin_ns >= time.begin) {
          there = std::max(there, std::min(event.end_ns, time.end));
        }
      }
      int64_t at = there;
      for (const Interval& use : uses_[residency.chunk]) {
        if (use.end < time.begin || use.begin >= time.end) continue;
        const bool used = at > there;
        AddSpan(residency.chunk,
                used ? ChunkActivity::kKept : ChunkActivity::kReady,
                {at, std::max(at, use.begin)});
        at = std::max(at, use.end);
      }
      AddSpan(residency.chunk, ChunkActivity::kComing,
              {time.begin, std::min(there, residency.first_use_ns)});
      AddSpan(residency.chunk,
              at > there ? ChunkActivity::kKept : ChunkActivity::kReady,
              {at, time.end});
    }
  }

  void AddEvents(std::vector<LinkId>* links) {
    for (const RunEvent& event : events_) {
      const Interval time = {event.begin_ns, event.end_ns};
      const std::optional<Interval> part = Clipped(time, window_.time);
      if (!part) continue;
      if (MovesBytes(event)) {
        const LinkId id = LinkOf(event);
        auto link = std::find(links->begin(), links->end(), id);
        if (link == links->end()) link = links->insert(link, id);
        detail_.moves.push_back({static_cast<size_t>(link - links->begin()),
                                 Moved(*part), event.chunk, event.state,
                                 event.cause, event.bytes});
      }
      if (event.kind == RunEventKind::kStall) {
        detail_.stalls.push_back({Moved(*part), event.chunk, event.cause});
        if (event.chunk >= 0) {
          AddSpan(event.chunk, ChunkActivity::kWaited, time);
        }
      } else if (event.kind == RunEventKind::kUse) {
        AddSpan(event.chunk, ChunkActivity::kUsed, time);
      } else if (event.kind == RunEventKind::kUpdate) {
        AddSpan(event.chunk, ChunkActivity::kUpdate, time);
      } else if (IsFetch(event)) {
        AddSpan(event.chunk, ChunkActivity::kFetched, time);
      } else if (event.kind == RunEventKind::kReduceScatter ||
                 (event.kind == RunEventKind::kTransfer &&
                  event.cause == RunCause::kGradient && event.chunk >= 0)) {
        AddSpan(event.chunk, ChunkActivity::kGradient, time);
      }
    }
  }

  int64_t ChunkBytes(int32_t chunk) const {
    for (const RunRankInfo& rank : record_.ranks) {
      const auto index = static_cast<size_t>(chunk);
      if (rank.rank == window_.rank && index < rank.chunks.size()) {
        return rank.chunks[index].bytes;
      }
    }
    return 0;
  }

  void AddTier(Tier tier) {
    TierCourse course;
    course.tier = tier;
    TakeHomes(&course);
    // What changes, by time: the level, or bytes of a kind.
    struct Change {
      int64_t at;
      int kind;  // kPassingKinds: the level is now `bytes`
      int64_t bytes;
    };
    std::vector<Change> changes;
    bool known = course.budget_bytes > 0;
    for (const RunEvent& event : events_) {
      if (event.kind == RunEventKind::kTierBytes && event.to == tier) {
        changes.push_back({event.begin_ns, kPassingKinds, event.bytes});
        known = true;
      }
      if (tier == Tier::kDevice && event.kind == RunEventKind::kLease) {
        changes.push_back({event.begin_ns, 2, event.bytes});
        changes.push_back({event.end_ns, 2, -event.bytes});
      }
    }
    if (!known) return;
    if (tier == Tier::kDevice) {
      for (const Residency& copy : copies_) {
        const int64_t bytes = ChunkBytes(copy.chunk);
        const Interval& time = copy.time;
        changes.push_back({time.begin, 1, bytes});
        changes.push_back({copy.first_use_ns, 1, -bytes});
        changes.push_back({copy.first_use_ns, 0, bytes});
        changes.push_back({time.end, 0, -bytes});
      }
    }
    StableSort(&changes,
               [](const Change& a, const Change& b) { return a.at < b.at; });
    int64_t level = 0;
    int64_t at_home = 0;
    for (const int64_t bytes : course.home_bytes) at_home += bytes;
    std::array<int64_t, kPassingKinds> now = {};
    int64_t fullest = -1;  // of the point that is last
    const auto note = [&](int64_t at) {
      at = std::clamp(at, window_.time.begin, window_.time.end) - origin_;
      now[3] = std::max<int64_t>(0, level - at_home - now[0] - now[1] - now[2]);
      const int64_t sum = now[0] + now[1] + now[2] + now[3];
      // Of the points within a pixel, the fullest one stays.
      if (!course.times.empty() && at - course.times.back() < resolution_ &&
          at > course.times.front()) {
        if (sum >= fullest) course.bytes.back() = now;
        fullest = std::max(fullest, sum);
        return;
      }
      if (!course.times.empty() && course.times.back() == at) {
        course.bytes.back() = now;
      } else {
        course.times.push_back(at);
        course.bytes.push_back(now);
      }
      fullest = sum;
    };
    for (size_t i = 0; i < changes.size(); ++i) {
      const Change& change = changes[i];
      if (change.at > window_.time.end) break;
      if (change.kind == kPassingKinds) {
        level = change.bytes;
      } else {
        now[static_cast<size_t>(change.kind)] += change.bytes;
      }
      const bool last =
          i + 1 == changes.size() || changes[i + 1].at > change.at;
      if (last) note(change.at);
    }
    if (course.times.empty()) note(window_.time.begin);
    detail_.tiers.push_back(std::move(course));
  }

  void TakeHomes(TierCourse* course) const {
    const size_t tier = TierIndex(course->tier);
    for (const RunRankInfo& rank : record_.ranks) {
      if (rank.rank == window_.rank) {
        course->budget_bytes = rank.budget_bytes[tier];
      }
    }
    for (const RunHomesInfo& homes : record_.homes) {
      if (homes.rank != window_.rank || homes.step > window_.step) continue;
      course->budget_bytes = homes.budget_bytes[tier];
      for (size_t k = 0; k < kStateKinds; ++k) {
        course->home_bytes[k] = homes.home_bytes[k][tier];
      }
    }
  }

  const RunRecord& record_;
  const RunSetup& setup_;
  const StepWindow window_;
  const int64_t origin_;
  int64_t resolution_ = 1;
  std::vector<RunEvent> events_;                   // of the rank, by begin
  std::vector<Residency> copies_;                  // in the step
  std::map<int32_t, std::vector<Interval>> uses_;  // by chunk
  std::map<size_t, Interval> moments_;             // of the trace's uses
  int64_t last_use_ns_ = 0;
  RankDetail detail_;
};

JsonValue Numbers(std::initializer_list<int64_t> numbers) {
  JsonValue list = JsonValue::Array();
  for (const int64_t number : numbers) list.Append(number);
  return list;
}

template <typename Name>
JsonValue NamesOf(int count, const Name& name) {
  JsonValue list = JsonValue::Array();
  for (int i = 0; i < count; ++i) list.Append(name(i));
  return list;
}

JsonValue TierJson(const TierCourse& course, const StateNames& names) {
  JsonValue home = JsonValue::Object();
  for (int k = 0; k < names.states(); ++k) {
    home[names.of(static_cast<StateKind>(k))] =
        course.home_bytes[static_cast<size_t>(k)];
  }
  JsonValue times = JsonValue::Array();
  for (const int64_t at : course.times) times.Append(at);
  JsonValue passing = JsonValue::Object();
  for (int k = 0; k < kPassingKinds; ++k) {
    JsonValue bytes = JsonValue::Array();
    bool any = false;
    for (const auto& point : course.bytes) {
      bytes.Append(point[static_cast<size_t>(k)]);
      any = any || point[static_cast<size_t>(k)] > 0;
    }
    if (any) passing[PassingKindName(static_cast<PassingKind>(k))] = bytes;
  }
  return JsonValue::Object(
      {{"tier", TierName(course.tier)},
       {"budget_bytes",
        course.budget_bytes > 0 ? JsonValue(course.budget_bytes) : JsonValue()},
       {"home_bytes", std::move(home)},
       {"times_ns", std::move(times)},
       {"passing_bytes", std::move(passing)}});
}

JsonValue RankJson(const RankDetail& rank, const StateNames& names) {
  JsonValue phases = JsonValue::Array();
  for (const StepPhase& phase : rank.phases) {
    phases.Append(JsonValue::Object({{"phase", phase.name},
                                     {"begin_ns", phase.time.begin},
                                     {"end_ns", phase.time.end}}));
  }
  JsonValue tiers = JsonValue::Array();
  for (const TierCourse& course : rank.tiers) {
    tiers.Append(TierJson(course, names));
  }
  JsonValue spans = JsonValue::Array();
  for (const ChunkSpan& span : rank.spans) {
    spans.Append(Numbers({span.chunk, static_cast<int64_t>(span.activity),
                          span.time.begin, span.time.end}));
  }
  JsonValue moves = JsonValue::Array();
  for (const LinkMove& move : rank.moves) {
    moves.Append(
        Numbers({static_cast<int64_t>(move.link), move.time.begin,
                 move.time.end, move.chunk, static_cast<int64_t>(move.state),
                 static_cast<int64_t>(move.cause), move.bytes}));
  }
  JsonValue stalls = JsonValue::Array();
  for (const StallSpan& stall : rank.stalls) {
    stalls.Append(Numbers({stall.time.begin, stall.time.end, stall.chunk,
                           static_cast<int64_t>(stall.cause)}));
  }
  return JsonValue::Object({{"rank", rank.rank},
                            {"begin_ns", rank.time.begin},
                            {"end_ns", rank.time.end},
                            {"phases", std::move(phases)},
                            {"tiers", std::move(tiers)},
                            {"spans", std::move(spans)},
                            {"moves", std::move(moves)},
                            {"stalls", std::move(stalls)}});
}

}  // namespace

std::string_view ChunkActivityName(ChunkActivity activity) {
  switch (activity) {
    case ChunkActivity::kFetched:
      return "fetched";
    case ChunkActivity::kComing:
      return "coming";
    case ChunkActivity::kReady:
      return "ready";
    case ChunkActivity::kUsed:
      return "used";
    case ChunkActivity::kKept:
      return "kept";
    case ChunkActivity::kGradient:
      return "gradient";
    case ChunkActivity::kUpdate:
      return "update";
    case ChunkActivity::kWaited:
      return "waited for";
  }
  return "unknown";
}

std::string_view PassingKindName(PassingKind kind) {
  switch (kind) {
    case PassingKind::kGathered:
      return "gathered";
    case PassingKind::kPrefetched:
      return "prefetched";
    case PassingKind::kBorrowed:
      return "borrowed";
    case PassingKind::kOther:
      return "other";
  }
  return "unknown";
}

int32_t TypicalStep(const RunStatistics& run, const StepRange& steps) {
  constexpr int32_t kFirstSteady = 3;
  std::vector<std::pair<int64_t, int32_t>> times;
  for (const bool steady : {true, false}) {
    for (const StepStatistics& step : run.steps) {
      if (!step.complete || !steps.Holds(step.step)) continue;
      if (steady && step.step < kFirstSteady) continue;
      times.emplace_back(step.ns, step.step);
    }
    if (!times.empty()) break;
  }
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return times[(times.size() - 1) / 2].second;
}

StepDetail ComputeStepDetail(const RunRecord& record, const RunSetup& setup,
                             int32_t step) {
  StepDetail detail;
  std::vector<StepWindow> windows = FindStepWindows(record, {step, step});
  std::erase_if(windows, [&](StepWindow& window) {
    const std::optional<Interval> time =
        FindLaneTime(record, window.rank, step);
    if (time) window.time = *time;
    return !time;
  });
  if (windows.empty()) return detail;
  detail.step = step;
  detail.names = record.states();
  const int64_t origin =
      std::min_element(windows.begin(), windows.end(),
                       [](const StepWindow& a, const StepWindow& b) {
                         return a.time.begin < b.time.begin;
                       })
          ->time.begin;
  for (const StepWindow& window : windows) {
    detail.ranks.push_back(
        RankBuilder(record, setup, window, origin).Build(&detail.links));
  }
  return detail;
}

JsonValue StepDetailJson(const StepDetail& detail) {
  if (detail.step == 0) return JsonValue();
  JsonValue links = JsonValue::Array();
  for (const LinkId& link : detail.links) links.Append(LinkName(link));
  // A damaged record may have moves of states that nobody named.
  int states = detail.names.states();
  for (const RankDetail& rank : detail.ranks) {
    for (const LinkMove& move : rank.moves) {
      states = std::max(states, static_cast<int>(move.state) + 1);
    }
  }
  JsonValue ranks = JsonValue::Array();
  for (const RankDetail& rank : detail.ranks) {
    ranks.Append(RankJson(rank, detail.names));
  }
  const auto keys = [](std::initializer_list<const char*> names) {
    JsonValue list = JsonValue::Array();
    for (const char* name : names) list.Append(name);
    return list;
  };
  return JsonValue::Object(
      {{"step", detail.step},
       {"links", std::move(links)},
       {"activities", NamesOf(kChunkActivities,
                              [](int i) {
                                return ChunkActivityName(
                                    static_cast<ChunkActivity>(i));
                              })},
       {"states", NamesOf(states,
                          [&](int i) {
                            return detail.names.of(static_cast<StateKind>(i));
                          })},
       {"causes",
        NamesOf(kRunCauses,
                [](int i) { return RunCauseName(static_cast<RunCause>(i)); })},
       {"span_keys", keys({"chunk", "activity", "begin_ns", "end_ns"})},
       {"move_keys", keys({"link", "begin_ns", "end_ns", "chunk", "state",
                           "cause", "bytes"})},
       {"stall_keys", keys({"begin_ns", "end_ns", "chunk", "cause"})},
       {"ranks", std::move(ranks)}});
}

JsonValue ChunkJson(int64_t chunk, Bytes bytes,
                    std::span<const std::string> params,
                    const HomesOfChunk& homes, const StateNames& states) {
  const size_t shown = std::min(params.size(), kMostNames);
  JsonValue names = JsonValue::Array();
  for (const std::string& name : params.first(shown)) names.Append(name);
  JsonValue at_home = JsonValue::Array();
  for (size_t k = 0; k < kStateKinds; ++k) {
    if (!homes[k]) continue;
    at_home.Append(
        JsonValue::Object({{"state", states.of(static_cast<StateKind>(k))},
                           {"tier", TierName(homes[k]->tier)},
                           {"bytes", homes[k]->bytes.count()},
                           {"why", homes[k]->why}}));
  }
  return JsonValue::Object(
      {{"chunk", chunk},
       {"bytes", bytes.count()},
       {"params", std::move(names)},
       {"more_params", static_cast<int64_t>(params.size() - shown)},
       {"homes", std::move(at_home)}});
}

JsonValue ChunksJson(const RunRecord& record, const RunSetup& setup,
                     int32_t rank, int32_t step) {
  JsonValue list = JsonValue::Array();
  if (record.ranks.empty()) return list;
  const std::vector<std::vector<std::string>> params =
      ParamsByChunk(record, setup);
  const std::span<const HomesOfChunk> homes = setup.HomesIn(rank, step);
  const std::vector<RunChunkInfo>& chunks = record.ranks.front().chunks;
  const StateNames& states = record.ranks.front().states;
  for (size_t c = 0; c < chunks.size(); ++c) {
    list.Append(
        ChunkJson(static_cast<int64_t>(c), Bytes(chunks[c].bytes),
                  c < params.size() ? params[c] : std::vector<std::string>(),
                  c < homes.size() ? homes[c] : HomesOfChunk(), states));
  }
  return list;
}

}  // namespace castor
