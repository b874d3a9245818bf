// SPDX-License-Identifier: Apache-2.0
#include "model/bpe.h"

#include <queue>
#include <tuple>

namespace rift::model {
namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFFU;
constexpr TokenId kGone = -1;

std::uint64_t key_of(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
         static_cast<std::uint32_t>(right);
}

struct Symbol {
  TokenId id;
  std::uint32_t previous;
  std::uint32_t next;
};

// A pair that could be merged when it was queued; stale once either side has changed.
struct Candidate {
  std::uint32_t rank;
  std::uint32_t at;  // left symbol
  TokenId left;
  TokenId right;
  TokenId merged;

  bool operator<(const Candidate& other) const {  // queue's top: lowest rank, then leftmost
    return std::tie(rank, at) > std::tie(other.rank, other.at);
  }
};

}  // namespace

// One piece on its way from bytes to tokens.
class Bpe::Run {
 public:
  Run(const Bpe& bpe, std::string_view piece) : bpe_(bpe) {
    symbols_.reserve(piece.size());
    for (const char c : piece) {
      const TokenId id = bpe.byte_tokens_[static_cast<unsigned char>(c)];
      if (id >= 0) {
        const auto at = static_cast<std::uint32_t>(symbols_.size());
        symbols_.push_back({id, at - 1, at + 1});  // 0 - 1 is kNone
      }
    }
    if (!symbols_.empty()) {
      symbols_.back().next = kNone;
    }
    for (std::uint32_t i = 0; i + 1 < symbols_.size(); ++i) {
      offer(i);
    }
  }

  void merge_all() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      Symbol& left = symbols_[best.at];
      if (left.id != best.left || left.next == kNone || symbols_[left.next].id != best.right) {
        continue;
      }
      symbols_[left.next].id = kGone;
      left.id = best.merged;
      left.next = symbols_[left.next].next;
      if (left.next != kNone) {
        symbols_[left.next].previous = best.at;
        offer(best.at);
      }
      if (left.previous != kNone) {
        offer(left.previous);
      }
    }
  }

  void append_to(std::vector<TokenId>& out) const {
    for (std::uint32_t i = symbols_.empty() ? kNone : 0; i != kNone; i = symbols_[i].next) {
      out.push_back(symbols_[i].id);
    }
  }

 private:
  // Queues the pair that starts at symbol `at`, where it can be merged.
  void offer(std::uint32_t at) {
    const TokenId left = symbols_[at].id;
    const TokenId right = symbols_[symbols_[at].next].id;
    if (const Merge* merge = bpe_.find(left, right)) {
      queue_.push({merge->rank, at, left, right, merge->merged});
    }
  }

  const Bpe& bpe_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> queue_;
};

void Bpe::add_merge(TokenId left, TokenId right, TokenId merged) {
  const auto rank = static_cast<std::uint32_t>(merges_.size());
  merges_.try_emplace(key_of(left, right), Merge{rank, merged});
}

const Bpe::Merge* Bpe::find(TokenId left, TokenId right) const {
  const auto it = merges_.find(key_of(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
  Run run(*this, piece);
  run.merge_all();
  run.append_to(out);
}

}  // namespace rift::model
