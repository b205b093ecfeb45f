// SPDX-License-Identifier: Apache-2.0
// Answers tokenizer requests, one JSON object a line on standard input and output, for comparison with other libraries:
//   {"op": "encode", "dir", "text", "add_special_tokens", "parse_special"} -> {"ids"}
//   {"op": "decode", "dir", "ids", "skip_special"}                         -> {"text"}
//   {"op": "stream", "dir", "ids", "skip_special"}                         -> {"text", "pieces"}
// and {"error"} for any failure.
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace trivet::text {
namespace {

using Tokenizers = std::map<std::string, Tokenizer>;

Result<Json> Encode(const Tokenizer& tokenizer, const Json& request) {
  EncodeOptions options;
  TRY_ASSIGN(const std::string text, GetString(request, "text", "", "request"));
  TRY_ASSIGN(options.add_special_tokens, GetBool(request, "add_special_tokens", true, "request"));
  TRY_ASSIGN(options.parse_special, GetBool(request, "parse_special", true, "request"));
  TRY_ASSIGN(const std::vector<TokenId> ids, tokenizer.Encode(text, options));
  return Json{{"ids", ids}};
}

Result<Json> Decode(const Tokenizer& tokenizer, const Json& request, bool stream) {
  TRY_ASSIGN(const bool skip_special, GetBool(request, "skip_special", false, "request"));
  std::vector<TokenId> ids;
  const Json* list = Find(request, "ids");
  if (list == nullptr || !list->is_array()) return MakeError(Code::kInvalid, "request: expected an array \"ids\"");
  for (const Json& id : *list) {
    if (!id.is_number_integer()) return MakeError(Code::kInvalid, "request: expected integers in \"ids\"");
    ids.push_back(id.get<TokenId>());
  }
  if (!stream) return Json{{"text", tokenizer.Decode(ids, skip_special)}};
  StreamingDetokenizer detokenizer(&tokenizer, skip_special);
  std::string text;
  Json pieces = Json::array();
  for (const TokenId id : ids) pieces.push_back(detokenizer.Push(id));
  pieces.push_back(detokenizer.Flush());
  for (const Json& piece : pieces) text += piece.get<std::string>();
  return Json{{"text", text}, {"pieces", std::move(pieces)}};
}

Result<Json> Answer(const std::string& line, Tokenizers* tokenizers) {
  TRY_ASSIGN(const Json request, ParseJson(line, "request"));
  TRY_ASSIGN(const std::string op, GetString(request, "op", "", "request"));
  TRY_ASSIGN(const std::string dir, GetString(request, "dir", "", "request"));
  auto it = tokenizers->find(dir);
  if (it == tokenizers->end()) {
    TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::Open(dir));
    it = tokenizers->emplace(dir, std::move(tokenizer)).first;
  }
  if (op == "encode") return Encode(it->second, request);
  if (op == "decode" || op == "stream") return Decode(it->second, request, op == "stream");
  return MakeError(Code::kInvalid, "request: expected the op encode, decode or stream");
}

}  // namespace
}  // namespace trivet::text

int main() {  // NOLINT(bugprone-exception-escape): a test program; running out of memory may end it
  std::ios::sync_with_stdio(false);
  trivet::text::Tokenizers tokenizers;
  for (std::string line; std::getline(std::cin, line);) {
    trivet::Result<trivet::Json> answer = trivet::text::Answer(line, &tokenizers);
    std::cout << trivet::DumpJson(answer.ok() ? *answer : trivet::Json{{"error", answer.error().message}}) << std::endl;
  }
  return 0;
}
