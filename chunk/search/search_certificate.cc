// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/search_certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>

namespace castor {
namespace {

// The sizes in order of size, to see whether one lies between two others.
class SortedSizes {
 public:
  explicit SortedSizes(std::span<const PackedGroup> groups) {
    for (const PackedGroup& group : groups) {
      sizes_.insert(sizes_.end(), group.sizes.begin(), group.sizes.end());
    }
    std::sort(sizes_.begin(), sizes_.end());
  }

  // One in (from, to], which is oversize at `from` and not at `to`.
  std::optional<Elements> Between(Elements from, Elements to) const {
    const auto found = std::upper_bound(sizes_.begin(), sizes_.end(), from);
    if (found == sizes_.end() || *found > to) return std::nullopt;
    return *found;
  }

 private:
  std::vector<Elements> sizes_;
};

Status CheckCover(const SearchCertificate& certificate, Elements quantum,
                  Elements least) {
  if (certificate.min_size < least ||
      certificate.min_size > certificate.max_size ||
      certificate.min_size % quantum != Elements(0) ||
      certificate.max_size % quantum != Elements(0)) {
    return Malformed(fmt::format(
        "the certificate's sizes [{}, {}] are not multiples of {} from {} on, "
        "in order",
        certificate.min_size.count(), certificate.max_size.count(),
        quantum.count(), least.count()));
  }
  Elements next = certificate.min_size;
  for (size_t i = 0; i < certificate.intervals.size(); ++i) {
    const CertificateInterval& interval = certificate.intervals[i];
    if (interval.from != next || interval.to < interval.from ||
        interval.to > certificate.max_size ||
        interval.to % quantum != Elements(0)) {
      return Malformed(fmt::format(
          "interval {} of the certificate is [{}, {}]; it must start at {} and "
          "end at a multiple of {} up to {}",
          i, interval.from.count(), interval.to.count(), next.count(),
          quantum.count(), certificate.max_size.count()));
    }
    next = interval.to + quantum;
  }
  if (next != certificate.max_size + quantum) {
    return Malformed(
        fmt::format("the certificate's intervals end before {}, not at {}",
                    next.count(), certificate.max_size.count()));
  }
  return OkStatus();
}

Status CheckInterval(size_t index, const CertificateInterval& interval,
                     const SizeFamily& family, const SortedSizes& sorted,
                     const PackOptions& options) {
  if (const auto size = sorted.Between(interval.from, interval.to)) {
    return Malformed(fmt::format(
        "interval {} of the certificate, [{}, {}], has two oversize sets: a "
        "parameter of {} elements is oversize at one end only",
        index, interval.from.count(), interval.to.count(), size->count()));
  }
  const PackCount count = CountFamily(family.packed, interval.to, options);
  const int64_t ordinary = count.chunks - count.oversize_chunks;
  if (interval.chunks != ordinary ||
      interval.oversize != count.oversize_allocated) {
    return Malformed(fmt::format(
        "interval {} of the certificate says {} chunks and {} oversize "
        "elements; packing at {} gives {} and {}",
        index, interval.chunks, interval.oversize.count(), interval.to.count(),
        ordinary, count.oversize_allocated.count()));
  }
  return OkStatus();
}

}  // namespace

Status VerifyCertificate(const SearchCertificate& certificate,
                         const SizeFamily& family, const PackOptions& options,
                         Elements best_waste) {
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions(options));
  CASTOR_RETURN_IF_ERROR(
      ValidateFamilySums(family, certificate.max_size, options));
  CASTOR_RETURN_IF_ERROR(CheckCover(certificate, family.quantum, family.least));

  Elements payload;
  for (const PackedGroup& group : family.packed) {
    for (const Elements size : group.sizes) payload += size;
  }
  const SortedSizes sorted(family.packed);
  std::optional<Elements> bound;
  for (size_t i = 0; i < certificate.intervals.size(); ++i) {
    const CertificateInterval& interval = certificate.intervals[i];
    CASTOR_RETURN_IF_ERROR(CheckInterval(i, interval, family, sorted, options));
    const Elements waste =
        interval.from * interval.chunks + interval.oversize - payload;
    if (!bound || waste < *bound) bound = waste;
  }

  if (*bound != certificate.lower_bound_waste) {
    return Malformed(fmt::format(
        "the certificate claims that no size wastes less than {} elements; its "
        "intervals prove {}",
        certificate.lower_bound_waste.count(), bound->count()));
  }
  if (best_waste < *bound) {
    return Malformed(
        fmt::format("a waste of {} elements is below the proven bound of {}",
                    best_waste.count(), bound->count()));
  }
  if (certificate.optimal != (best_waste == *bound)) {
    return Malformed(fmt::format(
        "the certificate says {}, but the best wastes {} elements and the "
        "bound is {}",
        certificate.optimal ? "optimal" : "not optimal", best_waste.count(),
        bound->count()));
  }
  return OkStatus();
}

Status VerifyCertificate(const SearchCertificate& certificate,
                         std::span<const Elements> sizes,
                         const PackOptions& options, Elements best_waste) {
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions(options));
  SizeFamily family;
  family.dtype = DType::kU8;  // elements only are added, whatever their type
  family.packed.push_back({{sizes.begin(), sizes.end()}});
  family.quantum = ChunkQuantum(options.world);
  family.least = family.quantum;
  return VerifyCertificate(certificate, family, options, best_waste);
}

}  // namespace castor
