// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_explain_forms.h"

#include <fmt/format.h>

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/tier.h"
#include "placement/run_event.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/plan/plan_tables.h"

namespace castor {
namespace {

// A link that a chunk's bytes pass in a step.
struct PassedLink {
  std::string name;
  LinkTraffic traffic;
  std::optional<double> seconds;  // that they take on it
};

std::vector<PassedLink> PassedLinks(const StepTraffic& traffic,
                                    const std::optional<TierModel>& machine) {
  std::vector<PassedLink> links;
  const TierModel speeds = machine.value_or(TierModel());
  const auto add = [&](Tier from, Tier to,
                       const std::optional<LinkModel>& speed) {
    const LinkTraffic& moved = traffic.on(from, to);
    if (moved.transfers == 0) return;
    std::optional<double> seconds;
    if (speed) seconds = LinkSeconds(*speed, moved.transfers, moved.bytes);
    links.push_back(
        {from == to ? std::string("within the device")
                    : fmt::format("{} to {}", TierName(from), TierName(to)),
         moved, seconds});
  };
  add(Tier::kNvme, Tier::kHost, speeds.nvme_read);
  add(Tier::kHost, Tier::kDevice, speeds.host_to_device);
  add(Tier::kDevice, Tier::kDevice, std::nullopt);
  add(Tier::kDevice, Tier::kHost, speeds.device_to_host);
  add(Tier::kHost, Tier::kNvme, speeds.nvme_write);
  for (const auto& [name, sent] :
       {std::pair{"all-gather", traffic.all_gather},
        std::pair{"reduce-scatter", traffic.reduce_scatter}}) {
    if (sent.bytes > Bytes(0)) links.push_back({name, sent, std::nullopt});
  }
  return links;
}

std::string NamesText(const std::vector<std::string>& params) {
  constexpr size_t kNamed = 4;
  std::string names;
  for (size_t i = 0; i < params.size() && i < kNamed; ++i) {
    names += (i == 0 ? "" : ", ") + Shown(params[i]);
  }
  if (params.size() > kNamed) {
    names += fmt::format(" and {} more", params.size() - kNamed);
  }
  return names;
}

std::string MovesText(const StepTraffic& traffic,
                      const std::optional<TierModel>& machine) {
  std::string text;
  for (const PassedLink& link : PassedLinks(traffic, machine)) {
    text += fmt::format("{}{} {} in {}{}", text.empty() ? "" : ", ",
                        FormatSize(link.traffic.bytes), link.name,
                        Plural(link.traffic.transfers, "move"),
                        link.seconds
                            ? fmt::format(" ({})", SecondsShown(*link.seconds))
                            : std::string());
  }
  return text.empty() ? std::string("a step moves nothing of it")
                      : "a step moves " + text;
}

}  // namespace

std::string ExplainedText(std::span<const ExplainedChunk> explained,
                          const std::optional<TierModel>& machine) {
  std::string text;
  for (const ExplainedChunk& one : explained) {
    text += fmt::format("\nchunk {}, with {}\n", one.chunk.value(),
                        NamesText(one.params));
    for (const ExplainedHome& home : one.homes) {
      text += fmt::format("  {}\n", home.why);
    }
    text += fmt::format("  {}\n", MovesText(one.traffic, machine));
  }
  return text;
}

JsonValue StepTrafficJson(const StepTraffic& traffic) {
  JsonValue json;
  json["gathers"] = traffic.gathers;
  json["fetches"] = traffic.fetches;
  json["links"] = JsonValue::Array();
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      const LinkTraffic& link = traffic.on(from, to);
      if (link.transfers == 0) continue;
      json["links"].Append(
          JsonValue::Object({{"from", TierName(from)},
                             {"to", TierName(to)},
                             {"moved_bytes", link.bytes.count()},
                             {"transfers", link.transfers}}));
    }
  }
  json["all_gather_bytes"] = traffic.all_gather.bytes.count();
  json["all_gathers"] = traffic.all_gather.transfers;
  json["reduce_scatter_bytes"] = traffic.reduce_scatter.bytes.count();
  json["reduce_scatters"] = traffic.reduce_scatter.transfers;
  json["agreement_bytes"] = traffic.agreement.count();
  json["updated_on_device_elements"] = traffic.updated_on_device.count();
  json["updated_on_host_elements"] = traffic.updated_on_host.count();
  return json;
}

JsonValue ExplainedJson(std::span<const ExplainedChunk> explained) {
  JsonValue json = JsonValue::Array();
  for (const ExplainedChunk& one : explained) {
    JsonValue params = JsonValue::Array();
    for (const std::string& name : one.params) params.Append(name);
    JsonValue homes = JsonValue::Array();
    for (const ExplainedHome& home : one.homes) {
      homes.Append(JsonValue::Object({{"state", StateKindName(home.state)},
                                      {"tier", TierName(home.tier)},
                                      {"why", home.why}}));
    }
    json.Append(JsonValue::Object({{"chunk", one.chunk.value()},
                                   {"params", std::move(params)},
                                   {"homes", std::move(homes)},
                                   {"step", StepTrafficJson(one.traffic)}}));
  }
  return json;
}

std::string ExplainedPlain(std::span<const ExplainedChunk> explained) {
  std::string text;
  for (const ExplainedChunk& one : explained) {
    for (const ExplainedHome& home : one.homes) {
      text +=
          fmt::format("state\t{}\t{}\t{}\t{}\n", one.chunk.value(),
                      StateKindName(home.state), TierName(home.tier), home.why);
    }
    for (const PassedLink& link : PassedLinks(one.traffic, std::nullopt)) {
      text +=
          fmt::format("moves\t{}\t{}\t{}\t{}\n", one.chunk.value(), link.name,
                      link.traffic.bytes.count(), link.traffic.transfers);
    }
  }
  return text;
}

}  // namespace castor
