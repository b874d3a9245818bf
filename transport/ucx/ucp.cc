// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/ucp.h"

#include "transport/ucx/ucx_transport.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

namespace rift::transport::ucx {
namespace {

void check(ucs_status_t status, std::string_view what) {
  if (status != UCS_OK) {
    throw to_error(status, what);
  }
}

void refuse_older_library() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  if (UCP_API_VERSION > UCP_VERSION(major, minor)) {
    throw fail(Errc::kUnavailable,
               "compiled for UCX {}.{}, but the library is {}.{}.{}; install the newer one or "
               "build against this one",
               UCP_API_MAJOR,
               UCP_API_MINOR,
               major,
               minor,
               release);
  }
}

/// UCX leaves shared memory out of endpoints that report failures, unless told that these
/// transports may be in them. The application finds dead peers by its own heartbeat. These are
/// options of transports, which ucp_config_modify() does not reach in 1.13.
void allow_shared_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
    // UCX warns of options of transports that UCX_TLS leaves out.
    const char* tls = std::getenv("UCX_TLS");
    constexpr const char* kShared[] = {"all", "posix", "sysv", "shm", "sm", "^"};
    if (tls != nullptr && std::none_of(std::begin(kShared), std::end(kShared), [&](auto name) {
          return std::strstr(tls, name) != nullptr;
        })) {
      return;
    }
    ::setenv("UCX_POSIX_ERROR_HANDLING", "y", 0);
    ::setenv("UCX_SYSV_ERROR_HANDLING", "y", 0);
  });
}

/// Whether UCX may choose a device that sends from the application's memory by itself.
bool has_rdma_device() {
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  return !none && devices != std::filesystem::directory_iterator();
}

struct ConfigRelease {
  void operator()(ucp_config_t* config) const noexcept { ucp_config_release(config); }
};

/// `text` up to the next of `stops`.
std::string_view up_to(std::string_view text, std::string_view stops) {
  return text.substr(0, text.find_first_of(stops));
}

bool is_one_sided(std::string_view lane) {
  constexpr std::string_view kOneSided[] = {"rc", "dc", "posix", "sysv", "xpmem"};
  return std::any_of(std::begin(kOneSided), std::end(kOneSided), [&](std::string_view name) {
    return lane.starts_with(name);
  });
}

}  // namespace

Error to_error(ucs_status_t status, std::string_view what) {
  Errc code = Errc::kIo;
  if (status == UCS_ERR_CANCELED) {
    code = Errc::kCancelled;
  } else if (status == UCS_ERR_TIMED_OUT || status == UCS_ERR_ENDPOINT_TIMEOUT) {
    code = Errc::kTimeout;
  } else if (status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_UNREACHABLE ||
             status == UCS_ERR_NOT_CONNECTED || status == UCS_ERR_NO_DEVICE) {
    code = Errc::kUnavailable;
  }
  return fail(code, "{}: UCX says '{}'", what, ucs_status_string(status));
}

Context::Context(bool loopback_only) {
  refuse_older_library();
  allow_shared_memory();
  ucp_config_t* raw = nullptr;
  check(ucp_config_read(nullptr, nullptr, &raw), "reading UCX's configuration");
  const std::unique_ptr<ucp_config_t, ConfigRelease> config(raw);
  if (loopback_only && std::getenv("UCX_NET_DEVICES") == nullptr) {
    check(ucp_config_modify(config.get(), "NET_DEVICES", "lo"), "choosing the device lo");
  }
  // Rendezvous gains nothing for messages of this size, and adds a state that a lost peer leaves.
  if (std::getenv("UCX_RNDV_THRESH") == nullptr) {
    check(ucp_config_modify(config.get(), "RNDV_THRESH", "inf"), "turning rendezvous off");
  }
  // Without a copy, a send over tcp stays with the transport when UCX 1.13 has completed and reused
  // its request after a peer's death: an assertion then ends the process that is left.
  if (std::getenv("UCX_ZCOPY_THRESH") == nullptr && !has_rdma_device()) {
    check(ucp_config_modify(config.get(), "ZCOPY_THRESH", "inf"), "turning zero-copy sends off");
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  check(ucp_init(&params, config.get(), &context), "starting UCX");
  context_.reset(context);
}

Worker::Worker(std::shared_ptr<Context> context) : context_(std::move(context)) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  check(ucp_worker_create(context_->get(), &params, &worker), "creating a UCX worker");
  worker_.reset(worker);
}

std::vector<std::byte> Worker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  check(ucp_worker_get_address(worker_.get(), &address, &size), "reading the worker's address");
  std::vector<std::byte> out(size);
  std::memcpy(out.data(), address, size);
  ucp_worker_release_address(worker_.get(), address);
  return out;
}

int Worker::event_fd() const {
  int fd = -1;
  check(ucp_worker_get_efd(worker_.get(), &fd), "reading the worker's event descriptor");
  return fd;
}

void Worker::on_active_message(unsigned id, ucp_am_recv_callback_t callback, void* arg) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = id;
  params.cb = callback;
  params.arg = arg;
  check(ucp_worker_set_am_recv_handler(worker_.get(), &params), "setting the message handler");
}

Memory::Memory(std::shared_ptr<Context> context, std::uint64_t bytes)
    : context_(std::move(context)) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.address = nullptr;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  check(ucp_mem_map(context_->get(), &params, &handle_),
        fmt::format("allocating a region of {} bytes", bytes));
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  const ucs_status_t status = ucp_mem_query(handle_, &attributes);
  if (status != UCS_OK) {
    ucp_mem_unmap(context_->get(), handle_);
    throw to_error(status, "reading the address of a region");
  }
  bytes_ = {static_cast<std::byte*>(attributes.address), bytes};
  std::memset(bytes_.data(), 0, bytes_.size());
}

Memory::~Memory() { ucp_mem_unmap(context_->get(), handle_); }

std::vector<std::byte> Memory::pack_rkey() const {
  void* buffer = nullptr;
  std::size_t size = 0;
  check(ucp_rkey_pack(context_->get(), handle_, &buffer, &size), "packing a remote key");
  std::vector<std::byte> out(size);
  std::memcpy(out.data(), buffer, size);
  ucp_rkey_buffer_release(buffer);
  return out;
}

Rkey unpack_rkey(ucp_ep_h endpoint, std::span<const std::byte> bytes) {
  ucp_rkey_h rkey = nullptr;
  check(ucp_ep_rkey_unpack(endpoint, bytes.data(), &rkey), "reading the peer's remote key");
  return Rkey(rkey);
}

LinkInfo describe_lanes(ucp_ep_h endpoint) {
  char* text = nullptr;
  std::size_t size = 0;
  FILE* stream = ::open_memstream(&text, &size);
  if (stream == nullptr) {
    throw fail(Errc::kResourceExhausted, "no memory to list the lanes of an endpoint");
  }
  ucp_ep_print_info(endpoint, stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return parse_lanes({text, size});
}

LinkInfo parse_lanes(std::string_view text) {
  // "#   lane[0]:  1:tcp/lo.0 md[1]  -> md[1]/tcp/sysdev[255] am am_bw#0 wireup", and with
  // one-sided writes a line "#   put[0]: 0..<short>..".
  LinkInfo out;
  out.name = "ucx";
  bool one_sided = false;
  while (!text.empty()) {
    std::string_view line = up_to(text, "\n");
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    one_sided = one_sided || line.find(" put[") != std::string_view::npos;
    if (line.find(" lane[") == std::string_view::npos) {
      continue;
    }
    line.remove_prefix(std::min(line.find("]:") + 2, line.size()));
    line.remove_prefix(std::min(line.find(':') + 1, line.size()));
    std::string_view lane = up_to(line, " ");
    lane = lane.substr(0, lane.rfind('.'));
    if (lane.empty() || lane.find('/') == std::string_view::npos) {
      continue;
    }
    one_sided = one_sided || is_one_sided(lane);
    if (std::find(out.lanes.begin(), out.lanes.end(), lane) == out.lanes.end()) {
      out.lanes.emplace_back(lane);
    }
  }
  out.emulated = !one_sided;
  return out;
}

}  // namespace rift::transport::ucx

namespace rift::transport {

std::string ucx_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace rift::transport
