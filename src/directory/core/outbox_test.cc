#include "src/directory/core/outbox.h"

#include "gtest/gtest.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory {
namespace {

const NodeKey kA{1, 1};
const NodeKey kB{2, 1};
const ObjectId kId = ObjectId::FromName("test", "object");

TEST(OutboxTest, TakeReturnsTheMessagesInTheOrderOfTheDecisions) {
  Outbox outbox;
  outbox.SendFetch(kB, kId, /*plan=*/7, /*keep=*/true);
  outbox.SendKept(kA, kId, Generation{kA, 1});
  const std::vector<Outgoing> sent = outbox.Take();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].to, kB);
  EXPECT_EQ(sent[0].message.fetch().plan_id(), 7u);
  EXPECT_TRUE(sent[0].message.fetch().keep());
  EXPECT_EQ(sent[1].to, kA);
  EXPECT_EQ(FromProto(sent[1].message.kept().generation()), (Generation{kA, 1}));
  EXPECT_TRUE(outbox.Take().empty());
}

TEST(OutboxTest, InlineBytesCountUntilTheMessagesAreTaken) {
  Outbox outbox;
  outbox.AddInlineBytes(10);
  outbox.AddInlineBytes(5);
  EXPECT_EQ(outbox.inline_bytes(), 15u);
  outbox.Take();
  EXPECT_EQ(outbox.inline_bytes(), 0u);
}

TEST(OutboxTest, AVerdictOfSupersededNamesTheAdoptedGeneration) {
  Outbox outbox;
  ObjectInfo info;
  info.size_bytes = 9;
  outbox.SendVerdict(kB, kId, Generation{kB, 2}, v1::Verdict::SUPERSEDED, Generation{kA, 1}, info);
  const v1::Verdict verdict = outbox.Take().front().message.verdict();
  EXPECT_EQ(FromProto(verdict.generation()), (Generation{kB, 2}));
  EXPECT_EQ(FromProto(verdict.adopted()), (Generation{kA, 1}));
  EXPECT_EQ(verdict.info().size_bytes(), 9u);
}

TEST(OutboxTest, GoneSaysWhichGenerationEndedAndWhy) {
  Outbox outbox;
  outbox.SendVoid(kA, kId, Generation{kA, 1}, "its creator ended");
  const v1::Gone gone = outbox.Take().front().message.gone();
  EXPECT_EQ(gone.object_id(), std::string(kId.binary()));
  EXPECT_EQ(gone.kind(), v1::Gone::VOID);
  EXPECT_EQ(gone.reason(), "its creator ended");
}

}  // namespace
}  // namespace phalanx::directory
