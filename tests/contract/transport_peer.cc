// SPDX-License-Identifier: Apache-2.0
// A score node in a process of its own, to be killed: prints its port, then writes to whoever
// connects until it ends.
#include "tests/contract/harness.h"
#include "transport/ucx/ucx_transport.h"

#include <signal.h>
#include <sys/prctl.h>

#include <cstdio>
#include <functional>

int main() {
  using namespace rift::transport;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  boost::asio::io_context io;
  test::Node node;
  node.transport = make_ucx_transport(io, test::options_of(Role::kScore, "score0"));
  node.region = node.transport->allocate(4U << 20U);
  PeerHandler handler = node.handler();
  std::function<void(std::shared_ptr<Peer>)> write = [&](const std::shared_ptr<Peer>& peer) {
    peer->put(*node.region,
              0,
              std::vector<PutOp>(64, PutOp{0, 0, 65536}),
              [&, peer](const rift::Status& status) {
                if (status.ok() && peer->send(CloseSession{}).ok()) {
                  write(peer);
                }
              });
  };
  handler.on_up = write;
  // UCX prints its warnings to stdout as well: the line is marked.
  std::printf("port %d\n", node.transport->listen({"127.0.0.1", 0}, handler));
  std::fflush(stdout);
  io.run();
}
