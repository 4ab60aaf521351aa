// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/recommendation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/text/raises_text.h"
#include "chunk/text/units_text.h"

namespace castor {
namespace {

using Candidates = std::vector<ChunkSizeCandidate>;

// The first candidate with the least of one cost, that is the smallest chunk.
template <typename Cost>
size_t Least(const Candidates& candidates, Cost cost) {
  const auto less = [cost](const ChunkSizeCandidate& a,
                           const ChunkSizeCandidate& b) {
    return cost(a) < cost(b);
  };
  return static_cast<size_t>(
      std::min_element(candidates.begin(), candidates.end(), less) -
      candidates.begin());
}

size_t LeastWaste(const Candidates& candidates) {
  return Least(candidates, [](const auto& c) { return c.waste; });
}

size_t LeastGathered(const Candidates& candidates) {
  return Least(candidates, [](const auto& c) { return c.gathered_bytes; });
}

Bytes LeastGatheredBytes(const GroupSearchResult& group) {
  return group.candidates[LeastGathered(group.candidates)].gathered_bytes;
}

struct Choice {
  size_t candidate = 0;
  bool near_best = false;
};

// Among candidates of which `among` holds. None where none of them is within
// `allowance`.
template <typename Among>
std::optional<Choice> ChooseAmong(const GroupSearchResult& group,
                                  std::optional<Bytes> allowance, Among among) {
  const Candidates& all = group.candidates;
  const auto less_waste = [&all](size_t a, size_t b) {
    return all[a].waste < all[b].waste;
  };
  std::optional<Elements> least_waste;
  std::vector<size_t> fitting;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!among(all[i])) continue;
    least_waste = std::min(least_waste.value_or(all[i].waste), all[i].waste);
    if (!allowance || all[i].gathered_bytes <= *allowance) fitting.push_back(i);
  }
  if (fitting.empty()) return std::nullopt;
  const auto smallest =
      std::find_if(fitting.begin(), fitting.end(), [&](size_t i) {
        return all[i].waste <= *least_waste + group.payload / 100;  // 1 %
      });
  if (smallest == fitting.end()) {
    return Choice{*std::min_element(fitting.begin(), fitting.end(), less_waste),
                  false};
  }
  const Elements size = all[*smallest].chunk_size;
  const auto too_large = std::find_if(
      smallest, fitting.end(),
      [&all, size](size_t i) { return all[i].chunk_size > size + size / 4; });
  return Choice{*std::min_element(smallest, too_large, less_waste), true};
}

// REQUIRES: a candidate whose gathered bytes are within `allowance`, if given.
Choice Choose(const GroupSearchResult& group, std::optional<Bytes> allowance) {
  std::optional<Choice> choice =
      ChooseAmong(group, allowance, [](const auto& one) { return one.suits; });
  if (!choice) {
    choice = ChooseAmong(group, allowance, [](const auto&) { return true; });
  }
  CASTOR_CHECK(choice.has_value());
  return *choice;
}

void AddReason(std::string_view reason, ChunkSizeCandidate* candidate) {
  if (!candidate->reason.empty()) candidate->reason += ", ";
  candidate->reason += reason;
}

// The candidate that is the best of `mode`.
size_t BestOf(const ModeResult& mode, const Candidates& candidates) {
  const auto found = std::find_if(
      candidates.begin(), candidates.end(),
      [&best = mode.best](const ChunkSizeCandidate& c) {
        return c.mode == best.mode && c.chunk_size == best.chunk_size &&
               c.waste == best.waste && c.chunks == best.chunks;
      });
  CASTOR_CHECK(found != candidates.end());
  return static_cast<size_t>(found - candidates.begin());
}

// Says of every candidate what speaks for it.
void Explain(size_t recommended, std::span<const ModeResult> modes,
             Candidates* candidates) {
  const size_t fewest =
      Least(*candidates, [](const auto& c) { return c.chunks; });
  const size_t best = LeastWaste(*candidates);
  AddReason("least waste", &(*candidates)[best]);
  AddReason("fewest chunks", &(*candidates)[fewest]);
  AddReason("smallest working set", &(*candidates)[LeastGathered(*candidates)]);
  for (const ModeResult& mode : modes) {
    const size_t best_of_mode = BestOf(mode, *candidates);
    if (best_of_mode == best) continue;
    AddReason("best of its mode", &(*candidates)[best_of_mode]);
  }
  AddReason("recommended", &(*candidates)[recommended]);
  for (ChunkSizeCandidate& candidate : *candidates) {
    if (candidate.reason.empty()) candidate.reason = "trade-off";
  }
}

Status TooLarge(Bytes least, Bytes budget) {
  return DoesNotFit(
      fmt::format(
          "the gathered chunks need at least {} (the slots of the chunk "
          "size and one for each oversize size, in every group) but "
          "the device budget is {}",
          FormatBytes(least), FormatBytes(budget)),
      {RaiseOf(Tier::kDevice, least - budget)},
      "or lower the minimum chunk size");
}

}  // namespace

Status Recommend(std::optional<Bytes> device_budget, SearchResult* result) {
  std::vector<GroupSearchResult>& groups = result->groups;
  Bytes least_of_later;  // of the groups that have not chosen yet
  for (const GroupSearchResult& group : groups) {
    least_of_later += LeastGatheredBytes(group);
  }
  if (device_budget && least_of_later > *device_budget) {
    return TooLarge(least_of_later, *device_budget);
  }
  // By falling payload, ties in their order.
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&groups](size_t a, size_t b) {
    const Bytes of_a = BytesToHold(groups[a].payload, groups[a].dtype);
    const Bytes of_b = BytesToHold(groups[b].payload, groups[b].dtype);
    return of_a != of_b ? of_a > of_b : a < b;
  });

  result->recommended_rule =
      "the smallest chunk that wastes at most 1 % of the model more than the "
      "best, or one up to a quarter larger that wastes less";
  if (device_budget) {
    result->recommended_rule += fmt::format(
        " and whose gathered bytes fit the device budget of {} bytes",
        device_budget->count());
  }
  std::optional<Bytes> left = device_budget;
  for (const size_t g : order) {
    GroupSearchResult& group = groups[g];
    least_of_later -= LeastGatheredBytes(group);
    std::optional<Bytes> allowance;
    if (left) allowance = *left - least_of_later;
    const Choice choice = Choose(group, allowance);
    if (!choice.near_best) {
      result->recommended_rule += fmt::format(
          "; none so near the best fits for {} {} parameters, so the least "
          "wasteful that does",
          group.trainable ? "trainable" : "frozen", DTypeName(group.dtype));
    }
    if (!group.candidates[LeastWaste(group.candidates)].suits) {
      result->recommended_rule += fmt::format(
          "; for {} {} parameters, the chunk of a layer that wastes least is "
          "smaller or larger than what a search recommends",
          group.trainable ? "trainable" : "frozen", DTypeName(group.dtype));
    }
    Explain(choice.candidate, group.modes, &group.candidates);
    for (ModeResult& mode : group.modes) {
      mode.best.reason =
          group.candidates[BestOf(mode, group.candidates)].reason;
    }
    group.best = group.candidates[LeastWaste(group.candidates)];
    group.recommended = group.candidates[choice.candidate];
    if (left) *left -= group.recommended.gathered_bytes;
  }
  return OkStatus();
}

}  // namespace castor
