// SPDX-License-Identifier: Apache-2.0
#include "text/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>
#include <vector>

#include "base/str.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/unicode.h"

namespace trivet::text {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

// Kinds of tokens as the format numbers them.
enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// A key that names a token, what templates call it, and whether it is special whatever its type says.
struct IdKey {
  const char* key;
  const char* name;
  bool special;
};
constexpr std::array<IdKey, 8> kIdKeys = {{{"tokenizer.ggml.bos_token_id", "bos_token", true},
                                           {"tokenizer.ggml.eos_token_id", "eos_token", true},
                                           {"tokenizer.ggml.eot_token_id", "eot_token", true},
                                           {"tokenizer.ggml.eom_token_id", "eom_token", true},
                                           {"tokenizer.ggml.unknown_token_id", "unk_token", false},
                                           {"tokenizer.ggml.padding_token_id", "pad_token", false},
                                           {"tokenizer.ggml.seperator_token_id", "sep_token", false},  // sic
                                           {"tokenizer.ggml.mask_token_id", "mask_token", false}}};

// A way to split text into words: expressions applied one after the other, each isolating its matches.
struct Splitting {
  std::string_view name;
  bool nfc = false;            // text is composed first
  bool ignore_merges = false;  // a word that is a piece is taken whole
  bool add_bos = false;        // when the file does not say
  std::array<std::string_view, 4> expressions{};
};
constexpr std::array<Splitting, 7> kSplittings = {
    {{"default", false, false, false, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Words, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
     {"gpt-2", false, false, false, {kGpt2Words}},
     {"llama-bpe",
      false,
      true,
      true,
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
       R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}},
     {"qwen2",
      true,
      false,
      false,
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
       R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}},
     {"qwen35",
      true,
      false,
      false,
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
       R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}},
     {"deepseek-v3",
      false,
      false,
      false,
      {R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
       R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
       R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
     {"gpt-4o",
      false,
      false,
      false,
      {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
       R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}}};

Error Wrong(std::string_view what, std::string_view key, std::string_view expected, std::string_view found) {
  return MakeError(Code::kInvalid, fmt::format("{}: \"{}\": expected {}, found {}; convert the model again", what, key,
                                               expected, found));
}

Error Unsupported(std::string_view what, std::string_view key, std::string_view expected, std::string_view found) {
  return MakeError(Code::kUnsupported, fmt::format("{}: \"{}\": expected {}, found {}; this tokenizer cannot be served",
                                                   what, key, expected, found));
}

// An array under `key`, or null where it is absent and not `needed`.
Result<const Json*> List(const Json& metadata, std::string_view what, const char* key, bool needed) {
  const Json* list = Find(metadata, key);
  if (list == nullptr && !needed) return list;
  if (list == nullptr || !list->is_array()) {
    return Wrong(what, key, "an array", list == nullptr ? "none" : list->type_name());
  }
  return list;
}

// An array of `tokens` elements, or null where it is absent and not `needed`.
Result<const Json*> ListPerToken(const Json& metadata, std::string_view what, const char* key, size_t tokens,
                                 bool needed) {
  TRY_ASSIGN(const Json* list, List(metadata, what, key, needed));
  if (list == nullptr || list->size() == tokens) return list;
  return Wrong(what, key, fmt::format("{} elements, one for every token", tokens), fmt::format("{}", list->size()));
}

// Checks that elements are text, and returns the array.
Result<const Json*> Texts(const Json& metadata, std::string_view what, const char* key) {
  TRY_ASSIGN(const Json* list, List(metadata, what, key, true));
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& text = (*list)[i];
    if (!text.is_string()) return Wrong(what, key, "strings", fmt::format("{} at {}", text.type_name(), i));
    if (!IsUtf8(text.get_ref<const std::string&>())) {
      return Wrong(what, key, "text in UTF-8", fmt::format("\"{}\" at {}", Quote(text.get<std::string>()), i));
    }
  }
  return list;
}

Result<std::optional<TokenId>> IdOf(const Json& metadata, std::string_view what, const char* key, size_t tokens) {
  const Json* id = Find(metadata, key);
  if (id == nullptr) return std::optional<TokenId>();
  if (!id->is_number_integer() || *id < 0 || id->get<uint64_t>() >= tokens) {
    return Wrong(what, key, fmt::format("an id below {}, the number of tokens", tokens), Quote(DumpJson(*id)));
  }
  return std::optional<TokenId>(id->get<TokenId>());
}

std::string ByteToken(int byte) { return fmt::format("<0x{:02X}>", byte); }

// What the metadata says, checked.
class Vocabulary {
 public:
  static Result<Vocabulary> Read(const Json& metadata, std::string_view what) {
    Vocabulary vocabulary(metadata, what);
    TRY(vocabulary.ReadTokens());
    TRY(vocabulary.ReadTypes());
    return vocabulary;
  }

  // {"type": "BPE", "vocab"}: what both models have.
  Json Model() const {
    Json vocab = Json::object();
    auto& entries = vocab.get_ref<Json::object_t&>();
    entries.reserve(size());
    for (size_t id = 0; id < size(); ++id) entries.emplace_back(piece(id), id);
    return {{"type", "BPE"}, {"vocab", std::move(vocab)}};
  }

  Json AddedTokens() const {
    Json added = Json::array();
    for (size_t id = 0; id < size(); ++id) {
      const bool special = types_[id] == kControl || types_[id] == kUnknown;
      if (!special && types_[id] != kUserDefined) continue;
      added.push_back({{"id", id}, {"content", piece(id)}, {"special", special}, {"normalized", false}});
    }
    return added;
  }

  // The tokens put around a text.
  Result<Json> PostProcessor(bool add_bos_default) const {
    TRY_ASSIGN(const bool add_bos, GetBool(metadata_, "tokenizer.ggml.add_bos_token", add_bos_default, what_));
    TRY_ASSIGN(const bool add_eos, GetBool(metadata_, "tokenizer.ggml.add_eos_token", false, what_));
    Json parts = Json::array(), ids = Json::object();
    if (add_bos) TRY(AddSpecial("tokenizer.ggml.bos_token_id", "bos", &parts, &ids));
    parts.push_back({{"Sequence", {{"id", "A"}}}});
    if (add_eos) TRY(AddSpecial("tokenizer.ggml.eos_token_id", "eos", &parts, &ids));
    return Json{{"type", "TemplateProcessing"}, {"single", parts}, {"special_tokens", ids}};
  }

  Result<std::optional<TokenId>> Id(const char* key) const { return IdOf(metadata_, what_, key, size()); }
  std::optional<TokenId> FirstOf(TokenType type) const {
    const auto it = std::find(types_.begin(), types_.end(), type);
    if (it == types_.end()) return std::nullopt;
    return static_cast<TokenId>(it - types_.begin());
  }
  bool Has(const std::string& piece) const { return pieces_.contains(piece); }
  size_t size() const { return tokens_->size(); }
  int64_t type(size_t id) const { return types_[id]; }
  const std::string& piece(size_t id) const { return (*tokens_)[id].get_ref<const std::string&>(); }

 private:
  Vocabulary(const Json& metadata, std::string_view what) : metadata_(metadata), what_(what) {}

  Status ReadTokens() {
    constexpr const char* kKey = "tokenizer.ggml.tokens";
    TRY_ASSIGN(tokens_, Texts(metadata_, what_, kKey));
    if (tokens_->empty() || static_cast<int64_t>(size()) > kMaxVocabSize) {
      return Wrong(what_, kKey, fmt::format("1 to {} tokens", kMaxVocabSize), fmt::format("{}", size()));
    }
    for (size_t id = 0; id < size(); ++id) {
      // Several ids without a text are filler; a text with several ids could not be encoded.
      if (pieces_.insert(piece(id)).second || piece(id).empty()) continue;
      return Wrong(what_, kKey, "every token once", fmt::format("\"{}\" again at {}", Quote(piece(id)), id));
    }
    return {};
  }

  Status ReadTypes() {
    constexpr const char* kKey = "tokenizer.ggml.token_type";
    TRY_ASSIGN(const Json* types, ListPerToken(metadata_, what_, kKey, size(), false));
    types_.assign(size(), kNormal);
    for (size_t id = 0; types != nullptr && id < size(); ++id) {
      const Json& type = (*types)[id];
      if (!type.is_number_integer() || type < int64_t{kNormal} || type > int64_t{kByte}) {
        return Wrong(what_, kKey, "types from 1 to 6", fmt::format("{} at {}", Quote(DumpJson(type)), id));
      }
      types_[id] = type.get<int64_t>();
      if (types_[id] == kByte && !IsByteToken(piece(id))) {
        return Wrong(what_, kKey, "byte tokens called <0x00> to <0xFF>",
                     fmt::format("the token \"{}\" at {}", Quote(piece(id)), id));
      }
    }
    for (const IdKey& row : kIdKeys) {
      TRY_ASSIGN(const std::optional<TokenId> id, Id(row.key));
      if (id.has_value() && row.special) types_[static_cast<size_t>(*id)] = kControl;
    }
    return {};
  }

  static bool IsByteToken(std::string_view piece) {
    for (int byte = 0; byte < 256; ++byte) {
      if (piece == ByteToken(byte)) return true;
    }
    return false;
  }

  Status AddSpecial(const char* key, const char* name, Json* parts, Json* ids) const {
    TRY_ASSIGN(const std::optional<TokenId> id, Id(key));
    if (!id.has_value()) return Wrong(what_, key, "an id, as the token is to be added to every text", "none");
    parts->push_back({{"SpecialToken", {{"id", name}}}});
    (*ids)[name] = {{"ids", {static_cast<uint64_t>(*id)}}};
    return {};
  }

  const Json& metadata_;
  const std::string_view what_;
  const Json* tokens_ = nullptr;
  std::unordered_set<std::string_view> pieces_;
  std::vector<int64_t> types_;
};

Json Replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

// What is sure to be refused where it is on: it would change ids.
Status RefuseOption(const Json& metadata, std::string_view what, const char* key) {
  TRY_ASSIGN(const bool on, GetBool(metadata, key, false, what));
  return on ? Status(Unsupported(what, key, "false", "true")) : Status();
}

Result<Json> SentencePieceModel(const Json& metadata, const Vocabulary& vocabulary, std::string_view what) {
  TRY_ASSIGN(const Json* scores, ListPerToken(metadata, what, "tokenizer.ggml.scores", vocabulary.size(), true));
  Json model = vocabulary.Model();
  Json& kept = model["scores"] = Json::array();
  bool bytes = true;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const int64_t type = vocabulary.type(id);
    // Only the parser of special tokens, or a missing character, may give these.
    const bool never = type == kUnknown || type == kControl || type == kByte;
    kept.push_back(never ? Json() : (*scores)[id]);
  }
  for (int byte = 0; byte < 256; ++byte) bytes = bytes && vocabulary.Has(ByteToken(byte));
  TRY_ASSIGN(std::optional<TokenId> unknown, vocabulary.Id("tokenizer.ggml.unknown_token_id"));
  if (!unknown.has_value()) unknown = vocabulary.FirstOf(kUnknown);
  if (!bytes && !unknown.has_value()) {
    return Wrong(what, "tokenizer.ggml.tokens", "tokens for all bytes, or an unknown token", "neither");
  }
  if (unknown.has_value()) model["unk_token"] = vocabulary.piece(static_cast<size_t>(*unknown));
  model["fuse_unk"] = true;
  model["byte_fallback"] = true;
  return model;
}

Result<Json> SentencePiece(const Json& metadata, const Vocabulary& vocabulary, std::string_view what) {
  TRY_ASSIGN(const std::string pre, GetString(metadata, "tokenizer.ggml.pre", "default", what));
  if (pre != "default") return Unsupported(what, "tokenizer.ggml.pre", "default", Quote(pre));
  TRY(RefuseOption(metadata, what, "tokenizer.ggml.remove_extra_whitespaces"));
  TRY_ASSIGN(const bool prefix, GetBool(metadata, "tokenizer.ggml.add_space_prefix", true, what));
  TRY_ASSIGN(Json model, SentencePieceModel(metadata, vocabulary, what));
  TRY_ASSIGN(Json post_processor, vocabulary.PostProcessor(Find(metadata, "tokenizer.ggml.bos_token_id") != nullptr));
  Json normalizers = Json::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
  normalizers.push_back(Replace(" ", kSpaceMark));
  Json decoders = Json::array({Replace(kSpaceMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return Json{{"added_tokens", vocabulary.AddedTokens()},
              {"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
              {"post_processor", std::move(post_processor)},
              {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
              {"model", std::move(model)}};
}

Result<const Splitting*> FindSplitting(const Json& metadata, std::string_view what) {
  TRY_ASSIGN(const std::string pre, GetString(metadata, "tokenizer.ggml.pre", "default", what));
  std::string known;
  for (const Splitting& row : kSplittings) {
    if (row.name == pre) return &row;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  return Unsupported(what, "tokenizer.ggml.pre", "one of " + known, Quote(pre));
}

Json PreTokenizerJson(const Splitting& splitting) {
  Json steps = Json::array();
  for (const std::string_view expression : splitting.expressions) {
    if (expression.empty()) break;
    steps.push_back({{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// Every byte that UTF-8 uses has a token: characters without one would vanish from texts.
Status CheckByteAlphabet(const Vocabulary& vocabulary, std::string_view what) {
  for (int byte = 0; byte < 0xF5; ++byte) {
    if (byte == 0xC0 || byte == 0xC1) continue;
    std::string piece;
    AppendByteLevel(std::string(1, static_cast<char>(byte)), &piece);
    if (vocabulary.Has(piece)) continue;
    return Wrong(what, "tokenizer.ggml.tokens", "a token for every byte", fmt::format("none for {:#04x}", byte));
  }
  return {};
}

Result<Json> ByteLevel(const Json& metadata, const Vocabulary& vocabulary, std::string_view what) {
  TRY_ASSIGN(const Splitting* splitting, FindSplitting(metadata, what));
  TRY(RefuseOption(metadata, what, "tokenizer.ggml.add_space_prefix"));
  TRY(CheckByteAlphabet(vocabulary, what));
  TRY_ASSIGN(const Json* merges, Texts(metadata, what, "tokenizer.ggml.merges"));
  TRY_ASSIGN(Json post_processor, vocabulary.PostProcessor(splitting->add_bos));
  Json model = vocabulary.Model();
  model["ignore_merges"] = splitting->ignore_merges;
  model["merges"] = *merges;
  return Json{{"added_tokens", vocabulary.AddedTokens()},
              {"normalizer", splitting->nfc ? Json{{"type", "NFC"}} : Json()},
              {"pre_tokenizer", PreTokenizerJson(*splitting)},
              {"post_processor", std::move(post_processor)},
              {"decoder", {{"type", "ByteLevel"}}},
              {"model", std::move(model)}};
}

}  // namespace

Result<Json> GgufTokenizerJson(const Json& metadata, std::string_view what) {
  constexpr const char* kKey = "tokenizer.ggml.model";
  TRY_ASSIGN(const std::string model, GetString(metadata, kKey, "", what));
  if (model != "llama" && model != "gpt2") {
    return Unsupported(what, kKey, "llama or gpt2", model.empty() ? "none" : Quote(model));
  }
  TRY_ASSIGN(const Vocabulary vocabulary, Vocabulary::Read(metadata, what));
  return model == "llama" ? SentencePiece(metadata, vocabulary, what) : ByteLevel(metadata, vocabulary, what);
}

Result<Json> GgufSpecialTokens(const Json& metadata, std::string_view what) {
  Json special = Json::object();
  TRY_ASSIGN(const Json* tokens, Texts(metadata, what, "tokenizer.ggml.tokens"));
  for (const IdKey& row : kIdKeys) {
    TRY_ASSIGN(const std::optional<TokenId> id, IdOf(metadata, what, row.key, tokens->size()));
    if (id.has_value()) special[row.name] = (*tokens)[static_cast<size_t>(*id)];
  }
  return special;
}

Result<std::optional<std::string>> GgufChatTemplate(const Json& metadata, bool with_tools, std::string_view what) {
  constexpr const char* kKey = "tokenizer.chat_template";
  constexpr const char* kToolsKey = "tokenizer.chat_template.tool_use";
  const char* key = with_tools && Find(metadata, kToolsKey) != nullptr ? kToolsKey : kKey;
  const Json* source = Find(metadata, key);
  if (source == nullptr) return std::optional<std::string>();
  if (!source->is_string()) return Wrong(what, key, "text", source->type_name());
  return std::optional<std::string>(source->get<std::string>());
}

}  // namespace trivet::text
