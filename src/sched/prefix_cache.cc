// SPDX-License-Identifier: Apache-2.0
#include "sched/prefix_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace trivet::sched {
namespace {

using PageTokens = std::span<const TokenId, kPageTokens>;

PageTokens TokensOf(std::span<const TokenId> tokens, int32_t page) {
  return tokens.subspan(static_cast<size_t>(page) * kPageTokens).first<kPageTokens>();
}

uint64_t KeyOf(const CachedPage* parent, PageTokens tokens) {
  std::array<std::byte, sizeof(uint64_t) + sizeof(TokenId) * kPageTokens> bytes;
  const uint64_t before = parent == nullptr ? 0 : parent->key;
  std::memcpy(bytes.data(), &before, sizeof before);
  std::memcpy(bytes.data() + sizeof before, tokens.data(), tokens.size_bytes());
  return Hash64(bytes);
}

bool Is(const CachedPage& page, const CachedPage* parent, PageTokens tokens) {
  return page.parent == parent && std::equal(tokens.begin(), tokens.end(), page.tokens.begin());
}

}  // namespace

PrefixCache::PrefixCache(BlockPool* pool, int32_t first_snapshot, int32_t snapshots)
    : pool_(pool),
      first_snapshot_(first_snapshot),
      snapshot_pages_(static_cast<size_t>(snapshots), nullptr),
      reserved_(static_cast<size_t>(snapshots), false) {}

std::vector<CachedPage*> PrefixCache::Find(std::span<const TokenId> tokens, int32_t most, CachedPage* after) const {
  std::vector<CachedPage*> chain;
  CachedPage* parent = after;
  for (int32_t i = after == nullptr ? 0 : after->depth; i < most; ++i) {
    const PageTokens own = TokensOf(tokens, i);
    const auto found = pages_.find(KeyOf(parent, own));
    if (found == pages_.end() || !Is(*found->second, parent, own)) break;
    parent = found->second.get();
    chain.push_back(parent);
  }
  return chain;
}

void PrefixCache::Hold(CachedPage* page) {
  if (page->users++ == 0) idle_.erase(page);
}

void PrefixCache::Release(std::vector<CachedPage*>* chain) {
  ++now_;
  for (CachedPage* page : *chain) {
    CHECK_MSG(page->users > 0, fmt::format("page {} has no user", page->page));
    page->released = now_;
    if (--page->users == 0) idle_.insert(page);
  }
  chain->clear();
}

CachedPage* PrefixCache::Insert(CachedPage* parent, std::span<const TokenId> tokens, int32_t page) {
  const PageTokens own = TokensOf(tokens, 0);
  const uint64_t key = KeyOf(parent, own);
  const auto [at, is_new] = pages_.try_emplace(key);
  if (!is_new) {
    if (!Is(*at->second, parent, own)) return nullptr;
    Hold(at->second.get());
    return at->second.get();
  }
  at->second = std::make_unique<CachedPage>();
  CachedPage* cached = at->second.get();
  cached->key = key;
  cached->parent = parent;
  cached->depth = parent == nullptr ? 1 : parent->depth + 1;
  std::copy(own.begin(), own.end(), cached->tokens.begin());
  cached->page = page;
  cached->users = 1;
  if (parent != nullptr) ++parent->children;
  return cached;
}

void PrefixCache::Evict(int32_t count) {
  CHECK_MSG(count <= idle(), fmt::format("{} of {} pages", count, idle()));
  for (; count > 0; --count) {
    CachedPage* page = *idle_.begin();
    CHECK_MSG(page->children == 0, fmt::format("page {} has {} followers", page->page, page->children));
    idle_.erase(idle_.begin());
    if (page->parent != nullptr) --page->parent->children;
    DropSnapshot(page);
    std::vector<int32_t> ids = {page->page};
    pool_->Free(&ids);
    pages_.erase(page->key);
    ++evictions_;
  }
}

int32_t PrefixCache::ReserveSnapshot() {
  size_t best = reserved_.size();
  for (size_t i = 0; i < reserved_.size(); ++i) {
    if (reserved_[i]) continue;
    const auto used = [this](size_t slot) {
      return snapshot_pages_[slot] == nullptr ? -1 : snapshot_pages_[slot]->snapshot_used;
    };
    if (best == reserved_.size() || used(i) < used(best)) best = i;
  }
  if (best == reserved_.size()) return kNoSlot;
  if (snapshot_pages_[best] != nullptr) DropSnapshot(snapshot_pages_[best]);
  reserved_[best] = true;
  return first_snapshot_ + static_cast<int32_t>(best);
}

void PrefixCache::DropSnapshot(CachedPage* page) {
  if (page->snapshot == kNoSlot) return;
  snapshot_pages_[static_cast<size_t>(page->snapshot - first_snapshot_)] = nullptr;
  page->snapshot = kNoSlot;
}

void PrefixCache::KeepSnapshot(CachedPage* page, int32_t slot) {
  const auto i = static_cast<size_t>(slot - first_snapshot_);
  CHECK_MSG(i < reserved_.size() && reserved_[i], fmt::format("slot {} is not reserved", slot));
  reserved_[i] = false;
  if (page == nullptr || page->snapshot != kNoSlot) return;
  page->snapshot = slot;
  snapshot_pages_[i] = page;
  UseSnapshot(page);
}

int32_t PrefixCache::snapshots() const {
  return static_cast<int32_t>(std::count_if(snapshot_pages_.begin(), snapshot_pages_.end(),
                                            [](const CachedPage* page) { return page != nullptr; }));
}

}  // namespace trivet::sched
