// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/messages.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace rift::transport::test {

/// Valid messages of every type with random contents.
class RandomMessages {
 public:
  explicit RandomMessages(std::uint32_t seed) : random_(seed) {}

  /// `type`: index in Message.
  Message make(std::size_t type) {
    const SessionId session{u64()};
    switch (type) {
      case 0:
        return OpenSession{session, tokens(), i32(), i32(), sampling(), i32(), policy()};
      case 1:
        return Verdict{session, u32(), i32(), i32(), i32(), i32()};
      case 2:
        return CloseSession{session};
      case 3:
        return SessionReady{session, arena(), u64(), u64(), u32() % 2 == 0, text()};
      case 4:
        return SessionRefused{session, static_cast<Errc>(u32() % 13), text()};
      case 5:
        return proposal(session);
      case 6:
        return closed(session);
      case 7:
        return ScoreOpen{session, tokens(), i32(), policy(), layout(), u32(), u64()};
      case 8:
        return Commit{session, i32() / 2, tokens()};
      case 9:
        return RefreshRequest{session, Epoch{u32()}, i32()};
      case 10:
        return Installed{session, Epoch{u32()}, u32()};
      default:
        return ready(session);
    }
  }

 private:
  std::uint32_t u32() { return static_cast<std::uint32_t>(random_()); }
  std::uint64_t u64() { return random_(); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(random_()); }
  std::int32_t i32() { return static_cast<std::int32_t>(random_() >> 33U); }
  float unit() { return static_cast<float>(u32() >> 8U) / static_cast<float>(1U << 24U); }
  std::size_t size() { return u32() % 40; }

  std::vector<TokenId> tokens() {
    std::vector<TokenId> out(size());
    std::generate(out.begin(), out.end(), [&] { return i32(); });
    return out;
  }
  std::string text() {
    static constexpr const char* kParts[] = {"tcp/lo", "", " é", "令", "\xF0\x9F\x98\x80"};
    std::string out;
    for (std::size_t i = size(); i > 0; --i) {
      out += kParts[u32() % 5];
    }
    return out;
  }
  SamplingParams sampling() {
    SamplingParams out{.temperature = unit() * 2,
                       .top_k = i32(),
                       .top_p = unit(),
                       .min_p = unit(),
                       .repeat_penalty = unit() + 0.5F,
                       .presence_penalty = unit() - 0.5F,
                       .frequency_penalty = unit() - 0.5F,
                       .penalty_window = i32() - 1,
                       .seed = u64(),
                       .logit_bias = {}};
    for (std::size_t i = size(); i > 0; --i) {
      out.logit_bias.emplace_back(i32(), unit() * 100 - 50);
    }
    return out;
  }
  PolicySpec policy() {
    return {static_cast<Policy>(u32() % 8),
            i32(),
            1 + i32() / 2,
            unit(),
            i32(),
            i32(),
            i32(),
            static_cast<Selector>(u32() % 5),
            static_cast<Allocation>(u32() % 3),
            static_cast<Pooling>(u32() % 3),
            i32(),
            i32() - 1,
            ada()};
  }
  AdaSpec ada() {
    return {i32(),
            i32(),
            i32(),
            u32() % 2 == 0 ? unit() : -AdaSpec::kOff,
            u32() % 2 == 0 ? unit() : AdaSpec::kOff,
            unit(),
            unit(),
            unit(),
            static_cast<AdaGate>(u32() % 3),
            {unit(), unit(), unit(), unit(), unit()},
            unit()};
  }
  WorkingSetLayout layout() {
    const auto some = [&](std::int32_t most) { return i32() % most; };
    WorkingSetLayout out{{some(100), some(20), some(300), static_cast<DType>(u32() % 3)},
                         1 + some(128),
                         some(1000),
                         some(10000),
                         some(10000),
                         some(5),
                         some(1000)};
    if (u32() % 2 == 0) {
      out.layer_slots.resize(static_cast<std::size_t>(out.geometry.layers), some(1000));
    }
    return out;
  }
  ArenaUse arena() { return {u64(), u64(), u64(), u64(), u64(), u64()}; }
  Proposal proposal(SessionId session) {
    Proposal out{session, u32(), tokens(), {}, u64(), u32(), u64()};
    for (std::size_t i = u32() % 2 == 0 ? out.tokens.size() : 0; i > 0; --i) {
      SparseDistribution q;
      TokenId id = -1;
      for (std::size_t n = size(); n > 0; --n) {
        id += 1 + static_cast<TokenId>(u32() % 1000);
        q.ids.push_back(id);
        q.probabilities.push_back(std::max(unit(), 1e-30F));
      }
      out.q.push_back(std::move(q));
    }
    return out;
  }
  SessionClosed closed(SessionId session) {
    SessionClosed out{session, {}, u64(), u64(), arena(), u64(), u32()};
    for (std::size_t i = size(); i > 0; --i) {
      out.refreshes.push_back({Epoch{u32()},
                               i32(),
                               i32(),
                               u32(),
                               u64(),
                               u64(),
                               u64(),
                               u64(),
                               u64(),
                               u64(),
                               u64(),
                               u64(),
                               u64(),
                               u64(),
                               u64()});
    }
    return out;
  }
  RefreshReady ready(SessionId session) {
    RefreshReady out{.session = session,
                     .epoch = Epoch{u32()},
                     .wave = u32(),
                     .last_wave = u32() % 2 == 0,
                     .covered_tokens = i32(),
                     .ring_begin = 0,
                     .updates = {},
                     .sums = {},
                     .bytes = u64(),
                     .ingest_ns = u64(),
                     .score_ns = u64(),
                     .select_ns = u64(),
                     .pack_ns = u64(),
                     .write_ns = u64(),
                     .history_bytes = u64()};
    out.ring_begin = out.covered_tokens / 2;
    for (std::size_t i = size(); i > 0; --i) {
      out.updates.push_back({u16(), u16(), u32(), u32(), u32(), u16()});
      out.sums.push_back(static_cast<float>(u16()) / 8.0F);
    }
    return out;
  }

  std::mt19937_64 random_;
};

}  // namespace rift::transport::test
