// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/probe/probe_report.h"

#include <fmt/format.h>

#include <utility>

#include "chunk/base/units_text.h"
#include "placement/tier_model_file.h"
#include "tools/cli/duration_text.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/machine_forms.h"

namespace castor {
namespace {

std::string Gigabytes(int64_t bytes_per_second) {
  return fmt::format("{:.2f}", static_cast<double>(bytes_per_second) / 1e9);
}

std::string SizesText(const std::vector<TimedSize>& points) {
  return fmt::format("{} to {}", FormatSize(points.front().bytes),
                     FormatSize(points.back().bytes));
}

std::string TableText(const ProbeReport& report, Emphasis emphasis) {
  using Align = TextTable::Align;
  TextTable table({{"measured", Align::kLeft},
                   {"GB/s"},
                   {"latency"},
                   {"residual"},
                   {"sizes", Align::kLeft}});
  for (const MeasuredLink& link : report.links) {
    table.AddRow({link.words, Gigabytes(link.bytes_per_second),
                  FormatDuration(link.latency_ns), Percent(link.residual),
                  SizesText(link.points)});
  }
  for (const MeasuredRate& rate : report.rates) {
    table.AddRow({rate.words, Gigabytes(rate.bytes_per_second), "",
                  Percent(rate.spread), ""});
  }
  return table.Render(emphasis);
}

std::string DeviceText(const ProbeReport& report) {
  if (!report.device_is_simulated) return Shown(report.device);
  return fmt::format(
      "{}: no GPU is measured, its copies are those of host memory",
      Shown(report.device));
}

std::string NvmeText(const MeasuredNvme& nvme) {
  std::vector<std::string> folders;
  for (const std::string& folder : nvme.folders) {
    folders.push_back(Shown(folder));
  }
  return fmt::format(
      "{}: {}, {}; {} read and found as written", JoinedWithAnd(folders),
      nvme.queue,
      nvme.direct ? "O_DIRECT"
                  : "through the page cache, which answers instead of the "
                    "drive wherever it can",
      FormatSize(nvme.verified_bytes));
}

JsonValue PointsJson(const std::vector<TimedSize>& points) {
  JsonValue json = JsonValue::Array();
  for (const TimedSize& point : points) {
    json.Append(JsonValue::Object({{"size_bytes", point.bytes.count()},
                                   {"seconds", point.seconds},
                                   {"samples", point.samples}}));
  }
  return json;
}

JsonValue NvmeJson(const MeasuredNvme& nvme) {
  JsonValue json;
  json["folders"] = JsonValue::Array();
  for (const std::string& folder : nvme.folders) {
    json["folders"].Append(folder);
  }
  json["queue"] = nvme.queue;
  json["direct"] = nvme.direct;
  json["verified_bytes"] = nvme.verified_bytes.count();
  return json;
}

}  // namespace

std::string ProbeText(const ProbeReport& report, Emphasis emphasis) {
  std::string text;
  if (report.topology) {
    text += Paragraph("Machine", TopologyText(*report.topology) + "; " +
                                     report.instructions.name);
  }
  text += Paragraph("Device", DeviceText(report));
  if (report.nvme) text += Paragraph("NVMe", NvmeText(*report.nvme));
  text += Paragraph("Buffers",
                    fmt::format("{}; collectives of {} ranks of this process",
                                FormatSize(report.size), report.ranks));
  text += "\n" + TableText(report, emphasis) + "\n";
  text += Paragraph(
      "Method",
      "latency + bytes / bandwidth through the medians of each size, with the "
      "least squares of relative errors; the residual is the worst median's "
      "distance from that line, of a rate the spread of its middle half");
  for (const Unmeasured& one : report.unmeasured) {
    text += Paragraph("Not there", fmt::format("{}: {}", one.what, one.why));
  }
  if (report.output.empty()) {
    text += fmt::format("{:<12}{}\n", "Next",
                        "castor probe -o machine.json   to keep this");
    return text;
  }
  text += Paragraph("Written", Shown(report.output) + ": what was measured");
  text += fmt::format("{:<12}castor search MODEL --machine {}\n", "Next",
                      ShellWord(report.output));
  return text;
}

JsonValue ProbeJson(const ProbeReport& report) {
  JsonValue json;
  json["schema"] = "castor.probe/1";
  json["machine"] = ParseJson(FormatTierModel(report.model)).value();
  json["device"] = JsonValue::Object(
      {{"name", report.device}, {"simulated", report.device_is_simulated}});
  json["buffer_bytes"] = report.size.count();
  json["ranks"] = report.ranks;
  json["links"] = JsonValue::Array();
  for (const MeasuredLink& link : report.links) {
    json["links"].Append(
        JsonValue::Object({{"name", link.name},
                           {"bytes_per_second", link.bytes_per_second},
                           {"latency_ns", link.latency_ns},
                           {"residual", link.residual},
                           {"points", PointsJson(link.points)}}));
  }
  json["rates"] = JsonValue::Array();
  for (const MeasuredRate& rate : report.rates) {
    json["rates"].Append(
        JsonValue::Object({{"name", rate.name},
                           {"bytes_per_second", rate.bytes_per_second},
                           {"spread", rate.spread},
                           {"samples", rate.samples}}));
  }
  json["nvme"] = report.nvme ? NvmeJson(*report.nvme) : JsonValue();
  json["not_measured"] = JsonValue::Array();
  for (const Unmeasured& one : report.unmeasured) {
    json["not_measured"].Append(
        JsonValue::Object({{"what", one.what}, {"why", one.why}}));
  }
  json["instruction_set"] = report.instructions.name;
  json["topology"] =
      report.topology ? TopologyJson(*report.topology) : JsonValue();
  json["stopped"] = report.stopped;
  json["output"] =
      report.output.empty() ? JsonValue() : JsonValue(report.output);
  return json;
}

}  // namespace castor
