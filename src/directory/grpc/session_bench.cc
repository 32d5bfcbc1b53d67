// The cost of a session: over plain TCP, and with SESSION_BENCH_GRPC=1 over gRPC.
//
//   session_bench latency [ROUNDS]   a shard and a node in two processes: a 1 KiB object announced,
//                                    and its verdict received
//   session_bench batch [MESSAGES]   the same, all announced at once
//   session_bench idle [SECONDS]     a shard and 8 nodes in nine processes: CPU time of all while
//                                    nothing happens
//
// Prints medians and spreads; CPU time as the kernel accounts it.
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "phalanx/object_id.h"
#include "src/common/check.h"
#include "src/common/random.h"
#include "src/common/time/clock.h"
#include "src/common/time/instant.h"
#include "src/directory/grpc/port_multiplexer.h"
#include "src/directory/grpc/shard_connector.h"
#include "src/directory/session/byte_message_stream.h"
#include "src/directory/session/directory_client.h"
#include "src/net/loop/event_loop.h"

namespace phalanx::directory {
namespace {

constexpr int kNodes = 8;
constexpr int kWarmUp = 200;
// Until the processes have started all their threads.
constexpr absl::Duration kSettle = absl::Seconds(2);

// Runs `task` on the loop and waits for it.
void On(net::EventLoop& loop, const std::function<void()>& task) {
  std::promise<void> done;
  loop.Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

// A node that is connected and has registered without state.
class Node {
 public:
  Node(const net::Address& address, uint64_t number) {
    PHALANX_CHECK(loop.Start("node").ok(), "a thread");
    v1::NodeInfo info;
    info.mutable_key()->set_node(number);
    info.mutable_key()->set_incarnation(1);
    info.set_name("n1");
    std::promise<void> up;
    On(loop, [&] {
      client = std::make_unique<DirectoryClient>(
          loop,
          getenv("SESSION_BENCH_GRPC") != nullptr ? NewGrpcShardConnector(address)
                                                  : NewByteShardConnector(network, address),
          SessionConfig(), info, Random(number),
          DirectoryClient::Handlers{.on_register =
                                        [this, &up] {
                                          v1::NodeMessage message;
                                          message.mutable_register_begin();
                                          client->Send(v1::NodeMessage(message));
                                          message.mutable_register_end();
                                          client->Send(v1::NodeMessage(message));
                                          up.set_value();
                                        },
                                    .on_message =
                                        [this](const v1::ShardMessage& message) {
                                          if (message.has_verdict() && on_verdict) on_verdict();
                                        },
                                    .on_connection = [](bool, const absl::Status&) {}});
    });
    up.get_future().wait();
  }
  ~Node() {
    On(loop, [this] { client.reset(); });
    loop.Stop();
  }

  void Announce() {
    v1::NodeMessage message;
    v1::AnnounceCreate& create = *message.mutable_announce_create();
    create.set_object_id(std::string(ObjectId::Random().binary()));
    create.mutable_generation()->mutable_creator()->set_node(1);
    create.mutable_generation()->mutable_creator()->set_incarnation(1);
    create.mutable_generation()->set_sequence(++sequence);
    create.mutable_info()->set_size_bytes(1024);
    create.mutable_info()->set_slices(1);
    create.set_complete(true);
    create.set_inline_bytes(std::string(1024, 'x'));
    create.set_has_inline(true);
    client->Send(std::move(message));
  }

  net::EventLoop loop;
  net::TcpNetwork network;
  std::unique_ptr<DirectoryClient> client;
  std::function<void()> on_verdict;
  uint64_t sequence = 0;
};

// Another process of this program, killed at the end.
class Child {
 public:
  // Its first line is read into `line`.
  explicit Child(std::vector<std::string> arguments) {
    int out[2];
    if (pipe(out) != 0) abort();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, out[0]);
    std::string self = "/proc/self/exe";
    std::vector<char*> argv = {self.data()};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (posix_spawn(&pid_, self.c_str(), &actions, nullptr, argv.data(), environ) != 0) abort();
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    FILE* const stream = fdopen(out[0], "r");
    char text[256] = "";
    if (fgets(text, sizeof(text), stream) != nullptr) line = text;
    fclose(stream);
    while (!line.empty() && line.back() == '\n') line.pop_back();
  }
  // Returns its CPU seconds.
  double End() {
    kill(pid_, SIGKILL);
    rusage usage;
    wait4(pid_, nullptr, 0, &usage);
    return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  // CPU seconds so far, in the kernel's ticks.
  double CpuSeconds() const {
    FILE* const stat = fopen(absl::StrCat("/proc/", pid_, "/stat").c_str(), "r");
    unsigned long user = 0, system = 0;
    if (fscanf(stat, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
               &system) != 2) {
      abort();
    }
    fclose(stat);
    return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

  std::string line;

 private:
  static double Seconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  pid_t pid_ = 0;
};

void Wait(absl::Duration time) {
  net::EventLoop loop;
  loop.Post([&loop, time] { loop.RunAt(loop.Now() + time, [&loop] { loop.Stop(); }); });
  loop.Run();
}

void ServeUntilKilled() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  net::EventLoop loop;
  std::unique_ptr<Shard> shard;
  loop.Post([&] {
    shard = std::make_unique<Shard>(loop, SessionConfig(), DirectoryOptions(), Random(1));
    static net::TcpNetwork network;
    static const auto server = PortMultiplexer::Listen("127.0.0.1:0", loop, network, *shard);
    if (!server.ok()) abort();
    std::printf("%s\n", (*server)->address().c_str());
    std::fflush(stdout);
  });
  loop.Run();
}

void NodeUntilKilled(const net::Address& address, uint64_t number) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Node node(address, number);
  std::printf("connected\n");
  std::fflush(stdout);
  std::promise<void>().get_future().wait();
}

void MeasureLatency(int rounds) {
  Child shard({"shard"});
  Node node(shard.line, 1);
  std::vector<double> micros;
  std::promise<void> done;
  Instant sent;
  const auto next = [&] {
    sent = MonotonicNow();
    node.Announce();
  };
  On(node.loop, [&] {
    node.on_verdict = [&] {
      micros.push_back(absl::ToDoubleMicroseconds(MonotonicNow() - sent));
      if (static_cast<int>(micros.size()) == rounds + kWarmUp) return done.set_value();
      next();
    };
    next();
  });
  done.get_future().wait();
  On(node.loop, [&] { node.on_verdict = nullptr; });
  micros.erase(micros.begin(), micros.begin() + kWarmUp);
  std::sort(micros.begin(), micros.end());
  const auto at = [&](double share) {
    return micros[static_cast<size_t>(share * static_cast<double>(micros.size() - 1))];
  };
  std::printf(
      "latency: 1 KiB to the shard and its verdict back, us: min %.0f median %.0f p90 %.0f p99 "
      "%.0f (n = %d)\n",
      at(0), at(0.5), at(0.9), at(0.99), rounds);
  std::printf("cpu: shard %.1f us per message\n", shard.End() * 1e6 / (rounds + kWarmUp));
}

void MeasureBatches(int messages) {
  Child shard({"shard"});
  Node node(shard.line, 1);
  for (int run = 0; run < 5; ++run) {
    std::promise<void> done;
    int left = messages;
    const Instant start = MonotonicNow();
    const double cpu = shard.CpuSeconds();
    On(node.loop, [&] {
      node.on_verdict = [&] {
        if (--left == 0) done.set_value();
      };
      for (int i = 0; i < messages; ++i) node.Announce();
    });
    done.get_future().wait();
    const double seconds = absl::ToDoubleSeconds(MonotonicNow() - start);
    std::printf(
        "batch: %d announcements of 1 KiB and their verdicts: %.0f ms, %.0f per second, shard cpu "
        "%.1f us each\n",
        messages, seconds * 1e3, messages / seconds, (shard.CpuSeconds() - cpu) * 1e6 / messages);
  }
  On(node.loop, [&] { node.on_verdict = nullptr; });
  shard.End();
}

void MeasureIdle(int seconds) {
  std::vector<std::unique_ptr<Child>> all;
  all.push_back(std::make_unique<Child>(std::vector<std::string>{"shard"}));
  for (int i = 1; i <= kNodes; ++i) {
    all.push_back(
        std::make_unique<Child>(std::vector<std::string>{"node", all[0]->line, absl::StrCat(i)}));
  }
  Wait(kSettle);
  std::vector<double> before;
  for (const auto& child : all) before.push_back(child->CpuSeconds());
  Wait(absl::Seconds(seconds));
  double total = 0;
  for (size_t i = 0; i < all.size(); ++i) total += all[i]->CpuSeconds() - before[i];
  std::printf(
      "idle: a shard and %d nodes for %d s: %.2f CPU seconds in all, %.2f of them the shard's\n",
      kNodes, seconds, total, all[0]->CpuSeconds() - before[0]);
  for (const auto& child : all) child->End();
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  int count = 0;
  const bool counted = argc > 2 && absl::SimpleAtoi(argv[2], &count) && count > 0;
  if (mode == "shard") {
    ServeUntilKilled();
  } else if (mode == "node" && argc == 4) {
    NodeUntilKilled(argv[2], static_cast<uint64_t>(std::atoi(argv[3])));
  } else if (mode == "latency") {
    MeasureLatency(counted ? count : 5000);
  } else if (mode == "batch") {
    MeasureBatches(counted ? count : 20000);
  } else if (mode == "idle") {
    MeasureIdle(counted ? count : 60);
  } else {
    std::fprintf(stderr, "usage: session_bench latency|batch|idle [COUNT]\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace phalanx::directory

int main(int argc, char** argv) { return phalanx::directory::Main(argc, argv); }
