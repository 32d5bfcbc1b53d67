#include "src/object_store/objects/deleted_generations.h"

#include <string>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::object_store {
namespace {

ObjectId Id(int i) { return ObjectId::FromName("test", std::to_string(i)); }

TEST(DeletedGenerations, TheOldestIsForgottenFirst) {
  const Generation generation{NodeKey{1, 1}, 1};
  DeletedGenerations deleted(2);
  deleted.Add(Id(1), generation);
  deleted.Add(Id(2), generation);
  deleted.Add(Id(1), generation);
  EXPECT_EQ(deleted.by_age().size(), 2u) << "a generation is listed once";
  deleted.Add(Id(3), generation);
  PHALANX_EXPECT_OK(deleted.CheckInvariants());
  EXPECT_FALSE(deleted.Contains(Id(1), generation));
  EXPECT_TRUE(deleted.Contains(Id(2), generation));
  EXPECT_EQ(deleted.by_age().front().first, Id(2));
}

TEST(DeletedGenerations, OtherGenerationsOfTheObjectAreNotDeleted) {
  DeletedGenerations deleted(2);
  deleted.Add(Id(1), Generation{NodeKey{1, 1}, 1});
  EXPECT_FALSE(deleted.Contains(Id(1), Generation{NodeKey{1, 1}, 2}));
}

}  // namespace
}  // namespace phalanx::object_store
