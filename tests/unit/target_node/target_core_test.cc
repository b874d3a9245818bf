// SPDX-License-Identifier: Apache-2.0
#include "target_node/core/target_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <random>

namespace rift::target_node {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

constexpr SessionId kSession{7};
constexpr TokenId kVocab = 50;
constexpr TokenId kEnd = 49;

/// The "model": a fixed function of the history, ending with kEnd now and then.
TokenId choice(std::span<const TokenId> history) {
  std::uint32_t h = 2166136261U;
  for (const TokenId t : history) {
    h = (h ^ static_cast<std::uint32_t>(t)) * 16777619U;
  }
  return static_cast<TokenId>((h >> 8U) % kVocab);
}

std::vector<TokenId> plain_decoding(const Request& request) {
  std::vector<TokenId> history = request.prompt;
  std::vector<TokenId> answer;
  while (std::ssize(answer) < request.max_tokens) {
    answer.push_back(choice(history));
    history.push_back(answer.back());
    if (answer.back() == kEnd && !request.ignore_stop) {
      break;
    }
  }
  return answer;
}

Request request(std::int32_t max_tokens) {
  Request r;
  r.prompt = {1, 2, 3};
  r.max_tokens = max_tokens;
  r.stop_tokens = {kEnd};
  r.draft_len = 4;
  r.ignore_stop = true;
  return r;
}

CoreOptions options() {
  CoreOptions o;
  o.max_context = 500;
  o.vocab = kVocab;
  return o;
}

/// Drives a core with an exact model and a draft that the test scripts.
class Harness {
 public:
  explicit Harness(const CoreOptions& core_options = options()) : core(core_options) {}

  void step(const Event& event) {
    for (Action& action : core.handle(event, now)) {
      actions.push_back(std::move(action));
    }
  }

  /// Performs the next compute job or collects the next output; false when there is nothing.
  bool perform_one() {
    if (actions.empty()) {
      return false;
    }
    Action action = std::move(actions.front());
    actions.pop_front();
    std::visit([this](auto& a) { perform(a); }, action);
    return true;
  }
  void run() {
    while (perform_one()) {
    }
  }

  void perform(SendDraft& a) { to_draft.push_back(a.message); }
  void perform(Prefill& a) {
    history = a.prompt;
    const TokenId first = choice(history);
    history.push_back(first);
    step(PrefillDone{a.session, first, 0});
  }
  void perform(Verify& a) {
    ASSERT_EQ(a.committed, std::ssize(history));
    verified.push_back(a.drafted);
    std::int32_t accepted = 0;
    for (const TokenId t : a.drafted) {
      if (choice(history) != t) {
        break;
      }
      history.push_back(t);
      ++accepted;
    }
    const TokenId next = choice(history);
    history.push_back(next);
    step(VerifyDone{a.session, accepted, next});
  }
  void perform(EmitTokens& a) { emitted.insert(emitted.end(), a.tokens.begin(), a.tokens.end()); }
  void perform(Finish& a) { outcome = std::move(a.outcome); }
  void perform(Fail& a) { error = a.error; }

  template <typename T>
  std::optional<T> sent() {
    for (auto it = to_draft.begin(); it != to_draft.end(); ++it) {
      if (auto* m = std::get_if<T>(&*it)) {
        T copy = std::move(*m);
        to_draft.erase(it);
        return copy;
      }
    }
    return std::nullopt;
  }

  TargetCore core;
  TimePoint now{1s};
  std::deque<Action> actions;
  std::deque<transport::Message> to_draft;
  std::vector<TokenId> history;
  std::vector<std::vector<TokenId>> verified;
  std::vector<TokenId> emitted;
  std::optional<Outcome> outcome;
  std::optional<Error> error;
};

transport::SessionReady ready() {
  transport::SessionReady m;
  m.session = kSession;
  return m;
}

transport::SessionClosed closed() {
  transport::SessionClosed m;
  m.session = kSession;
  return m;
}

TEST(TargetCore, DecodesPlainlyWithoutADraftNode) {
  Harness h;
  h.step(Submit{kSession, request(20)});
  h.run();
  ASSERT_TRUE(h.outcome);
  EXPECT_EQ(h.outcome->tokens, plain_decoding(request(20)));
  EXPECT_EQ(h.emitted, h.outcome->tokens);
  EXPECT_EQ(h.outcome->progress.steps, 19U);  // the first token comes from prefill
  EXPECT_EQ(h.outcome->accepted_length(), 1.0);
  EXPECT_THAT(h.outcome->draft_error, testing::HasSubstr("no draft node"));
  EXPECT_EQ(h.core.sessions(), 0U);
}

TEST(TargetCore, StopsAtAnEndTokenInsideAcceptedDraftsAndCountsNothingAfterIt) {
  Request r = request(400);
  r.ignore_stop = false;
  const std::vector<TokenId> expected = plain_decoding(r);
  ASSERT_LT(expected.size(), 300U);
  Harness h;
  h.step(DraftUp{});
  h.step(Submit{kSession, r});
  h.run();
  h.step(FromDraft{ready()});
  h.run();
  while (const auto verdict = h.sent<transport::Verdict>()) {
    transport::Proposal p;
    p.session = kSession;
    p.round = verdict->round;
    std::vector<TokenId> context = h.history;
    for (int i = 0; i < verdict->draft_len; ++i) {
      p.tokens.push_back(choice(context));
      context.push_back(p.tokens.back());
    }
    h.step(FromDraft{p});
    h.run();
  }
  h.step(FromDraft{closed()});
  h.run();
  ASSERT_TRUE(h.outcome);
  EXPECT_EQ(h.outcome->tokens, expected);
  EXPECT_EQ(h.outcome->finish, FinishReason::kStop);
  EXPECT_EQ(h.outcome->committed_by_steps + 1, expected.size());
}

TEST(TargetCore, RefusesWhatCannotBeAnsweredAndSaysWhy) {
  const auto error_of = [](const Request& r) {
    Harness h;
    h.step(Submit{kSession, r});
    h.run();
    EXPECT_TRUE(h.error);
    EXPECT_EQ(h.core.sessions(), 0U);
    return h.error ? h.error->message() : "";
  };
  Request empty = request(5);
  empty.prompt.clear();
  EXPECT_THAT(error_of(empty), testing::HasSubstr("prompt is empty"));
  EXPECT_THAT(error_of(request(498)), testing::HasSubstr("raise --ctx to 501"));
  Request foreign = request(5);
  foreign.prompt[1] = kVocab;
  EXPECT_THAT(error_of(foreign), testing::HasSubstr("prompt token 50"));
  Request negative = request(5);
  negative.prompt[0] = -1;
  EXPECT_THAT(error_of(negative), testing::HasSubstr("prompt token -1"));
  Request longest = request(5);
  longest.draft_len = 32;
  EXPECT_THAT(error_of(longest), testing::HasSubstr("draft length 32"));
  EXPECT_THAT(error_of(request(0)), testing::HasSubstr("at least 1"));
}

// The draft node would take such an opening for damage and give up the link, with every session on
// it.
TEST(TargetCore, RefusesWhatCannotBeSentToADraftNode) {
  const auto error_of = [](auto change) {
    Harness h;
    Request r = request(5);
    change(r);
    h.step(DraftUp{});
    h.step(Submit{kSession, r});
    h.run();
    EXPECT_TRUE(h.error);
    EXPECT_THAT(h.to_draft, testing::IsEmpty());
    EXPECT_EQ(h.core.sessions(), 0U);
    return h.error ? h.error->message() : "";
  };
  EXPECT_THAT(error_of([](Request& r) { r.sampling.temperature = -1; }),
              testing::HasSubstr("temperature = -1"));
  EXPECT_THAT(error_of([](Request& r) { r.sampling.temperature = std::nanf(""); }),
              testing::HasSubstr("temperature = nan"));
  EXPECT_THAT(error_of([](Request& r) {
                r.sampling.logit_bias = {{-3, 1.0F}};
              }),
              testing::HasSubstr("logit_bias token = -3"));
  EXPECT_THAT(error_of([](Request& r) { r.policy.budget = -1; }),
              testing::HasSubstr("budget = -1"));
  EXPECT_THAT(error_of([](Request& r) { r.top_n = -1; }), testing::HasSubstr("top_n = -1"));
}

TEST(TargetCore, NeverAsksForDraftsThatCouldNotBeCommitted) {
  Harness h;
  h.step(DraftUp{});
  h.step(Submit{kSession, request(4)});
  h.run();
  h.step(FromDraft{ready()});
  h.run();
  const auto verdict = h.sent<transport::Verdict>();
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->draft_len, 2);  // one token is there, a pass adds one of its own
}

TEST(TargetCore, IgnoresProposalsOfAnotherRoundAndMessagesOfOtherSessions) {
  Harness h;
  h.step(DraftUp{});
  h.step(Submit{kSession, request(20)});
  h.run();
  h.step(FromDraft{ready()});
  h.run();
  transport::Proposal stale;
  stale.session = kSession;
  stale.round = 3;
  h.step(FromDraft{stale});
  stale.session = SessionId{99};
  stale.round = 0;
  h.step(FromDraft{stale});
  h.step(FromDraft{transport::Commit{}});
  EXPECT_TRUE(h.actions.empty());
  EXPECT_TRUE(h.verified.empty());
}

TEST(TargetCore, ClosesTheSessionAtTheDraftWhenItIsTooSlow) {
  Harness h;
  h.step(DraftUp{});
  h.step(Submit{kSession, request(20)});
  h.run();
  h.step(FromDraft{ready()});
  h.run();
  h.now += options().round_timeout;
  h.step(Tick{});
  h.run();
  EXPECT_TRUE(h.sent<transport::CloseSession>());
  ASSERT_TRUE(h.outcome);
  EXPECT_EQ(h.outcome->tokens, plain_decoding(request(20)));
  EXPECT_EQ(h.outcome->draft_lost, 1U);
}

TEST(TargetCore, WaitsLongerForASessionWithALongerPrompt) {
  CoreOptions o = options();
  o.max_context = 20'000;
  for (const std::size_t prompt : {1U, 16'000U}) {
    Harness h(o);
    Request r = request(20);
    r.prompt.assign(prompt, 1);
    h.step(DraftUp{});
    h.step(Submit{kSession, r});
    h.run();
    // 180 s, and 60 ms a token.
    h.now += 180s + 60ms * static_cast<int>(prompt) - 1ms;
    h.step(Tick{});
    h.run();
    EXPECT_FALSE(h.outcome) << prompt;
    h.now += 1ms;
    h.step(Tick{});
    h.run();
    ASSERT_TRUE(h.outcome) << prompt;
    EXPECT_EQ(h.outcome->tokens, plain_decoding(r));
    EXPECT_THAT(h.outcome->draft_error, testing::HasSubstr("did not open"));
  }
}

TEST(TargetCore, CancelEndsAtTheNextBoundary) {
  Harness h;
  h.step(Submit{kSession, request(100)});
  for (int i = 0; i < 5; ++i) {
    h.perform_one();
  }
  h.step(Cancel{kSession});
  h.run();
  ASSERT_TRUE(h.outcome);
  EXPECT_EQ(h.outcome->finish, FinishReason::kCancelled);
  EXPECT_LT(h.outcome->tokens.size(), 10U);
}

// Whatever a draft says, and whenever it goes: the tokens are those of plain decoding.
class AnyDraft : public testing::TestWithParam<std::uint32_t> {};

TEST_P(AnyDraft, NeverChangesTheTokens) {
  std::mt19937 random(GetParam());
  const auto below = [&random](std::uint32_t n) {
    return static_cast<std::uint32_t>(random() % n);
  };
  Request r = request(static_cast<std::int32_t>(1 + below(60)));
  r.draft_len = static_cast<std::int32_t>(1 + below(8));
  r.auto_draft_len = below(2) == 0;
  r.ignore_stop = below(2) == 0;
  Harness h;
  h.step(DraftUp{});
  h.step(Submit{kSession, r});
  bool gone = false;
  for (int guard = 0; guard < 5000 && !h.outcome; ++guard) {
    if (below(4) != 0 && h.perform_one()) {
      continue;
    }
    const std::uint32_t dice = below(100);
    if (dice < 2) {
      h.step(DraftLost{"test"});
      gone = true;
    } else if (dice < 4) {
      h.step(FromDraft{transport::SessionRefused{kSession, Errc::kInternal, "no"}});
    } else if (dice < 6) {
      h.now += 200s;
      h.step(Tick{});
    } else if (dice < 30 || gone) {
      h.step(FromDraft{ready()});
    } else if (const auto verdict = h.sent<transport::Verdict>()) {
      transport::Proposal p;
      p.session = kSession;
      p.round = verdict->round;
      std::vector<TokenId> context = h.history;
      const std::uint32_t count = below(12);
      for (std::uint32_t i = 0; i < count; ++i) {
        const TokenId good = choice(context);
        const std::uint32_t kind = below(8);
        p.tokens.push_back(kind == 0   ? static_cast<TokenId>(below(kVocab))
                           : kind == 1 ? static_cast<TokenId>(random())
                                       : good);
        context.push_back(good);
      }
      h.step(FromDraft{p});
    } else if (h.sent<transport::CloseSession>()) {
      h.step(FromDraft{closed()});
    }
  }
  ASSERT_TRUE(h.outcome);
  EXPECT_EQ(h.outcome->tokens, plain_decoding(r));
  EXPECT_EQ(h.emitted, h.outcome->tokens);
  EXPECT_EQ(h.core.sessions(), 0U);
  const Progress& p = h.outcome->progress;
  EXPECT_LE(p.accepted_tokens, p.drafted_tokens);
  EXPECT_EQ(h.outcome->committed_by_steps + 1, h.outcome->tokens.size());
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyDraft, testing::Range(0U, 300U));

}  // namespace
}  // namespace rift::target_node
