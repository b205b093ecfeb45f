// SPDX-License-Identifier: Apache-2.0
// Decoders of tokenizer.json: how token texts become text again. A decoder is a pipeline that takes tokens one at a
// time, so that decoding a whole sequence and streaming it are the same computation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace trivet::text {

/// A decoder or a sequence of them. Const and thread-safe; what a sequence in progress needs is its Stream.
class Decoder {
 public:
  /// Reads the "decoder" member; null gives one that joins tokens with spaces.
  ///   what     the object's name for messages
  /// Errors:  kUnsupported for an unknown type or a Replace by regular expression, kInvalid when a member is malformed.
  static Result<Decoder> FromJson(const Json& json, std::string_view what);

  /// One sequence being decoded. Each call appends what has become certain, in whole characters.
  class Stream {
   public:
    explicit Stream(const Decoder* decoder) : decoder_(decoder), states_(decoder->steps_.size()) {}

    /// Decodes the next token.
    void Push(std::string_view token, std::string* out);
    /// Ends the sequence, and makes the stream ready for another.
    void Flush(std::string* out);

   private:
    // What a step remembers between the fragments of its input.
    struct State {
      std::string held;      // a token, or its end, that cannot be judged yet
      std::string bytes;     // kByteLevel: a character cut short; kByteFallback: a run of byte tokens
      int64_t token = 0;     // number of the token in progress
      int64_t removed = 0;   // kStrip: characters taken from the start of this token
      bool started = false;  // kStrip: something of this token was kept
    };

    void Feed(size_t step, std::string_view fragment, bool last, std::string* out);
    void FeedBytes(size_t step, std::string_view token, std::string* out);
    void FeedByteFallback(size_t step, std::string_view token, std::string* out);
    void FeedStrip(size_t step, std::string_view fragment, bool last, std::string* out);
    void ReleaseByteRun(size_t step, std::string* out);

    const Decoder* decoder_;
    std::vector<State> states_;
  };

  /// The bytes that one token stands for, apart from what depends on its neighbours.
  std::string Bytes(std::string_view token) const;

 private:
  enum class Kind { kByteLevel, kReplace, kByteFallback, kFuse, kStrip, kMetaspace, kJoin };
  struct Step {
    Kind kind = Kind::kJoin;
    std::string pattern;           // kReplace, kMetaspace: what is replaced; kStrip: the character that is removed
    std::string content;           // kReplace, kMetaspace: by what
    int64_t start = 0;             // kStrip: how often at the start
    int64_t stop = 0;              // kStrip: how often at the end
    bool drop_in_first = false;    // kMetaspace: marks of the first token are dropped
    bool takes_fragments = false;  // works on parts of a token; the others wait for the whole
  };

  static Result<Step> ReadStep(const Json& json, std::string_view type, std::string_view what);

  std::vector<Step> steps_;
};

}  // namespace trivet::text
