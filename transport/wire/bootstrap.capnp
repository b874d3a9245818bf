# SPDX-License-Identifier: Apache-2.0
# Frames of the bootstrap channel, after authentication (docs/protocol.md).
@0x817551a666b09b0c;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("rift::transport::schema");

struct Frame {
  union {
    hello @0 :Hello;
    helloAck @1 :Void;
    refuse @2 :Refuse;
    heartbeat @3 :Void;
    checked @4 :Void;
    close @5 :Close;
    closeAck @6 :Void;
  }
}

struct Hello {
  protocol @0 :UInt32;
  node @1 :Node;
  ucxVersion @2 :Text;
  linkId @3 :UInt64;
  workerAddress @4 :Data;
  regions @5 :List(Region);
  scratchRegion @6 :UInt32;
}

struct Node {
  role @0 :UInt16;  # rift::transport::Role
  nodeId @1 :Text;
  incarnation @2 :Data;
  version @3 :Text;
  modelName @4 :Text;
  modelFingerprint @5 :Text;
  tokenizerHash @6 :Text;
  layers @7 :Int32;
  kvHeads @8 :Int32;
  headDim @9 :Int32;
  dtype @10 :UInt16;  # rift::DType
}

struct Region {
  id @0 :UInt32;
  bytes @1 :UInt64;
  base @2 :UInt64;
  rkey @3 :Data;
}

struct Refuse {
  code @0 :UInt16;  # rift::Errc
  message @1 :Text;
}

struct Close {
  messages @0 :UInt64;
}
