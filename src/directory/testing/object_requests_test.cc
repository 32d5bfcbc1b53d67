// Requests about one object over the components whose state they touch, without the router.
#include "src/directory/objects/object_requests.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/ids/version.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/objects/object_fixture.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::HasCode;
using testing::kA;
using testing::kB;
using testing::kC;
using testing::ObjectFixture;

// The lines "node: kind" of messages, with the kind of a Gone or a Verdict.
using Lines = std::vector<std::string>;

DirectoryOptions Options() {
  DirectoryOptions options;
  options.max_deferred = 1;
  return options;
}

class ObjectRequestsTest : public ObjectFixture {
 protected:
  explicit ObjectRequestsTest(bool learning = false) : ObjectFixture(Options(), learning) {
    listeners_ = {&scheduler_, &reduction_manager_, &drain_manager_, &placement_manager_};
    node(kA).info.set_capacity_bytes(100);
  }
  ~ObjectRequestsTest() override {
    PHALANX_EXPECT_OK(scheduler_.CheckInvariants());
    PHALANX_EXPECT_OK(reduction_manager_.CheckInvariants());
    PHALANX_EXPECT_OK(tombstones_.CheckInvariants());
  }

  template <typename Message>
  Message About() const {
    Message m;
    m.set_object_id(id_.binary().data(), ObjectId::kSize);
    return m;
  }
  template <typename Message>
  Message About(const Generation& generation) const {
    Message m = About<Message>();
    ToProto(generation, m.mutable_generation());
    return m;
  }
  void Delete(const NodeKey& key) {
    PHALANX_ASSERT_OK(requests_.OnDelete(node(key), About<v1::DeleteRequest>()));
  }
  void Confirm(const NodeKey& key, const Generation& generation) {
    PHALANX_EXPECT_OK(requests_.OnDeleteConfirm(node(key), About<v1::DeleteConfirm>(generation)));
    requests_.delete_waits().RunPending();
  }
  v1::QueryReply Query() {
    outbox_.Take();
    PHALANX_EXPECT_OK(requests_.OnQuery(node(kA), About<v1::QueryRequest>()));
    return TakeMessages(kA).at(0).query_reply();
  }
  bool Evict(const NodeKey& key, const Generation& generation) {
    outbox_.Take();
    PHALANX_EXPECT_OK(requests_.OnEvict(node(key), About<v1::EvictRequest>(generation)));
    bool granted = false;
    sent_.clear();
    for (const Outgoing& out : outbox_.Take()) {
      if (out.message.has_evict_reply()) granted = out.message.evict_reply().granted();
      if (out.message.has_fetch()) sent_.push_back(nodes_.NameOf(out.to) + ": fetch");
    }
    return granted;
  }
  int Fail(absl::StatusCode code) {
    outbox_.Take();
    v1::FailRequest m = About<v1::FailRequest>();
    m.set_code(static_cast<int>(code));
    PHALANX_EXPECT_OK(requests_.OnFail(node(kA), m));
    int reply = -1;
    for (const v1::ShardMessage& message : TakeMessages(kA)) {
      if (message.has_fail_reply()) reply = message.fail_reply().code();
    }
    return reply;
  }
  void Want(const NodeKey& key) {
    PHALANX_ASSERT_OK(scheduler_.OnWant(node(key), About<v1::Want>()));
  }
  void Reduce() {
    v1::ReduceRequest m = About<v1::ReduceRequest>();
    m.set_request_id(1);
    const ObjectId source = ObjectId::FromName("test", "source");
    m.mutable_reduction()->add_source_ids(source.binary().data(), ObjectId::kSize);
    PHALANX_ASSERT_OK(reduction_manager_.OnReduce(node(kA), m));
  }
  Lines Sent() {
    Lines lines;
    for (const Outgoing& out : outbox_.Take()) {
      const v1::ShardMessage& m = out.message;
      const std::string to = nodes_.NameOf(out.to) + ": ";
      if (m.has_gone()) lines.push_back(to + v1::Gone::Kind_Name(m.gone().kind()));
      if (m.has_verdict()) lines.push_back(to + v1::Verdict::Kind_Name(m.verdict().kind()));
      if (m.has_delete_reply()) {
        lines.push_back(absl::StrCat(to, "deleted ", m.delete_reply().generations_size(), " code ",
                                     m.delete_reply().code()));
      }
      if (m.has_reduce_reply())
        lines.push_back(absl::StrCat(to, "reduced ", m.reduce_reply().code()));
      if (m.has_query_reply()) lines.push_back(absl::StrCat(to, "query ", m.query_reply().code()));
    }
    return lines;
  }
  bool Deleted() const { return tombstones_.FindDeleted(id_) != nullptr; }

  PlacementTable placement_table_{PlacementTable::Limits{}};
  DrainManager drain_manager_{context_, nodes_, outbox_, table_};
  PullScheduler scheduler_{{context_, nodes_, outbox_, gate_, table_, tombstones_, failures_,
                            inline_cache_, placement_table_},
                           drain_manager_};
  CopyKeeper copies_{{context_, nodes_, outbox_, gate_, table_}};
  PlacementManager placement_manager_{
      {context_, nodes_, outbox_, gate_, table_, tombstones_, losses_, placement_table_, copies_}};
  ObjectRequests requests_{{context_, nodes_, outbox_, gate_, holds_, tombstones_, losses_,
                            failures_, placement_table_, expiries_, table_, scheduler_,
                            drain_manager_, placement_manager_, reduction_manager_}};
  ReductionManager reduction_manager_{
      {context_, nodes_, outbox_, gate_, table_, tombstones_, failures_, holds_,
       scheduler_.planner().links(), scheduler_.planner().pairs()},
      requests_};
  Lines sent_;
};

// --------------------------------------------------------------------------------------- Delete

TEST_F(ObjectRequestsTest, AnIdWithoutAnObjectIsNotFound) {
  Delete(kA);
  EXPECT_EQ(Sent(), Lines{"a: deleted 0 code 5"});
  EXPECT_FALSE(Deleted());
}

TEST_F(ObjectRequestsTest, ADeleteNotifiesEveryNodeThatHasOrWantsTheObject) {
  Create(kA, /*complete=*/true);
  AddCompleteCopy(kB);
  Want(kC);
  Sent();
  Delete(kB);
  EXPECT_EQ(Sent(), (Lines{"a: DELETED", "b: DELETED", "c: DELETED"}));
  Confirm(kA, Gen(kA));
  EXPECT_EQ(Sent(), Lines{}) << "c was receiving it";
  Confirm(kC, Gen(kA));
  EXPECT_EQ(Sent(), Lines{"b: deleted 1 code 0"});
  EXPECT_EQ(table_.Find(id_), nullptr);
  EXPECT_TRUE(tombstones_.Refuses(id_, Gen(kA)));
  EXPECT_EQ(context_.counters.deleted, 1u);
}

TEST_F(ObjectRequestsTest, TheNodesWithACopyConfirmThatTheyDroppedIt) {
  Create(kA, /*complete=*/true);
  Delete(kB);
  EXPECT_EQ(tombstones_.UnconfirmedOf(*tombstones_.Find(id_)).size(), 1u);
  const auto confirm = About<v1::DeleteConfirm>(Gen(kA));
  PHALANX_EXPECT_OK(requests_.OnDeleteConfirm(node(kB), confirm));
  EXPECT_EQ(tombstones_.UnconfirmedOf(*tombstones_.Find(id_)).size(), 1u) << "another node";
  PHALANX_EXPECT_OK(requests_.OnDeleteConfirm(node(kA), confirm));
  EXPECT_EQ(tombstones_.UnconfirmedOf(*tombstones_.Find(id_)).size(), 0u);
}

TEST_F(ObjectRequestsTest, AStandbyIsDeletedToo) {
  Create(kA, /*complete=*/false);
  Create(kB, /*complete=*/false);
  Sent();
  Delete(kC);
  EXPECT_EQ(Sent(), (Lines{"b: DELETED", "a: DELETED"}));
  Confirm(kA, Gen(kA));
  EXPECT_EQ(Sent(), Lines{});
  Confirm(kB, Gen(kB));
  EXPECT_EQ(Sent(), Lines{"c: deleted 2 code 0"});
  EXPECT_TRUE(tombstones_.Refuses(id_, Gen(kB)));
}

TEST_F(ObjectRequestsTest, AStaleCopyIsRefusedWhenItsNodeRegistersIt) {
  Create(kA, /*complete=*/true);
  table_.SessionBegins(node(kA));
  Sent();
  Delete(kB);
  EXPECT_EQ(Sent(), Lines{}) << "the registration of its node is waited for";
  EXPECT_TRUE(tombstones_.Refuses(id_, Gen(kA)));
  tombstones_.SessionRegistered(kA, node(kA).session + 1);
  requests_.delete_waits().RunPending();
  EXPECT_EQ(Sent(), Lines{"b: deleted 1 code 0"});
}

TEST_F(ObjectRequestsTest, ALostObjectCanBeDeleted) {
  Create(kA, /*complete=*/true);
  Down(kA);
  ASSERT_TRUE(losses_.Contains(id_, Gen(kA)));
  Sent();
  Delete(kB);
  EXPECT_EQ(Sent(), Lines{"b: deleted 1 code 0"});
  EXPECT_EQ(losses_.Find(id_), nullptr);
  EXPECT_TRUE(tombstones_.Refuses(id_, Gen(kA)));
}

TEST_F(ObjectRequestsTest, ADeleteEndsTheReductionOfTheTarget) {
  Reduce();
  const auto reduction_id = reduction_manager_.catalog().Find(id_)->identity.id;
  Delete(kB);
  EXPECT_EQ(Sent(), (Lines{"a: reduced 5", "b: deleted 1 code 0"}));
  EXPECT_TRUE(tombstones_.Refuses(id_, reduction_id.AsGeneration())) << "a late result is refused";
}

TEST_F(ObjectRequestsTest, FreeIsADeleteWithoutARequester) {
  Create(kA, /*complete=*/true);
  Sent();
  requests_.Free(object());
  EXPECT_EQ(Sent(), Lines{"a: DELETED"});
  EXPECT_TRUE(Deleted());
}

TEST_F(ObjectRequestsTest, AMalformedMessageChangesNothing) {
  Create(kA, /*complete=*/true);
  v1::DeleteRequest m;
  m.set_object_id("short");
  EXPECT_THAT(requests_.OnDelete(node(kA), m), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(requests_.OnEvict(node(kA), About<v1::EvictRequest>()),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(Deleted());
}

// ---------------------------------------------------------------------------------------- Query

TEST_F(ObjectRequestsTest, AQueryCountsCopiesWaitingNodesAndHolders) {
  EXPECT_FALSE(Query().known());
  Create(kA, /*complete=*/true);
  Want(kB);
  holds_.Hold(kC, id_);
  const v1::QueryReply reply = Query();
  EXPECT_TRUE(reply.known());
  EXPECT_TRUE(reply.complete());
  EXPECT_EQ(FromProto(reply.generation()), Gen(kA));
  EXPECT_EQ(reply.info().size_bytes(), 4u);
  EXPECT_EQ(reply.complete_copies(), 1u);
  EXPECT_EQ(reply.partial_copies(), 1u);
  EXPECT_EQ(reply.holders(), 1u);
  EXPECT_FALSE(reply.deleted());
}

TEST_F(ObjectRequestsTest, AQueryOfADeletedObjectSaysSo) {
  Create(kA, /*complete=*/true);
  Delete(kA);
  const v1::QueryReply reply = Query();
  EXPECT_TRUE(reply.known());
  EXPECT_TRUE(reply.deleted());
  EXPECT_EQ(FromProto(reply.generation()), Gen(kA));
}

// ---------------------------------------------------------------------------------------- Evict

TEST_F(ObjectRequestsTest, TheLastCompleteCopyIsNotEvicted) {
  Create(kA, /*complete=*/true);
  EXPECT_FALSE(Evict(kA, Gen(kA)));
  AddCompleteCopy(kB);
  EXPECT_TRUE(Evict(kA, Gen(kA)));
  EXPECT_FALSE(object().copies.contains(kA));
  EXPECT_FALSE(Evict(kB, Gen(kA)));
  EXPECT_EQ(context_.counters.evictions_granted, 1u);
  EXPECT_EQ(context_.counters.evictions_refused, 2u);
}

TEST_F(ObjectRequestsTest, ADeliveredCopyIsConfirmedBeforeAnotherIsEvicted) {
  Create(kA, /*complete=*/true);
  AddCompleteCopy(kB, CopyState::kDelivered);
  EXPECT_FALSE(Evict(kA, Gen(kA)));
  EXPECT_EQ(sent_, Lines{"b: fetch"});
}

TEST_F(ObjectRequestsTest, ARequestToEvictConfirmsTheCopy) {
  Create(kA, /*complete=*/true);
  AddCompleteCopy(kB, CopyState::kDelivered);
  EXPECT_TRUE(Evict(kB, Gen(kA)));
  AddCompleteCopy(kB, CopyState::kDelivered);
  node(kA).connected = false;
  EXPECT_FALSE(Evict(kB, Gen(kA)));
  EXPECT_TRUE(object().HasConfirmedCopy(kB));
}

TEST_F(ObjectRequestsTest, AStandbyIsNotEvictedBeforeItIsSuperseded) {
  Create(kA, /*complete=*/false);
  Create(kB, /*complete=*/true);
  EXPECT_FALSE(Evict(kB, Gen(kB)));
  Seal(kA);
  EXPECT_TRUE(Evict(kB, Gen(kB)));
}

TEST_F(ObjectRequestsTest, AnUnknownGenerationCanBeEvicted) { EXPECT_TRUE(Evict(kA, Gen(kA, 7))); }

// ----------------------------------------------------------------------------------------- Fail

TEST_F(ObjectRequestsTest, AFailureEndsTheWants) {
  Want(kB);
  outbox_.Take();
  v1::FailRequest m = About<v1::FailRequest>();
  m.set_code(static_cast<int>(absl::StatusCode::kAborted));
  PHALANX_EXPECT_OK(requests_.OnFail(node(kA), m));
  EXPECT_EQ(Sent(), Lines{"b: REFUSED"});
  ASSERT_NE(failures_.Find(id_), nullptr);
}

TEST_F(ObjectRequestsTest, OnlyAnErrorCanBeTheFailure) {
  EXPECT_EQ(Fail(absl::StatusCode::kOk), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Fail(static_cast<absl::StatusCode>(17)),
            static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(failures_.Find(id_), nullptr);
}

TEST_F(ObjectRequestsTest, AnObjectThatWasPutCannotFail) {
  Create(kA, /*complete=*/true);
  EXPECT_EQ(Fail(absl::StatusCode::kAborted), static_cast<int>(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(failures_.Find(id_), nullptr);
}

// ----------------------------------------------------------------- generations that were deleted

TEST_F(ObjectRequestsTest, ARegisteredTombstoneDeletesTheAdoptedGenerationAndSparesTheOthers) {
  Create(kA, /*complete=*/false);
  Create(kB, /*complete=*/false);
  Sent();
  v1::RegisterTombstone m = About<v1::RegisterTombstone>();
  ToProto(Gen(kA), m.mutable_generation());
  PHALANX_EXPECT_OK(requests_.OnRegisterTombstone(m));
  EXPECT_TRUE(gate_.restarted());
  EXPECT_EQ(Sent(), (Lines{"a: DELETED", "b: ADOPTED"}));
  EXPECT_TRUE(tombstones_.Refuses(id_, Gen(kA)));
  EXPECT_EQ(object().generation, Gen(kB));
}

TEST_F(ObjectRequestsTest, ATombstoneOfAnotherGenerationLeavesTheObject) {
  Create(kA, /*complete=*/true);
  Sent();
  requests_.OnDeletedGeneration(id_, Gen(kB));
  EXPECT_EQ(Sent(), Lines{});
  EXPECT_TRUE(object().adopted());
  EXPECT_TRUE(tombstones_.Refuses(id_, Gen(kB)));
  EXPECT_FALSE(Deleted()) << "Gets are answered from what was put since";
}

TEST_F(ObjectRequestsTest, ATombstoneOfAReductionEndsIt) {
  Reduce();
  const auto reduction_id = reduction_manager_.catalog().Find(id_)->identity.id;
  requests_.OnDeletedGeneration(id_, reduction_id.AsGeneration());
  EXPECT_EQ(Sent(), Lines{"a: reduced 5"});
}

// ------------------------------------------------------------------------------ a restarted shard

class LearningObjectRequestsTest : public ObjectRequestsTest {
 protected:
  LearningObjectRequestsTest() : ObjectRequestsTest(/*learning=*/true) {}
};

TEST_F(LearningObjectRequestsTest, NodesThatWantTheObjectWaitForWhatWasPutAfterTheDelete) {
  Create(kA, /*complete=*/true);
  Want(kC);
  Sent();
  requests_.OnDeletedGeneration(id_, Gen(kA));
  EXPECT_EQ(Sent(), (Lines{"c: VOID", "a: DELETED"}));
  EXPECT_EQ(object().wants.at(kC).state, WantState::kWaiting);
}

TEST_F(LearningObjectRequestsTest, ARequestAboutAnUnknownIdWaitsAtTheGate) {
  Delete(kA);
  EXPECT_EQ(Sent(), Lines{});
  const std::vector<DeferredRequest> waiting = gate_.TakeRequests(id_);
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_EQ(waiting[0].node, kA);
  EXPECT_EQ(waiting[0].kind, DeferredRequest::Kind::kDelete);
}

TEST_F(LearningObjectRequestsTest, TheRequestsThatWaitAreBounded) {
  Delete(kA);
  Delete(kB);
  PHALANX_EXPECT_OK(requests_.OnQuery(node(kC), About<v1::QueryRequest>()));
  EXPECT_EQ(Sent(), (Lines{"b: deleted 0 code 8", "c: query 8"}));
}

}  // namespace
}  // namespace phalanx::directory
