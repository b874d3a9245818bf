// SPDX-License-Identifier: Apache-2.0
#include "transport/handshake.h"
#include "transport/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rift::transport {
namespace {

TEST(ParseEndpoint, ReadsHostAndPort) {
  const auto plain = parse_endpoint("node7.cluster:7001");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain.value().host, "node7.cluster");
  EXPECT_EQ(plain.value().port, 7001);
  const auto six = parse_endpoint("[::1]:0");
  ASSERT_TRUE(six.ok());
  EXPECT_EQ(six.value().host, "::1");
  EXPECT_EQ(six.value().port, 0);
}

TEST(ParseEndpoint, RefusesWhatIsNone) {
  for (const char* text : {"",
                           "host",
                           ":80",
                           "host:",
                           "host:x",
                           "host:65536",
                           "host:-1",
                           "::1:80",
                           "host:80 ",
                           "[]:1"}) {
    EXPECT_FALSE(parse_endpoint(text).ok()) << text;
  }
}

TEST(CheckLanes, TakesATransportByItsPrefix) {
  const LinkInfo link{"ucx", {"tcp/lo", "rc_mlx5/mlx5_0:1"}, false};
  EXPECT_TRUE(check_lanes(link, "").ok());
  EXPECT_TRUE(check_lanes(link, "rc").ok());
  EXPECT_TRUE(check_lanes(link, "tcp").ok());
  EXPECT_FALSE(check_lanes(link, "lo").ok());
  const Status dc = check_lanes(link, "dc");
  ASSERT_FALSE(dc.ok());
  EXPECT_THAT(dc.error().message(), ::testing::HasSubstr("tcp/lo, rc_mlx5/mlx5_0:1"));
}

NodeInfo node(Role role, KvGeometry geometry = {}) {
  NodeInfo out;
  out.role = role;
  out.node_id = to_string(role);
  out.geometry = geometry;
  return out;
}

TEST(CheckCompatible, OnlyNeighboursOfTheChainTalk) {
  const NodeInfo target = node(Role::kTarget);
  const NodeInfo draft = node(Role::kDraft);
  const NodeInfo score = node(Role::kScore);
  EXPECT_TRUE(check_compatible(target, draft).ok());
  EXPECT_TRUE(check_compatible(score, draft).ok());
  EXPECT_EQ(check_compatible(target, score).error().code(), Errc::kMismatch);
  EXPECT_EQ(check_compatible(draft, draft).error().code(), Errc::kMismatch);
}

TEST(CheckCompatible, AnotherGeometryOfOneModelIsNamed) {
  const NodeInfo draft = node(Role::kDraft, {24, 2, 64, DType::kF16});
  const NodeInfo score = node(Role::kScore, {24, 2, 64, DType::kF32});
  const Status status = check_compatible(score, draft);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message(), ::testing::HasSubstr("24 layers x 2 KV heads x 64 of F16"));
  EXPECT_THAT(status.error().message(), ::testing::HasSubstr("of F32"));
}

}  // namespace
}  // namespace rift::transport
