// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "chunk/text/quote.h"

namespace castor {
namespace {

// Far more than any format here uses, far less than a stack or a path bears.
constexpr size_t kMaxDepth = 64;

// Of a message.
constexpr size_t kLongestNumber = 60;

// Counts the bytes that the lexer has taken, which is how far an event lies
// from the start of the text.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached)
      : at_(at), reached_(reached) {}

  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }

 private:
  const char* at_;
  const char** reached_;
};

// nlohmann writes "[id] parse error at line 1, column 5: why; last read: ...".
// The place is given as an offset, and what was read last may be megabytes.
std::string PlainReason(std::string_view what) {
  what = what.substr(0, what.find("; last read"));
  if (const size_t id = what.find("] "); id != what.npos) {
    what.remove_prefix(id + 2);
  }
  if (what.starts_with("parse error")) {
    what.remove_prefix(std::min(what.size(), what.find(": ") + 2));
  }
  constexpr size_t kLongest = 120;
  return std::string(what.substr(0, kLongest));
}

// nlohmann's reader calls this; false stops it.
class SaxAdapter final : public nlohmann::json_sax<nlohmann::json> {
 public:
  // `reached`: where reading has come to, as long as it goes on.
  SaxAdapter(JsonHandler& handler, const char* const* reached)
      : handler_(handler), reached_(reached) {}

  const Status& status() const { return status_; }
  bool of_handler() const { return of_handler_; }
  const char* key_end() const { return key_end_; }

  bool null() override { return Pass({}); }
  bool boolean(bool value) override {
    return Pass({.kind = JsonKind::kBool, .boolean = value});
  }
  bool number_integer(number_integer_t value) override {
    return Pass({.kind = JsonKind::kNegative,
                 .negative = value,
                 .real = static_cast<double>(value)});
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Pass({.kind = JsonKind::kUnsigned, .number = value});
  }
  bool number_float(number_float_t value, const string_t& literal) override {
    return Pass({.kind = JsonKind::kReal, .real = value, .text = literal});
  }
  bool string(string_t& value) override {
    return Pass({.kind = JsonKind::kString, .text = value});
  }
  bool binary(binary_t&) override {
    return Fail(Internal("JSON text holds no binary values"));
  }

  bool start_object(size_t) override { return Open(JsonContainer::kObject); }
  bool start_array(size_t) override { return Open(JsonContainer::kArray); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) {
      path_.pop_back();
      return Fail(Malformed(fmt::format("{} holds the key {} twice",
                                        JsonPathText(path_), Quoted(name))));
    }
    path_.back().key = name;
    key_end_ = *reached_;
    return true;
  }

  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    return Fail(Malformed("this is not JSON: " + PlainReason(error.what())));
  }

 private:
  bool Fail(Status status) {
    status_ = std::move(status);
    return false;
  }
  bool PassOn(Status status) {
    if (status.ok()) return true;
    of_handler_ = true;
    return Fail(std::move(status));
  }

  // Before a value: an array counts it.
  void Enter() {
    if (!path_.empty() && !path_.back().in_object) ++path_.back().index;
  }

  bool Pass(const JsonScalar& scalar) {
    Enter();
    return PassOn(handler_.Scalar(Reached(), scalar));
  }

  bool Open(JsonContainer container) {
    if (path_.size() >= kMaxDepth) {
      return Fail(Malformed(
          fmt::format("values are nested more than {} deep", kMaxDepth)));
    }
    Enter();
    if (!PassOn(handler_.Open(Reached(), container))) return false;
    const bool object = container == JsonContainer::kObject;
    // An array's step starts before its first element.
    path_.push_back({object, {}, static_cast<size_t>(-1)});
    keys_.emplace_back();
    return true;
  }

  bool Close() {
    path_.pop_back();
    keys_.pop_back();
    return PassOn(handler_.Close(Reached()));
  }

  const JsonPath& Reached() const { return path_; }

  JsonHandler& handler_;
  Status status_;
  JsonPath path_;
  // The keys seen so far of each open container; empty for an array.
  std::vector<std::unordered_set<std::string>> keys_;
  const char* const* const reached_;
  const char* key_end_ = nullptr;
  bool of_handler_ = false;
};

struct Failure {
  Status status;
  size_t reached = 0;       // bytes read by then
  bool of_handler = false;  // it, not the reader, said so
  size_t key_end = 0;       // bytes read with the last key's closing quote
};

// REQUIRES: no byte is zero.
Failure Read(std::string_view text, JsonHandler& handler) {
  const char* reached = text.data();
  SaxAdapter adapter(handler, &reached);
  const bool done = nlohmann::json::sax_parse(
      CountingIterator(text.data(), &reached),
      CountingIterator(text.data() + text.size(), &reached), &adapter);
  if (done) return {};
  const auto count = [&](const char* end) {
    return end == nullptr ? 0 : static_cast<size_t>(end - text.data());
  };
  return {.status = adapter.status(),
          .reached = count(reached),
          .of_handler = adapter.of_handler(),
          .key_end = count(adapter.key_end())};
}

}  // namespace

std::string JsonPathText(const JsonPath& path) {
  if (path.empty()) return "the document";
  std::string text;
  for (const JsonStep& step : path) {
    if (!step.in_object) {
      text += fmt::format("[{}]", step.index);
    } else {
      if (!text.empty()) text += '.';
      text += Quoted(step.key);
    }
  }
  return text;
}

std::string JsonScalarText(const JsonScalar& scalar) {
  switch (scalar.kind) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBool:
      return scalar.boolean ? "true" : "false";
    case JsonKind::kUnsigned:
      return fmt::format("{}", scalar.number);
    case JsonKind::kNegative:
      return fmt::format("{}", scalar.real);
    case JsonKind::kReal:
      if (scalar.text.empty()) return fmt::format("{}", scalar.real);
      if (scalar.text.size() <= kLongestNumber) return std::string(scalar.text);
      return fmt::format("{}...", scalar.text.substr(0, kLongestNumber));
    case JsonKind::kString:
      return Quoted(scalar.text);
  }
  return {};
}

Status ReadStrictJson(std::string_view text, JsonHandler& handler,
                      uint64_t first_offset) {
  // The lexer takes a zero byte for the end of its input and would not see what
  // follows it.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return Malformed(fmt::format("byte {} is zero, which JSON text never holds",
                                 first_offset + zero));
  }
  const Failure failure = Read(text, handler);
  if (failure.status.ok()) return OkStatus();
  return Status(failure.status.code(),
                fmt::format("{} (at byte {})", failure.status.message(),
                            first_offset + failure.reached));
}

Status ReadStrictJsonByLine(std::string_view text, JsonHandler& handler) {
  Failure failure;
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    failure = {.status = Malformed("a byte is zero, which JSON never holds"),
               .reached = zero + 1};
  } else {
    failure = Read(text, handler);
  }
  if (failure.status.ok()) return OkStatus();
  size_t at = failure.reached > 0 ? failure.reached - 1 : 0;
  if (failure.of_handler && failure.key_end > 0) {
    // Its opening quote; one that is part of the key has a backslash.
    at = failure.key_end - 1;
    do {
      at = text.rfind('"', at - 1);
    } while (at > 0 && text[at - 1] == '\\');
  }
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = newline == before.npos ? at + 1 : at - newline;
  return Status(failure.status.code(),
                fmt::format("{} (line {}, column {})", failure.status.message(),
                            line, column));
}

}  // namespace castor
