// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <csignal>

namespace rift::cli {
namespace {

// The one thing that a signal handler may touch.
volatile std::sig_atomic_t interrupt_seen = 0;

void note_interrupt(int /*signal*/) { interrupt_seen = 1; }

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;  // without SA_RESTART: blocking calls return
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return interrupt_seen != 0; }

}  // namespace rift::cli
