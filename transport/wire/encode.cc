// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/codec.h"
#include "transport/wire/frame.h"
#include "transport/wire/rift.capnp.h"

#include <utility>

namespace rift::transport {
namespace {

using detail::to_utf8;

constexpr std::size_t kFirstSegmentWords = 256;

template <typename T>
kj::ArrayPtr<const T> as_list(const std::vector<T>& values) {
  return {values.data(), values.size()};
}

unsigned count(std::size_t size) {
  RIFT_CHECK(size < (1U << 29U), "list of {} elements", size);  // limit of the format
  return static_cast<unsigned>(size);
}

void write(const SamplingParams& in, schema::Sampling::Builder out) {
  out.setTemperature(in.temperature);
  out.setTopK(in.top_k);
  out.setTopP(in.top_p);
  out.setMinP(in.min_p);
  out.setRepeatPenalty(in.repeat_penalty);
  out.setPresencePenalty(in.presence_penalty);
  out.setFrequencyPenalty(in.frequency_penalty);
  out.setPenaltyWindow(in.penalty_window);
  out.setSeed(in.seed);
  auto list = out.initLogitBias(count(in.logit_bias.size()));
  unsigned i = 0;
  for (const auto& [token, bias] : in.logit_bias) {
    list[i].setToken(token);
    list[i++].setBias(bias);
  }
}

void write(const AdaSpec& in, schema::AdaSpec::Builder out) {
  out.setStride(in.stride);
  out.setMinAge(in.min_age);
  out.setMaxAge(in.max_age);
  out.setAcceptanceLow(in.acceptance_low);
  out.setEntropyHigh(in.entropy_high);
  out.setAcceptanceDrop(in.acceptance_drop);
  out.setEntropyRise(in.entropy_rise);
  out.setDriftHigh(in.drift_high);
  out.setGate(static_cast<std::uint16_t>(in.gate));
  auto weights = out.initWeights(AdaSpec::kSignals);
  for (unsigned i = 0; i < AdaSpec::kSignals; ++i) {
    weights.set(i, in.weights[i]);
  }
  out.setScoreThreshold(in.score_threshold);
}

void write(const PolicySpec& in, schema::PolicySpec::Builder out) {
  out.setPolicy(static_cast<std::uint16_t>(in.policy));
  out.setBudget(in.budget);
  out.setBlock(in.block);
  out.setRho(in.rho);
  out.setDelta(in.delta);
  out.setWindow(in.window);
  out.setStagingPercent(in.staging_percent);
  out.setSelector(static_cast<std::uint16_t>(in.selector));
  out.setAllocation(static_cast<std::uint16_t>(in.allocation));
  out.setPooling(static_cast<std::uint16_t>(in.pooling));
  out.setPoolWidth(in.pool_width);
  out.setRefreshLag(in.refresh_lag);
  write(in.ada, out.initAda());
}

void write(const WorkingSetLayout& in, schema::Layout::Builder out) {
  out.setLayers(in.geometry.layers);
  out.setKvHeads(in.geometry.kv_heads);
  out.setHeadDim(in.geometry.head_dim);
  out.setDtype(static_cast<std::uint16_t>(in.geometry.dtype));
  out.setBlock(in.block);
  out.setSlotsPerHead(in.slots_per_head);
  out.setStagingSlots(in.staging_slots);
  out.setRingCapacity(in.ring_capacity);
  out.setSinks(in.sinks);
  out.setExtraEntries(in.extra_entries);
  out.setLayerSlots(as_list(in.layer_slots));
}

void write(const ArenaUse& in, schema::ArenaUse::Builder out) {
  out.setCapacity(in.capacity);
  out.setWeights(in.weights);
  out.setWorkingSet(in.working_set);
  out.setStaging(in.staging);
  out.setState(in.state);
  out.setScratch(in.scratch);
}

void write(const RefreshRecord& in, schema::RefreshRecord::Builder out) {
  out.setEpoch(static_cast<std::uint32_t>(in.epoch));
  out.setCoveredTokens(in.covered_tokens);
  out.setStaleTokens(in.stale_tokens);
  out.setWaves(in.waves);
  out.setBlocks(in.blocks);
  out.setBytes(in.bytes);
  out.setIngestNs(in.ingest_ns);
  out.setScoreNs(in.score_ns);
  out.setSelectNs(in.select_ns);
  out.setPackNs(in.pack_ns);
  out.setWriteNs(in.write_ns);
  out.setInstallNs(in.install_ns);
  out.setTotalNs(in.total_ns);
  out.setStallNs(in.stall_ns);
  out.setRequestedAtNs(in.requested_at_ns);
}

void write(const OpenSession& in, schema::Message::Builder message) {
  auto out = message.initOpenSession();
  out.setTokens(as_list(in.tokens));
  out.setMaxContext(in.max_context);
  out.setMaxDraftLen(in.max_draft_len);
  write(in.sampling, out.initSampling());
  out.setTopN(in.top_n);
  write(in.policy, out.initPolicy());
}

void write(const Verdict& in, schema::Message::Builder message) {
  auto out = message.initVerdict();
  out.setRound(in.round);
  out.setAccepted(in.accepted);
  out.setNext(in.next);
  out.setCommitted(in.committed);
  out.setDraftLen(in.draft_len);
}

void write(const CloseSession&, schema::Message::Builder message) { message.setCloseSession(); }

void write(const SessionReady& in, schema::Message::Builder message) {
  auto out = message.initSessionReady();
  write(in.arena, out.initArena());
  out.setScoreHistoryBytes(in.score_history_bytes);
  out.setScorePrefillNs(in.score_prefill_ns);
  out.setScoreAttached(in.score_attached);
  out.setScoreLink(to_utf8(in.score_link));
}

void write(const SessionRefused& in, schema::Message::Builder message) {
  auto out = message.initSessionRefused();
  out.setCode(static_cast<std::uint16_t>(in.code));
  out.setMessage(to_utf8(in.message));
}

void write(const Proposal& in, schema::Message::Builder message) {
  auto out = message.initProposal();
  out.setRound(in.round);
  out.setTokens(as_list(in.tokens));
  auto list = out.initQ(count(in.q.size()));
  unsigned i = 0;
  for (const SparseDistribution& q : in.q) {
    list[i].setIds(as_list(q.ids));
    list[i++].setProbabilities(as_list(q.probabilities));
  }
  out.setDraftNs(in.draft_ns);
  out.setRefreshes(in.refreshes);
  out.setRefreshBytes(in.refresh_bytes);
}

void write(const SessionClosed& in, schema::Message::Builder message) {
  auto out = message.initSessionClosed();
  auto list = out.initRefreshes(count(in.refreshes.size()));
  unsigned i = 0;
  for (const RefreshRecord& record : in.refreshes) {
    write(record, list[i++]);
  }
  out.setDraftSteps(in.draft_steps);
  out.setDraftStepNs(in.draft_step_ns);
  write(in.arena, out.initArena());
  out.setScoreHistoryBytes(in.score_history_bytes);
  out.setScoreLost(in.score_lost);
}

void write(const ScoreOpen& in, schema::Message::Builder message) {
  auto out = message.initScoreOpen();
  out.setTokens(as_list(in.tokens));
  out.setMaxContext(in.max_context);
  write(in.policy, out.initPolicy());
  write(in.layout, out.initLayout());
  out.setArenaRegion(in.arena_region);
  out.setArenaOffset(in.arena_offset);
}

void write(const Commit& in, schema::Message::Builder message) {
  auto out = message.initCommit();
  out.setStart(in.start);
  out.setTokens(as_list(in.tokens));
}

void write(const RefreshRequest& in, schema::Message::Builder message) {
  auto out = message.initRefreshRequest();
  out.setEpoch(static_cast<std::uint32_t>(in.epoch));
  out.setTokens(in.tokens);
}

void write(const Installed& in, schema::Message::Builder message) {
  auto out = message.initInstalled();
  out.setEpoch(static_cast<std::uint32_t>(in.epoch));
  out.setWave(in.wave);
}

void write(const RefreshReady& in, schema::Message::Builder message) {
  auto out = message.initRefreshReady();
  out.setEpoch(static_cast<std::uint32_t>(in.epoch));
  out.setWave(in.wave);
  out.setLastWave(in.last_wave);
  out.setCoveredTokens(in.covered_tokens);
  out.setRingBegin(in.ring_begin);
  auto list = out.initUpdates(count(in.updates.size()));
  unsigned i = 0;
  for (const TableUpdate& update : in.updates) {
    auto item = list[i++];
    item.setLayer(update.layer);
    item.setHead(update.head);
    item.setEntry(update.entry);
    item.setSlot(update.slot);
    item.setBlock(update.block);
    item.setCount(update.count);
  }
  out.setSums(as_list(in.sums));
  out.setBytes(in.bytes);
  out.setIngestNs(in.ingest_ns);
  out.setScoreNs(in.score_ns);
  out.setSelectNs(in.select_ns);
  out.setPackNs(in.pack_ns);
  out.setWriteNs(in.write_ns);
  out.setHistoryBytes(in.history_bytes);
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  capnp::MallocMessageBuilder builder(kFirstSegmentWords);
  auto root = builder.initRoot<schema::Message>();
  std::visit(
      [&](const auto& value) {
        root.setSession(static_cast<std::uint64_t>(value.session));
        write(value, root);
      },
      message);
  return detail::flatten(builder);
}

}  // namespace rift::transport
