// SPDX-License-Identifier: Apache-2.0
#include "grammar/token_trie.h"

#include <algorithm>
#include <utility>

namespace trivet::grammar {
namespace {

// Longer tokens are never matched: a depth has 16 bits, and none of a real vocabulary comes near.
constexpr size_t kMaxTokenBytes = 4096;

}  // namespace

TokenTrie::TokenTrie(std::vector<std::string> bytes) : bytes_(std::move(bytes)) {
  for (size_t id = 0; id < bytes_.size(); ++id) {
    if (bytes_[id].size() > kMaxTokenBytes) bytes_[id].clear();
    if (!bytes_[id].empty()) order_.push_back(static_cast<TokenId>(id));
  }
  const auto text = [this](TokenId id) -> const std::string& { return bytes_[static_cast<size_t>(id)]; };
  std::stable_sort(order_.begin(), order_.end(), [&](TokenId a, TokenId b) { return text(a) < text(b); });
  std::vector<size_t> path;  // branches of the token before, by depth
  for (size_t i = 0; i < order_.size(); ++i) {
    const std::string& token = text(order_[i]);
    size_t shared = 0;
    while (shared < path.size() && shared < token.size() &&
           branches_[path[shared]].byte == static_cast<uint8_t>(token[shared])) {
      ++shared;
    }
    for (; path.size() > shared; path.pop_back()) branches_[path.back()].end = static_cast<int32_t>(branches_.size());
    for (size_t at = shared; at < token.size(); ++at) {
      path.push_back(branches_.size());
      const auto here = static_cast<int32_t>(i);
      branches_.push_back({static_cast<uint8_t>(token[at]), static_cast<uint16_t>(at), 0, here, here});
    }
    branches_[path.back()].next_end = static_cast<int32_t>(i) + 1;
    depth_ = std::max(depth_, token.size());
  }
  for (const size_t branch : path) branches_[branch].end = static_cast<int32_t>(branches_.size());
}

const std::string& TokenTrie::BytesOf(TokenId token) const {
  static const std::string kNone;
  return token >= 0 && static_cast<size_t>(token) < bytes_.size() ? bytes_[static_cast<size_t>(token)] : kNone;
}

TokenMask TokenTrie::Allowed(StateId state, Automaton* automaton) const {
  TokenMask mask((bytes_.size() + 63) / 64);
  std::vector<StateId> states(depth_ + 1);  // behind the bytes of the path
  states[0] = state;
  for (size_t i = 0; i < branches_.size();) {
    const Branch& branch = branches_[i];
    const StateId next = automaton->Step(states[branch.depth], branch.byte);
    if (next == kDead) {
      i = static_cast<size_t>(branch.end);
      continue;
    }
    states[branch.depth + size_t{1}] = next;
    for (int32_t at = branch.token; at < branch.next_end; ++at) {
      const auto id = static_cast<size_t>(order_[static_cast<size_t>(at)]);
      mask[id / 64] |= uint64_t{1} << id % 64;
    }
    ++i;
  }
  return mask;
}

}  // namespace trivet::grammar
