// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "chunk/text/quote.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/files/data_file.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kDraftPrefix = ".saving-";
constexpr char kLockName[] = ".castor-lock";
// In a draft while it is written.
constexpr char kDraftMark[] = ".castor-draft";

std::string At(const std::string& directory, std::string_view name) {
  return (fs::path(directory) / name).string();
}

Status Refused(const std::string& path, std::string_view what,
               const std::string& why) {
  return IoError(
      fmt::format("{} could not be {}: {}; check the permissions, "
                  "or name another folder",
                  QuotedPath(path), what, why));
}

bool HasManifest(const std::string& folder) {
  std::error_code ignored;
  return fs::is_regular_file(At(folder, kManifestName), ignored);
}

Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0777) == 0) return OkStatus();
  return Refused(path, "made", std::strerror(errno));
}

Status EnsureFolder(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return OkStatus();
  if (fs::exists(path, error)) {
    return InvalidArgument(fmt::format(
        "{} is no folder; name a folder to save to", QuotedPath(path)));
  }
  CASTOR_RETURN_IF_ERROR(MakeFolder(path));
  const std::string parent = fs::path(path).lexically_normal().parent_path();
  return SyncFolder(parent.empty() ? "." : parent);
}

// Whether a folder with a draft's name is one: begun by a save, or a checkpoint
// that was on its way out. What else has the name is somebody's own.
bool IsDraft(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kDraftMark, ignored) ||
         HasManifest(folder.string()) ||
         (fs::is_directory(fs::symlink_status(folder, ignored)) &&
          fs::is_empty(folder, ignored));
}

// The folder and all in it, its mark last: killed at any moment, it leaves what
// is a draft still.
void RemoveDraft(const fs::path& draft, std::error_code* error) {
  error->clear();
  const fs::path mark = draft / kDraftMark;
  const int marked = open(mark.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (marked >= 0) close(marked);
  std::vector<fs::path> inside;
  for (fs::directory_iterator entry(draft, *error), end;
       !*error && entry != end; entry.increment(*error)) {
    if (entry->path() != mark) inside.push_back(entry->path());
  }
  for (const fs::path& each : inside) {
    if (!*error) fs::remove_all(each, *error);
  }
  if (!*error) fs::remove_all(draft, *error);
}

std::optional<int64_t> StepOfDraftName(std::string_view name) {
  if (!name.starts_with(kDraftPrefix)) return std::nullopt;
  return StepOfCheckpointName(name.substr(kDraftPrefix.size()));
}

Status NoDraft(const std::string& path, int64_t step) {
  return InvalidArgument(fmt::format(
      "{} is not what a save left, and a save of step {} needs the name: "
      "move it away, or name another folder to save to",
      QuotedPath(path), step));
}

// What killed saves left. Whoever calls it holds the lock.
Status RemoveDrafts(const std::string& directory) {
  std::error_code error;
  std::vector<fs::path> drafts;
  for (fs::directory_iterator entry(directory, error), end;
       !error && entry != end; entry.increment(error)) {
    if (StepOfDraftName(entry->path().filename().string()) &&
        IsDraft(entry->path())) {
      drafts.push_back(entry->path());
    }
  }
  for (const fs::path& draft : drafts) {
    if (!error) RemoveDraft(draft, &error);
  }
  if (!error) return OkStatus();
  return Refused(directory, "cleared of what a killed save left",
                 error.message());
}

}  // namespace

std::string CheckpointName(int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

std::optional<int64_t> StepOfCheckpointName(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() ||
      step < 0 || CheckpointName(step) != name) {
    return std::nullopt;
  }
  return step;
}

Result<std::vector<FoundCheckpoint>> ListCheckpoints(
    const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return InvalidArgument(fmt::format("{}: no such folder; check the path",
                                       QuotedPath(directory)));
  }
  std::vector<FoundCheckpoint> found;
  for (fs::directory_iterator entry(directory, error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    const std::optional<int64_t> step =
        StepOfCheckpointName(entry->path().filename().string());
    if (step.has_value() && HasManifest(path)) found.push_back({*step, path});
  }
  if (error) return Refused(directory, "read", error.message());
  std::sort(found.begin(), found.end(),
            [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
              return a.step < b.step;
            });
  return found;
}

Result<std::string> FindCheckpoint(const std::string& directory,
                                   std::optional<int64_t> step) {
  if (HasManifest(directory) && !step.has_value()) return directory;
  CASTOR_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found,
                          ListCheckpoints(directory));
  if (!step.has_value() && !found.empty()) return found.back().path;
  for (const FoundCheckpoint& each : found) {
    if (each.step == step) return each.path;
  }
  std::string there;
  if (!found.empty()) {
    there = fmt::format("; there are {}, from step {} to {}", found.size(),
                        found.front().step, found.back().step);
  }
  return InvalidArgument(fmt::format(
      "{} holds no checkpoint{}: none of its folders is called {} and has a {} "
      "in it{}",
      QuotedPath(directory),
      step.has_value() ? fmt::format(" of step {}", *step) : "",
      step.has_value() ? CheckpointName(*step) : fmt::format("{}N", kPrefix),
      kManifestName, there));
}

std::string DraftPath(const std::string& directory, int64_t step) {
  return At(directory, fmt::format("{}{}", kDraftPrefix, CheckpointName(step)));
}

Status CheckMayReplace(const std::string& directory, int64_t step) {
  const std::string path = At(directory, CheckpointName(step));
  std::error_code error;
  const fs::file_status there = fs::symlink_status(path, error);
  if (there.type() == fs::file_type::not_found || HasManifest(path)) {
    return OkStatus();
  }
  return InvalidArgument(fmt::format(
      "{} is no checkpoint, it has no {}, and a checkpoint of step {} would "
      "replace it: move it away, or name another folder to save to",
      QuotedPath(path), kManifestName, step));
}

Result<std::unique_ptr<const FolderHold>> HoldToSave(
    const std::string& directory) {
  CASTOR_RETURN_IF_ERROR(EnsureFolder(directory));
  CASTOR_ASSIGN_OR_RETURN(std::unique_ptr<const FolderHold> hold,
                          FolderHold::Take(directory));
  CASTOR_RETURN_IF_ERROR(
      CheckpointDraft::Create(directory, /*step=*/0, "empty").status());
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end;
       !error && entry != end; entry.increment(error)) {
    // Drafts are gone by now.
    if (const auto step = StepOfDraftName(entry->path().filename().string())) {
      return NoDraft(entry->path().string(), *step);
    }
  }
  if (error) return Refused(directory, "read", error.message());
  return hold;
}

Result<CheckpointDraft> CheckpointDraft::Create(const std::string& directory,
                                                int64_t step,
                                                const std::string& subfolder) {
  CASTOR_RETURN_IF_ERROR(EnsureFolder(directory));
  CheckpointDraft draft;
  draft.directory_ = directory;
  draft.subfolder_ = subfolder;
  draft.step_ = step;
  const std::string lock = At(directory, kLockName);
  draft.lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (draft.lock_ < 0) return Refused(lock, "made", std::strerror(errno));
  if (flock(draft.lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return Refused(lock, "locked", std::strerror(errno));
    }
    return Unavailable(fmt::format(
        "another run is saving to {} just now: give each run a folder of its "
        "own",
        QuotedPath(directory)));
  }
  CASTOR_RETURN_IF_ERROR(RemoveDrafts(directory));
  const std::string path = DraftPath(directory, step);
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) {
    return NoDraft(path, step);
  }
  CASTOR_RETURN_IF_ERROR(MakeFolder(path));
  draft.path_ = path;
  const std::string mark = At(path, kDraftMark);
  const int marked = open(mark.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (marked < 0) return Refused(mark, "made", std::strerror(errno));
  close(marked);
  CASTOR_RETURN_IF_ERROR(MakeFolder(At(path, subfolder)));
  return draft;
}

CheckpointDraft::CheckpointDraft(CheckpointDraft&& other) noexcept {
  *this = std::move(other);
}

CheckpointDraft& CheckpointDraft::operator=(CheckpointDraft&& other) noexcept {
  std::swap(directory_, other.directory_);
  std::swap(subfolder_, other.subfolder_);
  std::swap(path_, other.path_);
  std::swap(step_, other.step_);
  std::swap(lock_, other.lock_);
  return *this;
}

CheckpointDraft::~CheckpointDraft() {
  std::error_code ignored;  // whoever saves next tries again
  if (!path_.empty()) RemoveDraft(path_, &ignored);
  if (lock_ >= 0) close(lock_);
}

Result<std::string> CheckpointDraft::Commit(bool* in_place) {
  const std::string mark = At(path_, kDraftMark);
  if (unlink(mark.c_str()) != 0) {
    return Refused(mark, "removed", std::strerror(errno));
  }
  CASTOR_RETURN_IF_ERROR(SyncFolder(At(path_, subfolder_)));
  CASTOR_RETURN_IF_ERROR(SyncFolder(path_));
  CASTOR_RETURN_IF_ERROR(CheckMayReplace(directory_, step_));
  const std::string name = At(directory_, CheckpointName(step_));
  std::error_code error;
  if (!fs::exists(fs::symlink_status(name, error))) {
    if (std::rename(path_.c_str(), name.c_str()) != 0) {
      return Refused(name, "given its name", std::strerror(errno));
    }
    path_.clear();
  } else if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, name.c_str(),
                       RENAME_EXCHANGE) != 0) {
    // Here the one it replaces would have to go before it comes.
    return Refused(name, "replaced in one step", std::strerror(errno));
  }
  if (in_place != nullptr) *in_place = true;
  if (const Status synced = SyncFolder(directory_); !synced.ok()) {
    path_.clear();  // what was replaced stays too
    return synced.WithContext(fmt::format(
        "the checkpoint {} is in place and whole, nothing was removed, and a "
        "loss of power may still undo its name",
        QuotedPath(name)));
  }
  // What was replaced has the draft's name now.
  if (!path_.empty()) RemoveDraft(path_, &error);
  path_.clear();
  return name;
}

Status RemoveOldCheckpoints(const std::string& directory, int64_t keep,
                            int64_t newest) {
  CASTOR_ASSIGN_OR_RETURN(std::vector<FoundCheckpoint> found,
                          ListCheckpoints(directory));
  std::erase_if(
      found, [&](const FoundCheckpoint& each) { return each.step > newest; });
  int64_t left = static_cast<int64_t>(found.size());
  for (const FoundCheckpoint& each : found) {
    if (left <= keep) break;
    // Half of a checkpoint has a draft's name: whoever saves next removes it.
    const std::string draft = DraftPath(directory, each.step);
    std::error_code error;
    fs::rename(each.path, draft, error);
    if (!error) RemoveDraft(draft, &error);
    if (error) return Refused(each.path, "removed", error.message());
    --left;
  }
  return OkStatus();
}

}  // namespace castor
