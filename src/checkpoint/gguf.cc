// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include "base/str.h"

namespace trivet::checkpoint {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF", little-endian
constexpr int64_t kMaxKeyBytes = 65535;
constexpr int64_t kMaxTensorName = 64;
constexpr int64_t kMaxDims = 4;
constexpr int kMaxNesting = 4;
constexpr int64_t kMaxKeys = int64_t{1} << 16;
constexpr int64_t kMaxElements = int64_t{1} << 24;  // of all arrays together
constexpr int64_t kMinTensorInfo = 8 + 4 + 4 + 8;
constexpr int64_t kMinPair = 8 + 4 + 1;

Error Refuse(std::string_view what, std::string_view expected, std::string_view found) {
  return MakeError(Code::kInvalid, fmt::format("{}: expected {}, found {}; the file is damaged, fetch it again", what,
                                               expected, found));
}

Error Unsupported(std::string_view what, std::string_view expected, std::string_view found) {
  return MakeError(Code::kUnsupported,
                   fmt::format("{}: expected {}, found {}; convert the file", what, expected, found));
}

// Value types of metadata.
enum Type : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kTypeCount };

// Bytes of a value of a type; of strings and arrays the fewest.
int64_t LeastBytes(uint32_t type) {
  constexpr int64_t kBytes[kTypeCount] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return kBytes[type];
}

struct GgmlType {
  uint32_t id;
  const char* name;
  std::optional<tensor::DType> dtype;
};

constexpr std::array<GgmlType, 38> kGgmlTypes = {
    {{0, "F32", tensor::DType::kF32},    {1, "F16", tensor::DType::kF16},
     {2, "Q4_0", tensor::DType::kQ4_0},  {3, "Q4_1", tensor::DType::kQ4_1},
     {6, "Q5_0", tensor::DType::kQ5_0},  {7, "Q5_1", tensor::DType::kQ5_1},
     {8, "Q8_0", tensor::DType::kQ8_0},  {9, "Q8_1", std::nullopt},
     {10, "Q2_K", std::nullopt},         {11, "Q3_K", std::nullopt},
     {12, "Q4_K", tensor::DType::kQ4K},  {13, "Q5_K", tensor::DType::kQ5K},
     {14, "Q6_K", tensor::DType::kQ6K},  {15, "Q8_K", std::nullopt},
     {16, "IQ2_XXS", std::nullopt},      {17, "IQ2_XS", std::nullopt},
     {18, "IQ3_XXS", std::nullopt},      {19, "IQ1_S", std::nullopt},
     {20, "IQ4_NL", std::nullopt},       {21, "IQ3_S", std::nullopt},
     {22, "IQ2_S", std::nullopt},        {23, "IQ4_XS", std::nullopt},
     {24, "I8", tensor::DType::kI8},     {25, "I16", tensor::DType::kI16},
     {26, "I32", tensor::DType::kI32},   {27, "I64", tensor::DType::kI64},
     {28, "F64", tensor::DType::kF64},   {29, "IQ1_M", std::nullopt},
     {30, "BF16", tensor::DType::kBF16}, {34, "TQ1_0", std::nullopt},
     {35, "TQ2_0", std::nullopt},        {39, "MXFP4", tensor::DType::kMxfp4},
     {4, "Q4_2", std::nullopt},          {5, "Q4_3", std::nullopt},
     {31, "Q4_0_4_4", std::nullopt},     {32, "Q4_0_4_8", std::nullopt},
     {33, "Q4_0_8_8", std::nullopt},     {40, "NVFP4", std::nullopt}}};

// Reads forward through a buffer. Every read says how many bytes it needs and fails where the file ends.
class Cursor {
 public:
  Cursor(const ByteSource& source, int64_t file_bytes, std::string_view what)
      : source_(source), file_bytes_(file_bytes), what_(what) {}

  int64_t at() const { return at_; }
  int64_t left() const { return file_bytes_ - at_; }

  Status Bytes(std::span<std::byte> dst) {
    if (static_cast<int64_t>(dst.size()) > left()) {
      return Refuse(what_, "a complete header", fmt::format("the end of the file at byte {}", file_bytes_));
    }
    while (!dst.empty()) {
      if (used_ == buffer_.size()) {
        buffer_.resize(static_cast<size_t>(std::min<int64_t>(left(), int64_t{1} << 16)));
        TRY(source_(at_, buffer_));
        used_ = 0;
      }
      const size_t count = std::min(dst.size(), buffer_.size() - used_);
      std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(used_), count, dst.begin());
      dst = dst.subspan(count);
      used_ += count;
      at_ += static_cast<int64_t>(count);
    }
    return {};
  }

  template <class T>
  Result<T> Number() {
    std::array<std::byte, sizeof(T)> bytes{};
    TRY(Bytes(bytes));
    return std::bit_cast<T>(bytes);
  }

  Result<std::string> String(int64_t most) {
    TRY_ASSIGN(const uint64_t length, Number<uint64_t>());
    if (length > static_cast<uint64_t>(std::min(left(), most))) {
      return Refuse(what_, fmt::format("a string of at most {} bytes", std::min(left(), most)),
                    fmt::format("a length of {} at byte {}", length, at_ - 8));
    }
    std::string text(static_cast<size_t>(length), '\0');
    TRY(Bytes(std::as_writable_bytes(std::span(text))));
    return text;
  }

  // A count of things that take at least `least` bytes each.
  Result<int64_t> Count(std::string_view things, int64_t least, int64_t most) {
    TRY_ASSIGN(const uint64_t count, Number<uint64_t>());
    const int64_t bound = std::min(left() / least, most);
    if (count > static_cast<uint64_t>(bound)) {
      return Refuse(what_, fmt::format("at most {} {}, as many as the file has room for", bound, things),
                    fmt::format("a count of {}", count));
    }
    return static_cast<int64_t>(count);
  }

  const std::string& what() const { return what_; }

 private:
  const ByteSource& source_;
  const int64_t file_bytes_;
  const std::string what_;
  int64_t at_ = 0;
  std::vector<std::byte> buffer_;
  size_t used_ = 0;
};

template <class T>
Result<Json> NumberValue(Cursor* cursor) {
  TRY_ASSIGN(const T value, cursor->Number<T>());
  return Json(value);
}

Result<Json> Scalar(Cursor* cursor, uint32_t type, bool text) {
  switch (type) {
    case kU8:
      return NumberValue<uint8_t>(cursor);
    case kI8:
      return NumberValue<int8_t>(cursor);
    case kU16:
      return NumberValue<uint16_t>(cursor);
    case kI16:
      return NumberValue<int16_t>(cursor);
    case kU32:
      return NumberValue<uint32_t>(cursor);
    case kI32:
      return NumberValue<int32_t>(cursor);
    case kF32:
      return NumberValue<float>(cursor);
    case kU64:
      return NumberValue<uint64_t>(cursor);
    case kI64:
      return NumberValue<int64_t>(cursor);
    case kF64:
      return NumberValue<double>(cursor);
    case kBool: {
      TRY_ASSIGN(const uint8_t value, cursor->Number<uint8_t>());
      if (value > 1) return Refuse(cursor->what(), "a boolean of 0 or 1", fmt::format("{}", value));
      return Json(value == 1);
    }
    default:
      break;
  }
  TRY_ASSIGN(std::string value, cursor->String(cursor->left()));
  if (text && !IsUtf8(value)) return Refuse(cursor->what(), "text in UTF-8", Quote(value));
  return Json(std::move(value));
}

// One array; `elements` counts those of all arrays.
Result<Json> Array(Cursor* cursor, int depth, int64_t* elements) {
  if (depth > kMaxNesting) {
    return Refuse(cursor->what(), fmt::format("arrays nested at most {} deep", kMaxNesting), "a deeper one");
  }
  TRY_ASSIGN(const uint32_t type, cursor->Number<uint32_t>());
  if (type >= kTypeCount) return Refuse(cursor->what(), "an array of a known type", fmt::format("type {}", type));
  TRY_ASSIGN(const int64_t count, cursor->Count("array elements", LeastBytes(type), kMaxElements - *elements));
  *elements += count;
  Json array = Json::array();
  for (int64_t i = 0; i < count; ++i) {
    TRY_ASSIGN(Json value, type == kArray ? Array(cursor, depth + 1, elements) : Scalar(cursor, type, false));
    array.push_back(std::move(value));
  }
  return array;
}

Status ReadMetadata(Cursor* cursor, int64_t count, Json* metadata) {
  std::set<std::string> seen;
  int64_t elements = 0;
  for (int64_t i = 0; i < count; ++i) {
    TRY_ASSIGN(std::string key, cursor->String(kMaxKeyBytes));
    const bool ascii = std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7F; });
    if (key.empty() || !ascii) return Refuse(cursor->what(), "metadata keys of printable ASCII", Quote(key));
    if (!seen.insert(key).second) {
      return Refuse(cursor->what(), "every metadata key once", fmt::format("\"{}\" twice", Quote(key)));
    }
    TRY_ASSIGN(const uint32_t type, cursor->Number<uint32_t>());
    if (type >= kTypeCount) {
      return Refuse(fmt::format("{}: \"{}\"", cursor->what(), Quote(key)), "a known value type",
                    fmt::format("{}", type));
    }
    TRY_ASSIGN(Json value, type == kArray ? Array(cursor, 1, &elements) : Scalar(cursor, type, true));
    metadata->get_ref<Json::object_t&>().emplace_back(std::move(key), std::move(value));
  }
  return {};
}

// One tensor; its offset is still relative to the data.
Result<TensorInfo> ReadTensor(Cursor* cursor) {
  TensorInfo info;
  TRY_ASSIGN(info.name, cursor->String(kMaxTensorName));
  const std::string what = fmt::format("{}: tensor \"{}\"", cursor->what(), Quote(info.name));
  if (info.name.empty() || !IsUtf8(info.name) || info.name.find('\0') != std::string::npos) {
    return Refuse(what, "a name in UTF-8 without NUL characters", "another");
  }
  TRY_ASSIGN(const uint32_t dims, cursor->Number<uint32_t>());
  if (dims < 1 || dims > kMaxDims)
    return Refuse(what, fmt::format("1 to {} dimensions", kMaxDims), fmt::format("{}", dims));
  for (uint32_t i = 0; i < dims; ++i) {
    TRY_ASSIGN(const uint64_t extent, cursor->Number<uint64_t>());
    if (extent > static_cast<uint64_t>(INT64_MAX)) return Refuse(what, "extents below 2^63", fmt::format("{}", extent));
    info.shape.insert(info.shape.begin(), static_cast<int64_t>(extent));
  }
  TRY_ASSIGN(const uint32_t id, cursor->Number<uint32_t>());
  const auto type =
      std::find_if(kGgmlTypes.begin(), kGgmlTypes.end(), [&](const GgmlType& row) { return row.id == id; });
  if (type == kGgmlTypes.end()) return Refuse(what, "a known tensor type", fmt::format("{}", id));
  if (!type->dtype.has_value()) {
    return Unsupported(what, "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K or MXFP4", type->name);
  }
  info.dtype = *type->dtype;
  const int64_t block = tensor::UnitOf(info.dtype).elements;
  if (info.shape.back() % block != 0) {
    return Refuse(what, fmt::format("rows of a multiple of {} elements, the block of {}", block, type->name),
                  fmt::format("{}", info.shape.back()));
  }
  TRY_ASSIGN(info.bytes, TensorBytes(info.dtype, info.shape, what));
  TRY_ASSIGN(const uint64_t offset, cursor->Number<uint64_t>());
  if (offset > static_cast<uint64_t>(INT64_MAX)) return Refuse(what, "an offset below 2^63", fmt::format("{}", offset));
  info.offset = static_cast<int64_t>(offset);
  return info;
}

Result<int64_t> AlignmentOf(const Json& metadata, std::string_view what) {
  const Json* value = Find(metadata, "general.alignment");
  if (value == nullptr) return int64_t{32};
  if (!value->is_number_unsigned() || value->get<uint64_t>() == 0 || value->get<uint64_t>() % 8 != 0 ||
      value->get<uint64_t>() > (uint64_t{1} << 30)) {
    return Refuse(what, "a general.alignment that is a multiple of 8", Quote(DumpJson(*value)));
  }
  return value->get<int64_t>();
}

// Names are unique, offsets aligned, data inside the file and without overlap.
Status CheckTensors(const GgufHeader& header, int64_t alignment, int64_t data_bytes, std::string_view file) {
  std::vector<const TensorInfo*> sorted;
  std::set<std::string_view> names;
  for (const TensorInfo& info : header.tensors) {
    const std::string what = fmt::format("{}: tensor \"{}\"", file, Quote(info.name));
    if (!names.insert(info.name).second) return Refuse(what, "every tensor name once", "it twice");
    if (info.offset % alignment != 0) {
      return Refuse(what, fmt::format("an offset that is a multiple of {}", alignment), fmt::format("{}", info.offset));
    }
    if (info.offset > data_bytes || info.bytes > data_bytes - info.offset) {
      return Refuse(what, fmt::format("data within the {} bytes after the header", data_bytes),
                    fmt::format("{} bytes at {}", info.bytes, info.offset));
    }
    sorted.push_back(&info);
  }
  std::sort(sorted.begin(), sorted.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i]->offset < sorted[i - 1]->offset + sorted[i - 1]->bytes) {
      return Refuse(
          fmt::format("{}: tensor \"{}\"", file, Quote(sorted[i]->name)),
          fmt::format("data from {} on, where the tensor before ends", sorted[i - 1]->offset + sorted[i - 1]->bytes),
          fmt::format("an overlap at {}", sorted[i]->offset));
    }
  }
  return {};
}

}  // namespace

bool IsGguf(const std::string& path) {
  if (path.ends_with(".gguf")) return true;
  const Result<io::File> file = io::File::Open(path);
  uint32_t begin = 0;
  return file.ok() && file->ReadAt(0, std::as_writable_bytes(std::span(&begin, 1))).ok() && begin == kMagic;
}

Error GgufUnsupported(std::string_view path, std::string_view key, std::string_view expected, std::string_view found) {
  return MakeError(Code::kUnsupported, fmt::format("{}: \"{}\": expected {}, found {}; use a model without it", path,
                                                   key, expected, Quote(found)));
}

Result<GgufHeader> ParseGguf(const ByteSource& source, int64_t file_bytes, std::string_view what) {
  Cursor cursor(source, file_bytes, what);
  TRY_ASSIGN(const uint32_t magic, cursor.Number<uint32_t>());
  if (magic != kMagic) return Refuse(what, "a GGUF file, which begins with \"GGUF\"", fmt::format("{:#010x}", magic));
  TRY_ASSIGN(const uint32_t version, cursor.Number<uint32_t>());
  if ((version & 0xFFFFU) == 0) return Unsupported(what, "a little-endian file", fmt::format("version {:#x}", version));
  if (version != 2 && version != 3) return Unsupported(what, "GGUF version 2 or 3", fmt::format("{}", version));
  TRY_ASSIGN(const int64_t tensors, cursor.Count("tensors", kMinTensorInfo, INT64_MAX));
  TRY_ASSIGN(const int64_t pairs, cursor.Count("metadata pairs", kMinPair, kMaxKeys));
  GgufHeader header;
  TRY(ReadMetadata(&cursor, pairs, &header.metadata));
  for (int64_t i = 0; i < tensors; ++i) {
    TRY_ASSIGN(TensorInfo info, ReadTensor(&cursor));
    header.tensors.push_back(std::move(info));
  }
  TRY_ASSIGN(const int64_t alignment, AlignmentOf(header.metadata, what));
  const int64_t data_begin = (cursor.at() + alignment - 1) / alignment * alignment;
  TRY(CheckTensors(header, alignment, std::max<int64_t>(file_bytes - data_begin, 0), what));
  for (TensorInfo& info : header.tensors) info.offset += data_begin;
  return header;
}

Result<GgufFile> OpenGguf(const std::string& path) {
  TRY_ASSIGN(io::File file, io::File::Open(path));
  TRY_ASSIGN(const int64_t file_bytes, file.Size());
  TRY_ASSIGN(
      GgufHeader header,
      ParseGguf([&](int64_t offset, std::span<std::byte> dst) { return file.ReadAt(offset, dst); }, file_bytes, path));
  return GgufFile{std::move(file), file_bytes, std::move(header)};
}

Result<std::vector<std::string>> GgufSplitFiles(const std::string& path, const GgufHeader& header) {
  TRY_ASSIGN(const int64_t count, GetInt(header.metadata, "split.count", 1, path));
  TRY_ASSIGN(const int64_t number, GetInt(header.metadata, "split.no", 0, path));
  if (count <= 1) return std::vector<std::string>{path};
  if (count > 99999) return Refuse(path, "a split of at most 99999 files", fmt::format("{}", count));
  const std::string suffix = fmt::format("-00001-of-{:05}.gguf", count);
  if (number != 0 || !path.ends_with(suffix)) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected the first file of the split, named ...{}, found file {} of {}; "
                                 "give the first file",
                                 path, suffix, number + 1, count));
  }
  std::vector<std::string> files;
  const std::string stem = path.substr(0, path.size() - suffix.size());
  for (int64_t i = 1; i <= count; ++i) files.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", stem, i, count));
  return files;
}

}  // namespace trivet::checkpoint
