// SPDX-License-Identifier: Apache-2.0
#include "model/sha256.h"

#include "common/check.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

namespace rift::model {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();

  State() {
    RIFT_CHECK(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1);
  }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  RIFT_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

void Sha256::update(std::string_view text) {
  update(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

std::string Sha256::hex() const {
  // Finalising ends a context: do it on a copy.
  const State copy;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  RIFT_CHECK(EVP_MD_CTX_copy_ex(copy.context, state_->context) == 1);
  RIFT_CHECK(EVP_DigestFinal_ex(copy.context, digest.data(), &size) == 1);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += fmt::format("{:02x}", digest[i]);
  }
  return text;
}

}  // namespace rift::model
