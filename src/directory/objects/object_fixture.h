// An ObjectTable with three nodes, and fakes of the components above it. Testonly.
//
// A test derives from ObjectFixture, fills in listeners_ with fakes or with the component that it
// tests, and drives the table with messages.
#ifndef PHALANX_DIRECTORY_OBJECTS_OBJECT_FIXTURE_H_
#define PHALANX_DIRECTORY_OBJECTS_OBJECT_FIXTURE_H_

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/directory/objects/object_table.h"

namespace phalanx::directory::testing {

inline const NodeKey kA{1, 1};
inline const NodeKey kB{2, 1};
inline const NodeKey kC{3, 1};

// Records what the table asks for; plans nothing.
class FakePulls final : public ObjectPulls {
 public:
  void Plan(Object&) override { ++plans; }
  void OnCopyComplete(Object&, const NodeKey& node) override { completed.push_back(node); }
  void OnCopyRemoved(Object&, const NodeKey& node) override { removed.push_back(node); }
  void OnCopyRegistered(Object&, const NodeKey&, bool) override {}
  void SetConnected(Object&, const NodeKey&, bool) override {}
  void Postpone(Object&, const NodeKey& node) override { postponed.push_back(node); }
  void Requeue(Object&, const NodeKey&) override {}
  void EndWant(Object&, const NodeKey&) override {}
  bool AdmitRegisteredWant(Object&, Node&) override { return false; }
  void AdmitOutsidePulls(Object&, const NodeKey&) override {}
  void RequeueOutsidePulls(Object&) override {}
  void RefuseWants(Object&) override {}
  void DropTree(Object&) override {}
  void DropTreeIfIdle(Object&) override {}

  int plans = 0;
  std::vector<NodeKey> completed;
  std::vector<NodeKey> removed;
  std::vector<NodeKey> postponed;
};

class FakeReductions final : public ObjectReductions {
 public:
  void OnObjectChanged(const ObjectId&) override {}
  bool IsReducing(const ObjectId&) const override { return planned.has_value(); }
  std::optional<Generation> PlannedResult(const ObjectId&) const override { return planned; }
  bool OnUnheld(const ObjectId&) override { return false; }
  bool AwaitsResult(const Object&) const override { return false; }
  bool Watches(const ObjectId&) const override { return watches; }
  bool ClearOwned(const ObjectId&) override { return planned.has_value(); }

  std::optional<Generation> planned;
  bool watches = false;
};

class FakeDrains final : public ObjectDrains {
 public:
  void OnCopiesChanged(Object&) override {}
  void OnNodeLeft(Object&, const NodeKey&) override {}
  void OnTimer(const Object&) override {}
  void OnReleased(const Object&) override { ++released; }

  int released = 0;
};

class FakePlacements final : public ObjectPlacements {
 public:
  void OnAdopted(const Object&) override { ++adopted; }
  void OnReturned(const Object&) override {}
  void OnCopiesChanged(const Object&) override {}
  void OnPolicyRegistered(const Object&, const NodeKey& node, const PlacementPolicy&) override {
    policies.push_back(node);
  }
  void OnCopyConfirmed(const Object&, const NodeKey& node) override { confirmed.push_back(node); }
  void OnReleased(const Object&) override {}

  int adopted = 0;
  std::vector<NodeKey> policies;
  std::vector<NodeKey> confirmed;
};

class ObjectFixture : public ::testing::Test {
 protected:
  // `learning`: the shard has just restarted; the test opens the gate.
  explicit ObjectFixture(const DirectoryOptions& options = {}, bool learning = false)
      : context_(options, Instant(), Random(1)) {
    int number = 0;
    for (const NodeKey& key : {kA, kB, kC}) {
      Node& node = nodes_.Open(key).node;
      node.info.set_name(std::string(1, static_cast<char>('a' + number++)));
      node.endpoint.node = key;
      node.session = nodes_.NewSession();
    }
    if (!learning) gate_.Open();
  }
  ~ObjectFixture() override { EXPECT_EQ(table_.CheckInvariants(), absl::OkStatus()); }

  Node& node(const NodeKey& key) { return *nodes_.Find(key); }
  Object& object() { return *table_.Find(id_); }
  void Advance(absl::Duration by) { context_.now = context_.now + by; }
  static Generation Gen(const NodeKey& creator, uint64_t sequence = 1) {
    return Generation{creator, sequence};
  }
  void Create(const NodeKey& creator, bool complete, uint64_t size = 4, bool owned = false) {
    v1::AnnounceCreate m;
    m.set_object_id(id_.binary().data(), ObjectId::kSize);
    ToProto(Gen(creator), m.mutable_generation());
    ObjectInfo info;
    info.size_bytes = size;
    info.owned = owned;
    ToProto(info, m.mutable_info());
    m.set_complete(complete);
    EXPECT_EQ(table_.OnCreate(node(creator), m), absl::OkStatus());
  }
  void Seal(const NodeKey& creator) {
    v1::AnnounceSeal m;
    m.set_object_id(id_.binary().data(), ObjectId::kSize);
    ToProto(Gen(creator), m.mutable_generation());
    EXPECT_EQ(table_.OnSeal(node(creator), m), absl::OkStatus());
  }
  // The node has a complete copy of the adopted generation, which it received.
  void AddCompleteCopy(const NodeKey& key, CopyState state = CopyState::kComplete) {
    table_.AddCopy(object(), node(key));
    table_.CompleteCopy(object(), key, state);
    table_.Reevaluate(object());
  }
  void Down(const NodeKey& key) {
    table_.NodeDown(*nodes_.BeginRemove(key));
    nodes_.EndRemove();
  }
  // "node: KIND" of each verdict since the last call.
  std::vector<std::string> TakeVerdicts() {
    std::vector<std::string> verdicts;
    for (const Outgoing& out : outbox_.Take()) {
      if (!out.message.has_verdict()) continue;
      verdicts.push_back(nodes_.NameOf(out.to) + ": " +
                         v1::Verdict::Kind_Name(out.message.verdict().kind()));
    }
    return verdicts;
  }
  // The messages for `to` since the last call.
  std::vector<v1::ShardMessage> TakeMessages(const NodeKey& to) {
    std::vector<v1::ShardMessage> messages;
    for (Outgoing& out : outbox_.Take()) {
      if (out.to == to) messages.push_back(std::move(out.message));
    }
    return messages;
  }

  CoreContext context_;
  NodeTable nodes_;
  Outbox outbox_;
  RecoveryGate gate_{context_};
  HoldSets holds_{100};
  TombstoneTable tombstones_{context_};
  LossTable losses_{context_};
  FailureTable failures_{context_};
  InlineCache inline_cache_{100};
  ExpiryQueue expiries_;
  ScopeTable scopes_{context_};
  FakePulls pulls_;
  FakeReductions reductions_;
  FakeDrains drains_;
  FakePlacements placements_;
  ObjectListeners listeners_;
  ObjectTable table_{{context_, nodes_, outbox_, gate_, holds_, tombstones_, losses_, failures_,
                      inline_cache_, expiries_, scopes_},
                     listeners_};
  const ObjectId id_ = ObjectId::FromName("test", "object");
};

}  // namespace phalanx::directory::testing

#endif  // PHALANX_DIRECTORY_OBJECTS_OBJECT_FIXTURE_H_
