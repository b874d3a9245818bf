// SPDX-License-Identifier: Apache-2.0
#include "transport/bootstrap/auth.h"

#include "common/error.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <vector>

namespace rift::transport::bootstrap {
namespace {

unsigned char* as_uchar(std::byte* data) { return reinterpret_cast<unsigned char*>(data); }

}  // namespace

void fill_random(std::span<std::byte> out) {
  if (RAND_bytes(as_uchar(out.data()), static_cast<int>(out.size())) != 1) {
    throw fail(Errc::kInternal, "the system gave no random bytes");
  }
}

Proof prove(std::string_view secret, Side side, const Nonce& listener, const Nonce& connector) {
  constexpr std::string_view kLabel[] = {"rift bootstrap 1 listener", "rift bootstrap 1 connector"};
  const std::string_view label = kLabel[static_cast<std::size_t>(side)];
  std::vector<std::byte> text;
  const auto bytes = std::as_bytes(std::span(label));
  text.insert(text.end(), bytes.begin(), bytes.end());
  text.insert(text.end(), listener.begin(), listener.end());
  text.insert(text.end(), connector.begin(), connector.end());
  Proof proof{};
  unsigned size = 0;
  if (HMAC(EVP_sha256(),
           secret.data(),
           static_cast<int>(secret.size()),
           as_uchar(text.data()),
           text.size(),
           as_uchar(proof.data()),
           &size) == nullptr ||
      size != proof.size()) {
    throw fail(Errc::kInternal, "HMAC-SHA256 failed");
  }
  return proof;
}

bool same(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace rift::transport::bootstrap
