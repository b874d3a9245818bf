// SPDX-License-Identifier: Apache-2.0
#include "cli/child_process.h"

#include "common/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

namespace rift::cli {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

TEST(ChildProcess, PassesItsOutputAndReportsItsExitCode) {
  Pipe out = make_pipe();
  ChildProcess child("/bin/sh", {"-c", "echo hello; exit 7"}, {{out.write.get(), STDOUT_FILENO}});
  out.write.reset();
  std::string buffer;
  EXPECT_EQ(read_line(out.read.get(), buffer, 10s), "hello");
  EXPECT_THROW((void)read_line(out.read.get(), buffer, 10s), Error);
  child.terminate(10s);
  EXPECT_EQ(child.ended(), "exit code 7");
}

TEST(ChildProcess, EndsWithItsOwnerEvenWhenStopped) {
  pid_t pid = -1;
  {
    ChildProcess child("/bin/sleep", {"1000"}, {});  // a shell could leave a child of its own
    pid = child.pid();
    ASSERT_EQ(::kill(pid, 0), 0);
    ::kill(pid, SIGSTOP);
  }
  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST(ChildProcess, KillsAChildThatIgnoresTermination) {
  Pipe out = make_pipe();
  ChildProcess child("/bin/sh",
                     {"-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done"},
                     {{out.write.get(), STDOUT_FILENO}});
  out.write.reset();
  std::string buffer;
  ASSERT_EQ(read_line(out.read.get(), buffer, 10s), "ready");
  child.terminate(50ms);
  EXPECT_EQ(child.ended(), "signal 9");
}

TEST(ChildProcess, NamesAProgramThatDoesNotExist) {
  try {
    const ChildProcess child("/nonexistent/program", {}, {});
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kNotFound);
    EXPECT_THAT(error.message(), testing::HasSubstr("/nonexistent/program"));
  }
}

}  // namespace
}  // namespace rift::cli
