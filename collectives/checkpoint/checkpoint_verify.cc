// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_verify.h"

#include <algorithm>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/layout/tensor_fields.h"
#include "collectives/checkpoint/files/tensor_digest.h"

namespace castor {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 20;
static_assert(kPieceElements % kDigestElements == 0);

}  // namespace

Status ForEachPiece(const CheckpointReader& reader, size_t param,
                    const SavedState& state,
                    const std::function<void(int64_t begin, int64_t count,
                                             const void* data)>& on_piece) {
  CASTOR_ASSIGN_OR_RETURN(
      const Bytes bytes,
      TensorBytes(reader.manifest().params[param].shape, state.dtype));
  const int64_t size = DTypeBits(state.dtype) / 8;
  const int64_t elements = bytes.count() / size;
  std::vector<std::byte> piece(
      static_cast<size_t>(std::min(elements, kPieceElements) * size));
  for (int64_t begin = 0; begin < elements; begin += kPieceElements) {
    const int64_t count = std::min(kPieceElements, elements - begin);
    CASTOR_RETURN_IF_ERROR(
        reader.Read(param, state, begin, count, piece.data()));
    on_piece(begin, count, piece.data());
  }
  return OkStatus();
}

Result<std::vector<CheckpointDamage>> FindDamage(
    const CheckpointReader& reader) {
  const CheckpointManifest& manifest = reader.manifest();
  std::vector<CheckpointDamage> damage;
  for (size_t f = 0; f < manifest.files.size(); ++f) {
    const SavedFile& file = manifest.files[f];
    std::vector<uint64_t> saved;
    for (const CheckpointReader::Tensor& tensor : reader.tensors(f)) {
      const SavedParam& param = manifest.params[tensor.param];
      const SavedState& state = param.states[tensor.state];
      saved.push_back(state.digest);
      uint64_t digest = 0;
      CASTOR_RETURN_IF_ERROR(ForEachPiece(
          reader, tensor.param, state,
          [&](int64_t begin, int64_t count, const void* data) {
            digest += DigestOfElements(data, state.dtype, begin, count);
          }));
      if (digest != state.digest) {
        damage.push_back({file.name, TensorNameOf(param.name, state.state)});
      }
    }
    CASTOR_ASSIGN_OR_RETURN(const std::string head, reader.ReadHead(f));
    if (DigestOfFile(head, saved) != file.digest) {
      damage.push_back({file.name, ""});
    }
  }
  return damage;
}

}  // namespace castor
