// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/score_node/core_rig.h"

#include "policy/allocation.h"
#include "policy/budget.h"
#include "policy/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace rift::score_node {

CoreOptions small_options() {
  CoreOptions options;
  options.geometry = kGeometry;
  options.vocab = kVocab;
  options.chunk = 16;
  options.ingest_min = 8;
  options.send_chunks = 2;
  options.send_chunk_bytes = 2048;
  return options;
}

// ---- FakeDraft ----

FakeDraft::FakeDraft(SessionId session_id, const PolicySpec& policy_spec, std::int32_t max_context)
    : id(session_id),
      policy(policy_spec),
      layout(policy::plan_layout(policy_spec, kGeometry, max_context, 3)),
      context(max_context),
      arena(arena_offset + layout.total_bytes()) {}

transport::ScoreOpen FakeDraft::open_message() const {
  transport::ScoreOpen open;
  open.session = id;
  open.tokens = tokens;
  open.max_context = context;
  open.policy = policy;
  open.layout = layout;
  open.arena_region = 3;
  open.arena_offset = arena_offset;
  return open;
}

transport::Installed FakeDraft::install() {
  const transport::RefreshReady wave = ready.front();
  ready.pop_front();
  for (const transport::TableUpdate& u : wave.updates) {
    const std::pair key{u.layer * kGeometry.kv_heads + u.head, u.entry};
    if (u.count > 0) {
      table[key] = u;
    } else {
      table.erase(key);
    }
  }
  check_table();
  return {id, wave.epoch, wave.wave};
}

void FakeDraft::check_write(const transport::PutOp& op) const {
  ASSERT_GE(op.remote_offset, arena_offset);
  ASSERT_LE(op.remote_offset + op.bytes, arena.size());
  const std::uint64_t begin = op.remote_offset - arena_offset;
  const auto untouched = [&](const transport::TableUpdate& u) {
    const std::uint64_t slot = layout.slot_offset(u.slot);
    EXPECT_TRUE(begin + op.bytes <= slot || slot + layout.block_bytes() <= begin)
        << "write to slot " << u.slot << ", which is in use";
  };
  for (const auto& [key, update] : table) {
    untouched(update);
  }
  for (const transport::RefreshReady& wave : ready) {
    for (const transport::TableUpdate& update : wave.updates) {
      if (update.count > 0) {
        untouched(update);
      }
    }
  }
}

void FakeDraft::check_table() const {
  std::set<std::uint32_t> slots;
  std::map<std::int32_t, std::set<std::uint32_t>> blocks_of_head;
  std::map<std::int32_t, std::int32_t> positions;
  for (const auto& [key, update] : table) {
    EXPECT_LT(key.second, static_cast<std::uint32_t>(layout.entries()));
    EXPECT_LT(update.slot, layout.slot_count());
    EXPECT_TRUE(slots.insert(update.slot).second) << "slot " << update.slot << " named twice";
    EXPECT_TRUE(blocks_of_head[key.first].insert(update.block).second)
        << "block " << update.block << " attended twice";
    positions[key.first] += update.count;
  }
  const std::int32_t recent = policy::plan_budget(policy, context).recent;
  std::int64_t total = 0;
  for (std::int32_t layer = 0; layer < kGeometry.layers; ++layer) {
    std::int64_t of_layer = 0;
    for (std::int32_t head = 0; head < kGeometry.kv_heads; ++head) {
      const std::int64_t count = recent + positions[layer * kGeometry.kv_heads + head];
      of_layer += count;
      if (policy.allocation == Allocation::kUniform) {
        EXPECT_LE(count, policy.budget) << "layer " << layer << " head " << head;
      }
    }
    total += of_layer;
    if (policy.allocation != Allocation::kPyramidKv) {
      EXPECT_LE(of_layer, std::int64_t{policy.budget} * kGeometry.kv_heads) << "layer " << layer;
    }
  }
  EXPECT_LE(total, std::int64_t{policy.budget} * kGeometry.kv_heads * kGeometry.layers);
}

void FakeDraft::check_contents() const {
  for (const auto& [key, u] : table) {
    for (const bool values : {false, true}) {
      for (std::int32_t i = 0; i < u.count; ++i) {
        Copy copy;
        copy.layer = u.layer;
        copy.head = u.head;
        copy.values = values;
        const Position position = static_cast<Position>(u.block) * layout.block + i;
        ASSERT_LT(position, std::ssize(tokens));
        const std::vector<float> want =
            fake_vector(copy, position, tokens[static_cast<std::size_t>(position)]);
        const std::uint64_t at = arena_offset + layout.slot_offset(u.slot) +
                                 (values ? layout.block_bytes() / 2 : 0) +
                                 static_cast<std::uint64_t>(i) * kGeometry.vector_bytes();
        ASSERT_EQ(std::memcmp(arena.data() + at, want.data(), kGeometry.vector_bytes()), 0)
            << "block " << u.block << " position " << position << " values " << values;
      }
    }
  }
}

std::set<std::pair<std::uint32_t, std::int32_t>> FakeDraft::blocks(std::int32_t head) const {
  std::set<std::pair<std::uint32_t, std::int32_t>> out;
  for (const auto& [key, update] : table) {
    if (key.first == head) {
      out.emplace(update.block, update.count);
    }
  }
  return out;
}

// ---- CoreRig ----

std::vector<float> fake_vector(const Copy& copy, Position position, TokenId token) {
  std::vector<float> vector(static_cast<std::size_t>(kGeometry.head_dim));
  for (std::size_t i = 0; i < vector.size(); ++i) {
    vector[i] =
        static_cast<float>(token * 64 + copy.layer * 16 + copy.head * 4 + (copy.values ? 2 : 0)) +
        static_cast<float>(position) * 1e-3F + static_cast<float>(i) * 0.5F;
  }
  return vector;
}

CoreRig::CoreRig(const CoreOptions& options, std::uint32_t seed)
    : core(options),
      random(seed),
      options_(options),
      buffer_(options.send_chunks * options.send_chunk_bytes) {}

void CoreRig::send(const FakeDraft& from, transport::Message message) {
  static_cast<void>(from);
  event(PeerMessage{kPeer, std::move(message)});
}

void CoreRig::event(Event e) {
  now += std::chrono::microseconds(10);
  for (Action& action : core.handle(std::move(e), now)) {
    log.push_back(action);
    if (Send* message = std::get_if<Send>(&action)) {
      if (auto* ready = std::get_if<transport::RefreshReady>(&message->message)) {
        draft->ready.push_back(*ready);
        draft->history.push_back(*ready);
      } else {
        draft->refused.push_back(std::get<transport::SessionRefused>(message->message));
      }
    } else if (Put* put = std::get_if<Put>(&action)) {
      for (const transport::PutOp& op : put->ops) {
        draft->check_write(op);
      }
      puts.push_back(std::move(*put));
    } else {
      jobs.push_back(std::move(action));
    }
  }
}

bool CoreRig::run_compute() {
  if (jobs.empty()) {
    return false;
  }
  const Action job = std::move(jobs.front());
  jobs.pop_front();
  if (const auto* release = std::get_if<ReleaseHistory>(&job)) {
    histories_.erase(release->session);
    return true;
  }
  std::visit(
      [this](const auto& j) {
        if constexpr (requires { run(j); }) {
          event(run(j));
        }
      },
      job);
  return true;
}

bool CoreRig::run_put() {
  if (puts.empty()) {
    return false;
  }
  // Any write under way may end first.
  const std::size_t i = random() % puts.size();
  const Put put = std::move(puts[i]);
  puts.erase(puts.begin() + static_cast<std::ptrdiff_t>(i));
  const std::uint64_t base = put.chunk * options_.send_chunk_bytes;
  for (const transport::PutOp& op : put.ops) {
    draft->check_write(op);
    std::memcpy(
        draft->arena.data() + op.remote_offset, buffer_.data() + base + op.local_offset, op.bytes);
  }
  event(PutDone{put.chunk, {}});
  return true;
}

void CoreRig::run_all() {
  while (run_compute() || run_put()) {
  }
}

Event CoreRig::run(const OpenHistory& job) {
  History& history = histories_[job.session];
  history.tokens.assign(job.tokens.begin(), job.tokens.begin() + reused);
  history.queries_begin = reused;
  history.window = job.window;
  history.selector = job.selector;
  return HistoryOpened{job.session, reused, {}};
}

Event CoreRig::run(const Ingest& job) {
  History& history = histories_.at(job.session);
  if (job.start < cut_limit ||
      (history.selector == Selector::kH2o && job.start < std::ssize(history.tokens))) {
    // As with statistics that cannot be cut so far back: everything is forgotten.
    cut_limit = 0;
    history.tokens.clear();
    history.queries_begin = 0;
    return Ingested{job.session, 0, 0, 64, {}};
  }
  EXPECT_LE(job.start, std::ssize(history.tokens));
  EXPECT_LE(std::ssize(job.tokens), options_.chunk);
  history.tokens.resize(static_cast<std::size_t>(job.start));
  history.queries_begin = std::min(history.queries_begin, job.start);
  history.tokens.insert(history.tokens.end(), job.tokens.begin(), job.tokens.end());
  const auto size = static_cast<std::int32_t>(history.tokens.size());
  history.queries_begin = std::max(history.queries_begin, size - history.window - query_slack);
  return Ingested{job.session, size, history.queries_begin, 64, {}};
}

Event CoreRig::run(const Select& job) {
  const History& history = histories_.at(job.session);
  if (job.selector == Selector::kH2o) {
    EXPECT_EQ(job.tokens, std::ssize(history.tokens)) << "later queries are in the sums";
  }
  EXPECT_EQ(job.selector, history.selector);
  EXPECT_LE(job.tokens, std::ssize(history.tokens));
  EXPECT_LE(history.queries_begin, job.tokens - job.window) << "queries of the window are gone";
  Selected selected;
  selected.session = job.session;
  std::uniform_real_distribution<float> score(0.0F, 1.0F);
  const std::int32_t limit = job.tokens - job.recent;
  for (std::int32_t i = 0; i < kGeometry.layers * kGeometry.kv_heads; ++i) {
    HeadSelection head;
    head.scores.resize(static_cast<std::size_t>((limit + job.block - 1) / job.block));
    // Heads of unequal worth, so that Ada-KV moves what they may keep.
    const float worth = score(random);
    std::generate(head.scores.begin(), head.scores.end(), [&] { return worth * score(random); });
    selected.heads.push_back(head);
  }
  for (std::int32_t layer = 0; layer < kGeometry.layers; ++layer) {
    const auto first = static_cast<std::size_t>(layer * kGeometry.kv_heads);
    const auto heads = static_cast<std::size_t>(kGeometry.kv_heads);
    std::vector<std::int32_t> counts(heads,
                                     job.layer_slots.empty()
                                         ? job.slots_per_head
                                         : job.layer_slots[static_cast<std::size_t>(layer)]);
    if (job.allocation == Allocation::kAdaKv) {
      std::vector<std::vector<float>> scores;
      for (std::size_t h = 0; h < heads; ++h) {
        scores.push_back(selected.heads[first + h].scores);
      }
      counts = policy::ada_kv_counts(
          scores, job.slots_per_head, policy::kAdaKvFloor, policy::AdaKvRule::kFloor);
    }
    for (std::size_t h = 0; h < heads; ++h) {
      HeadSelection& head = selected.heads[first + h];
      head.ranked = policy::top_k_ranked(head.scores, counts[h]);
    }
  }
  last_selection = selected.heads;
  return selected;
}

Event CoreRig::run(const Pack& job) {
  const auto found = histories_.find(job.session);
  for (const Copy& copy : job.copies) {
    for (std::int32_t i = 0; i < copy.padded && found != histories_.end(); ++i) {
      const auto position = static_cast<std::size_t>(copy.first + i);
      std::vector<float> vector(static_cast<std::size_t>(kGeometry.head_dim));
      if (i < copy.count && position < found->second.tokens.size()) {
        vector = fake_vector(copy, copy.first + i, found->second.tokens[position]);
      }
      std::memcpy(buffer_.data() + job.chunk * options_.send_chunk_bytes + copy.offset +
                      static_cast<std::uint64_t>(i) * kGeometry.vector_bytes(),
                  vector.data(),
                  kGeometry.vector_bytes());
    }
  }
  return Packed{job.session, job.chunk, 5, {}};
}

}  // namespace rift::score_node
