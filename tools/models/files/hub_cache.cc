// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/hub_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "chunk/text/quote.h"
#include "tools/models/files/input_file.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMain = "main";
constexpr uint64_t kMaxRefBytes = 4096;

bool IsPlain(std::string_view text) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !text.empty() && text != "." && text != ".." &&
         text.find_first_not_of(kAllowed) == text.npos;
}

// A commit, a branch, or a ref of several parts: "refs/pr/3".
bool IsRevision(std::string_view text) {
  while (true) {
    const size_t slash = text.find('/');
    if (!IsPlain(text.substr(0, slash))) return false;
    if (slash == text.npos) return true;
    text.remove_prefix(slash + 1);
  }
}

std::string ShownName(const HubName& name) {
  return name.org.empty() ? name.name : name.org + "/" + name.name;
}

// Empty where unset or set to nothing. A leading ~ is the home.
std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  std::string path = value == nullptr ? "" : value;
  const char* home = std::getenv("HOME");
  if ((path == "~" || path.starts_with("~/")) && home != nullptr) {
    path.replace(0, 1, home);
  }
  return path;
}

std::vector<std::string> FoldersIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) {
      names.push_back(entry->path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Listed(std::vector<std::string> names) {
  constexpr size_t kNamed = 5;
  const size_t count = names.size();
  names.resize(std::min(count, kNamed));
  for (std::string& name : names) name = Quoted(name);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     count > kNamed ? ", ..." : "");
}

// What refs/`revision` says; empty where there is no such file.
Result<std::string> ReadRef(const fs::path& model,
                            const std::string& revision) {
  const std::string path = (model / "refs" / revision).string();
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::string();
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::OpenRegular(path));
  CASTOR_ASSIGN_OR_RETURN(std::string text, file.ReadAll(kMaxRefBytes));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  if (IsPlain(text)) return text;
  return Malformed(fmt::format(
      "{} holds {} where the name of a snapshot belongs; download the model "
      "again",
      QuotedPath(path), Quoted(text)));
}

}  // namespace

std::optional<HubName> ParseHubName(std::string_view text) {
  HubName name;
  const size_t at = text.find('@');
  if (at != text.npos) {
    name.revision = text.substr(at + 1);
    if (!IsRevision(name.revision)) return std::nullopt;
    text = text.substr(0, at);
  }
  const size_t slash = text.find('/');
  if (slash != text.npos) {
    name.org = text.substr(0, slash);
    if (!IsPlain(name.org)) return std::nullopt;
    text.remove_prefix(slash + 1);
  }
  name.name = text;
  if (!IsPlain(name.name)) return std::nullopt;
  return name;
}

std::string HubCacheFolder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (std::string path = Variable(name); !path.empty()) return path;
  }
  if (std::string home = Variable("HF_HOME"); !home.empty()) {
    return home + "/hub";
  }
  if (std::string cache = Variable("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/huggingface/hub";
  }
  const std::string home = Variable("HOME");
  return home.empty() ? home : home + "/.cache/huggingface/hub";
}

Result<std::string> FindInHubCache(const HubName& name,
                                   const std::string& cache) {
  const std::string shown = ShownName(name);
  const std::string folder =
      name.org.empty() ? "models--" + name.name
                       : fmt::format("models--{}--{}", name.org, name.name);
  const fs::path model = fs::path(cache) / folder;
  const std::vector<std::string> snapshots = FoldersIn(model / "snapshots");
  const std::string again = fmt::format(
      "download it with `hf download {}{}`, or give the path of a file", shown,
      name.revision.empty() ? "" : " --revision " + name.revision);
  if (snapshots.empty()) {
    return InvalidArgument(fmt::format(
        "{} is no path here, and not in the hub cache ({}), which is all that "
        "is looked at, since nothing is read online; {}",
        Quoted(shown), QuotedPath(model.string()), again));
  }
  const std::string wanted =
      name.revision.empty() ? std::string(kMain) : name.revision;
  CASTOR_ASSIGN_OR_RETURN(std::string revision, ReadRef(model, wanted));
  const bool by_ref = !revision.empty();
  if (!by_ref && !name.revision.empty()) revision = name.revision;
  if (!by_ref && name.revision.empty()) {
    if (snapshots.size() > 1) {
      return InvalidArgument(fmt::format(
          "the hub cache holds {} revisions of {} ({}) and no refs/main, which "
          "would say which of them is meant; give one as {}@REVISION: {}",
          snapshots.size(), Quoted(shown), QuotedPath(model.string()), shown,
          Listed(snapshots)));
    }
    revision = snapshots.front();
  }
  if (std::binary_search(snapshots.begin(), snapshots.end(), revision)) {
    return (model / "snapshots" / revision).string();
  }
  return InvalidArgument(fmt::format(
      "the hub cache holds no revision {} of {} ({}){}; there {} {}; {}",
      Quoted(wanted), Quoted(shown), QuotedPath(model.string()),
      by_ref ? fmt::format(", which refs/{} says is {}", wanted, revision) : "",
      snapshots.size() == 1 ? "is" : "are", Listed(snapshots), again));
}

}  // namespace castor
