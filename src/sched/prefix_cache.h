// SPDX-License-Identifier: Apache-2.0
// PrefixCache: pages whose contents are known by their tokens, so that a sequence may begin where another one has been.
// Pages form a tree: a page is found by the hash of its parent's hash and its own tokens, and tokens are compared.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "sched/block_pool.h"
#include "sched/step_plan.h"

namespace trivet::sched {

/// No state slot.
inline constexpr int32_t kNoSlot = -1;

/// One page of a known prefix: the tokens at positions [depth - 1, depth) * kPageTokens, after those of its parent.
struct CachedPage {
  uint64_t key = 0;              // of all tokens up to the page's end
  CachedPage* parent = nullptr;  // of the page before; null for a first one
  int32_t depth = 0;             // pages up to this one, itself included
  std::array<TokenId, kPageTokens> tokens{};
  int32_t page = 0;
  int32_t users = 0;           // sequences that hold it; without any it may be evicted
  int32_t children = 0;        // pages in the cache that follow it
  int64_t released = 0;        // when the last sequence let go of it
  int32_t snapshot = kNoSlot;  // slot with the recurrent states at the page's end
  int64_t snapshot_used = 0;   // when that was last written or read
};

/// The cache over the pages of `pool` and over `snapshots` state slots of its own. Whoever holds a page holds all pages
/// before it, so a page without users has no follower with any. It reads no clock: "when" counts calls.
class PrefixCache {
 public:
  /// An empty cache; `pool` outlives it.
  ///   first_snapshot, snapshots  slots [first_snapshot, first_snapshot + snapshots) are for states
  PrefixCache(BlockPool* pool, int32_t first_snapshot, int32_t snapshots);

  /// The pages that `tokens` begins with, in order, up to number `most`; nobody holds them yet.
  ///   after  a page that `tokens` is known to begin with: what follows it; null: all
  std::vector<CachedPage*> Find(std::span<const TokenId> tokens, int32_t most, CachedPage* after = nullptr) const;

  /// Gives a page one more user.
  void Hold(CachedPage* page);
  /// Takes one user from each of `chain`, pages that follow each other from a first one, and empties it.
  void Release(std::vector<CachedPage*>* chain);
  /// Makes a full page known, whose id thereby belongs to the cache, and gives it a user; where these tokens are known
  /// already, that page gets the user instead and `page` stays with the caller. Null when another page has the same
  /// hash.
  ///   parent  the page before, held by the caller; null for a first one
  ///   tokens  kPageTokens of them
  CachedPage* Insert(CachedPage* parent, std::span<const TokenId> tokens, int32_t page);

  /// Pages without users, which Evict can free.
  int32_t idle() const { return static_cast<int32_t>(idle_.size()); }
  /// Frees `count` pages, at most idle(), those first that were released longest ago.
  void Evict(int32_t count);

  /// A slot to write a snapshot to, at the cost of the one that was used longest ago; kNoSlot when all are reserved.
  int32_t ReserveSnapshot();
  /// Gives a reserved slot to `page`, or takes it back with null or where the page has one.
  void KeepSnapshot(CachedPage* page, int32_t slot);
  /// Frees the page's snapshot, if it has one.
  void DropSnapshot(CachedPage* page);
  /// Counts a use of the page's snapshot.
  void UseSnapshot(CachedPage* page) { page->snapshot_used = ++now_; }

  /// Pages of the cache, with users or without.
  int32_t size() const { return static_cast<int32_t>(pages_.size()); }
  /// Snapshots that pages have.
  int32_t snapshots() const;
  /// Pages evicted since the start.
  int64_t evictions() const { return evictions_; }

 private:
  struct ReleasedFirst {
    // Of pages released together, the last one goes first, so that what is left is a prefix.
    bool operator()(const CachedPage* a, const CachedPage* b) const {
      return a->released != b->released ? a->released < b->released : a->depth > b->depth;
    }
  };

  BlockPool* const pool_;
  const int32_t first_snapshot_;
  std::unordered_map<uint64_t, std::unique_ptr<CachedPage>> pages_;  // by key; never walked, its order is no one's
  std::set<CachedPage*, ReleasedFirst> idle_;
  std::vector<CachedPage*> snapshot_pages_;  // by slot: whose it is
  std::vector<bool> reserved_;               // by slot: handed out and not yet kept
  int64_t now_ = 0;
  int64_t evictions_ = 0;
};

}  // namespace trivet::sched
