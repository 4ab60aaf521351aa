// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include "chunk/text/json_value.h"
#include "chunk/text/units_text.h"
#include "placement/machine/tier_model_file.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/machine_forms.h"
#include "tools/commands/probe/probe_run.h"

namespace castor {
namespace {

Value Gigabytes(int64_t bytes_per_second) {
  return Value(bytes_per_second)
      .As(fmt::format("{:.2f}", static_cast<double>(bytes_per_second) / 1e9));
}

JsonValue PointJson(const TimedSize& point) {
  return Fields({{"size_bytes", point.bytes},
                 {"seconds", point.seconds},
                 {"samples", point.samples}});
}

// The rates are a table of their own for programs.
void AddMeasured(const ProbeReport& report, Document* document) {
  Table links({.key = "links"}, {{"name"},
                                 {"", "measured", Table::Align::kLeft},
                                 {"bytes_per_second", "GB/s"},
                                 {"latency_ns", "latency"},
                                 {"residual", "residual"},
                                 {"", "sizes", Table::Align::kLeft},
                                 {"points"}});
  for (const Measured& link : report.links) {
    links.Add({link.name, link.words, Gigabytes(link.bytes_per_second),
               Value::Ns(link.latency_ns), Value::Share(link.error),
               fmt::format("{} to {}", FormatSize(link.points.front().bytes),
                           FormatSize(link.points.back().bytes)),
               ListOf(link.points, PointJson)});
  }
  Table rates({.key = "rates"},
              {{"name"}, {"bytes_per_second"}, {"spread"}, {"samples"}});
  for (const Measured& rate : report.rates) {
    links.Add({"", rate.words, Gigabytes(rate.bytes_per_second), "",
               Value::Share(rate.error), "", ""},
              Table::Mark::kNone, Form::kPage);
    rates.Add({rate.name, rate.bytes_per_second, rate.error, rate.samples});
  }
  document->Add(std::move(links));
  document->Add(std::move(rates), Form::kJson);
}

JsonValue AddNvme(const MeasuredNvme& nvme, Document* document) {
  std::vector<std::string> folders;
  for (const std::string& folder : nvme.folders) {
    folders.push_back(Shown(folder));
  }
  document->Say(
      "NVMe",
      fmt::format("{}: {}, {}; {} read and found as written",
                  JoinedWithAnd(folders), nvme.queue,
                  nvme.direct ? "O_DIRECT"
                              : "through the page cache, which answers instead "
                                "of the drive wherever it can",
                  FormatSize(nvme.verified_bytes)));
  return Fields({{"folders", ListOf(nvme.folders)},
                 {"queue", nvme.queue},
                 {"direct", nvme.direct},
                 {"verified_bytes", nvme.verified_bytes}});
}

}  // namespace

Document ProbeDocument(const ProbeReport& report) {
  Document document("castor.probe/1");
  document.Set("machine", ParseJson(FormatTierModel(report.model)).value());
  JsonValue topology;
  if (report.topology) {
    topology = TopologyJson(*report.topology);
    document.Say("Machine", TopologyText(*report.topology) + "; " +
                                report.instruction_set);
  }
  document.Set("topology", topology);
  document.Set("instruction_set", report.instruction_set);
  document.Set("device", Fields({{"name", report.device},
                                 {"simulated", report.device_is_simulated}}));
  document.Say("Device", Shown(report.device) +
                             (report.device_is_simulated
                                  ? ": no GPU is measured, its copies are "
                                    "those of host memory"
                                  : ""));
  document.Set("nvme",
               report.nvme ? AddNvme(*report.nvme, &document) : JsonValue());
  document.Set("buffer_bytes", report.size);
  document.Set("ranks", report.ranks);
  document.Say("Buffers",
               fmt::format("{}; collectives of {} ranks of this process",
                           FormatSize(report.size), report.ranks));
  AddMeasured(report, &document);
  document.Say(
      "Method",
      "latency + bytes / bandwidth through the medians of each size, with the "
      "least squares of relative errors; the residual is the worst median's "
      "distance from that line, of a rate the spread of its middle half");
  document.Set("not_measured",
               ListOf(report.unmeasured, [&](const Unmeasured& one) {
                 document.Say("Not there", one.what + ": " + one.why);
                 return Fields({{"what", one.what}, {"why", one.why}});
               }));
  document.Set("stopped", report.stopped);
  document.Set("output",
               report.output.empty() ? Value() : Value(report.output));
  if (report.output.empty()) {
    document.SayUnbroken("Next", "castor probe -o machine.json   to keep this");
    return document;
  }
  document.Say("Written", Shown(report.output) + ": what was measured");
  document.SayUnbroken(
      "Next", "castor search MODEL --machine " + ShellWord(report.output));
  return document;
}

Status ProbeStatus(const ProbeReport& report) {
  if (report.stopped) {
    return Status(
        ErrorCode::kStoppedEarly,
        fmt::format("stopped with {} of what there is to measure; {}",
                    report.links.size() + report.rates.size(),
                    report.output.empty() ? "no file was written"
                                          : "the file has that and no more"));
  }
  if (report.failed) {
    return Unavailable(
        "not everything that was asked for could be measured; the page says "
        "what and why");
  }
  return OkStatus();
}

}  // namespace castor
