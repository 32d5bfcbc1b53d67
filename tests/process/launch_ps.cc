// A server or a worker of a parameter server that `phalanx launch --servers S --workers W` starts,
// for tests:
//
//   launch_ps CLOCKS [TASK:CLOCK ...] [TASK:quit] [spare:CLOCK] [later] [large] [barriers]
//
// In each clock a worker pulls the table "w", compares every sum with what it has to be, and
// pushes. A TASK kills itself with SIGKILL in this clock of its first life: a worker behind its
// push and before the end of the clock, a server when worker 0 is there; so does the first spare
// that has taken a part. A worker that quits ends
// with 0 and without leaving the job; the servers wait five seconds for it then.
// With `later` a worker that repeats clocks can pull the state of a later one. With `large` the
// rows travel as objects. With `barriers` the servers wait for each other before they serve, and
// the workers behind each clock.
//
// Prints "CLOCKS clocks in life L", or "served in life L", and ends with 0; or prints "ERROR ..."
// and ends with 1.
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/ps.h"

namespace {

using phalanx::ps::BarrierGroup;
using phalanx::ps::Options;
using phalanx::ps::Server;
using phalanx::ps::Table;
using phalanx::ps::Worker;

constexpr int64_t kKeys = 1000;
// 80 KB on each of two servers.
constexpr int64_t kLargeKeys = 20'000;
// Nothing may wait for ever: a test that hangs says nothing.
constexpr absl::Duration kPatience = absl::Minutes(1);

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What a worker pushes to each key at a clock.
int64_t PushOf(int64_t worker, int64_t clock) { return (worker + 1) * 1000 + clock; }

class Task {
 public:
  explicit Task(std::vector<std::string> words) : words_(std::move(words)) {
    const bool quits = std::any_of(words_.begin(), words_.end(), [](const std::string& word) {
      return word.find(":quit") != std::string::npos;
    });
    options_.peer_timeout = quits ? absl::Seconds(5) : kPatience;
    keys_ = Has("large") ? kLargeKeys : kKeys;
  }

  absl::Status Serve(phalanx::Client& client) const {
    absl::StatusOr<Server> server = Server::Join(client, options_);
    if (!server.ok()) return server.status();
    absl::Status status = server->AddTable({.name = "w",
                                            .keys = static_cast<uint64_t>(keys_),
                                            .dtype = phalanx::DType::kI64,
                                            .wire = phalanx::DType::kI64,
                                            .snapshot_every = 3});
    if (!status.ok()) return status;
    server->OnRequest([&](const phalanx::ps::RequestInfo& request) {
      DieIn(request.head, server->life());
      return phalanx::ps::Reply{request.head, ""};
    });
    status = Has("barriers") ? server->Barrier(BarrierGroup::kServers) : absl::OkStatus();
    if (status.ok()) status = server->Run();
    if (!status.ok()) return status;
    std::cout << "served in life " << server->life() << std::endl;
    return status;
  }

  absl::Status Work(phalanx::Client& client, int clocks) const {
    absl::StatusOr<Worker> worker = Worker::Join(client, options_);
    if (!worker.ok()) return worker.status();
    const absl::StatusOr<Table<int64_t>> table = worker->Open<int64_t>("w");
    if (!table.ok()) return table.status();
    std::vector<int64_t> values(keys_);
    while (true) {
      absl::Status status = table->PullDense(absl::MakeSpan(values)).Wait(kPatience).status();
      const auto clock = static_cast<int>(table->clock());
      // At the last clock there is no later one.
      const bool later = clock < clocks && worker->life() > 0 && Has("later");
      if (status.ok()) status = Check(values, worker->workers(), *table, later);
      if (!status.ok()) return status;
      if (clock >= clocks) break;
      status = worker->rank() == 0 ? Announce(*worker, clock) : absl::OkStatus();
      if (!status.ok()) return status;
      std::fill(values.begin(), values.end(), PushOf(worker->rank(), clock));
      const phalanx::Future<phalanx::Done> push = table->PushDense(values);
      DieIn(clock, worker->life());
      status = push.Wait(kPatience).status();
      if (status.ok()) status = table->Clock();
      if (status.ok() && Has("barriers")) {
        status = worker->Barrier(BarrierGroup::kWorkers, {.epoch = table->clock()});
      }
      if (!status.ok()) return status;
    }
    std::cout << clocks << " clocks in life " << worker->life() << std::endl;
    return IsTo("quit") ? absl::OkStatus() : worker->Leave();
  }

 private:
  // Servers die in this.
  static absl::Status Announce(const Worker& worker, int clock) {
    for (int server = 0; server < worker.servers(); ++server) {
      const absl::Status answered = worker.Request(server, clock, "").Wait(kPatience).status();
      if (!answered.ok()) return answered;
    }
    return absl::OkStatus();
  }
  // Each key has all pushes of the clocks before this worker's, and no other.
  static absl::Status Check(const std::vector<int64_t>& values, int workers,
                            const Table<int64_t>& table, bool later) {
    const auto clocks = static_cast<int64_t>(table.clock());
    int64_t sum = 0;
    for (int64_t clock = 0; clock < clocks; ++clock) {
      for (int64_t worker = 0; worker < workers; ++worker) sum += PushOf(worker, clock);
    }
    for (size_t key = 0; key < values.size(); ++key) {
      if (values[key] == sum || (later && values[key] > sum)) continue;
      return absl::DataLossError(
          absl::StrCat("key ", key, " is ", values[key], " at clock ", clocks, ", expected ", sum));
    }
    return absl::OkStatus();
  }
  bool Has(const std::string& word) const {
    return std::find(words_.begin(), words_.end(), word) != words_.end();
  }
  bool IsTo(const std::string& what) const {
    return Has(absl::StrCat(Variable("PHALANX_TASK"), ":", what));
  }
  void DieIn(int clock, uint64_t life) const {
    if (life == 0 && IsTo(absl::StrCat(clock))) raise(SIGKILL);
    const std::string spare = absl::StrCat("spare:", clock);
    const bool is_spare = Variable("PHALANX_TASK").rfind("spare", 0) == 0;
    if (life == 1 && is_spare && Has(spare)) raise(SIGKILL);
  }

  const std::vector<std::string> words_;
  Options options_;
  int64_t keys_ = 0;
};

absl::Status Run(int clocks, std::vector<std::string> words) {
  const auto client = phalanx::Client::Connect();
  if (!client.ok()) return client.status();
  const Task task(std::move(words));
  if (Variable("PHALANX_ROLE") == "server") return task.Serve(**client);
  return task.Work(**client, clocks);
}

}  // namespace

int main(int argc, char** argv) {
  int clocks = 0;
  if (argc < 2 || !absl::SimpleAtoi(argv[1], &clocks)) return 2;
  const absl::Status status = Run(clocks, std::vector<std::string>(argv + 2, argv + argc));
  if (status.ok()) return 0;
  std::cout << "ERROR " << status << std::endl;
  return 1;
}
