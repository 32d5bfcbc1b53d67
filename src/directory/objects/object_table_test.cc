#include "src/directory/objects/object_table.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;

const NodeKey kA{1, 1};
const NodeKey kB{2, 1};

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
  bool AwaitsResult(const Object&) const override { return false; }

  std::optional<Generation> planned;
};

class FakeDrains final : public ObjectDrains {
 public:
  void OnCopiesChanged(Object&) override {}
  void OnNodeLeft(Object&, const NodeKey&) override {}
  void OnTimer(const Object&) override {}
  void OnReleased(const Object&) override { ++released; }

  int released = 0;
};

class ObjectTableTest : public ::testing::Test {
 protected:
  ObjectTableTest() {
    listeners_ = {&pulls_, &reductions_, &drains_};
    for (const NodeKey& key : {kA, kB}) nodes_.Open(key).node.session = nodes_.NewSession();
    gate_.Open();
  }
  ~ObjectTableTest() override { EXPECT_THAT(table_.CheckInvariants(), IsOk()); }

  Node& node(const NodeKey& key) { return *nodes_.Find(key); }
  static Generation Gen(const NodeKey& creator, uint64_t sequence = 1) {
    return Generation{creator, sequence};
  }
  void Create(const NodeKey& creator, bool complete, uint64_t size = 4) {
    v1::AnnounceCreate m;
    m.set_object_id(id_.binary().data(), ObjectId::kSize);
    ToProto(Gen(creator), m.mutable_generation());
    ObjectInfo info;
    info.size_bytes = size;
    ToProto(info, m.mutable_info());
    m.set_complete(complete);
    ASSERT_THAT(table_.OnCreate(node(creator), m), IsOk());
  }
  void Seal(const NodeKey& creator) {
    v1::AnnounceSeal m;
    m.set_object_id(id_.binary().data(), ObjectId::kSize);
    ToProto(Gen(creator), m.mutable_generation());
    ASSERT_THAT(table_.OnSeal(node(creator), m), IsOk());
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
      verdicts.push_back(std::string(out.to == kA ? "a: " : "b: ") +
                         v1::Verdict::Kind_Name(out.message.verdict().kind()));
    }
    return verdicts;
  }

  CoreContext context_{DirectoryOptions(), Instant(), Random(1)};
  NodeTable nodes_;
  Outbox outbox_;
  RecoveryGate gate_{context_};
  HoldSets holds_{100};
  TombstoneTable tombstones_{context_};
  LossTable losses_{context_};
  FailureTable failures_{context_};
  InlineCache inline_cache_{100};
  Broadcasts placements_{Broadcasts::Limits{}};
  FakePulls pulls_;
  FakeReductions reductions_;
  FakeDrains drains_;
  ObjectListeners listeners_;
  ObjectTable table_{{context_, nodes_, outbox_, gate_, holds_, tombstones_, losses_, failures_,
                      inline_cache_, placements_},
                     listeners_};
  const ObjectId id_ = ObjectId::FromName("test", "object");
};

using Verdicts = std::vector<std::string>;

TEST_F(ObjectTableTest, AdoptsTheFirstGenerationAndPlans) {
  Create(kA, /*complete=*/false);
  const Object* object = table_.Find(id_);
  ASSERT_NE(object, nullptr);
  EXPECT_TRUE(object->adopted);
  EXPECT_FALSE(object->sealed);
  EXPECT_TRUE(object->has_writer());
  EXPECT_EQ(TakeVerdicts(), Verdicts{"a: ADOPTED"});
  EXPECT_GT(pulls_.plans, 0);
}

TEST_F(ObjectTableTest, ASecondGenerationStandsByAndIsSupersededWhenTheFirstIsSealed) {
  Create(kA, /*complete=*/false);
  Create(kB, /*complete=*/true);
  EXPECT_EQ(TakeVerdicts(), (Verdicts{"a: ADOPTED", "b: STANDBY"}));
  Seal(kA);
  EXPECT_TRUE(table_.Find(id_)->sealed);
  EXPECT_EQ(pulls_.completed, std::vector<NodeKey>{kA});
  EXPECT_EQ(TakeVerdicts(), Verdicts{"b: SUPERSEDED"});
}

TEST_F(ObjectTableTest, AStandbyIsAdoptedWhenTheWriterDies) {
  Create(kA, /*complete=*/false);
  Create(kB, /*complete=*/true);
  TakeVerdicts();
  Down(kA);
  const Object* object = table_.Find(id_);
  ASSERT_NE(object, nullptr);
  EXPECT_EQ(object->generation, Gen(kB));
  EXPECT_TRUE(object->sealed);
  EXPECT_EQ(TakeVerdicts(), Verdicts{"b: ADOPTED"});
}

TEST_F(ObjectTableTest, AGenerationWithoutACompleteCopyIsVoidAndTheObjectReleased) {
  Create(kA, /*complete=*/false);
  Down(kA);
  EXPECT_EQ(table_.Find(id_), nullptr);
  EXPECT_EQ(context_.counters.voided, 1u);
  EXPECT_EQ(drains_.released, 1);
  EXPECT_EQ(losses_.Find(id_), nullptr);
}

TEST_F(ObjectTableTest, ASealedGenerationWithoutACopyIsLost) {
  Create(kA, /*complete=*/true);
  Down(kA);
  EXPECT_EQ(table_.Find(id_), nullptr);
  ASSERT_NE(losses_.Find(id_), nullptr);
  EXPECT_TRUE(losses_.Contains(id_, Gen(kA)));
}

TEST_F(ObjectTableTest, ATombstoneRefusesItsGeneration) {
  tombstones_.Add(id_, Gen(kA));
  Create(kA, /*complete=*/true);
  EXPECT_EQ(table_.Find(id_), nullptr);
  EXPECT_EQ(TakeVerdicts(), Verdicts{"a: DELETED"});
  EXPECT_EQ(tombstones_.Find(id_)->unconfirmed.size(), 1u);
}

TEST_F(ObjectTableTest, APutUnderTheTargetOfAReductionStandsBy) {
  reductions_.planned = Generation();
  Create(kA, /*complete=*/true);
  EXPECT_FALSE(table_.Find(id_)->adopted);
  reductions_.planned = std::nullopt;
  table_.Reevaluate(*table_.Find(id_));
  EXPECT_TRUE(table_.Find(id_)->adopted);
}

TEST_F(ObjectTableTest, ANewSessionMakesCopiesStaleAndRemovesWhatItDoesNotRegister) {
  Create(kA, /*complete=*/true);
  table_.SessionBegins(node(kA));
  EXPECT_TRUE(table_.Find(id_)->copies.at(kA).stale);
  EXPECT_FALSE(table_.HasOtherCompleteCopy(*table_.Find(id_), kB));
  table_.SessionRegistered(node(kA));
  EXPECT_EQ(table_.Find(id_), nullptr);
  EXPECT_TRUE(losses_.Contains(id_, Gen(kA)));
}

TEST_F(ObjectTableTest, AnUnreferencedOwnedObjectIsNoted) {
  Create(kA, /*complete=*/true);
  table_.TakeUnreferenced();
  Object& object = *table_.Find(id_);
  object.info.owned = true;
  table_.Reevaluate(object);
  EXPECT_TRUE(table_.Unreferenced(object));
  EXPECT_EQ(table_.TakeUnreferenced().count(id_), 1u);
  holds_.Hold(kB, id_);
  EXPECT_FALSE(table_.Unreferenced(object));
}

TEST_F(ObjectTableTest, InlineBytesAreDroppedBeyondTheLimit) {
  Create(kA, /*complete=*/true, /*size=*/60);
  table_.CacheInline(*table_.Find(id_), std::string(60, 'x'));
  const ObjectId other = ObjectId::FromName("test", "other");
  Object& second = table_.GetOrCreate(other);
  table_.CacheInline(second, std::string(60, 'y'));
  EXPECT_FALSE(table_.Find(id_)->inline_entry.cached());
  EXPECT_TRUE(second.inline_entry.cached());
  EXPECT_LE(inline_cache_.bytes(), 100u);
  // The second object has no state but its bytes: the table may release it.
  table_.ReleaseIfEmpty(second);
  EXPECT_EQ(table_.Find(other), nullptr);
}

}  // namespace
}  // namespace phalanx::directory
