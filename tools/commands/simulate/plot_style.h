// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_PLOT_STYLE_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_PLOT_STYLE_H_

// How a plot looks, on light pages and on dark ones. Constant.

#include <string_view>

namespace castor {

// Colours that people who do not see all colours tell apart (Okabe and Ito
// 2008).
inline constexpr std::string_view kPlotStyle = R"(<style>
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
)";

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_PLOT_STYLE_H_
