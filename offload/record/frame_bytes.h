// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_RECORD_FRAME_BYTES_H_
#define CASTOR_OFFLOAD_RECORD_FRAME_BYTES_H_

// Integers and frames as bytes, for record_format.cc: little endian, whatever
// the machine's order. Thread-compatible. Part of the record's format
// (record_format.h).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace castor {

// Writes sizeof(T) bytes at `to` and returns the end of them.
template <typename T>
char* StoreInteger(T value, char* to) {
  const auto bits = static_cast<std::make_unsigned_t<T>>(value);
  for (size_t i = 0; i < sizeof(T); ++i) {
    to[i] = static_cast<char>(bits >> (8 * i) & 0xff);
  }
  return to + sizeof(T);
}

template <typename T>
void AppendInteger(T value, std::string* out) {
  char bytes[sizeof(T)];
  StoreInteger(value, bytes);
  out->append(bytes, sizeof(T));
}

// Reads integers off the front of a payload; once one is missing it stays
// failed and reads zeros.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Take() {
    if (bytes_.size() < sizeof(T)) {
      failed_ = true;
      return T{};
    }
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      bits |= uint64_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
    }
    bytes_.remove_prefix(sizeof(T));
    return static_cast<T>(bits);
  }
  std::string_view TakeText(size_t size);

  size_t left() const { return bytes_.size(); }
  bool failed() const { return failed_; }

 private:
  std::string_view bytes_;
  bool failed_ = false;
};

// Covers a frame's type, its length and its payload (XXH3, seeded with the
// first two).
uint64_t FrameChecksum(uint32_t type, uint32_t length,
                       std::string_view payload);

// Makes room for a frame's header, and fills it in once its payload stands: the
// type, the length and the checksum.
class FrameBuilder {
 public:
  static constexpr size_t kHeaderBytes = 16;

  FrameBuilder(uint32_t type, std::string* out);
  // REQUIRES: the payload is shorter than 4 GiB.
  void Finish();

 private:
  uint32_t type_;
  std::string* out_;
  size_t start_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_RECORD_FRAME_BYTES_H_
