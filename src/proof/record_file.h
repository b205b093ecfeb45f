// SPDX-License-Identifier: Apache-2.0
// Files of records: a header that says what they are, then records of one size, in order.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "record/records.h"

namespace trivet::proof {

/// What a file's records are. Numbers are part of the files.
enum class RecordKind : uint32_t {
  kRows = 1,
  kDecisions = 2,
  kRoutes = 3,
  kBounds = 4,
  kDispatch = 5,
  kExecute = 6,
  kLogits = 7,
};

/// A file of records, as bytes one behind the other.
struct RawRecords {
  uint32_t record_bytes = 0;
  uint32_t top_k = 0;
  uint64_t count = 0;
  std::string_view bytes;
};

/// The file's bytes.
std::string EncodeRaw(RecordKind kind, const RawRecords& records);
/// The inverse; the result points into `file`.
///   what     the file's name for messages
/// Errors:  kInvalid for another kind, a damaged header, a size that does not fit.
Result<RawRecords> DecodeRaw(RecordKind kind, std::string_view file, std::string_view what);

/// A file of plain records.
template <class T>
std::string EncodeRecords(RecordKind kind, std::span<const T> records) {
  return EncodeRaw(
      kind,
      {sizeof(T), 0, records.size(), {reinterpret_cast<const char*>(records.data()), records.size() * sizeof(T)}});
}
/// The inverse.  Errors: those of DecodeRaw.
template <class T>
Result<std::vector<T>> DecodeRecords(RecordKind kind, std::string_view file, std::string_view what) {
  TRY_ASSIGN(const RawRecords raw, DecodeRaw(kind, file, what));
  if (raw.record_bytes != sizeof(T)) {
    return MakeError(Code::kInvalid,
                     std::string(what) + ": expected records of another size; it is of another version");
  }
  std::vector<T> records(raw.count);
  if (raw.count > 0) std::memcpy(records.data(), raw.bytes.data(), raw.bytes.size());
  return records;
}

/// Decisions with their slots.
struct Routes {
  uint32_t top_k = 0;
  std::vector<record::RouteHead> heads;
  std::vector<record::RouteSlot> slots;  // [heads, top_k]

  /// The slots of decision `i`.
  std::span<const record::RouteSlot> Slots(size_t i) const { return std::span(slots).subspan(i * top_k, top_k); }
  std::span<record::RouteSlot> Slots(size_t i) { return std::span(slots).subspan(i * top_k, top_k); }
};
/// The file's bytes.
std::string EncodeRoutes(const Routes& routes);
/// Errors:  those of DecodeRaw.
Result<Routes> DecodeRoutes(std::string_view file, std::string_view what);

/// Rows of logits by token, all of one length.
using LogitsRows = std::map<int64_t, std::vector<float>>;
/// The file's bytes.
std::string EncodeLogits(const LogitsRows& logits);
/// Errors:  those of DecodeRaw; kInvalid for a token that is there twice.
Result<LogitsRows> DecodeLogits(std::string_view file, std::string_view what);

}  // namespace trivet::proof
