// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rift::model {

/// Writes GGUF bytes field by field, right or wrong as the test wants.
class GgufBuilder {
 public:
  template <typename T>
  GgufBuilder& put(T value) {
    const auto* p = reinterpret_cast<const char*>(&value);
    text_.append(p, sizeof(T));
    return *this;
  }
  GgufBuilder& raw(std::string_view text) {
    text_ += text;
    return *this;
  }
  GgufBuilder& string(std::string_view text) { return put<std::uint64_t>(text.size()).raw(text); }
  GgufBuilder& header(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    return raw("GGUF").put(version).put(tensors).put(keys);
  }
  GgufBuilder& key(std::string_view name, std::uint32_t type) { return string(name).put(type); }
  GgufBuilder& key_u32(std::string_view name, std::uint32_t value) {
    return key(name, 4).put(value);
  }
  GgufBuilder& key_u16(std::string_view name, std::uint16_t value) {
    return key(name, 2).put(value);
  }
  GgufBuilder& key_f32(std::string_view name, float value) { return key(name, 6).put(value); }
  GgufBuilder& key_string(std::string_view name, std::string_view value) {
    return key(name, 8).string(value);
  }
  GgufBuilder& tensor(std::string_view name,
                      const std::vector<std::uint64_t>& dims,
                      std::uint32_t type,
                      std::uint64_t offset) {
    string(name).put(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) {
      put(dim);
    }
    return put(type).put(offset);
  }
  /// Zeros up to a multiple of `alignment`, then `bytes` more.
  GgufBuilder& data(std::size_t bytes, std::size_t alignment = 32) {
    text_.resize((text_.size() + alignment - 1) / alignment * alignment);
    text_.resize(text_.size() + bytes);
    return *this;
  }
  /// Overwrites the last `bytes.size()` bytes.
  GgufBuilder& overwrite_tail(std::string_view bytes) {
    text_.replace(text_.size() - bytes.size(), bytes.size(), bytes);
    return *this;
  }

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::as_bytes(std::span<const char>(text_.data(), text_.size()));
  }
  void save(const std::filesystem::path& path) const {
    std::ofstream(path, std::ios::binary) << text_;
  }

 private:
  std::string text_;
};

/// Metadata of a one-layer llama or qwen model with C = 32, H = 4, G = 2, D = 8, F = 64.
inline GgufBuilder& put_tiny_metadata(GgufBuilder& b, const std::string& architecture) {
  return b.key_string("general.architecture", architecture)
      .key_string("general.name", "tiny")
      .key_u32(architecture + ".block_count", 1)
      .key_u32(architecture + ".embedding_length", 32)
      .key_u32(architecture + ".feed_forward_length", 64)
      .key_u32(architecture + ".context_length", 128)
      .key_u32(architecture + ".attention.head_count", 4)
      .key_u32(architecture + ".attention.head_count_kv", 2)
      .key_f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5F)
      .key_f32(architecture + ".rope.freq_base", 10000.0F);
}
inline constexpr std::uint64_t kTinyKeys = 10;

/// What tensors the model above needs beside its metadata, all F32, V = 16, tied.
struct TinyTensor {
  std::string name;
  std::vector<std::uint64_t> dims;  // as in the file
};
inline std::vector<TinyTensor> tiny_llama_tensors() {
  return {{"token_embd.weight", {32, 16}},
          {"blk.0.attn_norm.weight", {32}},
          {"blk.0.attn_q.weight", {32, 32}},
          {"blk.0.attn_k.weight", {32, 16}},
          {"blk.0.attn_v.weight", {32, 16}},
          {"blk.0.attn_output.weight", {32, 32}},
          {"blk.0.ffn_norm.weight", {32}},
          {"blk.0.ffn_gate.weight", {32, 64}},
          {"blk.0.ffn_up.weight", {32, 64}},
          {"blk.0.ffn_down.weight", {64, 32}},
          {"output_norm.weight", {32}}};
}

/// The whole file: metadata, `tensors` as F32, zeros as data.
inline GgufBuilder tiny_model(const std::string& architecture,
                              const std::vector<TinyTensor>& tensors) {
  GgufBuilder b;
  b.header(tensors.size(), kTinyKeys);
  put_tiny_metadata(b, architecture);
  std::uint64_t offset = 0;
  for (const TinyTensor& tensor : tensors) {
    b.tensor(tensor.name, tensor.dims, 0, offset);
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : tensor.dims) {
      elements *= dim;
    }
    offset += (elements * 4 + 31) / 32 * 32;
  }
  b.data(offset);
  return b;
}

}  // namespace rift::model
