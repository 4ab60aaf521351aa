// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/layout_parts.h"

#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/ids.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

// Of all chunks together. Sums of a few fp32 states of them still fit 63 bits.
constexpr __int128 kMaxBits = __int128{1} << 60;

const char* KindName(bool trainable) {
  return trainable ? "trainable" : "frozen";
}

// Takes the parts one after the other, each checked against those before it.
class Assembler {
 public:
  explicit Assembler(const LayoutParts& parts) : parts_(parts) {
    constexpr size_t kMost = std::numeric_limits<int32_t>::max();
    CASTOR_CHECK_EQ(parts.params.size(), parts.places.size());
    CASTOR_CHECK_LE(parts.params.size(), kMost);
    CASTOR_CHECK_LE(parts.chunks.size(), kMost);
  }

  Status TakeRanks() {
    pack_.world = Narrow(parts_.world);
    pack_.align = Elements(parts_.align);
    const Status valid = ValidatePackOptions(pack_);
    if (!valid.ok()) return Malformed(std::string(valid.message()));
    quantum_ = ChunkQuantum(pack_.world);
    if (parts_.quantum == quantum_.count()) return OkStatus();
    return Malformed(
        fmt::format("chunks are said to be multiples of {} elements; {} ranks "
                    "need multiples of {}",
                    parts_.quantum, pack_.world, quantum_.count()));
  }

  Status TakeGroup(const LayoutParts::Group& group) {
    const std::string name = fmt::format("a chunk of group {}", groups_.size());
    CASTOR_RETURN_IF_ERROR(
        CheckSize(name, group.chunk_elements, DTypeBits(group.dtype)));
    for (size_t g = 0; g < groups_.size(); ++g) {
      const GroupInfo& other = groups_[g];
      if (other.dtype != group.dtype || other.trainable != group.trainable ||
          other.moments8 != group.moments8 ||
          other.chunk_size == Elements(group.chunk_elements)) {
        continue;
      }
      return Malformed(fmt::format(
          "groups {} and {} both hold {} {}, in chunks of {} and {} elements; "
          "parameters of one type and kind have chunks of one size: make the "
          "layout again with castor search --mode layer or uniform",
          g, groups_.size(), KindName(group.trainable), DTypeName(group.dtype),
          other.chunk_size.count(), group.chunk_elements));
    }
    if (group.moments8 && pack_.align % kScaleBlock != Elements(0)) {
      return Malformed(fmt::format(
          "group {} has moments of 8 bits, and parameters are aligned to {} "
          "elements: it needs a multiple of {}",
          groups_.size(), pack_.align.count(), kScaleBlock.count()));
    }
    groups_.push_back({.dtype = group.dtype,
                       .trainable = group.trainable,
                       .chunk_size = Elements(group.chunk_elements),
                       .chunks = {},
                       .moments8 = group.moments8});
    last_chunk_.push_back(-1);
    return OkStatus();
  }

  Status TakeChunk(const LayoutParts::Chunk& chunk) {
    const std::string name = fmt::format("chunk {}", chunks_.size());
    if (chunk.group < 0 ||
        static_cast<uint64_t>(chunk.group) >= groups_.size()) {
      return Malformed(fmt::format("{} belongs to group {} of {}", name,
                                   chunk.group, groups_.size()));
    }
    GroupInfo& group = groups_[static_cast<size_t>(chunk.group)];
    const int bits = DTypeBits(group.dtype);
    CASTOR_RETURN_IF_ERROR(CheckSize(name, chunk.elements, bits));
    bits_ += __int128{chunk.elements} * bits;
    if (bits_ > kMaxBits) {
      return Malformed(
          fmt::format("up to {} its chunks hold more than {} bytes", name,
                      static_cast<int64_t>(kMaxBits / 8)));
    }
    if (!chunk.oversize && Elements(chunk.elements) != group.chunk_size) {
      return Malformed(fmt::format(
          "{} has {} elements, and chunks of its group {} have {}", name,
          chunk.elements, chunk.group, group.chunk_size.count()));
    }
    group.chunks.emplace_back(static_cast<int32_t>(chunks_.size()));
    ChunkInfo& info = chunks_.emplace_back();
    info.group = static_cast<int32_t>(chunk.group);
    info.size = Elements(chunk.elements);
    info.oversize = chunk.oversize;
    return OkStatus();
  }

  Status TakeParam(const ParamSpec& spec, const LayoutParts::Place& at) {
    if (spec.name.empty()) {
      return Malformed(
          fmt::format("the name of parameter {} is empty", places_.size()));
    }
    const Status taken = TakeNamed(spec, at);
    return taken.ok()
               ? taken
               : taken.WithContext(fmt::format(
                     "parameter {} {}", places_.size(), Quoted(spec.name)));
  }

  Status CheckFilled() const {
    for (size_t c = 0; c < chunks_.size(); ++c) {
      const ChunkInfo& chunk = chunks_[c];
      const GroupInfo& group = groups_[static_cast<size_t>(chunk.group)];
      if (chunk.params.empty()) {
        return Malformed(fmt::format("chunk {} holds no parameter", c));
      }
      if (!chunk.oversize) continue;
      if (chunk.params.size() > 1 || chunk.payload <= group.chunk_size) {
        return Malformed(fmt::format(
            "chunk {} is called oversize and holds {} parameters of {} "
            "elements; oversize is one that holds a single parameter of more "
            "than {}",
            c, chunk.params.size(), chunk.payload.count(),
            group.chunk_size.count()));
      }
      if (chunk.size != RoundUp(chunk.used, quantum_)) {
        return Malformed(fmt::format(
            "chunk {} is oversize and has {} elements; its parameter ends at "
            "{}, which rounds up to {}",
            c, chunk.size.count(), chunk.used.count(),
            RoundUp(chunk.used, quantum_).count()));
      }
    }
    return OkStatus();
  }

  ChunkLayout Finish() && {
    return ChunkLayout(pack_.world, pack_.align, std::move(places_),
                       std::move(chunks_), std::move(groups_));
  }

 private:
  // What fits no int is out of every limit; 0 is too.
  static int Narrow(int64_t value) {
    return value > std::numeric_limits<int>::max() ? 0
                                                   : static_cast<int>(value);
  }

  Status CheckSize(std::string_view name, int64_t elements, int bits) const {
    if (elements > 0 && elements % quantum_.count() == 0 &&
        __int128{elements} * bits <= kMaxBits) {
      return OkStatus();
    }
    return Malformed(fmt::format(
        "{} has {} elements; a chunk's size is a positive multiple of {}, and "
        "at most {}",
        name, elements, quantum_.count(),
        static_cast<int64_t>(kMaxBits / bits)));
  }

  Status TakeNamed(const ParamSpec& spec, const LayoutParts::Place& at) {
    if (!names_.insert(spec.name).second) {
      return Malformed("the name was given already; names are unique");
    }
    const ParamId id(static_cast<int32_t>(places_.size()));
    CASTOR_ASSIGN_OR_RETURN(const Elements size,
                            CountElements(spec.shape, spec.dtype));
    if (size == Elements(0)) {
      if (at.chunk == -1 && at.offset == -1) {
        places_.emplace_back();
        return OkStatus();
      }
      return Malformed("it has no elements, so no chunk holds it");
    }
    if (at.chunk < 0 || static_cast<uint64_t>(at.chunk) >= chunks_.size()) {
      return Malformed(
          fmt::format("it lies in chunk {} of {}", at.chunk, chunks_.size()));
    }
    ChunkInfo& chunk = chunks_[static_cast<size_t>(at.chunk)];
    CASTOR_RETURN_IF_ERROR(CheckType(spec, at.chunk, chunk.group));
    if (at.offset < 0 || at.offset % pack_.align.count() != 0) {
      return Malformed(fmt::format(
          "its offset {} is no multiple of the alignment of {} elements",
          at.offset, pack_.align.count()));
    }
    const Elements offset(at.offset);
    if (offset > chunk.size || size > chunk.size - offset) {
      return Malformed(fmt::format(
          "its {} elements from {} on reach beyond the {} of chunk {}",
          size.count(), at.offset, chunk.size.count(), at.chunk));
    }
    int64_t& last = last_chunk_[static_cast<size_t>(chunk.group)];
    if (at.chunk < last) {
      return Malformed(fmt::format(
          "it lies in chunk {}, and one before it in chunk {}: parameters "
          "fill the chunks of a group in the order in which they stand",
          at.chunk, last));
    }
    if (offset < chunk.used) {
      return Malformed(fmt::format(
          "it begins at {} in chunk {}, where those before it reach to {}",
          at.offset, at.chunk, chunk.used.count()));
    }
    last = at.chunk;
    places_.push_back({ChunkId(static_cast<int32_t>(at.chunk)), offset, size});
    chunk.used = offset + size;
    chunk.payload += size;
    chunk.params.push_back(id);
    return OkStatus();
  }

  Status CheckType(const ParamSpec& spec, int64_t chunk, int32_t group) const {
    const GroupInfo& info = groups_[static_cast<size_t>(group)];
    if (spec.dtype == info.dtype && spec.trainable == info.trainable) {
      return OkStatus();
    }
    return Malformed(
        fmt::format("it is {} {}, and chunk {} holds {} {}",
                    KindName(spec.trainable), DTypeName(spec.dtype), chunk,
                    KindName(info.trainable), DTypeName(info.dtype)));
  }

  const LayoutParts& parts_;
  PackOptions pack_;
  Elements quantum_;
  __int128 bits_ = 0;  // of all chunks so far
  std::vector<GroupInfo> groups_;
  std::vector<ChunkInfo> chunks_;
  std::vector<ParamPlace> places_;
  std::vector<int64_t> last_chunk_;  // by group, of the last parameter
  std::unordered_set<std::string_view> names_;
};

}  // namespace

Result<ChunkLayout> AssembleLayout(const LayoutParts& parts) {
  Assembler assembler(parts);
  CASTOR_RETURN_IF_ERROR(assembler.TakeRanks());
  for (const LayoutParts::Group& group : parts.groups) {
    CASTOR_RETURN_IF_ERROR(assembler.TakeGroup(group));
  }
  for (const LayoutParts::Chunk& chunk : parts.chunks) {
    CASTOR_RETURN_IF_ERROR(assembler.TakeChunk(chunk));
  }
  for (size_t p = 0; p < parts.params.size(); ++p) {
    CASTOR_RETURN_IF_ERROR(
        assembler.TakeParam(parts.params[p], parts.places[p]));
  }
  CASTOR_RETURN_IF_ERROR(assembler.CheckFilled());
  return std::move(assembler).Finish();
}

}  // namespace castor
