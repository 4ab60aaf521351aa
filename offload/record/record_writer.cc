// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/record_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "chunk/base/check.h"
#include "offload/lanes/start_thread.h"

namespace castor {
namespace {

constexpr size_t kBatchEvents = 1024;

// Writes all of `bytes`; 0, or the error.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

Status OpenFailed(const std::string& path, int error) {
  const std::string why = fmt::format(
      "the record {} cannot be written: {}; name a file in a "
      "folder that exists and can be written to",
      path, error == ENXIO ? "nobody reads this pipe" : std::strerror(error));
  const bool is_usage =
      error == ENOENT || error == ENOTDIR || error == EISDIR || error == ENXIO;
  return is_usage ? InvalidArgument(why) : IoError(why);
}

// Blocks all signals while it lives: a thread started meanwhile never runs the
// host program's handlers, and a write beyond a file-size limit comes back as
// an error instead of ending the process.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Result<std::unique_ptr<FileRecorder>> FileRecorder::Create(
    const std::string& path, const FileRecorderOptions& options) {
  // Truncated only once it is ours: another run may be recording to it.
  // A pipe that nobody reads fails at once, rather than when somebody comes.
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) return OpenFailed(path, errno);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  struct stat file;
  const bool is_file = ::fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
  if (is_file && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd);
    return InvalidArgument(fmt::format(
        "the record {} is being written by another run; name another file",
        path));
  }
  std::string header;
  AppendRecordHeader(&header);
  int error = is_file && ::ftruncate(fd, 0) != 0 ? errno : 0;
  if (error == 0) error = WriteAll(fd, header);
  if (error != 0) {
    if (is_file) ::unlink(path.c_str());
    ::close(fd);
    return OpenFailed(path, error);
  }
  std::unique_ptr<FileRecorder> recorder(new FileRecorder(path, fd, options));
  recorder->file_bytes_ = static_cast<int64_t>(header.size());
  try {
    SignalsBlocked blocked;
    recorder->thread_ = StartThread([r = recorder.get()] { r->FlushLoop(); });
  } catch (const ThreadLimit& limit) {
    return limit.status().WithContext(
        fmt::format("the record {} needs a thread", path));
  }
  return recorder;
}

FileRecorder::FileRecorder(std::string path, int fd,
                           const FileRecorderOptions& options)
    : path_(std::move(path)),
      fd_(fd),
      options_(options),
      windowed_(options.first_step > 0 || options.last_step < INT32_MAX ||
                options.every > 1),
      ring_(options.ring_events) {
  batch_.reserve(kBatchEvents);
}

FileRecorder::~FileRecorder() {
  if (closed_) return;
  const Status status = Close();
  if (status.ok()) return;
  Log to_stderr;
  (options_.log != nullptr ? options_.log : &to_stderr)
      ->Error(status.message());
}

void FileRecorder::AddRank(const RunRankInfo& info) {
  std::lock_guard lock(mutex_);
  if (!stopped_) AppendRankFrame(info, &info_frames_);
  ++ranks_added_;
}

template <typename Info>
void FileRecorder::AddFrame(void (*append)(const Info&, std::string*),
                            const Info& info) {
  std::lock_guard lock(mutex_);
  if (!closing_ && !stopped_) append(info, &info_frames_);
}

void FileRecorder::AddArena(const RunArenaInfo& info) {
  AddFrame(AppendArenaFrame, info);
}

void FileRecorder::AddPlan(const RunPlanInfo& info) {
  AddFrame(AppendPlanFrame, info);
}

void FileRecorder::AddHomes(const RunHomesInfo& info) {
  AddFrame(AppendHomesFrame, info);
}

void FileRecorder::AddMark(const RunMark& mark) {
  AddFrame(AppendMarkFrame, mark);
}

void FileRecorder::AddDocument(const RunDocument& info) {
  if (!FitsDocument(info)) return;
  {
    const XXH128_hash_t hash = XXH3_128bits(info.text.data(), info.text.size());
    const std::pair digest(hash.high64, hash.low64);
    std::lock_guard lock(mutex_);
    // Up to the schema's end.
    auto& last = documents_[info.text.substr(0, info.text.find(','))];
    if (last == digest) return;
    last = digest;
  }
  AddFrame(AppendDocumentFrame, info);
}

bool FileRecorder::Wants(int32_t step) const {
  if (step < options_.first_step || step > options_.last_step) return false;
  const int32_t first = std::max(options_.first_step, 1);
  return options_.every <= 1 ||
         (step >= first && (step - first) % options_.every == 0);
}

bool FileRecorder::InWindow(const RunEvent& event) {
  if (!Wants(event.step)) {
    if (event.kind != RunEventKind::kTierBytes) return false;
    std::lock_guard lock(mutex_);
    levels_[{event.rank, event.to}] = event;
    has_levels_.store(true, std::memory_order_relaxed);
    return false;
  }
  if (!has_levels_.load(std::memory_order_relaxed)) return true;
  std::lock_guard lock(mutex_);
  for (const Tier tier : kAllTiers) {
    const auto level = levels_.find({event.rank, tier});
    if (level == levels_.end()) continue;
    RunEvent opening = level->second;
    opening.step = event.step;
    opening.begin_ns = opening.end_ns = event.begin_ns;
    if (!ring_.Push(opening)) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
    }
    levels_.erase(level);
  }
  has_levels_.store(!levels_.empty(), std::memory_order_relaxed);
  return true;
}

Status FileRecorder::Close() {
  if (closed_) return status_;
  closed_ = true;
  ended_.store(true, std::memory_order_relaxed);
  recording_.store(false, std::memory_order_relaxed);
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  if (::close(fd_) != 0 && status_.ok()) {
    status_ = IoError(fmt::format("the record {} may be incomplete: {}", path_,
                                  std::strerror(errno)));
  }
  return status_;
}

Bytes FileRecorder::waiting() {
  std::lock_guard lock(mutex_);
  return Bytes(static_cast<int64_t>(info_frames_.size()));
}

const RecordTotals& FileRecorder::totals() const {
  CASTOR_CHECK(closed_);
  return totals_;
}

int64_t FileRecorder::file_bytes() const {
  CASTOR_CHECK(closed_);
  return file_bytes_;
}

void FileRecorder::FlushLoop() {
  bool closing = false;
  while (!closing) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, options_.interval, [this] { return closing_; });
      closing = closing_;
    }
    if (!Flush()) return;
  }
  if (!FlushAll()) return;
  AppendEndFrame(totals_, &out_);
  Write(&out_);
}

bool FileRecorder::Flush() {
  do {
    batch_.clear();
    RunEvent event;
    while (batch_.size() < kBatchEvents && ring_.Pop(&event)) {
      batch_.push_back(event);
    }
    // Read after the events: a rank is added before its first event, so its
    // frame is here by now, and goes first.
    {
      std::lock_guard lock(mutex_);
      out_.append(info_frames_);
      info_frames_.clear();
      totals_.ranks = ranks_added_;
    }
    totals_.dropped = dropped_.load(std::memory_order_relaxed);
    if (!batch_.empty()) AppendEventsFrame(batch_, totals_.dropped, &out_);
    if (!Write(&out_)) return false;
    totals_.events += static_cast<int64_t>(batch_.size());
  } while (batch_.size() == kBatchEvents);
  return true;
}

bool FileRecorder::FlushAll() {
  while (ring_.popped() != ring_.pushed()) {
    if (!Flush()) return false;
    std::this_thread::yield();
  }
  return true;
}

bool FileRecorder::Write(std::string* bytes) {
  const int error = WriteAll(fd_, *bytes);
  if (error != 0) {
    recording_.store(false, std::memory_order_relaxed);
    status_ = IoError(fmt::format(
        "recording to {} stopped after {} events: {}; the run is not affected "
        "and the record reads up to there; free space, or record fewer steps",
        path_, totals_.events, std::strerror(error)));
    // Nobody takes what comes from here on.
    std::lock_guard lock(mutex_);
    stopped_ = true;
    std::string().swap(info_frames_);
    return false;
  }
  file_bytes_ += static_cast<int64_t>(bytes->size());
  bytes->clear();
  return true;
}

}  // namespace castor
