// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/sweep_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "chunk/base/check.h"
#include "placement/plan.h"
#include "placement/simulation_result.h"
#include "tools/cli/duration_text.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/simulate/plot_axis.h"
#include "tools/commands/simulate/plot_style.h"

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

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
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
      if (!point.result) continue;
      longest_ns = std::max(longest_ns, point.result->steady().ns());
    }
    x_ = SizeAxis(report.request.sweep->values.front(),
                  report.request.sweep->values.back());
    y_ = TimeAxis(longest_ns);
  }

  std::string Draw() {
    Add(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" )"
        R"(role="img" aria-label="{}">)",
        kWidth, kHeight, Escaped(Title()));
    out_ += "\n";
    out_ += kPlotStyle;
    out_ +=
        R"(<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse" )"
        R"svg(patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="8" )svg"
        R"(stroke-width="3"/></pattern></defs>)"
        "\n";
    Add(R"(<rect class="page" width="{}" height="{}" rx="6"/>)", kWidth,
        kHeight);
    out_ += "\n";
    Text(kLeft, 30, "ink title", "start", Title());
    Text(kLeft, 50, "faint", "start", Subtitle());
    Grid();
    NoFit();
    Areas();
    Points();
    Legend();
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format,
                   std::forward<Args>(args)...);
  }
  void Text(double x, double y, std::string_view classes,
            std::string_view anchor, std::string_view text) {
    Add(R"(<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)",
        classes, x, y, anchor, Escaped(text));
    out_ += "\n";
  }

  Bytes BudgetOf(const SimulatedPoint& point) const {
    return report_.request.sweep->budget == SweptBudget::kDevice
               ? point.device_budget
               : point.host_budget;
  }
  double X(double bytes) const {
    return kLeft + kPlotWidth * (bytes - x_.first) / (x_.last - x_.first);
  }
  double X(const SimulatedPoint& point) const {
    return X(static_cast<double>(BudgetOf(point).count()));
  }
  double Y(double ns) const { return kTop + kPlotHeight * (1 - ns / y_.last); }

  std::string Title() const {
    return fmt::format("Step time against {} budget",
                       report_.request.sweep->budget == SweptBudget::kDevice
                           ? "device"
                           : "host");
  }
  std::string Subtitle() const {
    const SimulateRequest& request = report_.request;
    std::string text = fmt::format(
        "{}: {}, stage {}, {}, policy {}", Shown(request.trace_file),
        Plural(report_.chunks, "chunk"), request.engine.stage,
        Plural(report_.ranks, "rank"), PlanPolicyName(request.engine.policy));
    if (request.sweep->budget == SweptBudget::kDevice) {
      text += fmt::format(", host {}", FormatSize(request.host_budget));
    } else {
      text += fmt::format(", device {}", FormatSize(request.device_budget));
    }
    if (request.nvme_budget) {
      text += fmt::format(", nvme {}", FormatSize(*request.nvme_budget));
    }
    return text;
  }

  void Line(std::string_view classes, double x1, double y1, double x2,
            double y2) {
    Add(R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)",
        classes, x1, y1, x2, y2);
    out_ += "\n";
  }

  void Grid() {
    const double bottom = kTop + kPlotHeight;
    const double y_step = y_.step();
    for (double tick = 0; tick <= y_.last * 1.0001; tick += y_step) {
      Line("grid", kLeft, Y(tick), kLeft + kPlotWidth, Y(tick));
      Text(kLeft - 8, Y(tick) + 4, "faint", "end",
           fmt::format("{:g} {}", tick / y_.unit, y_.unit_name));
    }
    const double x_step = x_.step();
    for (double tick = std::ceil(x_.first / x_step) * x_step;
         tick <= x_.last * 1.0001; tick += x_step) {
      Line("axis", X(tick), bottom, X(tick), bottom + 5);
      Text(X(tick), bottom + 20, "faint", "middle",
           fmt::format("{:g} {}", tick / x_.unit, x_.unit_name));
    }
    Line("axis", kLeft, bottom, kLeft + kPlotWidth, bottom);
    Line("axis", kLeft, kTop, kLeft, bottom);
    Text(kLeft + kPlotWidth / 2, kHeight - 16, "ink", "middle",
         fmt::format("{} budget of a rank",
                     report_.request.sweep->budget == SweptBudget::kDevice
                         ? "device"
                         : "host"));
    Add(R"svg(<text class="ink" transform="translate(18 {:.1f}) rotate(-90)" )svg"
        R"(text-anchor="middle">time of a step</text>)",
        kTop + kPlotHeight / 2);
    out_ += "\n";
  }

  // From the left edge to the first budget that fits; crosses wherever one does
  // not.
  void NoFit() {
    const auto fits = std::find_if(
        report_.points.begin(), report_.points.end(),
        [](const SimulatedPoint& p) { return p.result.has_value(); });
    CASTOR_CHECK(fits != report_.points.end());
    if (fits != report_.points.begin()) {
      const double end = (X(*std::prev(fits)) + X(*fits)) / 2;
      Add(R"(<rect class="nofit" x="{:.1f}" y="{:.1f}" width="{:.1f}" )"
          R"(height="{:.1f}"/>)",
          kLeft, kTop, end - kLeft, kPlotHeight);
      out_ += "\n";
    }
    const double y = kTop + kPlotHeight - 12;
    for (const SimulatedPoint& point : report_.points) {
      if (point.result) continue;
      const double x = X(point);
      Add(R"(<g><title>{}: does not fit. {}</title>)",
          FormatSize(BudgetOf(point)), Escaped(point.why));
      Add(R"(<path class="cross" d="M{:.1f} {:.1f}l8 8m0 -8l-8 8"/></g>)",
          x - 4, y - 4);
      out_ += "\n";
    }
  }

  // Runs of neighbours that fit, each with its areas and its line.
  void Areas() {
    const auto& points = report_.points;
    for (size_t begin = 0; begin < points.size();) {
      if (!points[begin].result) {
        ++begin;
        continue;
      }
      size_t end = begin;
      while (end < points.size() && points[end].result) ++end;
      Area("compute", begin, end, 0, 1);
      Area("wait", begin, end, 1, 2);
      Area("idle", begin, end, 2, 3);
      std::string line;
      for (size_t i = begin; i < end; ++i) {
        line += fmt::format("{:.1f},{:.1f} ", X(points[i]), Level(i, 3));
      }
      line.pop_back();
      Add(R"(<polyline class="step" points="{}"/>)", line);
      out_ += "\n";
      begin = end;
    }
  }

  // The height of what computing, then waiting, then the rest add up to.
  double Level(size_t i, int parts) const {
    const SimulatedStep& step = report_.points[i].result->steady();
    int64_t ns = 0;
    if (parts > 0) ns += step.busy(SimResource::kCompute);
    if (parts > 1) {
      for (const SimulatedStall& stall : step.stalls) ns += stall.ns;
    }
    if (parts > 2) ns = step.ns();
    return Y(static_cast<double>(ns));
  }

  void Area(std::string_view classes, size_t begin, size_t end, int low,
            int high) {
    std::string shape;
    for (size_t i = begin; i < end; ++i) {
      shape +=
          fmt::format("{:.1f},{:.1f} ", X(report_.points[i]), Level(i, high));
    }
    for (size_t i = end; i-- > begin;) {
      shape +=
          fmt::format("{:.1f},{:.1f} ", X(report_.points[i]), Level(i, low));
    }
    shape.pop_back();
    Add(R"(<polygon class="{}" points="{}"/>)", classes, shape);
    out_ += "\n";
  }

  void Points() {
    for (size_t i = 0; i < report_.points.size(); ++i) {
      const SimulatedPoint& point = report_.points[i];
      if (!point.result) continue;
      const SimulatedStep& step = point.result->steady();
      Add(R"(<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="3.6"><title>)",
          X(point), Level(i, 3));
      Add("{}: {} a step, {} busy for {:.0f} %</title></circle>",
          FormatSize(BudgetOf(point)), FormatDuration(step.ns()),
          SimResourceName(step.critical()),
          100.0 * static_cast<double>(step.busy(step.critical())) /
              std::max(1.0, static_cast<double>(step.ns())));
      out_ += "\n";
    }
  }

  void Legend() {
    const struct {
      std::string_view classes;
      std::string_view text;
    } kEntries[] = {{"compute", "computes"},
                    {"wait", "waits for chunks"},
                    {"idle", "waits for the end of the step before"}};
    double x = kLeft;
    for (const auto& entry : kEntries) {
      Add(R"(<rect class="{}" x="{:.1f}" y="64" width="13" height="13" )"
          R"(rx="2"/>)",
          entry.classes, x);
      out_ += "\n";
      Text(x + 19, 75, "ink", "start", entry.text);
      x += 44 + 6.4 * static_cast<double>(entry.text.size());
    }
    const bool any = std::any_of(
        report_.points.begin(), report_.points.end(),
        [](const SimulatedPoint& p) { return !p.result.has_value(); });
    if (!any) return;
    Add(R"(<path class="cross" d="M{:.1f} 66.5l8 8m0 -8l-8 8"/>)", x + 2);
    out_ += "\n";
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
