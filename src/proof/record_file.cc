// SPDX-License-Identifier: Apache-2.0
#include "proof/record_file.h"

#include <fmt/format.h>

#include <bit>

#include "base/hash.h"

namespace trivet::proof {
namespace {

static_assert(std::endian::native == std::endian::little, "records are written as they are in memory");

constexpr char kMagic[8] = {'T', 'R', 'I', 'V', 'E', 'T', 'R', '1'};

struct Header {
  char magic[8];
  uint32_t kind, record_bytes, top_k, reserved;
  uint64_t count;
  uint64_t check;  // XXH3-64 of the bytes before
};
static_assert(sizeof(Header) == 40);

uint64_t CheckOf(const Header& header) {
  return Hash64(std::as_bytes(std::span(&header, 1)).first(sizeof(Header) - sizeof(uint64_t)));
}

// A row of logits is this, then `count` numbers.
struct LogitsHead {
  int64_t token;
  uint32_t count, reserved;
};

template <class T>
void Append(std::string* bytes, std::span<const T> values) {
  bytes->append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

}  // namespace

std::string EncodeRaw(RecordKind kind, const RawRecords& records) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.kind = static_cast<uint32_t>(kind);
  header.record_bytes = records.record_bytes;
  header.top_k = records.top_k;
  header.count = records.count;
  header.check = CheckOf(header);
  std::string file;
  file.reserve(sizeof header + records.bytes.size());
  file.append(reinterpret_cast<const char*>(&header), sizeof header);
  file += records.bytes;
  return file;
}

Result<RawRecords> DecodeRaw(RecordKind kind, std::string_view file, std::string_view what) {
  const auto bad = [&](const char* expected) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected {}, found something else; record the run anew", what, expected));
  };
  Header header{};
  if (file.size() < sizeof header) return bad("a header");
  std::memcpy(&header, file.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.check != CheckOf(header)) {
    return bad("a header of this version");
  }
  if (header.kind != static_cast<uint32_t>(kind)) return bad("records of its name");
  const std::string_view bytes = file.substr(sizeof header);
  if (header.record_bytes == 0 || bytes.size() % header.record_bytes != 0 ||
      bytes.size() / header.record_bytes != header.count) {
    return bad("as many records as its header says");
  }
  return RawRecords{header.record_bytes, header.top_k, header.count, bytes};
}

std::string EncodeRoutes(const Routes& routes) {
  std::string bytes;
  for (size_t i = 0; i < routes.heads.size(); ++i) {
    Append(&bytes, std::span(&routes.heads[i], 1));
    Append(&bytes, routes.Slots(i));
  }
  const auto record_bytes = static_cast<uint32_t>(sizeof(record::RouteHead) + routes.top_k * sizeof(record::RouteSlot));
  return EncodeRaw(RecordKind::kRoutes, {record_bytes, routes.top_k, routes.heads.size(), bytes});
}

Result<Routes> DecodeRoutes(std::string_view file, std::string_view what) {
  TRY_ASSIGN(const RawRecords raw, DecodeRaw(RecordKind::kRoutes, file, what));
  constexpr size_t kHead = sizeof(record::RouteHead);
  if (raw.record_bytes != kHead + uint64_t{raw.top_k} * sizeof(record::RouteSlot)) {
    return MakeError(Code::kInvalid, fmt::format("{}: expected records of {} slots; it is damaged", what, raw.top_k));
  }
  Routes routes;
  routes.top_k = raw.top_k;
  routes.heads.resize(raw.count);
  routes.slots.resize(raw.count * raw.top_k);
  for (size_t i = 0; i < raw.count; ++i) {
    const char* from = raw.bytes.data() + i * raw.record_bytes;
    std::memcpy(&routes.heads[i], from, kHead);
    if (raw.top_k > 0) std::memcpy(&routes.slots[i * raw.top_k], from + kHead, raw.record_bytes - kHead);
  }
  return routes;
}

std::string EncodeLogits(const LogitsRows& logits) {
  std::string bytes;
  uint32_t count = 0;
  for (const auto& [token, row] : logits) {
    count = static_cast<uint32_t>(row.size());
    const LogitsHead head{token, count, 0};
    Append(&bytes, std::span(&head, 1));
    Append(&bytes, std::span<const float>(row));
  }
  const auto record_bytes = static_cast<uint32_t>(sizeof(LogitsHead) + count * sizeof(float));
  return EncodeRaw(RecordKind::kLogits, {record_bytes, 0, logits.size(), bytes});
}

Result<LogitsRows> DecodeLogits(std::string_view file, std::string_view what) {
  TRY_ASSIGN(const RawRecords raw, DecodeRaw(RecordKind::kLogits, file, what));
  LogitsRows logits;
  for (size_t i = 0; i < raw.count; ++i) {
    const char* from = raw.bytes.data() + i * raw.record_bytes;
    LogitsHead head{};
    if (raw.record_bytes >= sizeof head) std::memcpy(&head, from, sizeof head);
    const bool fits = raw.record_bytes == sizeof head + uint64_t{head.count} * sizeof(float);
    if (!fits || logits.contains(head.token)) {
      return MakeError(Code::kInvalid,
                       fmt::format("{}: expected rows of one length, each token once; it is damaged", what));
    }
    std::vector<float>& row = logits[head.token];
    row.resize(head.count);
    if (head.count > 0) std::memcpy(row.data(), from + sizeof head, head.count * sizeof(float));
  }
  return logits;
}

}  // namespace trivet::proof
