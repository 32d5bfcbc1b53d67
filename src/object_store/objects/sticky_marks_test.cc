#include "src/object_store/objects/sticky_marks.h"

#include "gtest/gtest.h"

namespace phalanx::object_store {
namespace {

TEST(StickyMarks, AMarkLastsAsLongAsTheCopy) {
  const ObjectId id = ObjectId::FromName("test", "1");
  const Generation generation{NodeKey{1, 1}, 1};
  StickyMarks marks(1);
  v1::StickyMark mark;
  mark.set_stamp(5);
  marks.Set(id, generation, mark);
  ASSERT_NE(marks.Find(id, generation), nullptr);
  EXPECT_EQ(marks.Find(id, generation)->stamp(), 5u);
  EXPECT_EQ(marks.Find(id, Generation{NodeKey{1, 1}, 2}), nullptr);
  marks.Forget(id, generation);
  EXPECT_EQ(marks.Find(id, generation), nullptr);
}

TEST(StickyMarks, TheGreatestStampOfEachShardIsKept) {
  StickyMarks marks(2);
  marks.NoteStamp(1, 7);
  marks.NoteStamp(1, 4);
  EXPECT_EQ(marks.LastStamp(0), 0u);
  EXPECT_EQ(marks.LastStamp(1), 7u);
}

}  // namespace
}  // namespace phalanx::object_store
