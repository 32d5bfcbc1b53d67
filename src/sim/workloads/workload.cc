#include "src/sim/workloads/workload.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::sim {
namespace {

template <typename T>
const T& AnyOf(const std::vector<T>& of, Random& random) {
  return of[random.Below(of.size())];
}

}  // namespace

Workload::Workload(SimCluster& cluster, const WorkloadOptions& options, Random& random)
    : cluster_(cluster), options_(options), random_(random) {
  for (int i = 0; i < options_.objects; ++i) ids_.push_back(NewId());
}

void Workload::Act(int n) {
  const Action action = Choose();
  Execute(action, n, AnyClient(n));
}

void Workload::Execute(Action action, int n, SimClient& client) {
  switch (action) {
    case Action::kPut:
      return Put(client);
    case Action::kCreate:
      client.Create(AnyShape());
      return;
    case Action::kWrite:
      return Write(client);
    case Action::kSeal:
      if (const auto writers = client.writers(); !writers.empty()) {
        client.Seal(AnyOf(writers, random_), random_.Chance(options_.wait_for_adoption));
      }
      return;
    case Action::kAbort:
      if (const auto writers = client.writers(); !writers.empty()) {
        client.Abort(AnyOf(writers, random_));
      }
      return;
    case Action::kGet:
    case Action::kStream:
      // All Gets name the first object as their affinity object, so such Gets are common.
      client.Get(AnyId(), AnyTimeout(), action == Action::kStream, ids_.front());
      return;
    case Action::kReadRange:
      client.ReadUntil(AnyId(), AnyTimeout(), random_.Unit());
      return;
    case Action::kRelease:
      if (const auto pins = client.pins(); !pins.empty()) {
        client.Release(AnyOf(pins, random_), /*recycle=*/!random_.Chance(0.1));
      }
      return;
    case Action::kCancel:
      if (const auto open = client.cancellable(); !open.empty()) {
        client.Cancel(AnyOf(open, random_));
      }
      return;
    case Action::kDelete:
      return Delete(client);
    case Action::kStat:
      client.Stat(AnyId(), AnyTimeout());
      return;
    case Action::kBroadcast:
      return Broadcast(client);
    case Action::kOpen:
      cluster_.OpenClient(n);
      return;
    case Action::kClose:
    case Action::kDie:
      client.Close(action == Action::kClose);
      return;
  }
}

Action Workload::Choose() {
  const auto& weights = options_.weights;
  double at = random_.Unit() * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < kActions; ++i) {
    if (at < weights[i]) return static_cast<Action>(i);
    at -= weights[i];
  }
  return Action::kGet;
}

SimClient& Workload::AnyClient(int n) {
  // All clients can have closed or died.
  const std::vector<SimClient*> clients = cluster_.clients(n);
  return clients.empty() ? *cluster_.OpenClient(n) : *AnyOf(clients, random_);
}

const ObjectId& Workload::AnyId() { return AnyOf(ids_, random_); }

const ObjectId& Workload::NewId() {
  const std::string name = absl::StrCat(all_ids_.size() + 1);
  all_ids_.push_back(ObjectId::FromName("simulation", name));
  // Names must cost objects without one nothing, so half of them have none.
  if (all_ids_.size() % 2 == 1) {
    cluster_.history().SetObjectName(all_ids_.back(), ObjectName::Of("simulation", name));
  }
  return all_ids_.back();
}

uint64_t Workload::AnySize() {
  if (random_.Chance(options_.large)) {
    const uint64_t least = kMaxInlineBytes + 1;
    return options_.max_bytes <= least ? least : least + random_.Below(options_.max_bytes - least);
  }
  // Sizes at and around the limits at which the code changes its path.
  static constexpr uint64_t kCorners[] = {0, 1, 63, 64, 4096, kMaxInlineBytes, kMaxInlineBytes + 1};
  if (random_.Chance(0.3)) return kCorners[random_.Below(std::size(kCorners))];
  return random_.Below(random_.Chance(0.8) ? 3000 : kMaxInlineBytes);
}

absl::Duration Workload::AnyTimeout() {
  if (random_.Chance(options_.patient)) return absl::InfiniteDuration();
  // Sometimes a request accepts only a local copy.
  if (random_.Chance(0.1)) return absl::ZeroDuration();
  return options_.max_timeout * random_.Unit();
}

SimClient::PutShape Workload::AnyShape() {
  SimClient::PutShape shape;
  shape.id = AnyId();
  shape.size_bytes = AnySize();
  shape.slices = 1 + static_cast<int>(random_.Below(static_cast<uint64_t>(options_.max_slices)));
  // A task that runs again puts the same size and slices, so most runs need such attempts.
  const Shape& first =
      shapes_.try_emplace(shape.id, Shape{shape.size_bytes, shape.slices}).first->second;
  if (random_.Chance(options_.same_shape)) {
    shape.size_bytes = first.size_bytes;
    shape.slices = first.slices;
  }
  // The largest metadata must fit into every message.
  if (random_.Chance(0.02)) shape.metadata_bytes = kMaxMetadataBytes;
  shape.wait_for_adoption = random_.Chance(options_.wait_for_adoption);
  shape.timeout = AnyTimeout();
  // A Put needs time for memory, so it never has a zero timeout.
  if (shape.timeout == absl::ZeroDuration()) shape.timeout = options_.max_timeout;
  return shape;
}

void Workload::Put(SimClient& client) {
  SimClient::PutShape shape = AnyShape();
  // A Put cannot be cancelled, so its timeout is bounded.
  shape.timeout = std::min(shape.timeout, options_.max_timeout);
  client.Put(shape);
}

void Workload::Write(SimClient& client) {
  const auto writers = client.writers();
  if (writers.empty()) return;
  client.Write(client.writer(AnyOf(writers, random_)), 1 + random_.Below(options_.max_write));
}

void Workload::Delete(SimClient& client) {
  ObjectId& id = ids_[random_.Below(ids_.size())];
  client.Delete(id, AnyTimeout());
  // A reused id tests tombstones; a new one lets the workload make progress.
  if (!random_.Chance(options_.reuse_ids)) id = NewId();
}

void Workload::Broadcast(SimClient& client) {
  std::vector<std::string> names = {"*"};
  if (random_.Chance(0.7)) {
    // Mostly one node, so that the other nodes still pull for their own Gets.
    names = {
        NodeName(static_cast<int>(random_.Below(static_cast<uint64_t>(cluster_.num_nodes()))))};
  }
  const uint64_t operation = client.Broadcast(AnyId(), std::move(names), AnyTimeout());
  // The nodes still fetch. BroadcastSimulation has the callers that wait.
  client.Cancel(operation);
}

// ---------------------------------------------------------------------------------- afterwards

void Workload::FinishWriters() {
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    cluster_.OnNode(n, [this, n] {
      for (SimClient* client : cluster_.clients(n)) {
        for (const object_store::WriterId writer : client->writers()) {
          if (random_.Chance(0.8)) {
            client->Seal(writer, random_.Chance(options_.wait_for_adoption));
          } else {
            client->Abort(writer);
          }
        }
      }
    });
  }
}

void Workload::ReleaseMemory() {
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    cluster_.OnNode(n, [this, n] {
      for (SimClient* client : cluster_.clients(n)) {
        for (const uint64_t operation : client->cancellable()) {
          // Gets stay: they need no new memory of the writers, and calm must answer them.
          if (!cluster_.history().operation(operation).read) client->Cancel(operation);
        }
        for (const object_store::PinId pin : client->pins()) {
          // Streams end by themselves when their bytes arrive.
          if (!client->streams(pin)) client->Release(pin, true);
        }
      }
    });
  }
}

void Workload::GetEverything(absl::Duration timeout) {
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    cluster_.OnNode(n, [this, n, timeout] {
      // Different nodes name different objects, so the probe covers most neighbours.
      const ObjectId& near = all_ids_[static_cast<size_t>(n) % all_ids_.size()];
      for (const ObjectId& id : all_ids_) {
        AnyClient(n).Get(id, timeout, /*streaming=*/random_.Chance(0.2), near);
      }
    });
  }
}

void Workload::CloseClients() {
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    cluster_.OnNode(n, [this, n] {
      for (SimClient* client : cluster_.clients(n)) {
        for (const uint64_t operation : client->cancellable()) client->Cancel(operation);
        for (const object_store::PinId pin : client->pins()) client->Release(pin, true);
        client->Close(/*clean=*/true);
      }
    });
  }
}

void Workload::PutMissingObjects(int n) {
  cluster_.OnNode(n, [this, n] {
    SimClient& client = *cluster_.OpenClient(n);
    for (const ObjectId& id : all_ids_) {
      const v1::ObjectSummary summary = cluster_.Describe(id).summary();
      // Only missing objects: another put would replace or drop a generation.
      if (summary.waiting() == 0 || summary.complete_copies() != 0) continue;
      SimClient::PutShape shape;
      shape.id = id;
      shape.size_bytes = 1;
      shape.timeout = options_.max_timeout;
      client.Put(shape);
    }
  });
}

void Workload::DeleteEverything(int n) {
  cluster_.OnNode(n, [this, n] {
    SimClient& client = *cluster_.OpenClient(n);
    for (const ObjectId& id : all_ids_) client.Delete(id, absl::Seconds(20));
  });
}

}  // namespace phalanx::sim
