// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/record_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <unordered_set>
#include <utility>

#include "chunk/text/quote.h"
#include "offload/record/input_pipe.h"
#include "offload/record/record_format.h"

namespace castor {
namespace {

constexpr int64_t kMaxSum = int64_t{1} << 62;
// Of at most 2^48 bytes each, so that their sums are within kMaxSum too.
constexpr size_t kMaxArenas = size_t{1} << 14;

// Appends up to `size` bytes to `out`; fewer only at the end of the input.
using Input = std::function<Status(size_t size, std::string* out)>;

class Parser {
 public:
  explicit Parser(Input input) : input_(std::move(input)) {}

  Result<RunRecord> Parse() {
    CASTOR_RETURN_IF_ERROR(Next(kRecordHeaderBytes));
    CASTOR_RETURN_IF_ERROR(CheckRecordHeader(buffer_));
    while (!ended_ && record_.completeness.ok()) {
      frame_ = record_.file_bytes;
      CASTOR_RETURN_IF_ERROR(Next(kFrameHeaderBytes));
      if (buffer_.empty()) {
        Stop("it has no end frame: the run was killed or is still going on");
      } else if (buffer_.size() < kFrameHeaderBytes) {
        Stop("it is cut off inside a frame's header");
      } else {
        CASTOR_RETURN_IF_ERROR(TakeFrame(ParseFrameHeader(buffer_)));
      }
    }
    for (auto& [rank, info] : ranks_) record_.ranks.push_back(std::move(info));
    for (auto& [key, info] : arenas_) record_.arenas.push_back(std::move(info));
    for (auto& [rank, info] : plans_) record_.plans.push_back(std::move(info));
    return std::move(record_);
  }

 private:
  Status Next(size_t size) {
    buffer_.clear();
    CASTOR_RETURN_IF_ERROR(input_(size, &buffer_));
    record_.file_bytes += static_cast<int64_t>(buffer_.size());
    return OkStatus();
  }

  void Stop(std::string_view why) {
    record_.completeness =
        Status(ErrorCode::kStoppedEarly,
               fmt::format("the record is readable up to byte {} only: {}; "
                           "what is shown is what comes before",
                           frame_, why));
  }

  Status TakeFrame(const FrameHeader& header) {
    if (header.length > kMaxFramePayload) {
      Stop("the length of the frame there is damaged");
      return OkStatus();
    }
    CASTOR_RETURN_IF_ERROR(Next(header.length));
    if (buffer_.size() < header.length) {
      Stop("it is cut off inside a frame");
    } else if (!ChecksumHolds(header, buffer_)) {
      Stop("the frame there does not match its checksum");
    } else if (!Take(static_cast<FrameType>(header.type))) {
      Stop("the frame there holds values that no run has");
    } else if (ended_) {
      return CheckEnd();
    }
    return OkStatus();
  }

  bool Take(FrameType type) {
    switch (type) {
      case FrameType::kRank: {
        RunRankInfo info;
        if (!DecodeRank(buffer_, &info)) return false;
        const int32_t rank = info.rank;
        ranks_.insert_or_assign(rank, std::move(info));
        ++rank_frames_;
        return true;
      }
      case FrameType::kEvents: {
        const size_t before = record_.events.size();
        int64_t dropped = 0;
        if (!DecodeEvents(buffer_, &record_.events, &dropped)) return false;
        if (!AddSums(before)) {
          record_.events.resize(before);
          return false;
        }
        record_.dropped = dropped;
        return true;
      }
      case FrameType::kArena: {
        RunArenaInfo info;
        if (!DecodeArena(buffer_, &info)) return false;
        std::pair key(info.rank, info.name);
        arenas_.insert_or_assign(std::move(key), std::move(info));
        return arenas_.size() <= kMaxArenas;
      }
      case FrameType::kPlan: {
        RunPlanInfo info;
        if (!DecodePlan(buffer_, &info)) return false;
        const int32_t rank = info.rank;
        plans_.insert_or_assign(rank, std::move(info));
        return true;
      }
      case FrameType::kHomes: {
        RunHomesInfo info;
        if (!DecodeHomes(buffer_, &info)) return false;
        record_.homes.push_back(info);
        return true;
      }
      case FrameType::kMark: {
        RunMark mark;
        if (!DecodeMark(buffer_, &mark)) return false;
        record_.marks.push_back(std::move(mark));
        return true;
      }
      case FrameType::kDocument: {
        RunDocument info;
        if (!DecodeDocument(buffer_, &info)) return false;
        record_.documents.push_back(std::move(info));
        return true;
      }
      case FrameType::kEnd:
        ended_ = true;
        return DecodeEnd(buffer_, &totals_);
    }
    return true;  // of a later version, and not needed to read the rest
  }

  // Adds the events from `first` on to what RunRecord promises of sums.
  bool AddSums(size_t first) {
    int64_t bytes = bytes_;
    int64_t ns = ns_;
    for (size_t i = first; i < record_.events.size(); ++i) {
      const RunEvent& event = record_.events[i];
      first_ns_ = std::min(first_ns_, event.begin_ns);
      last_ns_ = std::max(last_ns_, event.end_ns);
      ranks_seen_.insert(event.rank);
      // A level, never added up.
      if (event.kind == RunEventKind::kTierBytes) continue;
      if (event.bytes > kMaxSum - bytes) return false;
      if (event.end_ns - event.begin_ns > kMaxSum - ns) return false;
      bytes += event.bytes;
      ns += event.end_ns - event.begin_ns;
    }
    bytes_ = bytes;
    ns_ = ns;
    const auto ranks = static_cast<int64_t>(ranks_seen_.size());
    return ranks == 0 || last_ns_ - first_ns_ <= kMaxSum / ranks;
  }

  Status CheckEnd() {
    const RecordTotals found = {rank_frames_,
                                static_cast<int64_t>(record_.events.size()),
                                totals_.dropped};
    if (found != totals_) {
      Stop(fmt::format(
          "its end frame says {} ranks and {} events, but it "
          "holds {} and {}",
          totals_.ranks, totals_.events, found.ranks, found.events));
      return OkStatus();
    }
    record_.dropped = totals_.dropped;
    CASTOR_RETURN_IF_ERROR(Next(1));
    if (!buffer_.empty()) Stop("more bytes follow the end frame");
    return OkStatus();
  }

  Input input_;
  std::string buffer_;  // what was read last
  int64_t frame_ = 0;   // where the frame under way begins
  std::map<int32_t, RunRankInfo> ranks_;
  std::map<std::pair<int32_t, std::string>, RunArenaInfo> arenas_;
  std::map<int32_t, RunPlanInfo> plans_;
  int64_t rank_frames_ = 0;
  int64_t bytes_ = 0;
  int64_t ns_ = 0;
  int64_t first_ns_ = INT64_MAX;
  int64_t last_ns_ = INT64_MIN;
  std::unordered_set<int32_t> ranks_seen_;
  bool ended_ = false;
  RecordTotals totals_;
  RunRecord record_;
};

Status ReadFailed(const std::string& path, int error) {
  const std::string why = fmt::format(
      "the record {} cannot be read: {}; give the file that a run "
      "wrote with --record",
      path, std::strerror(error));
  const bool is_usage = error == ENOENT || error == ENOTDIR || error == EISDIR;
  return is_usage ? InvalidArgument(why) : IoError(why);
}

Status ReadUpTo(int fd, const std::string& path, size_t size,
                std::string* out) {
  const size_t before = out->size();
  out->resize(before + size);
  size_t got = 0;
  while (got < size) {
    const ssize_t n = ::read(fd, out->data() + before + got, size - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ReadFailed(path, errno);
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  out->resize(before + got);
  return OkStatus();
}

}  // namespace

Result<RunRecord> ReadRecord(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ReadFailed(path, errno);
  if (const Status status = AwaitWriter(fd, path); !status.ok()) {
    ::close(fd);
    return status;
  }
  Result<RunRecord> record = Parser([&](size_t size, std::string* out) {
                               return ReadUpTo(fd, path, size, out);
                             }).Parse();
  ::close(fd);
  if (record.status().code() == ErrorCode::kMalformed) {
    return record.status().WithContext(QuotedPath(path));
  }
  return record;
}

Result<RunRecord> ParseRecord(std::string_view bytes) {
  return Parser([&](size_t size, std::string* out) {
           const std::string_view some = bytes.substr(0, size);
           bytes.remove_prefix(some.size());
           out->append(some);
           return OkStatus();
         })
      .Parse();
}

}  // namespace castor
