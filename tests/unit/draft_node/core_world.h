// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "draft_node/core/draft_core.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace rift::draft_node {

inline constexpr TargetId kTarget{7};
inline constexpr SessionId kSession{42};

/// A core with everything it said, and stand-ins for the nodes around it that answer on request.
struct CoreWorld {
  explicit CoreWorld(RefreshMode mode = RefreshMode::kStage,
                     std::uint64_t memory = 8U << 20U,
                     std::int32_t vocab = 1000)
      : core(options(mode, memory, vocab)) {}

  static CoreOptions options(RefreshMode mode, std::uint64_t memory, std::int32_t vocab) {
    CoreOptions o;
    o.geometry = {2, 2, 16, DType::kF16};
    o.arena = {memory, 0, 0};
    o.arena_region = 3;
    o.vocab = vocab;
    o.max_sessions = 4;
    o.refresh_mode = mode;
    return o;
  }

  static transport::OpenSession open_message(std::int32_t prompt,
                                             Policy policy = Policy::kRiftDyn) {
    transport::OpenSession open;
    open.session = kSession;
    for (std::int32_t i = 0; i < prompt; ++i) {
      open.tokens.push_back(i % 1000);
    }
    open.max_context = 2000;
    open.max_draft_len = 4;
    open.policy.policy = policy;
    open.policy.budget = 64;
    open.policy.block = 16;
    open.policy.rho = 0.5F;  // r = 32, two slots a head
    open.policy.delta = 8;
    return open;
  }

  void send(const Event& event) {
    for (Action& action : core.handle(event, now)) {
      actions.push_back(std::move(action));
    }
  }
  void target(transport::Message message) { send(TargetMessage{kTarget, std::move(message)}); }
  void score(transport::Message message) { send(ScoreMessage{std::move(message)}); }
  void pass(std::chrono::milliseconds time) {
    now += time;
    send(Tick{});
  }

  /// Takes the oldest action of type T off the record.
  template <typename T>
  std::optional<T> take() {
    for (auto it = actions.begin(); it != actions.end(); ++it) {
      if (T* found = std::get_if<T>(&*it)) {
        std::optional<T> result = std::move(*found);
        actions.erase(it);
        return result;
      }
    }
    return std::nullopt;
  }
  /// Likewise for a message to the target or to the score node.
  template <typename T, typename To>
  std::optional<T> take_message() {
    for (auto it = actions.begin(); it != actions.end(); ++it) {
      if (To* to = std::get_if<To>(&*it)) {
        if (T* found = std::get_if<T>(&to->message)) {
          std::optional<T> result = std::move(*found);
          actions.erase(it);
          return result;
        }
      }
    }
    return std::nullopt;
  }
  template <typename T>
  std::optional<T> to_target() {
    return take_message<T, SendTarget>();
  }
  template <typename T>
  std::optional<T> to_score() {
    return take_message<T, SendScore>();
  }

  /// Epoch 0 for what the oldest ScoreOpen asks.
  transport::RefreshReady first_set(const transport::ScoreOpen& open) const {
    transport::RefreshReady ready;
    ready.session = open.session;
    ready.covered_tokens = static_cast<std::int32_t>(open.tokens.size());
    ready.ring_begin = std::max(0, ready.covered_tokens - 32);
    ready.bytes = 1000;
    ready.history_bytes = 5000;
    for (std::uint16_t layer = 0; layer < 2; ++layer) {
      for (std::uint16_t head = 0; head < 2; ++head) {
        for (std::uint32_t entry = 0; entry < 2; ++entry) {
          const std::uint32_t slot = (layer * 2U + head) * 2U + entry;
          ready.updates.push_back({layer, head, entry, slot, entry, 16});
        }
      }
    }
    return ready;
  }
  /// One block changes: layer 0, head 0, entry 1 gets `block` in the staging slot `slot`.
  static transport::RefreshReady wave(const transport::RefreshRequest& request,
                                      std::uint32_t slot,
                                      std::uint32_t block,
                                      std::uint32_t number = 0,
                                      bool last = true) {
    transport::RefreshReady ready;
    ready.session = request.session;
    ready.epoch = request.epoch;
    ready.wave = number;
    ready.last_wave = last;
    ready.covered_tokens = request.tokens;
    ready.bytes = 100;
    ready.updates = {{0, 0, 1, slot, block, 16}};
    return ready;
  }

  /// A session of 100 tokens, attached to a score node, ready.
  void open_attached(std::int32_t prompt = 100) { open_attached(open_message(prompt)); }
  void open_attached(const transport::OpenSession& message) {
    const auto prompt = static_cast<std::int32_t>(message.tokens.size());
    send(ScoreUp{"inproc"});
    target(message);
    const auto open = to_score<transport::ScoreOpen>();
    ASSERT_TRUE(open);
    score(first_set(*open));
    ASSERT_TRUE(to_target<transport::SessionReady>());
    ASSERT_TRUE(to_score<transport::Installed>());
    committed = prompt;
  }
  void verdict(std::int32_t accepted, std::int32_t draft_len, TokenId next = 5) {
    committed += accepted + 1;
    target(transport::Verdict{kSession, ++round, accepted, next, committed, draft_len});
  }
  /// Answers the draft job under way, with tokens 900, 901, ...; `entropy` of every step.
  std::optional<DraftJob> finish_draft(std::optional<float> entropy = std::nullopt) {
    const auto job = take<DraftJob>();
    if (job) {
      DraftDone done;
      done.id = job->id;
      for (std::int32_t i = 0; i < job->draft_len; ++i) {
        done.tokens.push_back(900 + i);
        if (entropy) {
          done.entropy.push_back(*entropy);
          done.drift.push_back(0.125F);
        }
      }
      done.steps = static_cast<std::uint64_t>(job->draft_len);
      done.step_ns = 10 * done.steps;
      send(done);
    }
    return job;
  }
  /// One round of `draft_len` tokens, of which the next verdict may accept some.
  std::optional<DraftJob> run_round(std::int32_t accepted, std::int32_t draft_len = 4) {
    verdict(accepted, draft_len);
    return finish_draft();
  }
  void finish_drops() {
    while (const auto drop = take<DropWorkingSet>()) {
      send(WorkingSetDropped{drop->id});
    }
  }

  DraftCore core;
  TimePoint now{std::chrono::seconds(1000)};
  std::vector<Action> actions;
  std::int32_t committed = 0;
  std::uint32_t round = 0;
};

}  // namespace rift::draft_node
