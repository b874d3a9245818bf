// SPDX-License-Identifier: Apache-2.0
#include "model/pack_weights.h"

#include "common/page_buffer.h"
#include "common/thread_pool.h"
#include "model/mapped_file.h"

#include <utility>
#include <vector>

namespace rift::model {
namespace {

std::vector<kernels::WeightView*> matrices(Weights& w) {
  std::vector<kernels::WeightView*> out{&w.embedding};
  for (LayerWeights& layer : w.layers) {
    for (kernels::WeightView* view :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      out.push_back(view);
    }
  }
  if (!w.config.tied_embeddings) {
    out.push_back(&w.output);
  }
  return out;
}

std::size_t file_bytes(const kernels::WeightView& w) {
  return static_cast<std::size_t>(w.rows) * row_bytes(w.dtype, w.cols);
}

}  // namespace

std::shared_ptr<const Weights> pack_weights(const std::shared_ptr<const Weights>& weights,
                                            int threads) {
  auto packed = std::make_shared<Weights>(*weights);
  std::size_t total = 0;
  bool whole = true;  // nothing is left in the file
  for (const kernels::WeightView* view : matrices(*packed)) {
    const std::size_t bytes = kernels::packed_bytes(*view);
    total += bytes;
    whole = whole && bytes > 0;
  }
  if (total == 0) {
    return weights;
  }
  PageBuffer memory(total);
  ThreadPool pool(threads);
  std::byte* out = memory.bytes().data();
  for (kernels::WeightView* view : matrices(*packed)) {
    const std::size_t bytes = kernels::packed_bytes(*view);
    if (bytes > 0) {
      const std::span<const std::byte> from(view->data, file_bytes(*view));
      *view = kernels::pack(*view, out, pool);
      packed->bytes += bytes - from.size();
      release_pages(from);
      out += bytes;
    }
  }
  if (packed->config.tied_embeddings) {
    packed->output = packed->embedding;
  }
  // The file stays open only for what is still read from it.
  packed->storage = std::make_shared<std::pair<PageBuffer, std::shared_ptr<const void>>>(
      std::move(memory), whole ? nullptr : weights->storage);
  return packed;
}

}  // namespace rift::model
