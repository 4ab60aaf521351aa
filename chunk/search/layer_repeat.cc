// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/layer_repeat.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "chunk/base/check.h"

namespace castor {
namespace {

// A part of the list, read forwards or backwards.
class Reading {
 public:
  static Reading Forwards(const Elements* first, int64_t length) {
    return {first, 1, length};
  }
  static Reading Backwards(const Elements* last, int64_t length) {
    return {last, -1, length};
  }

  Elements operator[](int64_t i) const { return first_[i * step_]; }
  int64_t length() const { return length_; }

 private:
  Reading(const Elements* first, int64_t step, int64_t length)
      : first_(first), step_(step), length_(length) {}

  const Elements* first_;
  int64_t step_;
  int64_t length_;
};

// matches[i] = how many sizes from the i-th on are as at the start; the whole
// length for i = 0. Linear: what the match that reaches furthest covers, its
// counterpart at the start knows (the "Z algorithm", Gusfield 1997).
void MatchItself(Reading text, int64_t* matches) {
  const int64_t length = text.length();
  if (length > 0) matches[0] = length;
  int64_t begin = 0;  // of the match that reaches furthest
  int64_t end = 0;
  for (int64_t i = 1; i < length; ++i) {
    int64_t match = i < end ? std::min(matches[i - begin], end - i) : 0;
    if (i + match >= end) {
      while (i + match < length && text[match] == text[i + match]) ++match;
      begin = i;
      end = i + match;
    }
    matches[i] = match;
  }
}

// matches[i] = how many sizes of `text` from the i-th on are as at the start of
// `other`, which matches itself as `other_matches` says.
void MatchOther(Reading text, Reading other, const int64_t* other_matches,
                int64_t* matches) {
  int64_t begin = 0;
  int64_t end = 0;
  for (int64_t i = 0; i < text.length(); ++i) {
    int64_t match = i < end ? std::min(other_matches[i - begin], end - i) : 0;
    if (i + match >= end) {
      while (i + match < text.length() && match < other.length() &&
             other[match] == text[i + match]) {
        ++match;
      }
      begin = i;
      end = i + match;
    }
    matches[i] = match;
  }
}

class RepeatFinder {
 public:
  explicit RepeatFinder(std::span<const Elements> sizes) : sizes_(sizes) {
    sums_.reserve(sizes.size() + 1);
    sums_.emplace_back();
    for (const Elements size : sizes) {
      CASTOR_CHECK_GE(size, Elements(0));
      sums_.push_back(sums_.back() + size);
    }
    // The longer half of the list, and one more.
    const size_t half = sizes.size() / 2 + 2;
    for (std::vector<int64_t>* matches :
         {&right_right_, &left_left_, &left_right_, &right_left_}) {
      matches->resize(half);
    }
  }

  std::optional<LayerRepeat> Find() {
    Search(0, static_cast<int64_t>(sizes_.size()));
    if (best_.repeats == 0) return std::nullopt;
    return best_;
  }

 private:
  Elements Sum(int64_t begin, int64_t end) const {
    return sums_[static_cast<size_t>(end)] - sums_[static_cast<size_t>(begin)];
  }

  // All runs within [begin, end) that could be the best.
  void Search(int64_t begin, int64_t end) {
    if (end - begin < 2 || Sum(begin, end) < best_sum_ ||
        Sum(begin, end) == Elements(0)) {
      return;
    }
    const int64_t middle = begin + (end - begin) / 2;
    SearchAcross(begin, middle, end);
    Search(begin, middle);
    Search(middle, end);
  }

  // Those of them that reach across `middle`. A run of period p and at least
  // twice that length is a stretch of at least p places i with size(i) ==
  // size(i + p); one that reaches across has such a place in [middle - p,
  // middle), or next to it.
  void SearchAcross(int64_t begin, int64_t middle, int64_t end) {
    const Elements* const at = sizes_.data();
    const int64_t left = middle - begin;
    const int64_t right = end - middle;
    const Reading right_forwards = Reading::Forwards(at + middle, right);
    const Reading left_backwards = Reading::Backwards(at + middle - 1, left);
    MatchItself(right_forwards, right_right_.data());
    MatchItself(left_backwards, left_left_.data());
    MatchOther(Reading::Forwards(at + begin, left), right_forwards,
               right_right_.data(), left_right_.data());
    MatchOther(Reading::Backwards(at + end - 1, right), left_backwards,
               left_left_.data(), right_left_.data());

    for (int64_t p = 1; p <= std::max(left, right); ++p) {
      // Equal places on from `middle`, and back from middle - p.
      const int64_t on = p < right ? right_right_[Index(p)] : 0;
      const int64_t back = p < left ? left_left_[Index(p)] : 0;
      // Those of [middle - p, middle) counted on from its start, and back from
      // its end.
      const int64_t from_start = p <= left ? left_right_[Index(left - p)] : 0;
      const int64_t from_end = p <= right ? right_left_[Index(right - p)] : 0;
      if (p <= left && from_start == p) {
        Offer(middle - p - back, middle + on, p);
        continue;
      }
      if (p <= left) Offer(middle - p - back, middle - p + from_start, p);
      if (p <= right) Offer(middle - from_end, middle + on, p);
    }
  }

  // The places [begin, end) are equal to those p further on.
  void Offer(int64_t begin, int64_t end, int64_t p) {
    if (end - begin < p) return;
    const int64_t repeats = (end - begin) / p + 1;
    const Elements sum = Sum(begin, begin + repeats * p);
    if (sum == Elements(0)) return;
    const auto key = [](Elements elements, int64_t params, int64_t first) {
      return std::tuple(elements * -1, params, first);
    };
    if (best_.repeats > 0 &&
        key(best_sum_, best_.params, best_.first) <= key(sum, p, begin)) {
      return;
    }
    best_ = {begin, p, repeats};
    best_sum_ = sum;
  }

  static size_t Index(int64_t i) { return static_cast<size_t>(i); }

  const std::span<const Elements> sizes_;
  std::vector<Elements> sums_;  // of the first i sizes
  // How a half, read away from the middle, matches itself; and how the other,
  // read towards the middle, matches it.
  std::vector<int64_t> right_right_;
  std::vector<int64_t> left_left_;
  std::vector<int64_t> left_right_;
  std::vector<int64_t> right_left_;
  LayerRepeat best_;
  Elements best_sum_;
};

}  // namespace

std::optional<LayerRepeat> FindLayerRepeat(std::span<const Elements> sizes) {
  return RepeatFinder(sizes).Find();
}

}  // namespace castor
