// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "chunk/base/dtype.h"
#include "tools/cli/text_forms.h"

namespace castor {
namespace {

constexpr std::array<StepLink, kStepLinks> kLinks = {
    StepLink::kHostToDevice, StepLink::kDeviceToHost, StepLink::kAllGather,
    StepLink::kReduceScatter};

struct Speed {
  int64_t bytes_per_second = 0;
  int64_t latency_ns = 0;
};

std::optional<Speed> SpeedOf(const TierModel& machine, StepLink link) {
  const auto of_link =
      [](const std::optional<LinkModel>& model) -> std::optional<Speed> {
    if (!model) return std::nullopt;
    return Speed{model->bytes_per_second, model->latency_ns};
  };
  const auto of_ring =
      [](const std::optional<RingModel>& model) -> std::optional<Speed> {
    if (!model) return std::nullopt;
    return Speed{model->bytes_per_second, model->step_latency_ns};
  };
  switch (link) {
    case StepLink::kHostToDevice:
      return of_link(machine.host_to_device);
    case StepLink::kDeviceToHost:
      return of_link(machine.device_to_host);
    case StepLink::kAllGather:
      return of_ring(machine.all_gather);
    case StepLink::kReduceScatter:
      return of_ring(machine.reduce_scatter);
  }
  return std::nullopt;
}

std::string_view LinkWords(StepLink link) {
  switch (link) {
    case StepLink::kHostToDevice:
      return "host to device";
    case StepLink::kDeviceToHost:
      return "device to host";
    case StepLink::kAllGather:
      return "all-gather";
    case StepLink::kReduceScatter:
      return "reduce-scatter";
  }
  return "";
}

bool IsCollective(StepLink link) {
  return link == StepLink::kAllGather || link == StepLink::kReduceScatter;
}

JsonValue SecondsJson(const std::optional<double>& seconds) {
  return seconds ? JsonValue(*seconds) : JsonValue();
}

}  // namespace

StepCost TransferCost(const TierModel& machine, const GroupSearchResult& group,
                      const ChunkSizeCandidate& candidate, int world) {
  return ModelStep(machine,
                   {.chunks = candidate.chunks,
                    .allocated = BytesToHold(candidate.allocated, group.dtype),
                    .trainable = group.trainable},
                   world);
}

std::optional<double> KnownSeconds(const StepCost& cost) {
  std::optional<double> slowest;
  for (const std::optional<double>& seconds : cost.link_seconds) {
    if (seconds) slowest = std::max(slowest.value_or(0), *seconds);
  }
  return slowest;
}

std::string SecondsText(double seconds) {
  const char* unit = "s";
  if (seconds < 1e-3) {
    seconds *= 1e6;
    unit = "us";
  } else if (seconds < 1) {
    seconds *= 1e3;
    unit = "ms";
  }
  const int digits = seconds < 10 ? 2 : seconds < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", seconds, digits, unit);
}

JsonValue TransferJson(const StepCost& cost) {
  JsonValue json;
  for (const StepLink link : kLinks) {
    json[fmt::format("{}_seconds", StepLinkName(link))] =
        SecondsJson(cost.on(link));
  }
  json["overlapped_seconds"] = SecondsJson(cost.overlapped_seconds());
  json["serial_seconds"] = SecondsJson(cost.serial_seconds());
  return json;
}

std::string MachineText(const TierModel& machine, int world) {
  std::vector<std::string> known;
  std::vector<std::string> unknown;
  for (const StepLink link : kLinks) {
    // One rank has nobody to exchange with.
    if (world == 1 && IsCollective(link)) continue;
    const std::optional<Speed> speed = SpeedOf(machine, link);
    if (!speed) {
      unknown.emplace_back(LinkWords(link));
      continue;
    }
    known.push_back(
        fmt::format("{} {:.4g} GB/s + {}", LinkWords(link),
                    static_cast<double>(speed->bytes_per_second) / 1e9,
                    SecondsText(static_cast<double>(speed->latency_ns) / 1e9)));
  }
  std::string text =
      "time is a step's transfers on the slowest link, all shards at home in "
      "host memory";
  if (!known.empty()) text += ": " + JoinedWithAnd(known);
  if (!unknown.empty()) {
    text += fmt::format("; unknown and left out: {}", JoinedWithAnd(unknown));
  }
  return text;
}

JsonValue MachineJson(const TierModel& machine) {
  JsonValue json;
  for (const StepLink link : kLinks) {
    const std::optional<Speed> speed = SpeedOf(machine, link);
    if (!speed) continue;
    json[StepLinkName(link)] = JsonValue::Object(
        {{"bytes_per_second", speed->bytes_per_second},
         {IsCollective(link) ? "step_latency_ns" : "latency_ns",
          speed->latency_ns}});
  }
  return json;
}

}  // namespace castor
