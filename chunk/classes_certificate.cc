// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/classes_certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "chunk/base/dtype.h"

namespace castor {
namespace {

// The parameters' sizes rounded up to Q, each once, from zero to the last
// within max.
std::vector<Elements> Thresholds(std::span<const Elements> sizes,
                                 Elements max_size, Elements quantum) {
  std::vector<Elements> thresholds = {Elements(0)};
  for (const Elements size : sizes) {
    if (size <= max_size) thresholds.push_back(RoundUp(size, quantum));
  }
  std::sort(thresholds.begin(), thresholds.end());
  thresholds.erase(std::unique(thresholds.begin(), thresholds.end()),
                   thresholds.end());
  return thresholds;
}

// The index of a threshold; empty where it is none.
std::optional<size_t> IndexOf(const std::vector<Elements>& thresholds,
                              Elements size) {
  const auto at = std::lower_bound(thresholds.begin(), thresholds.end(), size);
  if (at == thresholds.end() || *at != size) return std::nullopt;
  return static_cast<size_t>(at - thresholds.begin());
}

// A cover's pair, by index of thresholds, and its bound.
struct Edge {
  size_t from = 0;
  size_t to = 0;
  Elements cost;
};

// One cover: that it covers its pair's sizes, its counts, its bound.
Status CheckCover(size_t index, const ClassCover& cover,
                  std::span<const Elements> sizes, Elements largest, bool last,
                  const PackOptions& options) {
  const Elements quantum = ChunkQuantum(options.world);
  std::vector<Elements> own;
  Elements payload;
  for (const Elements size : sizes) {
    const bool inside = size > cover.above && size <= cover.up_to;
    if (inside) payload += size;
    if (inside || (last && size > largest)) own.push_back(size);
  }
  std::optional<Elements> bound;
  Elements next = cover.up_to;
  for (const CertificateInterval& interval : cover.intervals) {
    if (interval.from != next || interval.to < interval.from ||
        interval.to > largest || interval.to % quantum != Elements(0)) {
      return Malformed(fmt::format(
          "cover {} of the certificate has an interval [{}, {}]; it must start "
          "at {} and end at a multiple of {} up to {}",
          index, interval.from.count(), interval.to.count(), next.count(),
          quantum.count(), largest.count()));
    }
    const PackCount count = CountPacking(own, interval.to, options);
    const int64_t ordinary = count.chunks - count.oversize_chunks;
    if (interval.chunks != ordinary || interval.oversize != Elements(0)) {
      return Malformed(fmt::format(
          "cover {} of the certificate says {} chunks and {} oversize elements "
          "at {}; packing gives {}, and oversize parameters belong to no cover",
          index, interval.chunks, interval.oversize.count(),
          interval.to.count(), ordinary));
    }
    const Elements waste = interval.from * interval.chunks - payload;
    if (!bound || waste < *bound) bound = waste;
    next = interval.to + quantum;
  }
  if (next != largest + quantum) {
    return Malformed(fmt::format(
        "the intervals of cover {} of the certificate end before {}, not at {}",
        index, next.count(), largest.count()));
  }
  if (cover.lower_bound_waste != std::max(*bound, Elements(0))) {
    return Malformed(fmt::format(
        "cover {} of the certificate claims a waste of {} elements at least; "
        "its intervals prove {}",
        index, cover.lower_bound_waste.count(), bound->count()));
  }
  return OkStatus();
}

// All covers, as edges by (to, from).
Result<std::vector<Edge>> CheckCovers(const ClassesCertificate& certificate,
                                      const std::vector<Elements>& thresholds,
                                      std::span<const Elements> sizes,
                                      const PackOptions& options) {
  std::vector<Edge> edges;
  for (size_t c = 0; c < certificate.covers.size(); ++c) {
    const ClassCover& cover = certificate.covers[c];
    const std::optional<size_t> from = IndexOf(thresholds, cover.above);
    const std::optional<size_t> to = IndexOf(thresholds, cover.up_to);
    if (!from || !to || *from >= *to) {
      return Malformed(fmt::format(
          "cover {} of the certificate is of ({}, {}], which are not two sizes "
          "of parameters, rounded up, in order",
          c, cover.above.count(), cover.up_to.count()));
    }
    if (c > 0) {
      const ClassCover& before = certificate.covers[c - 1];
      if (std::tuple(before.above, before.up_to) >=
          std::tuple(cover.above, cover.up_to)) {
        return Malformed(fmt::format(
            "cover {} of the certificate is out of order or there twice", c));
      }
    }
    const bool last = *to + 1 == thresholds.size();
    const Elements largest =
        last ? certificate.max_size
             : thresholds[*to + 1] - ChunkQuantum(options.world);
    CASTOR_RETURN_IF_ERROR(CheckCover(c, cover, sizes, largest, last, options));
    edges.push_back({*from, *to, cover.lower_bound_waste});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::tuple(a.to, a.from) < std::tuple(b.to, b.from);
  });
  return edges;
}

// The cheapest path of at most `most` steps from the first threshold to the
// last, where a step that is no edge costs nothing. The steps to one threshold
// are its edges and, of those before it that have no edge to it, the cheapest.
Elements CheapestPath(const std::vector<Edge>& edges, size_t thresholds,
                      int64_t most) {
  std::vector<std::optional<Elements>> cost(thresholds);
  cost[0] = Elements(0);
  // More steps than thresholds there are not.
  most = std::min(most, static_cast<int64_t>(thresholds) - 1);
  for (int64_t step = 0; step < most; ++step) {
    std::vector<std::optional<Elements>> reached = cost;
    std::set<std::pair<Elements, size_t>> before;
    std::vector<size_t> edge_to(thresholds, 0);  // the last that i has one to
    auto edge = edges.begin();
    for (size_t to = 1; to < thresholds; ++to) {
      if (cost[to - 1]) before.insert({*cost[to - 1], to - 1});
      std::optional<Elements> best = reached[to];
      const auto offer = [&best](Elements offered) {
        if (!best || offered < *best) best = offered;
      };
      for (; edge != edges.end() && edge->to == to; ++edge) {
        edge_to[edge->from] = to;
        if (cost[edge->from]) offer(*cost[edge->from] + edge->cost);
      }
      for (const auto& [total, from] : before) {
        if (edge_to[from] == to) continue;
        offer(total);
        break;
      }
      reached[to] = best;
    }
    cost = std::move(reached);
  }
  return cost.back().value();
}

}  // namespace

Status VerifyClassesCertificate(const ClassesCertificate& certificate,
                                std::span<const Elements> sizes,
                                const PackOptions& options,
                                Elements best_waste) {
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions(options));
  const Elements quantum = ChunkQuantum(options.world);
  const Elements max_size = certificate.max_size;
  if (max_size <= Elements(0) || max_size % quantum != Elements(0) ||
      certificate.max_classes < 1) {
    return Malformed(fmt::format(
        "the certificate is of {} classes of at most {} elements; it must be "
        "one or more, of a positive multiple of {}",
        certificate.max_classes, max_size.count(), quantum.count()));
  }
  // Elements only are added here, whatever their type.
  CASTOR_RETURN_IF_ERROR(
      ValidatePackSums(sizes, max_size, DType::kU8, options));

  Elements oversize;
  for (const Elements size : sizes) {
    if (size > max_size) oversize += RoundUp(size, quantum) - size;
  }
  if (certificate.oversize_waste != oversize) {
    return Malformed(fmt::format(
        "the certificate says that parameters larger than {} elements waste "
        "{}; rounding them up to {} wastes {}",
        max_size.count(), certificate.oversize_waste.count(), quantum.count(),
        oversize.count()));
  }
  const std::vector<Elements> thresholds = Thresholds(sizes, max_size, quantum);
  CASTOR_ASSIGN_OR_RETURN(const std::vector<Edge> edges,
                          CheckCovers(certificate, thresholds, sizes, options));
  const Elements bound = oversize + CheapestPath(edges, thresholds.size(),
                                                 certificate.max_classes);
  if (bound != certificate.lower_bound_waste) {
    return Malformed(fmt::format(
        "the certificate claims that no choice of classes wastes less than {} "
        "elements; its covers prove {}",
        certificate.lower_bound_waste.count(), bound.count()));
  }
  if (best_waste < bound) {
    return Malformed(
        fmt::format("a waste of {} elements is below the proven bound of {}",
                    best_waste.count(), bound.count()));
  }
  if (certificate.optimal != (best_waste == bound)) {
    return Malformed(fmt::format(
        "the certificate says {}, but the best wastes {} elements and the "
        "bound is {}",
        certificate.optimal ? "optimal" : "not optimal", best_waste.count(),
        bound.count()));
  }
  return OkStatus();
}

}  // namespace castor
