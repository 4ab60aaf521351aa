// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/text_data.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/units.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "tools/examples/gpt/model/gpt_params.h"

namespace castor::gpt {
namespace {

namespace fs = std::filesystem;

// Text is held in memory.
constexpr Bytes kMostText = GiB(4);
constexpr size_t kProbe = 8192;

// Streams of random numbers that initial values, whose streams are parameters,
// do not use.
constexpr uint64_t kSampleStream = uint64_t{1} << 63;

Status CannotRead(const fs::path& path, std::string_view why) {
  return IoError(fmt::format(
      "cannot read {}: {}; make it readable, or give another --text",
      Quoted(path.string()), why));
}

bool IsHidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

// By the first bytes of a file.
bool IsBinary(std::span<const uint8_t> bytes) {
  return std::ranges::find(bytes, 0) != bytes.end();
}

enum class OnBinary { kTake, kPassOver };

// Appends the file's bytes; whether there were any.
Result<bool> AppendFile(const fs::path& path, OnBinary on_binary,
                        std::vector<uint8_t>& bytes) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(
      std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (file == nullptr) return CannotRead(path, std::strerror(errno));
  const size_t start = bytes.size();
  std::vector<uint8_t> buffer(1 << 20);
  size_t want = kProbe;
  while (const size_t got = std::fread(buffer.data(), 1, want, file.get())) {
    if (bytes.size() == start && on_binary == OnBinary::kPassOver &&
        IsBinary(std::span(buffer).first(got))) {
      return false;
    }
    bytes.insert(bytes.end(), buffer.begin(),
                 buffer.begin() + static_cast<ptrdiff_t>(got));
    if (Bytes(static_cast<int64_t>(bytes.size())) > kMostText) {
      return InvalidArgument(fmt::format(
          "the text is longer than {}, which this example holds in memory; "
          "give a part of it",
          FormatSize(kMostText)));
    }
    want = buffer.size();
  }
  if (std::ferror(file.get())) return CannotRead(path, std::strerror(errno));
  return bytes.size() > start;
}

// The files under `folder`, by path, each once even where it has two names.
Result<std::vector<fs::path>> ListFiles(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  fs::recursive_directory_iterator entry(folder, error);
  const fs::recursive_directory_iterator end;
  while (!error && entry != end) {
    if (IsHidden(entry->path())) {
      if (entry->is_directory(error)) entry.disable_recursion_pending();
    } else if (entry->is_regular_file(error)) {
      paths.push_back(entry->path());
    }
    if (error == std::errc::no_such_file_or_directory) error.clear();
    if (!error) entry.increment(error);
  }
  if (error) return CannotRead(folder, error.message());
  std::sort(paths.begin(), paths.end());
  std::set<fs::path> seen;
  std::erase_if(paths, [&](const fs::path& path) {
    std::error_code ignored;
    return !seen.insert(fs::canonical(path, ignored)).second;
  });
  return paths;
}

}  // namespace

bool TextData::Takes(const fs::path& file) {
  if (IsHidden(file)) return false;
  std::array<uint8_t, kProbe> begin = {};
  std::ifstream in(file, std::ios::binary);
  in.read(reinterpret_cast<char*>(begin.data()), begin.size());
  const auto got = static_cast<size_t>(in.gcount());
  return got > 0 && !IsBinary(std::span(begin).first(got));
}

Result<TextData> TextData::Load(const fs::path& path, int64_t least_bytes) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return InvalidArgument(
        fmt::format("{}: no such file or folder; give --text a file or folder "
                    "of text",
                    Quoted(path.string())));
  }
  TextData data({});
  if (fs::is_directory(status)) {
    CASTOR_ASSIGN_OR_RETURN(const std::vector<fs::path> files, ListFiles(path));
    data.files_ = 0;
    for (const fs::path& file : files) {
      CASTOR_ASSIGN_OR_RETURN(
          const bool taken, AppendFile(file, OnBinary::kPassOver, data.bytes_));
      data.files_ += taken ? 1 : 0;
    }
  } else if (fs::is_regular_file(status)) {
    CASTOR_RETURN_IF_ERROR(
        AppendFile(path, OnBinary::kTake, data.bytes_).status());
  } else {
    return InvalidArgument(
        fmt::format("{} is neither a file nor a folder; give --text a file or "
                    "folder of text",
                    Quoted(path.string())));
  }
  if (data.size() == 0) {
    return Malformed(fmt::format("{} holds no text; give another --text",
                                 Quoted(path.string())));
  }
  if (data.size() < least_bytes) {
    return Malformed(fmt::format(
        "{} holds {} bytes of text, and a sequence takes {}; give a longer "
        "--text or a shorter --seq",
        Quoted(path.string()), data.size(), least_bytes));
  }
  return data;
}

uint64_t TextData::digest() const {
  return XXH3_64bits(bytes_.data(), bytes_.size());
}

void TextData::Sample(const BatchKey& key, int batch, int seq,
                      std::span<int> tokens, std::span<int> targets) const {
  CASTOR_CHECK_GT(size(), int64_t{seq});
  CASTOR_CHECK_EQ(tokens.size(), static_cast<size_t>(batch) * seq);
  CASTOR_CHECK_EQ(targets.size(), tokens.size());
  const uint64_t places = static_cast<uint64_t>(size() - seq);
  const uint64_t stream = kSampleStream |
                          static_cast<uint64_t>(key.rank) << 32 |
                          static_cast<uint64_t>(key.micro_batch);
  for (int b = 0; b < batch; ++b) {
    const uint64_t index =
        static_cast<uint64_t>(key.step) * static_cast<uint64_t>(batch) +
        static_cast<uint64_t>(b);
    const uint64_t place = RandomBits(key.seed, stream, index) % places;
    const size_t row = static_cast<size_t>(b) * static_cast<size_t>(seq);
    for (size_t i = 0; i < static_cast<size_t>(seq); ++i) {
      tokens[row + i] = bytes_[place + i];
      targets[row + i] = bytes_[place + i + 1];
    }
  }
}

}  // namespace castor::gpt
