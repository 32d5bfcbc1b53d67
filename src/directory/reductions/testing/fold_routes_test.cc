#include "src/directory/reductions/fold_routes.h"

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/directory/reductions/report/reduction_report.h"
#include "src/directory/reductions/testing/reduction_fixture.h"

namespace phalanx::directory {
namespace {

using absl::StatusCode;
using testing::kA;
using testing::kB;
using testing::kC;
using testing::Lines;
using testing::ReductionFixture;

const NodeKey kD{4, 1};

// Source 0 on node a, source 1 on node b: b folds what it pulls from a. Nodes c and d have nothing.
class FoldRoutesTest : public ReductionFixture {
 protected:
  FoldRoutesTest() {
    Node& d = nodes_.Open(kD).node;
    d.info.set_name("d");
    d.endpoint.node = kD;
    d.session = nodes_.NewSession();
    node(kA).info.set_address("10.0.0.1:7000");
    PutSources(2);
    Changed(Source(0));
    Changed(Source(1));
  }
  ~FoldRoutesTest() override {
    EXPECT_EQ(routes_.CheckInvariants(reduction_), absl::OkStatus());
    Erase(reduction_);
  }

  void Plan() {
    reduction_.phase = ReductionPhase::kPlanned;
    reduction_.plan.Begin();
    Run();
    for (const ReducePlan::SlotView& slot : reduction_.plan.Look().slots) {
      (slot.node == kA ? child_ : parent_) = slot.version;
    }
  }
  void Run() {
    for (const ReduceEffect& effect : reduction_.plan.TakeEffects()) {
      if (const auto* place = std::get_if<PlaceFold>(&effect)) routes_.Apply(reduction_, *place);
      if (const auto* drop = std::get_if<DropFold>(&effect)) dispatcher_.Apply(reduction_, *drop);
    }
    routes_.Refresh(reduction_);
  }
  void Fail(const NodeKey& receiver, const NodeKey& sender,
            StatusCode code = StatusCode::kDeadlineExceeded) {
    v1::FoldReport m;
    m.set_kind(v1::FoldReport::FAILED);
    m.set_code(static_cast<int>(code));
    ToProto(sender, m.mutable_sender());
    // b's own source precedes or follows what it pulls.
    const FoldTask* task = reduction_.plan.Find(receiver, parent_);
    for (size_t i = 0; task != nullptr && i < task->inputs.size(); ++i) {
      if (task->inputs[i].kind == FoldInput::Kind::kSlot) m.set_input(static_cast<uint32_t>(i));
    }
    routes_.OnFailed(reduction_, receiver, receiver == kB ? parent_ : child_, m);
    routes_.Refresh(reduction_);
  }
  // "node: relay <- sender", "node: fold <- sender", "node: drop" since the last call.
  Lines Orders() {
    Lines lines;
    for (const Outgoing& out : outbox_.Take()) {
      const std::string to = nodes_.NameOf(out.to);
      if (out.message.has_fold_drop()) lines.push_back(absl::StrCat(to, ": drop"));
      for (const v1::Fold::Input& input : out.message.fold().inputs()) {
        if (!input.has_sender()) continue;
        lines.push_back(absl::StrCat(to, out.message.fold().relay() ? ": relay <- " : ": fold <- ",
                                     nodes_.NameOf(FromProto(input.sender()))));
      }
    }
    return lines;
  }

  FoldRoutes routes_{parts_, dispatcher_};
  Reduction& reduction_ = Begin(2);
  SlotVersion parent_;
  SlotVersion child_;
};

TEST_F(FoldRoutesTest, AThirdNodeHandsOnWhatTheParentCannotReach) {
  Plan();
  EXPECT_EQ(Orders(), (Lines{"b: fold <- a"}));
  Fail(kB, kA);
  EXPECT_EQ(Orders(), (Lines{"c: relay <- a", "b: fold <- c"}));
  EXPECT_TRUE(FoldRoutes::IsRelay(reduction_, kC, child_));
}

TEST_F(FoldRoutesTest, ABrokenConnectionIsTriedAgainFirst) {
  Plan();
  Orders();
  Fail(kB, kA, StatusCode::kUnavailable);
  EXPECT_EQ(Orders(), Lines());
  Fail(kB, kA, StatusCode::kUnavailable);
  EXPECT_EQ(Orders(), (Lines{"c: relay <- a", "b: fold <- c"}));
}

TEST_F(FoldRoutesTest, AKnownCutIsAvoidedFromTheStart) {
  pairs_.Remember(kB, kA, StatusCode::kDeadlineExceeded, context_.now);
  Plan();
  EXPECT_EQ(Orders(), (Lines{"c: relay <- a", "b: fold <- c"}));
}

TEST_F(FoldRoutesTest, APairIsUsedAgainAfterALease) {
  pairs_.Remember(kB, kA, StatusCode::kDeadlineExceeded, context_.now);
  Advance(context_.options.lease);
  Plan();
  EXPECT_EQ(Orders(), (Lines{"b: fold <- a"}));
}

TEST_F(FoldRoutesTest, ARelayReachesBoth) {
  pairs_.Remember(kC, kA, StatusCode::kDeadlineExceeded, context_.now);
  Plan();
  Orders();
  Fail(kB, kA);
  EXPECT_EQ(Orders(), (Lines{"d: relay <- a", "b: fold <- d"}));
}

TEST_F(FoldRoutesTest, ARelayThatDoesNotReachTheChildIsReplaced) {
  Plan();
  Fail(kB, kA);
  Orders();
  Fail(kC, kA);
  EXPECT_EQ(Orders(), (Lines{"c: drop", "d: relay <- a", "b: fold <- d"}));
}

TEST_F(FoldRoutesTest, ARelayThatTheParentDoesNotReachIsReplaced) {
  Plan();
  Fail(kB, kA);
  Orders();
  Fail(kB, kC);
  EXPECT_EQ(Orders(), (Lines{"c: drop", "d: relay <- a", "b: fold <- d"}));
}

TEST_F(FoldRoutesTest, WithoutAWayTheParentTriesTheChild) {
  Plan();
  Fail(kB, kA);
  Fail(kB, kC);
  Orders();
  Fail(kB, kD);
  EXPECT_EQ(Orders(), (Lines{"d: drop", "b: fold <- a"}));
  Fail(kB, kA);
  EXPECT_EQ(Orders(), Lines()) << "it does so already";
}

TEST_F(FoldRoutesTest, ANodeWithoutRoomIsAskedAgainAfterAllOthers) {
  Plan();
  Fail(kB, kA);
  routes_.OnRelayRefused(reduction_, kC, child_);
  routes_.Refresh(reduction_);
  Orders();
  routes_.OnRelayRefused(reduction_, kD, child_);
  routes_.Refresh(reduction_);
  EXPECT_EQ(Orders(), (Lines{"d: drop", "b: fold <- a"}));
  Fail(kB, kA);
  EXPECT_EQ(Orders(), Lines()) << "not at once";
  Fail(kB, kA);
  EXPECT_EQ(Orders(), (Lines{"c: relay <- a", "b: fold <- c"}));
}

TEST_F(FoldRoutesTest, ARelayThatIsLostIsReplaced) {
  Plan();
  Fail(kB, kA);
  Orders();
  // As ReductionManager::NodeDown does.
  reduction_.placed.erase({kC, child_});
  Down(kC);
  routes_.Refresh(reduction_);
  EXPECT_EQ(Orders(), (Lines{"d: relay <- a", "b: fold <- d"}));
}

TEST_F(FoldRoutesTest, ANewSessionHasNoRelays) {
  Plan();
  Fail(kB, kA);
  Orders();
  node(kC).registering = true;
  routes_.SessionBegins(reduction_, kC);
  routes_.Refresh(reduction_);
  EXPECT_EQ(Orders(), (Lines{"d: relay <- a", "b: fold <- d"}));
}

TEST_F(FoldRoutesTest, ARelayEndsWithItsParent) {
  Plan();
  Fail(kB, kA);
  Orders();
  reduction_.placed.erase({kB, parent_});
  reduction_.plan.OnNodeDown(kB);
  Run();
  EXPECT_EQ(Orders(), (Lines{"c: drop"}));
  EXPECT_TRUE(reduction_.routes.empty());
}

TEST_F(FoldRoutesTest, ARelayEndsWithTheReduction) {
  Plan();
  Fail(kB, kA);
  Orders();
  routes_.EndAll(reduction_);
  EXPECT_EQ(Orders(), (Lines{"c: drop"}));
}

TEST_F(FoldRoutesTest, AReportThatCrossesAnOrderChangesNothing) {
  Plan();
  Fail(kB, kA);
  Orders();
  Fail(kB, kA);
  EXPECT_EQ(Orders(), Lines());
  Fail(kC, kA, StatusCode::kNotFound);
  EXPECT_EQ(Orders(), Lines()) << "the child was reached";
}

TEST_F(FoldRoutesTest, ToolsAndErrorsNameThePair) {
  Plan();
  v1::FoldReport m;
  m.set_code(static_cast<int>(StatusCode::kUnavailable));
  m.set_message("pull of 0123 from node 1.1 at 10.0.0.1:7000: connection refused");
  ToProto(kA, m.mutable_sender());
  EXPECT_EQ(DescribeFailure(nodes_, kB, m), "b cannot reach a (10.0.0.1:7000): connection refused");
  Fail(kB, kA);
  EXPECT_EQ(DescribeWaiting(reduction_),
            "2 sources are being folded; b cannot reach a (10.0.0.1:7000); c hands its bytes on");
  v1::ReductionDescription described;
  DescribeReduction(reduction_, nodes_, context_.now, &described);
  int named = 0;
  for (const v1::ReductionDescription::Slot& slot : described.slots()) {
    if (slot.node_name() != "b") continue;
    EXPECT_EQ(slot.trouble(), "b cannot reach a (10.0.0.1:7000); c hands its bytes on");
    ++named;
  }
  EXPECT_EQ(named, 1);
}

}  // namespace
}  // namespace phalanx::directory
