// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/pickle_writer.h"

#include "chunk/base/check.h"
#include "chunk/text/printable.h"

namespace castor {
namespace {

// Opcodes, as pickletools.py names them.
constexpr int kProto = 0x80;
constexpr int kStop = '.';
constexpr int kMark = '(';
constexpr int kEmptyDict = '}';
constexpr int kSetItems = 'u';
constexpr int kEmptyList = ']';
constexpr int kAppends = 'e';
constexpr int kNone = 'N';
constexpr int kNewTrue = 0x88;
constexpr int kNewFalse = 0x89;
constexpr int kBinInt1 = 'K';
constexpr int kBinInt2 = 'M';
constexpr int kBinInt = 'J';
constexpr int kLong1 = 0x8a;
constexpr int kBinUnicode = 'X';
constexpr int kLongBinPut = 'r';
constexpr int kLongBinGet = 'j';

// Readers hold the values of a batch on a stack; Python writes as many.
constexpr int kBatch = 1000;

}  // namespace

PickleWriter::PickleWriter(std::ostream& out) : out_(out) {
  Byte(kProto);
  Byte(2);
}

void PickleWriter::BeginDict() {
  BeginValue();
  Byte(kEmptyDict);
  Byte(kMark);
  open_.push_back({.is_list = false});
}

void PickleWriter::EndDict() {
  CASTOR_CHECK(!open_.empty() && !open_.back().is_list);
  CASTOR_CHECK(open_.back().held % 2 == 0);
  open_.pop_back();
  Byte(kSetItems);
}

void PickleWriter::BeginList() {
  BeginValue();
  Byte(kEmptyList);
  Byte(kMark);
  open_.push_back({.is_list = true});
}

void PickleWriter::EndList() {
  CASTOR_CHECK(!open_.empty() && open_.back().is_list);
  open_.pop_back();
  Byte(kAppends);
}

void PickleWriter::Text(std::string_view text) {
  BeginValue();
  const std::string shown = Printable(text);
  const auto [it, is_new] =
      memo_.emplace(shown, static_cast<uint32_t>(memo_.size()));
  if (!is_new) {
    Byte(kLongBinGet);
    Number(it->second, 4);
    return;
  }
  Byte(kBinUnicode);
  Number(shown.size(), 4);
  out_ << shown;
  Byte(kLongBinPut);
  Number(it->second, 4);
}

void PickleWriter::Int(int64_t value) {
  BeginValue();
  const auto bits = static_cast<uint64_t>(value);
  if (0 <= value && value <= UINT8_MAX) {
    Byte(kBinInt1);
    Number(bits, 1);
  } else if (0 <= value && value <= UINT16_MAX) {
    Byte(kBinInt2);
    Number(bits, 2);
  } else if (INT32_MIN <= value && value <= INT32_MAX) {
    Byte(kBinInt);
    Number(bits, 4);
  } else {
    Byte(kLong1);
    Byte(8);
    Number(bits, 8);
  }
}

void PickleWriter::Bool(bool value) {
  BeginValue();
  Byte(value ? kNewTrue : kNewFalse);
}

void PickleWriter::None() {
  BeginValue();
  Byte(kNone);
}

void PickleWriter::DictText(std::string_view key, std::string_view value) {
  Text(key);
  Text(value);
}

void PickleWriter::DictInt(std::string_view key, int64_t value) {
  Text(key);
  Int(value);
}

void PickleWriter::Finish() {
  CASTOR_CHECK(open_.empty());
  Byte(kStop);
}

// A batch is even, so that it parts no key from its value.
void PickleWriter::BeginValue() {
  if (open_.empty()) return;
  Container& inner = open_.back();
  if (inner.held == kBatch) {
    Byte(inner.is_list ? kAppends : kSetItems);
    Byte(kMark);
    inner.held = 0;
  }
  ++inner.held;
}

void PickleWriter::Byte(int byte) { out_.put(static_cast<char>(byte)); }

void PickleWriter::Number(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    Byte(static_cast<int>(value >> (8 * i) & 0xff));
  }
}

}  // namespace castor
