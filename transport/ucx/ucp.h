// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "transport/transport.h"

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// Private to transport/ucx: one owner per UCP object. Thread: loop, except Memory's bytes.
namespace rift::transport::ucx {

/// kUnavailable (peer or library), kTimeout or kIo with UCX's own text.
[[nodiscard]] Error to_error(ucs_status_t status, std::string_view what);

/// Resource type. Children keep it alive.
class Context {
 public:
  /// `loopback_only`: only the device `lo`, unless UCX_NET_DEVICES is set.
  explicit Context(bool loopback_only);
  [[nodiscard]] ucp_context_h get() const { return context_.get(); }

 private:
  struct Cleanup {
    void operator()(ucp_context_h context) const noexcept { ucp_cleanup(context); }
  };
  std::unique_ptr<std::remove_pointer_t<ucp_context_h>, Cleanup> context_;
};

/// Resource type.
class Worker {
 public:
  explicit Worker(std::shared_ptr<Context> context);
  [[nodiscard]] ucp_worker_h get() const { return worker_.get(); }
  [[nodiscard]] std::vector<std::byte> address() const;
  [[nodiscard]] int event_fd() const;
  void on_active_message(unsigned id, ucp_am_recv_callback_t callback, void* arg);
  [[nodiscard]] bool progress() { return ucp_worker_progress(worker_.get()) != 0; }
  /// False when events are waiting already.
  [[nodiscard]] bool arm() { return ucp_worker_arm(worker_.get()) == UCS_OK; }

 private:
  struct Destroy {
    void operator()(ucp_worker_h worker) const noexcept { ucp_worker_destroy(worker); }
  };
  std::shared_ptr<Context> context_;
  std::unique_ptr<std::remove_pointer_t<ucp_worker_h>, Destroy> worker_;
};

/// Zeroed memory that UCX allocated, so that it is one-sided over shared memory too. Resource type.
class Memory {
 public:
  Memory(std::shared_ptr<Context> context, std::uint64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  [[nodiscard]] ucp_mem_h handle() const { return handle_; }
  [[nodiscard]] std::vector<std::byte> pack_rkey() const;

 private:
  std::shared_ptr<Context> context_;
  ucp_mem_h handle_ = nullptr;
  std::span<std::byte> bytes_;
};

struct RkeyDestroy {
  void operator()(ucp_rkey_h rkey) const noexcept { ucp_rkey_destroy(rkey); }
};
using Rkey = std::unique_ptr<std::remove_pointer_t<ucp_rkey_h>, RkeyDestroy>;
/// Errors (thrown): kUnavailable.
[[nodiscard]] Rkey unpack_rkey(ucp_ep_h endpoint, std::span<const std::byte> bytes);

/// The lanes of a connected endpoint, and whether writes over them are one-sided.
[[nodiscard]] LinkInfo describe_lanes(ucp_ep_h endpoint);
/// The same from the text of ucp_ep_print_info().
[[nodiscard]] LinkInfo parse_lanes(std::string_view text);

}  // namespace rift::transport::ucx
