// What is told of objects of which no copy is left.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/directory_core_harness.h"

namespace phalanx::directory::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLease = absl::Seconds(2);
const ObjectId x = Id("x");

std::string ReasonAt(Harness& h, const NodeKey& node) {
  const auto gone = h.Last(node, v1::ShardMessage::kGone);
  return gone.has_value() && gone->gone().kind() == v1::Gone::LOST ? gone->gone().reason() : "";
}

TEST(Loss, WhoAsksLaterIsToldWhoHadTheLastCopy) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Want(b, x);
  EXPECT_THAT(ReasonAt(h, b), HasSubstr("node a"));
}

TEST(Loss, WhoWaitsIsToldOnce) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x);
  h.Want(b, x);
  h.Seal(a, x, g);
  h.Down(a);
  EXPECT_EQ(ReasonAt(h, b), "") << "it may have every byte";
  h.Fail(b, x);
  EXPECT_THAT(ReasonAt(h, b), HasSubstr("node a"));
  h.Clear();
  h.Advance(5 * kLease);
  EXPECT_EQ(ReasonAt(h, b), "");
}

TEST(Loss, APutEndsIt) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Create(b, x, {.complete = true});
  h.Want(c, x);
  EXPECT_EQ(ReasonAt(h, c), "");
  EXPECT_EQ(h.SenderOf(c, x), b);
}

TEST(Loss, SoDoesANodeThatComesBack) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const Generation g = h.Create(a, x, {.complete = true});
  h.Down(a);
  h.NewSession(a);
  h.RegisterCopy(a, x, g, {});
  h.RegisterEnd(a);
  h.Want(b, x);
  EXPECT_EQ(ReasonAt(h, b), "");
}

TEST(Loss, WhatWasDeletedIsNotLost) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.complete = true});
  h.Down(a);
  h.Want(b, x);
  h.Unwant(b, x);
  h.Create(b, x, {.complete = true});
  h.Delete(b, x);
  h.Want(b, x);
  EXPECT_EQ(h.LastGone(b), v1::Gone::DELETED);
}

TEST(Loss, AnIdThatNobodyPutIsWaitedFor) {
  Harness h;
  const NodeKey b = h.Up("b");
  h.Want(b, x);
  h.Advance(5 * kLease);
  EXPECT_FALSE(h.LastGone(b).has_value());
}

TEST(Loss, TheOldestAreForgotten) {
  DirectoryOptions options;
  options.max_lost = 1;
  Harness h(/*learning=*/false, options);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, Id("y"), {.complete = true});
  h.Down(a);
  const NodeKey c = h.Up("c");
  h.Create(c, x, {.complete = true});
  h.Down(c);
  h.Want(b, x);
  EXPECT_THAT(ReasonAt(h, b), HasSubstr("node c"));
  h.Clear();
  h.Want(b, Id("y"));
  EXPECT_EQ(ReasonAt(h, b), "");
}

}  // namespace
}  // namespace phalanx::directory::testing
