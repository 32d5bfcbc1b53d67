#include "tests/simulation/story.h"

#include "gtest/gtest.h"

namespace phalanx::sim {
namespace {

constexpr absl::Duration kTooLong = absl::Minutes(1);

ClusterOptions Options(int nodes) {
  ClusterOptions options;
  options.nodes = nodes;
  options.capacity_bytes = 64 << 20;
  options.lease = absl::Seconds(1);
  options.data_plane.idle_timeout = absl::Seconds(5);
  options.fabric.link.latency = absl::Microseconds(100);
  options.fabric.interface_bytes_per_second = 1e7;
  options.fabric.send_buffer_bytes = options.fabric.receive_buffer_bytes = 64 << 10;
  return options;
}

ObjectId Id(absl::string_view name) { return ObjectId::FromName("story", name); }

}  // namespace

Story::Story(int nodes) : cluster_(Options(nodes)), checkers_(cluster_) {
  // Waits until all nodes have connected to the shard.
  Until([this] {
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (cluster_.node(n) == nullptr) return false;
      for (const absl::Status& state : cluster_.node(n)->ShardStates()) {
        if (!state.ok()) return false;
      }
    }
    return true;
  });
}

// ------------------------------------------------------------------------------------ requests

SimClient& Story::ClientOf(int n) {
  const std::vector<SimClient*> clients = cluster_.clients(n);
  return clients.empty() ? *cluster_.OpenClient(n) : *clients[0];
}

uint64_t Story::StartRequest(int n, const std::function<uint64_t(SimClient&)>& request) {
  uint64_t operation = 0;
  cluster_.OnNode(n, [this, n, &request, &operation] { operation = request(ClientOf(n)); });
  Until([&operation] { return operation != 0; });
  return operation;
}

uint64_t Story::StartPut(int n, absl::string_view name, uint64_t bytes) {
  SimClient::PutShape shape;
  shape.id = Id(name);
  shape.size_bytes = bytes;
  shape.wait_for_adoption = true;
  return StartRequest(n, [&shape](SimClient& client) { return client.Put(shape); });
}

uint64_t Story::StartGet(int n, absl::string_view name) {
  return StartRequest(n, [name](SimClient& client) {
    return client.Get(Id(name), absl::InfiniteDuration(), /*streaming=*/false);
  });
}

uint64_t Story::StartStream(int n, absl::string_view name) {
  return StartRequest(n, [name](SimClient& client) {
    return client.Get(Id(name), absl::InfiniteDuration(), /*streaming=*/true);
  });
}

uint64_t Story::StartDelete(int n, absl::string_view name) {
  return StartRequest(
      n, [name](SimClient& client) { return client.Delete(Id(name), absl::InfiniteDuration()); });
}

void Story::StartWriting(int n, absl::string_view name, uint64_t size, uint64_t bytes) {
  SimClient::PutShape shape;
  shape.id = Id(name);
  shape.size_bytes = size;
  AwaitAll({StartRequest(n, [&shape](SimClient& client) { return client.Create(shape); })});
  bool written = false;
  cluster_.OnNode(n, [&] {
    SimClient& client = ClientOf(n);
    client.Write(client.writer(client.writers().back()), bytes);
    written = true;
  });
  Until([&written] { return written; });
}

absl::Status Story::Await(uint64_t operation) {
  if (operation == 0) return absl::UnknownError("the operation was not started");
  const auto& operations = cluster_.history().operations();
  Until([&] { return operations[operation - 1].state != Operation::State::kRunning; });
  const Operation& ended = operations[operation - 1];
  if (ended.state == Operation::State::kEnded) return ended.status;
  return absl::UnknownError("it was lost with its client");
}

void Story::AwaitAll(const std::vector<uint64_t>& operations) {
  for (const uint64_t operation : operations) {
    const absl::Status status = Await(operation);
    EXPECT_TRUE(status.ok()) << cluster_.history().operation(operation).what << ": " << status;
  }
}

void Story::Put(int n, absl::string_view name, uint64_t bytes) {
  AwaitAll({StartPut(n, name, bytes)});
}

void Story::Delete(int n, absl::string_view name) { AwaitAll({StartDelete(n, name)}); }

// ---------------------------------------------------------------------------------------- time

void Story::Until(absl::FunctionRef<bool()> done) {
  const bool reached = cluster_.scheduler().RunUntil(
      [&] {
        checkers_.CheckCores();
        checkers_.CheckCopies();
        return done() || !cluster_.journal().violation().ok();
      },
      kTooLong);
  ASSERT_TRUE(cluster_.journal().violation().ok()) << cluster_.journal().Tail() << "\n"
                                                   << cluster_.journal().violation();
  ASSERT_TRUE(reached) << "the condition does not hold within a minute\n"
                       << cluster_.journal().Tail();
}

void Story::Pass(absl::Duration time) {
  const Instant end = cluster_.scheduler().now() + time;
  Until([this, end] { return cluster_.scheduler().now() >= end; });
}

void Story::Settle() {
  absl::Status status;
  for (int i = 0; i < 200; ++i) {
    Pass(absl::Milliseconds(100));
    status = checkers_.Settled();
    if (status.ok() || ::testing::Test::HasFatalFailure()) return;
  }
  ADD_FAILURE() << status << "\n" << cluster_.journal().Tail();
}

// ------------------------------------------------------------------------------------- looking

uint64_t Story::Has(int n, absl::string_view name) {
  if (cluster_.node(n) == nullptr) return 0;
  uint64_t bytes = 0;
  for (const auto& copy : cluster_.store(n)->Copies()) {
    if (copy.id == Id(name)) bytes = std::max(bytes, copy.bytes_present);
  }
  return bytes;
}

std::vector<int> Story::FedBy(int n, absl::string_view name) {
  std::vector<int> fed;
  const v1::DescribeObjectResponse described = cluster_.Describe(Id(name));
  for (const v1::CopyDescription& copy : described.copies()) {
    if (!copy.pulling() || copy.sender_name() != NodeName(n)) continue;
    for (int other = 0; other < cluster_.num_nodes(); ++other) {
      if (copy.name() == NodeName(other)) fed.push_back(other);
    }
  }
  return fed;
}

int Story::Relay(int writer, absl::string_view name) {
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    if (n != writer && !FedBy(n, name).empty()) return n;
  }
  return -1;
}

uint64_t Story::SentTo(int n) {
  uint64_t bytes = 0;
  for (int from = 0; from < cluster_.num_nodes(); ++from) {
    if (from == n) continue;
    bytes += cluster_.fabric().BytesCarried(NodeName(from), NodeName(n));
  }
  return bytes;
}

}  // namespace phalanx::sim
