// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_PICKLE_WRITER_H_
#define CASTOR_TOOLS_REPORT_PICKLE_WRITER_H_

// Writes one value as a Python pickle of protocol 2, piece by piece: dicts with
// text keys, lists, text, integers, booleans and None. Readers that know few
// opcodes, such as those in JavaScript, know these. Thread-compatible.

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace castor {

class PickleWriter {
 public:
  // The state of `out` says whether it could be written.
  explicit PickleWriter(std::ostream& out);

  // In a dict keys and values take turns.
  void BeginDict();
  void EndDict();
  void BeginList();
  void EndList();

  // What is not UTF-8 is written as \xNN, and so is what is not printable. A
  // text that was written before is referred to.
  void Text(std::string_view text);
  void Int(int64_t value);
  void Bool(bool value);
  void None();

  void DictText(std::string_view key, std::string_view value);
  void DictInt(std::string_view key, int64_t value);

  // After the one value. REQUIRES: all that was begun was ended.
  void Finish();

 private:
  struct Container {
    bool is_list = false;
    int held = 0;  // values since the last mark
  };

  void BeginValue();
  void Byte(int byte);
  void Number(uint64_t value, int bytes);  // the lowest bytes first

  std::ostream& out_;
  std::vector<Container> open_;
  std::unordered_map<std::string, uint32_t> memo_;
};

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_PICKLE_WRITER_H_
