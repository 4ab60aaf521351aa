// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/families/family_table.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iterator>

#include "chunk/base/check.h"
#include "tools/models/families/families_text.h"

namespace castor {
namespace {

size_t IndentOf(std::string_view line) {
  const size_t first = line.find_first_not_of(' ');
  return first == line.npos ? 0 : first;
}

std::vector<std::string> WordsOf(std::string_view line) {
  std::vector<std::string> words;
  for (size_t at = 0; (at = line.find_first_not_of(' ', at)) != line.npos;) {
    const size_t end = std::min(line.find(' ', at), line.size());
    words.emplace_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

// The lines from `*next` on that are indented by at least `indent`.
std::vector<FamilyLine> ParseBlock(const std::vector<std::string_view>& lines,
                                   size_t indent, size_t* next) {
  std::vector<FamilyLine> block;
  while (*next < lines.size() && IndentOf(lines[*next]) >= indent) {
    const size_t own = IndentOf(lines[*next]);
    FamilyLine& line = block.emplace_back();
    line.words = WordsOf(lines[(*next)++]);
    line.below = ParseBlock(lines, own + 1, next);
  }
  return block;
}

std::vector<FamilyLine> ParseTable() {
  std::vector<std::string_view> lines;
  std::string_view rest = kFamiliesText;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    const size_t first = line.find_first_not_of(' ');
    if (first != line.npos && line[first] != '#') lines.push_back(line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  size_t next = 0;
  return ParseBlock(lines, 0, &next);
}

// By recursive descent, an operator's level after the other.
class Evaluator {
 public:
  Evaluator(std::string_view text, const FamilyNames& names)
      : rest_(text), names_(names) {}

  Result<int64_t> Evaluate() {
    const int64_t value = Level(0);
    CASTOR_CHECK(rest_.empty());
    if (overflow_) return Status(Malformed("a size is more than 2^63 - 1"));
    return value;
  }

 private:
  static constexpr std::string_view kLevels[][3] = {
      {"|"}, {"&"}, {"==", "!=", "<"}, {"+", "-"}, {"*", "/", "%"}};

  bool Take(std::string_view word) {
    if (word.empty() || !rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  int64_t Level(size_t level) {
    if (level == std::size(kLevels)) return Operand();
    int64_t value = Level(level + 1);
    for (bool found = true; found;) {
      found = false;
      for (const std::string_view op : kLevels[level]) {
        if (!Take(op)) continue;
        value = Apply(op, value, Level(level + 1));
        found = true;
        break;
      }
    }
    return value;
  }

  int64_t Apply(std::string_view op, int64_t a, int64_t b) {
    int64_t result = 0;
    if (op == "|") return a != 0 || b != 0;
    if (op == "&") return a != 0 && b != 0;
    if (op == "==") return a == b;
    if (op == "!=") return a != b;
    if (op == "<") return a < b;
    if (op == "/" || op == "%") {
      CASTOR_CHECK_GT(b, 0);
      return op == "/" ? a / b : a % b;
    }
    overflow_ |= op == "+"   ? __builtin_add_overflow(a, b, &result)
                 : op == "-" ? __builtin_sub_overflow(a, b, &result)
                             : __builtin_mul_overflow(a, b, &result);
    return result;
  }

  int64_t Operand() {
    if (Take("!")) return Operand() == 0;
    if (Take("(")) {
      const int64_t value = Level(0);
      CASTOR_CHECK(Take(")"));
      return value;
    }
    size_t end = 0;
    while (end < rest_.size() &&
           (rest_[end] == '_' ||
            std::isalnum(static_cast<unsigned char>(rest_[end])) != 0)) {
      ++end;
    }
    const std::string name(rest_.substr(0, end));
    CASTOR_CHECK(!name.empty());
    rest_.remove_prefix(end);
    if (std::isdigit(static_cast<unsigned char>(name[0])) != 0) {
      return std::stoll(name);
    }
    if (!Take("[")) return names_(name, std::nullopt);
    const int64_t element = Level(0);
    CASTOR_CHECK(Take("]"));
    return names_(name, element);
  }

  std::string_view rest_;
  const FamilyNames& names_;
  bool overflow_ = false;
};

}  // namespace

const std::vector<FamilyLine>& FamilyLines() {
  static const auto& lines = *new std::vector<FamilyLine>(ParseTable());
  return lines;
}

const FamilyLine* FindFamilyLine(std::string_view word, std::string_view name) {
  for (const FamilyLine& line : FamilyLines()) {
    if (line.words[0] == word && line.words[1] == name) return &line;
  }
  return nullptr;
}

Result<int64_t> EvaluateFamily(std::string_view expression,
                               const FamilyNames& names) {
  return Evaluator(expression, names).Evaluate();
}

}  // namespace castor
