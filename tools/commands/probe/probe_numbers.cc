// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/probe/probe_numbers.h"

#include <fmt/format.h>

#include <cstdint>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/base/units_text.h"
#include "tools/cli/text_forms.h"
#include "tools/measure/line_fit.h"

namespace castor {
namespace {

// A residual or a spread beyond this is more noise than line.
constexpr double kUnsteady = 0.25;

void Add(ProbeReport& report, const std::string& name, const std::string& words,
         const std::vector<TimedSize>& points, double residual,
         int64_t bytes_per_second, int64_t latency_ns) {
  report.links.push_back({.name = name,
                          .words = words,
                          .bytes_per_second = bytes_per_second,
                          .latency_ns = latency_ns,
                          .residual = residual,
                          .points = points});
}

// A link that has no line is said to be missing.
Result<LineFit> Fit(ProbeReport& report, const std::string& words,
                    const std::vector<TimedSize>& points) {
  Result<LineFit> fit = FitLine(points);
  if (!fit.ok()) {
    report.unmeasured.push_back({words, std::string(fit.status().message())});
    report.failed = true;
  }
  return fit;
}

// Says where buffers fit the caches, so that memory looks faster than it is.
// STREAM asks for arrays four times as large as the last cache.
void NoteCaches(const ProbeReport& report, std::vector<std::string>* notes) {
  if (!report.topology || report.topology->caches.empty()) return;
  const internal::CacheLevel& last = report.topology->caches.back();
  const Bytes caches = last.size * last.count;
  if (report.size >= caches * 4) return;
  notes->push_back(fmt::format(
      "buffers of {} are less than four times the {} of {}, so copies and "
      "host memory may look faster than they are; --size {} is enough",
      FormatSize(report.size), FormatSize(caches), last.name,
      FormatSizeExact(RoundUp(caches * 4, MiB(1)))));
}

// Says what was so unsteady that its number means little.
void NoteNoise(const ProbeReport& report, std::vector<std::string>* notes) {
  std::vector<std::string> unsteady;
  for (const MeasuredLink& link : report.links) {
    if (link.residual > kUnsteady) unsteady.push_back(link.words);
  }
  for (const MeasuredRate& rate : report.rates) {
    if (rate.spread > kUnsteady) unsteady.push_back(rate.words);
  }
  if (unsteady.empty()) return;
  notes->push_back(fmt::format(
      "{} {} off by more than {}: measure again when nothing else keeps "
      "this machine busy, with a larger --size if that does not help",
      JoinedWithAnd(unsteady), unsteady.size() == 1 ? "is" : "are",
      Percent(kUnsteady)));
}

}  // namespace

void AddLink(ProbeReport& report, const std::string& name,
             const std::string& words, const std::vector<TimedSize>& points,
             std::optional<LinkModel> TierModel::*entry) {
  const Result<LineFit> fit = Fit(report, words, points);
  if (!fit.ok()) return;
  const LinkModel link = LinkOf(*fit);
  report.model.*entry = link;
  Add(report, name, words, points, fit->residual, link.bytes_per_second,
      link.latency_ns);
}

void AddRing(ProbeReport& report, int ranks, const std::string& name,
             const std::string& words, const std::vector<TimedSize>& points,
             std::optional<RingModel> TierModel::*entry) {
  const Result<LineFit> fit = Fit(report, words, points);
  if (!fit.ok()) return;
  const RingModel ring = RingOf(*fit, ranks);
  report.model.*entry = ring;
  Add(report, name, words, points, fit->residual, ring.bytes_per_second,
      ring.step_latency_ns);
}

void AddRate(ProbeReport& report, const std::string& name,
             const std::string& words, const TimedRate& rate,
             std::optional<RateModel> TierModel::*entry) {
  const RateModel model = RateOf(rate.bytes_per_second);
  report.model.*entry = model;
  report.rates.push_back({.name = name,
                          .words = words,
                          .bytes_per_second = model.bytes_per_second,
                          .spread = rate.spread,
                          .samples = rate.samples});
}

std::vector<std::string> NotesOn(const ProbeReport& report) {
  std::vector<std::string> notes;
  NoteCaches(report, &notes);
  NoteNoise(report, &notes);
  return notes;
}

}  // namespace castor
