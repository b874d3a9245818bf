// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/codec.h"
#include "transport/wire/frame.h"
#include "transport/wire/rift.capnp.h"

#include <utility>

namespace rift::transport {
namespace {

using detail::finite;
using detail::in_range;
using detail::not_negative;
using detail::to_enum;
using detail::to_text;

// Far above any real model; low enough that no product of them overflows 64 bits.
constexpr std::int32_t kMaxLayers = 4096;
constexpr std::int32_t kMaxHeads = 4096;
constexpr std::int32_t kMaxHeadDim = 1 << 16;
constexpr std::uint64_t kMaxArenaBytes = 1ULL << 48U;
constexpr std::size_t kMaxTextBytes = 64U << 10U;

std::vector<std::int32_t> read_list(capnp::List<std::int32_t>::Reader list,
                                    std::string_view field) {
  std::vector<std::int32_t> numbers;
  numbers.reserve(list.size());
  for (const std::int32_t number : list) {
    numbers.push_back(not_negative(number, field));
  }
  return numbers;
}

SamplingParams read(schema::Sampling::Reader in) {
  SamplingParams out;
  constexpr float kMax = std::numeric_limits<float>::max();
  out.temperature = in_range(in.getTemperature(), 0.0F, kMax, "temperature");
  out.top_k = not_negative(in.getTopK(), "top_k");
  out.top_p = in_range(in.getTopP(), 0.0F, 1.0F, "top_p");
  out.min_p = in_range(in.getMinP(), 0.0F, 1.0F, "min_p");
  out.repeat_penalty = in_range(in.getRepeatPenalty(), 0.0F, kMax, "repeat_penalty");
  out.presence_penalty = finite(in.getPresencePenalty(), "presence_penalty");
  out.frequency_penalty = finite(in.getFrequencyPenalty(), "frequency_penalty");
  out.penalty_window = in_range(
      in.getPenaltyWindow(), -1, std::numeric_limits<std::int32_t>::max(), "penalty_window");
  out.seed = in.getSeed();
  out.logit_bias.reserve(in.getLogitBias().size());
  for (const auto item : in.getLogitBias()) {
    constexpr float kInf = std::numeric_limits<float>::infinity();  // bans a token, or forces it
    out.logit_bias.emplace_back(not_negative(item.getToken(), "logit_bias token"),
                                in_range(item.getBias(), -kInf, kInf, "logit_bias"));
  }
  return out;
}

AdaSpec read(schema::AdaSpec::Reader in) {
  constexpr float kInf = std::numeric_limits<float>::infinity();  // switched off
  constexpr float kMax = std::numeric_limits<float>::max();
  AdaSpec out;
  out.stride = not_negative(in.getStride(), "ada stride");
  out.min_age = not_negative(in.getMinAge(), "ada min_age");
  out.max_age = not_negative(in.getMaxAge(), "ada max_age");
  out.acceptance_low = in_range(in.getAcceptanceLow(), -kInf, kInf, "ada acceptance_low");
  out.entropy_high = in_range(in.getEntropyHigh(), -kInf, kInf, "ada entropy_high");
  out.acceptance_drop = in_range(in.getAcceptanceDrop(), -kInf, kInf, "ada acceptance_drop");
  out.entropy_rise = in_range(in.getEntropyRise(), -kInf, kInf, "ada entropy_rise");
  out.drift_high = in_range(in.getDriftHigh(), -kInf, kInf, "ada drift_high");
  out.gate = to_enum(in.getGate(), AdaGate::kScore, "ada gate");
  in_range<std::size_t>(
      in.getWeights().size(), AdaSpec::kSignals, AdaSpec::kSignals, "number of ada weights");
  for (unsigned i = 0; i < AdaSpec::kSignals; ++i) {
    out.weights[i] = in_range(in.getWeights()[i], 0.0F, kMax, "ada weight");
  }
  out.score_threshold = in_range(in.getScoreThreshold(), -kInf, kInf, "ada score_threshold");
  return out;
}

PolicySpec read(schema::PolicySpec::Reader in) {
  PolicySpec out;
  out.policy = to_enum(in.getPolicy(), Policy::kRiftAda, "policy");
  out.budget = not_negative(in.getBudget(), "budget");
  out.block = in_range(in.getBlock(), 1, std::numeric_limits<std::int32_t>::max(), "block");
  out.rho = in_range(in.getRho(), 0.0F, 1.0F, "rho");
  out.delta = not_negative(in.getDelta(), "delta");
  out.window = not_negative(in.getWindow(), "window");
  out.staging_percent = not_negative(in.getStagingPercent(), "staging_percent");
  out.selector = to_enum(in.getSelector(), Selector::kH2o, "selector");
  out.allocation = to_enum(in.getAllocation(), Allocation::kPyramidKv, "allocation");
  out.pooling = to_enum(in.getPooling(), Pooling::kMax, "pooling");
  out.pool_width = not_negative(in.getPoolWidth(), "pool_width");
  out.refresh_lag =
      in_range(in.getRefreshLag(), -1, std::numeric_limits<std::int32_t>::max(), "refresh_lag");
  out.ada = read(in.getAda());
  return out;
}

/// The arithmetic of WorkingSetLayout must not overflow for any layout that passes.
void check_layout_size(const WorkingSetLayout& layout) {
  const std::int64_t heads = std::int64_t{layout.geometry.layers} * layout.geometry.kv_heads;
  in_range<std::int64_t>(heads * layout.slots_per_head + layout.staging_slots,
                         0,
                         std::numeric_limits<std::int32_t>::max(),
                         "slots of the layout");
  in_range<std::int64_t>(heads * (std::int64_t{layout.slots_per_head} + layout.extra_entries),
                         0,
                         std::numeric_limits<std::int32_t>::max(),
                         "entries of the layout");
  const auto vectors =
      2 * (static_cast<double>(heads) * (static_cast<double>(layout.ring_capacity) + layout.sinks) +
           static_cast<double>(layout.slot_count()) * static_cast<double>(layout.block));
  in_range(vectors * static_cast<double>(layout.geometry.vector_bytes()),
           0.0,
           static_cast<double>(kMaxArenaBytes),
           "bytes of the layout");
}

WorkingSetLayout read(schema::Layout::Reader in) {
  WorkingSetLayout out;
  out.geometry.layers = in_range(in.getLayers(), 0, kMaxLayers, "layers");
  out.geometry.kv_heads = in_range(in.getKvHeads(), 0, kMaxHeads, "kv_heads");
  out.geometry.head_dim = in_range(in.getHeadDim(), 0, kMaxHeadDim, "head_dim");
  out.geometry.dtype = to_enum(in.getDtype(), DType::kBF16, "dtype");
  out.block = in_range(in.getBlock(), 1, std::numeric_limits<std::int32_t>::max(), "block");
  out.slots_per_head = not_negative(in.getSlotsPerHead(), "slots_per_head");
  out.staging_slots = not_negative(in.getStagingSlots(), "staging_slots");
  out.ring_capacity = not_negative(in.getRingCapacity(), "ring_capacity");
  out.sinks = not_negative(in.getSinks(), "sinks");
  out.extra_entries = not_negative(in.getExtraEntries(), "extra_entries");
  out.layer_slots = read_list(in.getLayerSlots(), "layer_slots");
  const auto layers = static_cast<std::int64_t>(out.layer_slots.size());
  if (layers > 0) {
    in_range<std::int64_t>(
        layers, out.geometry.layers, out.geometry.layers, "layers of layer_slots");
  }
  check_layout_size(out);
  return out;
}

ArenaUse read(schema::ArenaUse::Reader in) {
  return {.capacity = in.getCapacity(),
          .weights = in.getWeights(),
          .working_set = in.getWorkingSet(),
          .staging = in.getStaging(),
          .state = in.getState(),
          .scratch = in.getScratch()};
}

RefreshRecord read(schema::RefreshRecord::Reader in) {
  return {.epoch = Epoch{in.getEpoch()},
          .covered_tokens = not_negative(in.getCoveredTokens(), "covered_tokens"),
          .stale_tokens = not_negative(in.getStaleTokens(), "stale_tokens"),
          .waves = in.getWaves(),
          .blocks = in.getBlocks(),
          .bytes = in.getBytes(),
          .ingest_ns = in.getIngestNs(),
          .score_ns = in.getScoreNs(),
          .select_ns = in.getSelectNs(),
          .pack_ns = in.getPackNs(),
          .write_ns = in.getWriteNs(),
          .install_ns = in.getInstallNs(),
          .total_ns = in.getTotalNs(),
          .stall_ns = in.getStallNs(),
          .requested_at_ns = in.getRequestedAtNs()};
}

OpenSession read(SessionId session, schema::OpenSession::Reader in) {
  return {.session = session,
          .tokens = read_list(in.getTokens(), "token"),
          .max_context = not_negative(in.getMaxContext(), "max_context"),
          .max_draft_len = not_negative(in.getMaxDraftLen(), "max_draft_len"),
          .sampling = read(in.getSampling()),
          .top_n = not_negative(in.getTopN(), "top_n"),
          .policy = read(in.getPolicy())};
}

Verdict read(SessionId session, schema::Verdict::Reader in) {
  return {.session = session,
          .round = in.getRound(),
          .accepted = not_negative(in.getAccepted(), "accepted"),
          .next = not_negative(in.getNext(), "next"),
          .committed = not_negative(in.getCommitted(), "committed"),
          .draft_len = not_negative(in.getDraftLen(), "draft_len")};
}

SessionReady read(SessionId session, schema::SessionReady::Reader in) {
  return {.session = session,
          .arena = read(in.getArena()),
          .score_history_bytes = in.getScoreHistoryBytes(),
          .score_prefill_ns = in.getScorePrefillNs(),
          .score_attached = in.getScoreAttached(),
          .score_link = to_text(in.getScoreLink(), kMaxTextBytes, "score_link")};
}

SessionRefused read(SessionId session, schema::SessionRefused::Reader in) {
  return {.session = session,
          .code = to_enum(in.getCode(), Errc::kInternal, "code"),
          .message = to_text(in.getMessage(), kMaxTextBytes, "message")};
}

SparseDistribution read(schema::Distribution::Reader in) {
  SparseDistribution out;
  out.ids = read_list(in.getIds(), "q id");
  for (std::size_t i = 1; i < out.ids.size(); ++i) {
    if (out.ids[i - 1] >= out.ids[i]) {
      throw fail(Errc::kCorrupt, "q ids {} and {} are not ascending", out.ids[i - 1], out.ids[i]);
    }
  }
  const auto probabilities = in.getProbabilities();
  if (probabilities.size() != out.ids.size()) {
    throw fail(Errc::kCorrupt, "q: {} ids, {} probabilities", out.ids.size(), probabilities.size());
  }
  out.probabilities.reserve(probabilities.size());
  for (const float p : probabilities) {
    out.probabilities.push_back(
        in_range(p, std::numeric_limits<float>::denorm_min(), 1.0F, "q probability"));
  }
  return out;
}

Proposal read(SessionId session, schema::Proposal::Reader in) {
  Proposal out;
  out.session = session;
  out.round = in.getRound();
  out.tokens = read_list(in.getTokens(), "token");
  const auto q = in.getQ();
  if (q.size() != 0 && q.size() != out.tokens.size()) {
    throw fail(Errc::kCorrupt, "{} distributions for {} tokens", q.size(), out.tokens.size());
  }
  out.q.reserve(q.size());
  for (const auto item : q) {
    out.q.push_back(read(item));
  }
  out.draft_ns = in.getDraftNs();
  out.refreshes = in.getRefreshes();
  out.refresh_bytes = in.getRefreshBytes();
  return out;
}

SessionClosed read(SessionId session, schema::SessionClosed::Reader in) {
  SessionClosed out;
  out.session = session;
  out.refreshes.reserve(in.getRefreshes().size());
  for (const auto item : in.getRefreshes()) {
    out.refreshes.push_back(read(item));
  }
  out.draft_steps = in.getDraftSteps();
  out.draft_step_ns = in.getDraftStepNs();
  out.arena = read(in.getArena());
  out.score_history_bytes = in.getScoreHistoryBytes();
  out.score_lost = in.getScoreLost();
  return out;
}

ScoreOpen read(SessionId session, schema::ScoreOpen::Reader in) {
  return {.session = session,
          .tokens = read_list(in.getTokens(), "token"),
          .max_context = not_negative(in.getMaxContext(), "max_context"),
          .policy = read(in.getPolicy()),
          .layout = read(in.getLayout()),
          .arena_region = in.getArenaRegion(),
          .arena_offset = in.getArenaOffset()};
}

Commit read(SessionId session, schema::Commit::Reader in) {
  Commit out;
  out.session = session;
  out.start = not_negative(in.getStart(), "start");
  out.tokens = read_list(in.getTokens(), "token");
  in_range<std::int64_t>(out.start + static_cast<std::int64_t>(out.tokens.size()),
                         0,
                         std::numeric_limits<std::int32_t>::max(),
                         "end of the commit");
  return out;
}

RefreshReady read(SessionId session, schema::RefreshReady::Reader in) {
  RefreshReady out;
  out.session = session;
  out.epoch = Epoch{in.getEpoch()};
  out.wave = in.getWave();
  out.last_wave = in.getLastWave();
  out.covered_tokens = not_negative(in.getCoveredTokens(), "covered_tokens");
  out.ring_begin = in_range(in.getRingBegin(), 0, out.covered_tokens, "ring_begin");
  out.updates.reserve(in.getUpdates().size());
  for (const auto item : in.getUpdates()) {
    out.updates.push_back({.layer = item.getLayer(),
                           .head = item.getHead(),
                           .entry = item.getEntry(),
                           .slot = item.getSlot(),
                           .block = item.getBlock(),
                           .count = item.getCount()});
  }
  out.sums.reserve(in.getSums().size());
  for (const float sum : in.getSums()) {
    out.sums.push_back(sum);
  }
  out.bytes = in.getBytes();
  out.ingest_ns = in.getIngestNs();
  out.score_ns = in.getScoreNs();
  out.select_ns = in.getSelectNs();
  out.pack_ns = in.getPackNs();
  out.write_ns = in.getWriteNs();
  out.history_bytes = in.getHistoryBytes();
  return out;
}

Message read(schema::Message::Reader in) {
  const SessionId session{in.getSession()};
  switch (in.which()) {
    case schema::Message::OPEN_SESSION:
      return read(session, in.getOpenSession());
    case schema::Message::VERDICT:
      return read(session, in.getVerdict());
    case schema::Message::CLOSE_SESSION:
      return CloseSession{session};
    case schema::Message::SESSION_READY:
      return read(session, in.getSessionReady());
    case schema::Message::SESSION_REFUSED:
      return read(session, in.getSessionRefused());
    case schema::Message::PROPOSAL:
      return read(session, in.getProposal());
    case schema::Message::SESSION_CLOSED:
      return read(session, in.getSessionClosed());
    case schema::Message::SCORE_OPEN:
      return read(session, in.getScoreOpen());
    case schema::Message::COMMIT:
      return read(session, in.getCommit());
    case schema::Message::REFRESH_REQUEST:
      return RefreshRequest{session,
                            Epoch{in.getRefreshRequest().getEpoch()},
                            not_negative(in.getRefreshRequest().getTokens(), "tokens")};
    case schema::Message::INSTALLED:
      return Installed{session, Epoch{in.getInstalled().getEpoch()}, in.getInstalled().getWave()};
    case schema::Message::REFRESH_READY:
      return read(session, in.getRefreshReady());
  }
  throw fail(Errc::kCorrupt, "message type {} is not known", static_cast<int>(in.which()));
}

}  // namespace

Result<Message> decode(std::span<const std::byte> bytes, std::uint64_t max_bytes) {
  return detail::read_frame<Message>(bytes, max_bytes, [](capnp::MessageReader& reader) {
    return read(reader.getRoot<schema::Message>());
  });
}

}  // namespace rift::transport
