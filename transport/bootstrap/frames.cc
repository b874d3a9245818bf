// SPDX-License-Identifier: Apache-2.0
#include "transport/bootstrap/frames.h"

#include "transport/wire/bootstrap.capnp.h"
#include "transport/wire/frame.h"

#include <algorithm>
#include <utility>

namespace rift::transport::bootstrap {
namespace {

using detail::in_range;
using detail::not_negative;
using detail::to_enum;
using detail::to_text;
using detail::to_utf8;

constexpr std::size_t kMaxNameBytes = 4096;
constexpr unsigned kMaxRegions = 256;

capnp::Data::Reader as_data(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> to_bytes(capnp::Data::Reader data) {
  const auto bytes = std::as_bytes(std::span(data.begin(), data.size()));
  return {bytes.begin(), bytes.end()};
}

void write(const NodeInfo& in, schema::Node::Builder out) {
  out.setRole(static_cast<std::uint16_t>(in.role));
  out.setNodeId(to_utf8(in.node_id));
  out.setIncarnation(as_data(std::as_bytes(std::span(in.incarnation))));
  out.setVersion(to_utf8(in.version));
  out.setModelName(to_utf8(in.model_name));
  out.setModelFingerprint(to_utf8(in.model_fingerprint));
  out.setTokenizerHash(to_utf8(in.tokenizer_hash));
  out.setLayers(in.geometry.layers);
  out.setKvHeads(in.geometry.kv_heads);
  out.setHeadDim(in.geometry.head_dim);
  out.setDtype(static_cast<std::uint16_t>(in.geometry.dtype));
}

NodeInfo read(schema::Node::Reader in) {
  NodeInfo out;
  out.role = to_enum(in.getRole(), Role::kScore, "role");
  out.node_id = to_text(in.getNodeId(), kMaxNameBytes, "node_id");
  const auto incarnation = in.getIncarnation();
  in_range(incarnation.size(), out.incarnation.size(), out.incarnation.size(), "incarnation bytes");
  std::copy(incarnation.begin(), incarnation.end(), out.incarnation.begin());
  out.version = to_text(in.getVersion(), kMaxNameBytes, "version");
  out.model_name = to_text(in.getModelName(), kMaxNameBytes, "model_name");
  out.model_fingerprint = to_text(in.getModelFingerprint(), kMaxNameBytes, "model_fingerprint");
  out.tokenizer_hash = to_text(in.getTokenizerHash(), kMaxNameBytes, "tokenizer_hash");
  out.geometry.layers = not_negative(in.getLayers(), "layers");
  out.geometry.kv_heads = not_negative(in.getKvHeads(), "kv_heads");
  out.geometry.head_dim = not_negative(in.getHeadDim(), "head_dim");
  out.geometry.dtype = to_enum(in.getDtype(), DType::kBF16, "dtype");
  return out;
}

void write(const Hello& in, schema::Frame::Builder frame) {
  auto out = frame.initHello();
  out.setProtocol(in.protocol);
  write(in.node, out.initNode());
  out.setUcxVersion(to_utf8(in.ucx_version));
  out.setLinkId(in.link_id);
  out.setWorkerAddress(as_data(in.worker_address));
  auto regions = out.initRegions(static_cast<unsigned>(in.regions.size()));
  unsigned i = 0;
  for (const RegionInfo& region : in.regions) {
    auto item = regions[i++];
    item.setId(region.id);
    item.setBytes(region.bytes);
    item.setBase(region.base);
    item.setRkey(as_data(region.rkey));
  }
  out.setScratchRegion(in.scratch_region);
}

Hello read(schema::Hello::Reader in) {
  // Before anything else of it: another version may mean anything by the rest.
  if (in.getProtocol() != kProtocolVersion) {
    throw fail(Errc::kUnsupported,
               "the peer speaks protocol {}, this node {}; run the same release on both",
               in.getProtocol(),
               kProtocolVersion);
  }
  Hello out;
  out.node = read(in.getNode());
  out.ucx_version = to_text(in.getUcxVersion(), kMaxNameBytes, "ucx_version");
  out.link_id = in.getLinkId();
  out.worker_address = to_bytes(in.getWorkerAddress());
  in_range(in.getRegions().size(), 0U, kMaxRegions, "regions");
  for (const auto item : in.getRegions()) {
    in_range<std::uint64_t>(item.getBytes(), 0, ~std::uint64_t{0} - item.getBase(), "region bytes");
    out.regions.push_back(
        {item.getId(), item.getBytes(), item.getBase(), to_bytes(item.getRkey())});
  }
  out.scratch_region = in.getScratchRegion();
  return out;
}

void write(const HelloAck&, schema::Frame::Builder frame) { frame.setHelloAck(); }
void write(const Refuse& in, schema::Frame::Builder frame) {
  auto out = frame.initRefuse();
  out.setCode(static_cast<std::uint16_t>(in.code));
  out.setMessage(to_utf8(in.message));
}
void write(const Heartbeat&, schema::Frame::Builder frame) { frame.setHeartbeat(); }
void write(const Checked&, schema::Frame::Builder frame) { frame.setChecked(); }
void write(const Close& in, schema::Frame::Builder frame) {
  frame.initClose().setMessages(in.messages);
}
void write(const CloseAck&, schema::Frame::Builder frame) { frame.setCloseAck(); }

Frame read(schema::Frame::Reader in) {
  switch (in.which()) {
    case schema::Frame::HELLO:
      return read(in.getHello());
    case schema::Frame::HELLO_ACK:
      return HelloAck{};
    case schema::Frame::REFUSE:
      return Refuse{to_enum(in.getRefuse().getCode(), Errc::kInternal, "code"),
                    to_text(in.getRefuse().getMessage(), kMaxNameBytes, "message")};
    case schema::Frame::HEARTBEAT:
      return Heartbeat{};
    case schema::Frame::CHECKED:
      return Checked{};
    case schema::Frame::CLOSE:
      return Close{in.getClose().getMessages()};
    case schema::Frame::CLOSE_ACK:
      return CloseAck{};
  }
  throw fail(Errc::kCorrupt, "frame type {} is not known", static_cast<int>(in.which()));
}

}  // namespace

std::vector<std::byte> encode_frame(const Frame& frame) {
  capnp::MallocMessageBuilder builder;
  auto root = builder.initRoot<schema::Frame>();
  std::visit([&](const auto& value) { write(value, root); }, frame);
  return detail::flatten(builder);
}

Result<Frame> decode_frame(std::span<const std::byte> bytes) {
  return detail::read_frame<Frame>(bytes, kMaxFrameBytes, [](capnp::MessageReader& reader) {
    return read(reader.getRoot<schema::Frame>());
  });
}

}  // namespace rift::transport::bootstrap
