// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "chunk/text/units_text.h"
#include "placement/plan.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/simulate/simulate_command.h"
#include "tools/commands/simulate/step_document.h"

namespace castor {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 480;
constexpr double kLeft = 84;
constexpr double kRight = 28;
constexpr double kTop = 92;
constexpr double kBottom = 62;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;

// Colours that people who do not see all colours tell apart (Okabe and Ito
// 2008), on light pages and on dark ones.
constexpr std::string_view kStyle = R"svg(<style>
  .page { fill: #ffffff; } .ink { fill: #1f2328; } .faint { fill: #59636e; }
  .grid { stroke: #d1d9e0; } .axis { stroke: #59636e; }
  .step { stroke: #1f2328; fill: none; stroke-width: 2.2; stroke-linejoin: round; }
  .dot { fill: #ffffff; stroke: #1f2328; stroke-width: 1.8; }
  .compute { fill: #0072b2; fill-opacity: .55; } .wait { fill: #e69f00; fill-opacity: .6; }
  .idle { fill: #cc79a7; fill-opacity: .55; } .cross { stroke: #d55e00; stroke-width: 2.2; }
  .nofit { fill: url(#hatch); } .hatch { stroke: #d55e00; stroke-opacity: .35; }
  text { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; }
  .title { font-size: 16px; font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; } .ink { fill: #e6edf3; } .faint { fill: #9198a1; }
    .grid { stroke: #2a313c; } .axis { stroke: #9198a1; }
    .step { stroke: #e6edf3; } .dot { fill: #0d1117; stroke: #e6edf3; }
  }
</style>
<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="8" stroke-width="3"/></pattern></defs>
)svg";

// From `first` to `last`, both in nanoseconds or bytes, shown in a unit.
struct Axis {
  double first = 0;
  double last = 1;
  double unit = 1;
  std::string_view unit_name;

  // Between ticks, about six of which there are: 1, 2, 2.5 or 5 times a power
  // of ten of the unit.
  double step() const {
    constexpr int kTicks = 6;
    const double rough = (last - first) / unit / kTicks;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
      if (power * factor >= rough) return power * factor * unit;
    }
    return power * 10 * unit;
  }
};

// From zero to a tick above what is longest.
Axis TimeAxis(int64_t longest_ns) {
  constexpr std::pair<double, std::string_view> kUnits[] = {
      {1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
  const double longest = std::max(static_cast<double>(longest_ns), 1.0);
  Axis axis;
  for (const auto& [ns, name] : kUnits) {
    axis.unit = ns;
    axis.unit_name = name;
    if (longest >= ns) break;
  }
  axis.last = longest * 1.05;
  axis.last = std::ceil(axis.last / axis.step()) * axis.step();
  return axis;
}

// In the largest binary unit that `last` has. REQUIRES: first < last.
Axis SizeAxis(Bytes first, Bytes last) {
  Axis axis{static_cast<double>(first.count()),
            static_cast<double>(last.count()), 1, "B"};
  for (const SizeUnit& unit : kBinarySizeUnits) {
    if (last.count() < unit.bytes) continue;
    axis.unit = static_cast<double>(unit.bytes);
    axis.unit_name = unit.name;
    break;
  }
  return axis;
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

class Plot {
 public:
  explicit Plot(const SimulateReport& report) : report_(report) {
    int64_t longest_ns = 0;
    for (const SimulatedPoint& point : report.points) {
      if (!point.fits()) continue;
      longest_ns = std::max(longest_ns, point.result->steady().ns());
    }
    x_ = SizeAxis(BudgetOf(report.points.front()),
                  BudgetOf(report.points.back()));
    y_ = TimeAxis(longest_ns);
  }

  std::string Draw() {
    const std::string title =
        fmt::format("Step time against {} budget", swept());
    Line(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" )"
         R"(role="img" aria-label="{}">)",
         kWidth, kHeight, title);
    out_ += kStyle;
    Line(R"(<rect class="page" width="{}" height="{}" rx="6"/>)", kWidth,
         kHeight);
    Text(kLeft, 30, "ink title", "start", title);
    Text(kLeft, 50, "faint", "start", Subtitle());
    Grid();
    NoFit();
    Areas();
    Points();
    Legend();
    Line("</svg>");
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void Line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format,
                   std::forward<Args>(args)...);
    out_ += '\n';
  }
  void Text(double x, double y, std::string_view classes,
            std::string_view anchor, std::string_view text) {
    Line(R"(<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)",
         classes, x, y, anchor, Escaped(text));
  }
  void Stroke(std::string_view classes, double x1, double y1, double x2,
              double y2) {
    Line(
        R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)",
        classes, x1, y1, x2, y2);
  }

  bool by_device() const { return !report_.flags.device_budget; }
  std::string_view swept() const { return by_device() ? "device" : "host"; }
  Bytes BudgetOf(const SimulatedPoint& point) const {
    return by_device() ? point.device_budget : point.host_budget;
  }
  double X(double bytes) const {
    return kLeft + kPlotWidth * (bytes - x_.first) / (x_.last - x_.first);
  }
  double X(const SimulatedPoint& point) const {
    return X(static_cast<double>(BudgetOf(point).count()));
  }
  double Y(double ns) const { return kTop + kPlotHeight * (1 - ns / y_.last); }

  std::string Subtitle() const {
    const SimulateFlags& flags = report_.flags;
    std::string text = fmt::format(
        "{}: {}, stage {}, {}, policy {}, {} {}", Shown(flags.trace_file),
        Plural(std::ssize(report_.trace.chunks), "chunk"), flags.engine.stage,
        Plural(report_.ranks, "rank"), PlanPolicyName(flags.engine.policy),
        by_device() ? "host" : "device",
        FormatSize(by_device() ? *flags.host_budget : *flags.device_budget));
    if (flags.nvme_budget) {
      text += fmt::format(", nvme {}", FormatSize(*flags.nvme_budget));
    }
    return text;
  }

  void Grid() {
    const double bottom = kTop + kPlotHeight;
    const double y_step = y_.step();
    for (double tick = 0; tick <= y_.last * 1.0001; tick += y_step) {
      Stroke("grid", kLeft, Y(tick), kLeft + kPlotWidth, Y(tick));
      Text(kLeft - 8, Y(tick) + 4, "faint", "end",
           fmt::format("{:g} {}", tick / y_.unit, y_.unit_name));
    }
    const double x_step = x_.step();
    for (double tick = std::ceil(x_.first / x_step) * x_step;
         tick <= x_.last * 1.0001; tick += x_step) {
      Stroke("axis", X(tick), bottom, X(tick), bottom + 5);
      Text(X(tick), bottom + 20, "faint", "middle",
           fmt::format("{:g} {}", tick / x_.unit, x_.unit_name));
    }
    Stroke("axis", kLeft, bottom, kLeft + kPlotWidth, bottom);
    Stroke("axis", kLeft, kTop, kLeft, bottom);
    Text(kLeft + kPlotWidth / 2, kHeight - 16, "ink", "middle",
         fmt::format("{} budget of a rank", swept()));
    Line(
        R"svg(<text class="ink" transform="translate(18 {:.1f}) rotate(-90)" )svg"
        R"(text-anchor="middle">time of a step</text>)",
        kTop + kPlotHeight / 2);
  }

  // From the left edge to the first budget that fits; crosses wherever one does
  // not.
  void NoFit() {
    const auto fits =
        std::ranges::find_if(report_.points, &SimulatedPoint::fits);
    if (fits != report_.points.begin()) {
      const double end = (X(*std::prev(fits)) + X(*fits)) / 2;
      Line(R"(<rect class="nofit" x="{:.1f}" y="{:.1f}" width="{:.1f}" )"
           R"(height="{:.1f}"/>)",
           kLeft, kTop, end - kLeft, kPlotHeight);
    }
    const double y = kTop + kPlotHeight - 12;
    for (const SimulatedPoint& point : report_.points) {
      if (point.fits()) continue;
      Line(R"(<g><title>{}: does not fit. {}</title>)"
           R"(<path class="cross" d="M{:.1f} {:.1f}l8 8m0 -8l-8 8"/></g>)",
           FormatSize(BudgetOf(point)), Escaped(point.why), X(point) - 4,
           y - 4);
    }
  }

  // The heights of nothing, of computing, of waiting upon that, and of all.
  std::array<double, 4> Levels(const SimulatedPoint& point) const {
    const SimulatedStep& step = point.result->steady();
    const int64_t computes = step.busy(SimResource::kCompute);
    const int64_t waits = computes + StallNs(step);
    return {Y(0), Y(static_cast<double>(computes)),
            Y(static_cast<double>(waits)), Y(static_cast<double>(step.ns()))};
  }

  // Runs of neighbours that fit, each with its areas and its line.
  void Areas() {
    constexpr auto kFits = &SimulatedPoint::fits;
    const auto last = report_.points.end();
    for (auto begin = std::ranges::find_if(report_.points, kFits);
         begin != last;) {
      const auto end = std::ranges::find_if_not(begin, last, kFits);
      std::array<std::vector<std::string>, 4> levels;
      for (auto point = begin; point != end; ++point) {
        for (size_t i = 0; i < levels.size(); ++i) {
          levels[i].push_back(
              fmt::format("{:.1f},{:.1f}", X(*point), Levels(*point)[i]));
        }
      }
      constexpr std::string_view kAreas[] = {"compute", "wait", "idle"};
      for (size_t area = 0; area < std::size(kAreas); ++area) {
        const std::vector<std::string>& low = levels[area];
        Line(R"(<polygon class="{}" points="{} {}"/>)", kAreas[area],
             fmt::join(levels[area + 1], " "),
             fmt::join(low.rbegin(), low.rend(), " "));
      }
      Line(R"(<polyline class="step" points="{}"/>)",
           fmt::join(levels.back(), " "));
      begin = std::ranges::find_if(end, last, kFits);
    }
  }

  void Points() {
    for (const SimulatedPoint& point : report_.points) {
      if (!point.fits()) continue;
      const SimulatedStep& step = point.result->steady();
      Line(R"(<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="3.6"><title>)"
           "{}: {} a step, {} busy for {:.0f} %</title></circle>",
           X(point), Levels(point).back(), FormatSize(BudgetOf(point)),
           FormatDuration(step.ns()), SimResourceName(step.critical()),
           100.0 * static_cast<double>(step.busy(step.critical())) /
               std::max(1.0, static_cast<double>(step.ns())));
    }
  }

  void Legend() {
    constexpr std::pair<std::string_view, std::string_view> kEntries[] = {
        {"compute", "computes"},
        {"wait", "waits for chunks"},
        {"idle", "waits for the end of the step before"}};
    double x = kLeft;
    for (const auto& [classes, text] : kEntries) {
      Line(R"(<rect class="{}" x="{:.1f}" y="64" width="13" height="13" )"
           R"(rx="2"/>)",
           classes, x);
      Text(x + 19, 75, "ink", "start", text);
      x += 44 + 6.4 * static_cast<double>(text.size());
    }
    if (std::ranges::all_of(report_.points, &SimulatedPoint::fits)) return;
    Line(R"(<path class="cross" d="M{:.1f} 66.5l8 8m0 -8l-8 8"/>)", x + 2);
    Text(x + 19, 75, "ink", "start", "does not fit");
  }

  const SimulateReport& report_;
  Axis x_;
  Axis y_;
  std::string out_;
};

}  // namespace

std::string SweepSvg(const SimulateReport& report) {
  return Plot(report).Draw();
}

}  // namespace castor
