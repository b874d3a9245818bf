# SPDX-License-Identifier: Apache-2.0
# Control messages between nodes; the meaning of each field is in transport/messages.h.
# Fields are only ever added, at the end; a reader refuses values that it does not know.
@0xb8e9b0c670dd1ce0;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("rift::transport::schema");

struct Message {
  session @0 :UInt64;
  union {
    openSession @1 :OpenSession;
    verdict @2 :Verdict;
    closeSession @3 :Void;
    sessionReady @4 :SessionReady;
    sessionRefused @5 :SessionRefused;
    proposal @6 :Proposal;
    sessionClosed @7 :SessionClosed;
    scoreOpen @8 :ScoreOpen;
    commit @9 :Commit;
    refreshRequest @10 :RefreshRequest;
    installed @11 :Installed;
    refreshReady @12 :RefreshReady;
  }
}

struct Sampling {
  struct Bias {
    token @0 :Int32;
    bias @1 :Float32;
  }
  temperature @0 :Float32;
  topK @1 :Int32;
  topP @2 :Float32;
  minP @3 :Float32;
  repeatPenalty @4 :Float32;
  presencePenalty @5 :Float32;
  frequencyPenalty @6 :Float32;
  penaltyWindow @7 :Int32;
  seed @8 :UInt64;
  logitBias @9 :List(Bias);
}

struct PolicySpec {
  policy @0 :UInt16;  # rift::Policy
  budget @1 :Int32;
  block @2 :Int32;
  rho @3 :Float32;
  delta @4 :Int32;
  window @5 :Int32;
  stagingPercent @6 :Int32;
  selector @7 :UInt16;  # rift::Selector
  allocation @8 :UInt16;  # rift::Allocation
  pooling @9 :UInt16;  # rift::Pooling
  poolWidth @10 :Int32;
  refreshLag @11 :Int32;
  ada @12 :AdaSpec;
}

struct AdaSpec {
  stride @0 :Int32;
  minAge @1 :Int32;
  maxAge @2 :Int32;
  acceptanceLow @3 :Float32;
  entropyHigh @4 :Float32;
  acceptanceDrop @5 :Float32;
  entropyRise @6 :Float32;
  driftHigh @7 :Float32;
  gate @8 :UInt16;  # rift::AdaGate
  weights @9 :List(Float32);  # AdaSpec::kSignals
  scoreThreshold @10 :Float32;
}

struct Layout {
  layers @0 :Int32;
  kvHeads @1 :Int32;
  headDim @2 :Int32;
  dtype @3 :UInt16;  # rift::DType
  block @4 :Int32;
  slotsPerHead @5 :Int32;
  stagingSlots @6 :Int32;
  ringCapacity @7 :Int32;
  sinks @8 :Int32;
  extraEntries @9 :Int32;
  layerSlots @10 :List(Int32);
}

struct ArenaUse {
  capacity @0 :UInt64;
  weights @1 :UInt64;
  workingSet @2 :UInt64;
  staging @3 :UInt64;
  state @4 :UInt64;
  scratch @5 :UInt64;
}

struct OpenSession {
  tokens @0 :List(Int32);
  maxContext @1 :Int32;
  maxDraftLen @2 :Int32;
  sampling @3 :Sampling;
  topN @4 :Int32;
  policy @5 :PolicySpec;
}

struct Verdict {
  round @0 :UInt32;
  accepted @1 :Int32;
  next @2 :Int32;
  committed @3 :Int32;
  draftLen @4 :Int32;
}

struct SessionReady {
  arena @0 :ArenaUse;
  scoreHistoryBytes @1 :UInt64;
  scorePrefillNs @2 :UInt64;
  scoreAttached @3 :Bool;
  scoreLink @4 :Text;
}

struct SessionRefused {
  code @0 :UInt16;  # rift::Errc
  message @1 :Text;
}

struct Distribution {
  ids @0 :List(Int32);
  probabilities @1 :List(Float32);
}

struct Proposal {
  round @0 :UInt32;
  tokens @1 :List(Int32);
  q @2 :List(Distribution);
  draftNs @3 :UInt64;
  refreshes @4 :UInt32;
  refreshBytes @5 :UInt64;
}

struct RefreshRecord {
  epoch @0 :UInt32;
  coveredTokens @1 :Int32;
  staleTokens @2 :Int32;
  waves @3 :UInt32;
  blocks @4 :UInt64;
  bytes @5 :UInt64;
  ingestNs @6 :UInt64;
  scoreNs @7 :UInt64;
  selectNs @8 :UInt64;
  packNs @9 :UInt64;
  writeNs @10 :UInt64;
  installNs @11 :UInt64;
  totalNs @12 :UInt64;
  stallNs @13 :UInt64;
  requestedAtNs @14 :UInt64;
}

struct SessionClosed {
  refreshes @0 :List(RefreshRecord);
  draftSteps @1 :UInt64;
  draftStepNs @2 :UInt64;
  arena @3 :ArenaUse;
  scoreHistoryBytes @4 :UInt64;
  scoreLost @5 :UInt32;
}

struct ScoreOpen {
  tokens @0 :List(Int32);
  maxContext @1 :Int32;
  policy @2 :PolicySpec;
  layout @3 :Layout;
  arenaRegion @4 :UInt32;
  arenaOffset @5 :UInt64;
}

struct Commit {
  start @0 :Int32;
  tokens @1 :List(Int32);
}

struct RefreshRequest {
  epoch @0 :UInt32;
  tokens @1 :Int32;
}

struct Installed {
  epoch @0 :UInt32;
  wave @1 :UInt32;
}

struct TableUpdate {
  layer @0 :UInt16;
  head @1 :UInt16;
  entry @2 :UInt32;
  slot @3 :UInt32;
  block @4 :UInt32;
  count @5 :UInt16;
}

struct RefreshReady {
  epoch @0 :UInt32;
  wave @1 :UInt32;
  lastWave @2 :Bool;
  coveredTokens @3 :Int32;
  ringBegin @4 :Int32;
  updates @5 :List(TableUpdate);
  bytes @6 :UInt64;
  ingestNs @7 :UInt64;
  scoreNs @8 :UInt64;
  selectNs @9 :UInt64;
  packNs @10 :UInt64;
  writeNs @11 :UInt64;
  historyBytes @12 :UInt64;
  sums @13 :List(Float32);
}
