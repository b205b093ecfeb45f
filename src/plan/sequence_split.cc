// SPDX-License-Identifier: Apache-2.0
#include "plan/sequence_split.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/str.h"

namespace trivet::plan {
namespace {

constexpr int64_t kChunk = 64;  // what a page of keys and values holds, and attention visits as a block

int64_t ChunkLength(int64_t length, int64_t chunks) { return std::max<int64_t>(1, (length + chunks - 1) / chunks); }

SequencePiece Contiguous(int64_t at, int64_t length, int64_t parts) {
  const int64_t chunk = ChunkLength(length, parts), part = at / chunk;
  return {part, at - part * chunk, std::min(chunk, length - part * chunk)};
}

SequencePiece Zigzag(int64_t at, int64_t length, int64_t parts) {
  const int64_t chunks = 2 * parts, chunk = ChunkLength(length, chunks);
  const int64_t b = at / chunk, part = std::min(b, chunks - 1 - b), other = chunks - 1 - part;
  const auto size = [&](int64_t i) { return std::clamp<int64_t>(length - i * chunk, 0, chunk); };
  const int64_t before = b == part ? 0 : size(part);
  return {part, before + at - b * chunk, size(part) + size(other)};
}

}  // namespace

const char* SequenceSplitName(SequenceSplit split) {
  return split == SequenceSplit::kContiguous ? "contiguous" : "zigzag";
}

Result<SequenceSplit> ParseSequenceSplit(const std::string& name) {
  for (const SequenceSplit split : {SequenceSplit::kContiguous, SequenceSplit::kZigzag}) {
    if (name == SequenceSplitName(split)) return split;
  }
  return MakeError(Code::kUsage,
                   fmt::format("--cp-split: expected contiguous or zigzag, found \"{}\"; choose one", Quote(name)));
}

SequencePiece PieceOf(SequenceSplit split, int64_t at, int64_t length, int64_t parts) {
  return split == SequenceSplit::kContiguous ? Contiguous(at, length, parts) : Zigzag(at, length, parts);
}

RowOwner RowSplit::OwnerOf(int64_t position) const {
  const auto dealt_to = [this](const SequencePiece& from) {
    return PieceOf(SequenceSplit::kContiguous, from.offset, from.length, ranks);
  };
  const auto shared_to = [this](const SequencePiece& from) {
    return PieceOf(context.split, from.offset, from.length, context.ranks);
  };
  const SequencePiece stretch{0, position % context.stretch, context.stretch};
  if (!dealt) return {shared_to(stretch).part, kEveryRank};
  if (context_first) {
    const SequencePiece shared = shared_to(stretch);
    return {shared.part, dealt_to(shared).part};
  }
  const SequencePiece part = dealt_to(stretch);
  return {shared_to(part).part, part.part};
}

int64_t DefaultStretch(SequenceSplit split, int64_t ranks) {
  return kChunk * ranks * (split == SequenceSplit::kContiguous ? 1 : 2);
}

}  // namespace trivet::plan
