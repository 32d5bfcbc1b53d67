#include "src/directory/objects/object_table.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/objects/object_fixture.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using testing::kA;
using testing::kB;
using testing::ObjectFixture;

class ObjectTableTest : public ObjectFixture {
 protected:
  ObjectTableTest() { listeners_ = {&pulls_, &reductions_, &drains_, &placements_}; }
};

using Verdicts = std::vector<std::string>;

TEST_F(ObjectTableTest, AdoptsTheFirstGenerationAndPlans) {
  Create(kA, /*complete=*/false);
  const Object* object = table_.Find(id_);
  ASSERT_NE(object, nullptr);
  EXPECT_EQ(object->phase(), ObjectPhase::kWriting);
  EXPECT_EQ(object->copies.writing(), 1);
  EXPECT_EQ(TakeVerdicts(), Verdicts{"a: ADOPTED"});
  EXPECT_GT(pulls_.plans, 0);
}

TEST_F(ObjectTableTest, ASecondGenerationStandsByAndIsSupersededWhenTheFirstIsSealed) {
  Create(kA, /*complete=*/false);
  Create(kB, /*complete=*/true);
  EXPECT_EQ(TakeVerdicts(), (Verdicts{"a: ADOPTED", "b: STANDBY"}));
  Seal(kA);
  EXPECT_TRUE(table_.Find(id_)->sealed());
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
  EXPECT_TRUE(object->sealed());
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
  EXPECT_EQ(tombstones_.UnconfirmedOf(*tombstones_.Find(id_)).size(), 1u);
}

TEST_F(ObjectTableTest, APutUnderTheTargetOfAReductionStandsBy) {
  reductions_.planned = Generation();
  Create(kA, /*complete=*/true);
  EXPECT_FALSE(table_.Find(id_)->adopted());
  reductions_.planned = std::nullopt;
  table_.Reevaluate(*table_.Find(id_));
  EXPECT_TRUE(table_.Find(id_)->adopted());
}

TEST_F(ObjectTableTest, ANewSessionMakesCopiesStaleAndRemovesUnregisteredOnes) {
  Create(kA, /*complete=*/true);
  table_.SessionBegins(node(kA));
  EXPECT_TRUE(table_.Find(id_)->copies.at(kA).stale);
  EXPECT_FALSE(table_.Find(id_)->HasOtherCompleteCopy(nodes_, kB));
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
