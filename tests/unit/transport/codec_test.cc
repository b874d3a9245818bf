// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/codec.h"

#include "tests/unit/transport/random_message.h"
#include "transport/wire/rift.capnp.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace rift::transport::test {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kTypes = std::variant_size_v<Message>;

class EveryMessage : public ::testing::TestWithParam<std::size_t> {};

TEST_P(EveryMessage, ComesBackAsItWasSent) {
  RandomMessages messages(static_cast<std::uint32_t>(GetParam()) + 1);
  for (int i = 0; i < 200; ++i) {
    const Message sent = messages.make(GetParam());
    ASSERT_EQ(sent.index(), GetParam());
    const auto received = decode(encode(sent));
    ASSERT_TRUE(received.ok()) << received.error().message();
    EXPECT_TRUE(received.value() == sent);
  }
}

TEST_P(EveryMessage, IsReadFromUnalignedBytes) {
  const Message sent = RandomMessages(77).make(GetParam());
  const auto bytes = encode(sent);
  std::vector<std::byte> shifted(bytes.size() + 3);
  std::memcpy(shifted.data() + 3, bytes.data(), bytes.size());
  const auto received = decode(std::span(shifted).subspan(3));
  ASSERT_TRUE(received.ok());
  EXPECT_TRUE(received.value() == sent);
}

TEST_P(EveryMessage, EveryTruncationIsAnErrorOrAnotherMessage) {
  const auto bytes = encode(RandomMessages(5).make(GetParam()));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto result = decode(std::span(bytes).first(size));
    EXPECT_FALSE(result.ok()) << "of " << bytes.size() << " bytes, " << size << " were accepted";
  }
}

TEST_P(EveryMessage, FlippedBitsNeverGrowTheMessage) {
  RandomMessages messages(9);
  std::mt19937 random(static_cast<std::uint32_t>(GetParam()) + 100);
  const auto bytes = encode(messages.make(GetParam()));
  for (int i = 0; i < 3000; ++i) {
    auto flipped = bytes;
    for (auto n = 1 + random() % 3; n > 0; --n) {
      flipped[random() % flipped.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    }
    const auto result = decode(flipped);
    if (result.ok()) {
      // Lists of empty structs and lists that several pointers name yield more than their bytes, up
      // to the traversal limit: 4 words + 64 structs of 14 words.
      EXPECT_LE(encode(result.value()).size(), 15 * (4 * bytes.size() + 64 * 8));
    } else {
      EXPECT_EQ(result.error().code(), Errc::kCorrupt);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryMessage, ::testing::Range<std::size_t>(0, kTypes));

/// A frame written past our encoder's back.
template <typename Write>
Result<Message> decode_raw(Write&& write) {
  capnp::MallocMessageBuilder builder;
  write(builder.initRoot<schema::Message>());
  const auto words = capnp::messageToFlatArray(builder);
  return decode(std::as_bytes(std::span(words.begin(), words.size())));
}

void expect_refused(const Result<Message>& result, const char* field) {
  ASSERT_FALSE(result.ok()) << field;
  EXPECT_EQ(result.error().code(), Errc::kCorrupt);
  EXPECT_THAT(result.error().message(), HasSubstr(field));
}

void expect_refused(const Message& message, const char* field) {
  expect_refused(decode(encode(message)), field);
}

TEST(Codec, RefusesNumbersThatMeanNothing) {
  const SessionId s{1};
  expect_refused(Verdict{s, 0, -1, 0, 0, 0}, "accepted = -1");
  expect_refused(Verdict{s, 0, 0, -5, 0, 0}, "next = -5");
  expect_refused(Commit{s, -1, {}}, "start");
  expect_refused(Commit{s, std::numeric_limits<std::int32_t>::max(), {1}}, "end of the commit");
  expect_refused(Commit{s, 0, {1, -2}}, "token = -2");
  RefreshReady ready;
  ready.session = s;
  ready.ring_begin = 1;
  expect_refused(ready, "ring_begin");
}

TEST(Codec, RefusesSamplingThatIsNotFinite) {
  const auto open = [](auto change) {
    OpenSession out;
    change(out.sampling);
    return out;
  };
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static constexpr float kInf = std::numeric_limits<float>::infinity();
  expect_refused(open([](auto& p) { p.temperature = kNan; }), "temperature");
  expect_refused(open([](auto& p) { p.temperature = kInf; }), "temperature");
  expect_refused(open([](auto& p) { p.temperature = -1; }), "temperature");
  expect_refused(open([](auto& p) { p.top_p = 1.5F; }), "top_p");
  expect_refused(open([](auto& p) { p.min_p = kNan; }), "min_p");
  expect_refused(open([](auto& p) { p.presence_penalty = -kInf; }), "presence_penalty");
  expect_refused(open([](auto& p) { p.logit_bias = {{1, kNan}}; }), "logit_bias");
  expect_refused(open([](auto& p) { p.logit_bias = {{-1, 0.0F}}; }), "logit_bias token");
  expect_refused(open([](auto& p) { p.penalty_window = -2; }), "penalty_window");
}

TEST(Codec, KeepsAnInfiniteBias) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  OpenSession open;
  open.sampling.logit_bias = {{1, -kInf}, {2, kInf}};
  const Result<Message> read = decode(encode(open));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(std::get<OpenSession>(read.value()), open);
}

TEST(Codec, RefusesDistributionsThatAreNone) {
  const auto proposal = [](SparseDistribution q) {
    return Proposal{SessionId{1}, 0, {4}, {std::move(q)}};
  };
  expect_refused(proposal({{3, 3}, {0.5F, 0.5F}}), "not ascending");
  expect_refused(proposal({{3, 4}, {1.0F}}), "2 ids, 1 probabilities");
  expect_refused(proposal({{3}, {0.0F}}), "q probability");
  expect_refused(proposal({{3}, {std::nanf("")}}), "q probability");
  Proposal extra = proposal({{3}, {1.0F}});
  extra.tokens.push_back(5);
  expect_refused(extra, "1 distributions for 2 tokens");
}

TEST(Codec, RefusesUnknownEnumerators) {
  expect_refused(decode_raw([](schema::Message::Builder m) {
                   auto open = m.initOpenSession();
                   open.initPolicy().setPolicy(8);
                   open.getPolicy().setBlock(1);
                   open.initSampling();
                 }),
                 "policy = 8");
  expect_refused(decode_raw([](schema::Message::Builder m) { m.initSessionRefused().setCode(13); }),
                 "code = 13");
  ScoreOpen open;
  open.layout.geometry.dtype = DType::kQ4_0;
  expect_refused(open, "dtype = 3");
}

TEST(Codec, RefusesLayoutsWhoseSizeOverflows) {
  ScoreOpen open;
  open.layout = {{4096, 4096, 128, DType::kF16}, 16, 1 << 20, 0, 0};
  expect_refused(open, "slots of the layout");
  open.layout = {{2, 2, 128, DType::kF16}, 16, 4, 4, 8};
  open.layout.layer_slots = {4};
  expect_refused(open, "layers of layer_slots");
  open.layout = {{4096, 4096, 128, DType::kF16}, 16, 1, 0, 0, 0, 1 << 20};
  expect_refused(open, "entries of the layout");
  open.layout = {{4096, 4096, 65536, DType::kF32}, 16, 0, 0, 1 << 30};
  expect_refused(open, "bytes of the layout");
}

TEST(Codec, RefusesTextThatIsNotUtf8AndNeverSendsIt) {
  for (const char* bad : {"\xFF", "\xC0\x80", "\xED\xA0\x80", "\xE2\x82", "\xF5\x80\x80\x80"}) {
    expect_refused(
        decode_raw([&](schema::Message::Builder m) { m.initSessionRefused().setMessage(bad); }),
        "not UTF-8");
    const auto sent =
        decode(encode(SessionRefused{SessionId{1}, Errc::kInternal, std::string("a") + bad}));
    ASSERT_TRUE(sent.ok());
    EXPECT_EQ(std::get<SessionRefused>(sent.value()).message.substr(0, 2), "a?");
  }
}

TEST(Codec, RefusesTextWithNulAndSendsNone) {
  using namespace std::string_literals;  // NOLINT(google-build-using-namespace)
  expect_refused(decode_raw([](schema::Message::Builder m) {
                   m.initSessionRefused().setMessage(capnp::Text::Reader("a\0b", 3));
                 }),
                 "NUL");
  const auto sent = decode(encode(SessionRefused{SessionId{1}, Errc::kInternal, "a\0b"s}));
  ASSERT_TRUE(sent.ok());
  EXPECT_EQ(std::get<SessionRefused>(sent.value()).message, "a?b");
}

TEST(Codec, RefusesFramesOverTheLimitBeforeReadingThem) {
  const std::vector<std::byte> bytes(4096);
  const auto result = decode(bytes, 4088);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), Errc::kOutOfRange);
}

TEST(Codec, ManyPointersToOneListAreStopped) {
  // 1,000 distributions that all name the same list of 1,000 ids: 4 KB that would become 4 MB.
  capnp::MallocMessageBuilder builder;
  auto proposal = builder.initRoot<schema::Message>().initProposal();
  proposal.setTokens(kj::heapArray<std::int32_t>(1000).asPtr());
  auto q = proposal.initQ(1000);
  for (auto item : q) {
    item.initIds(0);
    item.initProbabilities(0);
  }
  auto last = q[999].initIds(1000);
  for (unsigned i = 0; i < 1000; ++i) {
    last.set(i, static_cast<std::int32_t>(i));
  }
  auto words = capnp::messageToFlatArray(builder);
  const auto bytes = std::as_bytes(std::span(words.begin(), words.size()));
  EXPECT_FALSE(decode(bytes).ok());
}

}  // namespace
}  // namespace rift::transport::test
