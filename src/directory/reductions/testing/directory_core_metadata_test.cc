// The metadata of a reduction's result: that of the first source in the list that has any, among
// the folded ones, for every order of arrivals and failures.
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "src/common/elements.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/directory/reductions/testing/directory_core_reduce_harness.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Bytes;
using testing::Creation;
using testing::Harness;
using testing::kTarget;

class ResultMetadata : public testing::ReduceTest {
 protected:
  Generation PutWith(int node, int source, const std::string& metadata, uint64_t size = kSize) {
    Creation creation;
    creation.size = size;
    creation.complete = true;
    creation.metadata = metadata;
    if (size <= 65536) creation.inline_bytes = std::string(size, static_cast<char>('a' + source));
    return h_.Create(nodes_[node], Source(source), creation);
  }
  static v1::Reduction& In(v1::NodeMessage& message) {
    return *message.mutable_reduce_request()->mutable_reduction();
  }
  // Node 2 sends the request with another argument.
  void AskWith(v1::NodeMessage request, absl::FunctionRef<void(v1::Reduction&)> change) {
    change(In(request));
    Send(2, request);
  }
  // Of the last order to compute the root.
  std::string AtRoot() { return FoldAt(RootAt())->metadata(); }
};

TEST_F(ResultMetadata, IsThatOfTheFirstSourceInTheListInAnyOrderOfArrival) {
  AddNodes(3);
  Reduce(0, 3);
  PutWith(2, 2, "third");
  PutWith(1, 1, "second");
  PutWith(0, 0, "first");
  ASSERT_EQ(RootAt(), 0);
  EXPECT_EQ(AtRoot(), "first");
  for (const int node : {1, 2}) EXPECT_EQ(FoldAt(node)->metadata(), "") << "the root's alone";
}

TEST_F(ResultMetadata, IsThatOfTheFirstThatHasAny) {
  AddNodes(3);
  PutWith(0, 0, "");
  PutWith(1, 1, "second");
  PutWith(2, 2, "third");
  Reduce(2, 3);
  EXPECT_EQ(AtRoot(), "second");
}

TEST_F(ResultMetadata, IsOfOneThatWentIn) {
  AddNodes(3);
  AskWith(Request(3), [](v1::Reduction& asked) { asked.set_num_objects(2); });
  PutWith(2, 2, "third");
  PutWith(1, 1, "second");
  ASSERT_GE(RootAt(), 0);
  PutWith(0, 0, "first");
  EXPECT_EQ(AtRoot(), "second") << "the first in the list is to spare";
}

TEST_F(ResultMetadata, TravelsWithSmallSources) {
  AddNodes(3);
  PutWith(2, 2, "third", 1024);
  PutWith(1, 1, "second", 1024);
  PutWith(0, 0, "first", 1024);
  Reduce(2, 3);
  ASSERT_TRUE(FoldAt(2)->committed());
  EXPECT_EQ(AtRoot(), "first");
}

TEST_F(ResultMetadata, OfAFixedOrderIsTheFirstOnesToo) {
  AddNodes(3);
  AskWith(Request(3), [](v1::Reduction& asked) { asked.set_order(1); });
  PutWith(1, 1, "second");
  PutWith(2, 2, "third");
  PutWith(0, 0, "first");
  EXPECT_EQ(AtRoot(), "first");
}

TEST_F(ResultMetadata, OfARangeThereIsNone) {
  AddNodes(3);
  AskWith(Request(3), [](v1::Reduction& asked) { asked.set_range_bytes(4096); });
  for (int i = 0; i < 3; ++i) PutWith(i, i, "all of it");
  ASSERT_GE(RootAt(), 0);
  EXPECT_EQ(AtRoot(), "") << "a part is something else";
}

TEST_F(ResultMetadata, TheNameOfTheTargetGoesToTheRoot) {
  AddNodes(2);
  v1::NodeMessage message = Request(2);
  ToProto(ObjectName::Of("default", "sum"), In(message).mutable_name());
  // A request without the name changes nothing.
  Reduce(0, 2);
  Send(1, message);
  EXPECT_EQ(NameOf(h_.Describe(kTarget).summary()), ObjectName::Of("default", "sum"));
  PutWith(0, 0, "");
  PutWith(1, 1, "");
  const int root = RootAt();
  ASSERT_GE(root, 0);
  EXPECT_EQ(NameOf(*FoldAt(root)), ObjectName::Of("default", "sum"));
  EXPECT_FALSE(FoldAt(1 - root)->has_name()) << "the root's alone";
  Announce(root, *FoldAt(root));
  EXPECT_EQ(NameOf(h_.Describe(kTarget).summary()), ObjectName::Of("default", "sum"));
}

TEST_F(ResultMetadata, TheNameOfTheTargetIsKeptWithTheDescription) {
  AddNodes(3);
  v1::NodeMessage message = Request(3);
  ToProto(ObjectName::Of("default", "sum"), In(message).mutable_name());
  Send(2, message);
  PutWith(0, 0, "");
  PutWith(1, 1, "");
  int kept = 0;
  for (int node = 0; node < 3; ++node) {
    const auto keep = h_.Last(nodes_[node], v1::ShardMessage::kKeepReduction);
    if (!keep.has_value()) continue;
    ++kept;
    EXPECT_EQ(NameOf(keep->keep_reduction().reduction()), ObjectName::Of("default", "sum"));
  }
  EXPECT_GT(kept, 0);
}

TEST_F(ResultMetadata, ADescriptionHasTheNamesOfItsObjects) {
  AddNodes(2);
  Reduce(0, 2);
  const Generation generation = h_.NewGeneration(nodes_[1]);
  v1::NodeMessage message;
  v1::AnnounceCreate& create = *message.mutable_announce_create();
  ToProto(Source(1), create.mutable_object_id());
  ToProto(generation, create.mutable_generation());
  create.mutable_info()->set_size_bytes(kSize);
  create.mutable_info()->set_slices(1);
  ToProto(ObjectName::Of("default", "grad/1"), create.mutable_info()->mutable_name());
  create.set_complete(true);
  Send(1, message);
  const v1::ReductionDescription reduction = h_.Describe(kTarget).reduction();
  ASSERT_EQ(reduction.names_size(), 1);
  EXPECT_EQ(reduction.names(0).object_id(), Bytes(Source(1)));
  EXPECT_EQ(NameOf(reduction.names(0)), ObjectName::Of("default", "grad/1"));
}

TEST_F(ResultMetadata, EveryMemberOfARingGetsTheSame) {
  AddNodes(3);
  PutWith(2, 2, "third");
  PutWith(1, 1, "second");
  PutWith(0, 0, "");
  v1::NodeMessage message = Request(3);
  In(message).set_everybody(true);
  for (int i = 0; i < 3; ++i) Send(i, message);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(FoldAt(i).has_value() && FoldAt(i)->has_ring()) << i;
    EXPECT_EQ(FoldAt(i)->metadata(), "second") << i;
  }
  h_.Clear();
  h_.Down(nodes_[0]);
  PutWith(1, 0, "first");
  ASSERT_GE(RootAt(), 0);
  EXPECT_FALSE(FoldAt(RootAt())->has_ring());
  EXPECT_EQ(AtRoot(), "first") << "and the tree behind it has what is there now";
}

TEST_F(ResultMetadata, GoesToTheNextRootThoughItsSourceWasDeletedMeanwhile) {
  AddNodes(4);
  for (int i = 0; i < 3; ++i) PutWith(i, i, "source " + std::to_string(i));
  Reduce(3, 3);
  ASSERT_EQ(RootAt(), 3);
  h_.Delete(nodes_[1], Source(0));
  h_.Clear();
  h_.Down(nodes_[3]);
  ASSERT_GE(RootAt(), 0);
  EXPECT_EQ(AtRoot(), "source 0") << "it is folded still";
}

TEST_F(ResultMetadata, OfALostSourceGoesWithIt) {
  AddNodes(4);
  for (int i = 0; i < 3; ++i) PutWith(i, i, "source " + std::to_string(i));
  Reduce(3, 3);
  h_.Clear();
  h_.Down(nodes_[0]);
  PutWith(1, 0, "source 0, run again");
  ASSERT_EQ(RootAt(), 3);
  EXPECT_EQ(AtRoot(), "source 0, run again");
}

TEST_F(ResultMetadata, IsTheSameForARestartedShard) {
  AddNodes(3);
  std::vector<Generation> generations;
  for (int i = 0; i < 3; ++i) generations.push_back(PutWith(i, i, "source " + std::to_string(i)));
  Reduce(2, 3);
  std::vector<v1::Fold> folds;
  for (int i = 0; i < 3; ++i) folds.push_back(*FoldAt(i));
  h_.Clear();
  h_.RestartShard();
  for (int i = 0; i < 3; ++i) {
    h_.NewSession(nodes_[i], /*had_session=*/true);
    v1::NodeMessage message;
    v1::RegisterCopy& copy = *message.mutable_register_copy();
    copy.set_object_id(Bytes(Source(i)));
    ToProto(generations[i], copy.mutable_generation());
    copy.mutable_info()->set_size_bytes(kSize);
    copy.mutable_info()->set_slices(1);
    copy.mutable_info()->set_metadata("source " + std::to_string(i));
    copy.set_primary(true);
    copy.set_adopted(true);
    copy.set_complete(true);
    Send(i, message);
    Send(i, Registered(folds[i]));
    h_.RegisterEnd(nodes_[i]);
  }
  Reduce(2, 3);
  h_.Advance(absl::Seconds(2));
  ASSERT_EQ(RootAt(), 2);
  EXPECT_EQ(FromProto(FoldAt(2)->version()), FromProto(folds[2].version()));
  EXPECT_EQ(AtRoot(), "source 0");
}

// ---- sources that are alike

class AlikeSources : public ResultMetadata {
 protected:
  v1::NodeMessage AlikeRequest(int sources) {
    v1::NodeMessage message = Request(sources);
    In(message).set_source_metadata("f4 (16,)");
    return message;
  }
  void ExpectEndWithSourcesOf(uint64_t size) {
    AddNodes(3);
    Send(2, AlikeRequest(3));
    PutWith(0, 0, "f4 (16,)", size);
    PutWith(1, 1, "i4 (16,)", size);
    PutWith(2, 2, "f4 (16,)", size);
    ASSERT_TRUE(Reply(2).has_value());
    EXPECT_EQ(Code(2), Number(absl::StatusCode::kInvalidArgument));
    EXPECT_NE(Reply(2)->message().find(Source(1).hex()), std::string::npos) << Reply(2)->message();
  }
};

TEST_F(AlikeSources, AreFolded) {
  AddNodes(2);
  for (int i = 0; i < 2; ++i) PutWith(i, i, "f4 (16,)", 1024);
  Send(1, AlikeRequest(2));
  EXPECT_EQ(AtRoot(), "f4 (16,)");
}

TEST_F(AlikeSources, AnotherOneEndsTheReduction) { ExpectEndWithSourcesOf(kSize); }

TEST_F(AlikeSources, ASmallOtherOneEndsTheReduction) { ExpectEndWithSourcesOf(1024); }

TEST_F(AlikeSources, ASpareIsNotCompared) {
  AddNodes(3);
  AskWith(AlikeRequest(3), [](v1::Reduction& asked) { asked.set_num_objects(2); });
  PutWith(0, 0, "f4 (16,)");
  PutWith(1, 1, "f4 (16,)");
  PutWith(2, 2, "");
  EXPECT_FALSE(Reply(2).has_value());
  EXPECT_GE(RootAt(), 0);
}

TEST_F(AlikeSources, TheFirstRequestCounts) {
  AddNodes(3);
  Send(2, Request(2));
  Send(1, AlikeRequest(2));
  PutWith(0, 0, "f4 (16,)");
  PutWith(1, 1, "i4 (16,)");
  EXPECT_FALSE(Reply(1).has_value()) << "it joins the one that compares nothing";
  EXPECT_GE(RootAt(), 0);
}

TEST_F(AlikeSources, TheDescriptionKeepsTheirMetadata) {
  AddNodes(3);
  Send(2, AlikeRequest(3));
  PutWith(0, 0, "f4 (16,)");
  PutWith(1, 1, "f4 (16,)");
  int kept = 0;
  for (int node = 0; node < 3; ++node) {
    const auto keep = h_.Last(nodes_[node], v1::ShardMessage::kKeepReduction);
    if (!keep.has_value()) continue;
    ++kept;
    EXPECT_EQ(keep->keep_reduction().reduction().source_metadata(), "f4 (16,)");
  }
  EXPECT_GT(kept, 0);
}

TEST_F(AlikeSources, TheirMetadataIsBounded) {
  AddNodes(1);
  v1::NodeMessage message = AlikeRequest(1);
  In(message).set_source_metadata(std::string(4097, 'm'));
  Send(0, message);
  EXPECT_EQ(Code(0), Number(absl::StatusCode::kInvalidArgument));
}

// ---- sources of another shard

class ForeignMetadata : public ::testing::Test {
 protected:
  // One source of this shard and two of the other, which are first in the list.
  ForeignMetadata() : h_(/*learning=*/false, OptionsOfTarget()), a_(h_.Up("a")), b_(h_.Up("b")) {
    for (int i = 0; ours_.empty() || theirs_.size() < 2; ++i) {
      const ObjectId id = testing::Id("source" + std::to_string(i));
      const bool own = id.ShardHash() % 2 == kTarget.ShardHash() % 2;
      (own ? ours_ : theirs_).push_back(id);
    }
    v1::NodeMessage message;
    v1::ReduceRequest& request = *message.mutable_reduce_request();
    request.set_request_id(1);
    request.set_object_id(Bytes(kTarget));
    request.mutable_reduction()->set_dtype(static_cast<uint32_t>(DType::kF32));
    ToProto(b_, request.mutable_reduction()->mutable_root());
    for (const ObjectId& id : {theirs_[0], theirs_[1], ours_[0]}) {
      request.mutable_reduction()->add_source_ids(Bytes(id));
    }
    EXPECT_TRUE(h_.Send(b_, message).ok());
  }
  static DirectoryOptions OptionsOfTarget() {
    DirectoryOptions options;
    options.num_shards = 2;
    options.shard_index = static_cast<int>(kTarget.ShardHash() % 2);
    return options;
  }
  v1::NodeMessage StateOf(const ObjectId& source, const std::string& metadata) {
    v1::NodeMessage message;
    v1::SourceState& state = *message.mutable_source_state();
    state.set_target_id(Bytes(kTarget));
    state.set_source_id(Bytes(source));
    ToProto(h_.NewGeneration(a_), state.mutable_generation());
    state.set_size_bytes(8 << 20);
    ToProto(a_, state.add_holders()->mutable_node());
    state.mutable_holders(0)->set_complete(true);
    state.set_metadata(metadata);
    return message;
  }

  Harness h_;
  const NodeKey a_;
  const NodeKey b_;
  std::vector<ObjectId> ours_;
  std::vector<ObjectId> theirs_;
};

TEST_F(ForeignMetadata, CountsLikeThatOfItsOwn) {
  h_.Create(b_, ours_[0], {.size = 8 << 20, .complete = true, .metadata = "ours"});
  ASSERT_TRUE(h_.Send(b_, StateOf(theirs_[1], "theirs")).ok());
  ASSERT_TRUE(h_.Send(b_, StateOf(theirs_[0], "")).ok());
  const auto root = h_.Last(b_, v1::ShardMessage::kFold);
  ASSERT_TRUE(root.has_value() && root->fold().root());
  EXPECT_EQ(root->fold().metadata(), "theirs");
}

TEST_F(ForeignMetadata, IsBounded) {
  EXPECT_TRUE(h_.Send(b_, StateOf(theirs_[0], std::string(4096, 'm'))).ok());
  EXPECT_FALSE(h_.Send(b_, StateOf(theirs_[0], std::string(4097, 'm'))).ok());
}

TEST_F(ResultMetadata, OfASourceIsReportedToOtherShards) {
  AddNodes(2);
  v1::NodeMessage message;
  message.mutable_watch_source()->set_target_id(Bytes(kTarget));
  message.mutable_watch_source()->add_source_ids(Bytes(Source(0)));
  Send(1, message);
  PutWith(0, 0, "float32, 256 by 512");
  ASSERT_TRUE(Has(1, Kind::kSourceState));
  EXPECT_EQ(h_.Last(nodes_[1], Kind::kSourceState)->source_state().metadata(),
            "float32, 256 by 512");
}

}  // namespace
}  // namespace phalanx::directory
