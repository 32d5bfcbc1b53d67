// The target's shard with nodes "n0", "n1", ... that follow the protocol of reductions as far as a
// test makes them. Testonly.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TESTING_DIRECTORY_CORE_REDUCE_HARNESS_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TESTING_DIRECTORY_CORE_REDUCE_HARNESS_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/elements.h"
#include "src/common/ids/open_hold.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory::testing {

inline const ObjectId kTarget = Id("target");

inline std::string Bytes(const ObjectId& id) {
  return std::string(id.binary().data(), id.binary().size());
}

class ReduceTest : public ::testing::Test {
 protected:
  using Kind = v1::ShardMessage::KindCase;
  static constexpr uint64_t kSize = 8 << 20;

  void AddNodes(int count) {
    for (int i = 0; i < count; ++i) nodes_.push_back(h_.Up(absl::StrCat("n", nodes_.size())));
  }
  static ObjectId Source(int i) { return Id(absl::StrCat("source", i)); }
  static std::vector<ObjectId> Sources(int count) {
    std::vector<ObjectId> ids;
    for (int i = 0; i < count; ++i) ids.push_back(Source(i));
    return ids;
  }
  Generation Put(int node, int source, uint64_t size = kSize) {
    Creation creation;
    creation.size = size;
    creation.complete = true;
    if (size <= 65536) creation.inline_bytes = std::string(size, static_cast<char>('a' + source));
    return h_.Create(nodes_[node], Source(source), creation);
  }
  v1::NodeMessage Request(int sources) {
    v1::NodeMessage message;
    v1::ReduceRequest& request = *message.mutable_reduce_request();
    request.set_request_id(++requests_);
    request.set_object_id(Bytes(kTarget));
    request.mutable_reduction()->set_dtype(static_cast<uint32_t>(DType::kF32));
    for (const ObjectId& id : Sources(sources)) {
      request.mutable_reduction()->add_source_ids(Bytes(id));
    }
    return message;
  }
  void Reduce(int node, int sources, bool root_here = true) {
    v1::NodeMessage message = Request(sources);
    if (root_here) {
      ToProto(nodes_[node], message.mutable_reduce_request()->mutable_reduction()->mutable_root());
    }
    Send(node, message);
  }
  void Send(int node, const v1::NodeMessage& message) {
    // A node holds an open reduction open before it requests it or adds to it.
    const v1::ReduceRequest& request = message.reduce_request();
    const bool opens = request.reduction().open() && request.request_id() != 0 && !request.again();
    const bool adds = message.has_extend_request() && !message.extend_request().close();
    if (opens || adds) {
      h_.Hold(nodes_[node], OpenHoldOf(kTarget, 1));
      holding_open_.insert(node);
    }
    ASSERT_TRUE(h_.Send(nodes_[node], message).ok()) << h_.status();
  }
  // The node's last Fold, if there is one.
  std::optional<v1::Fold> FoldAt(int node) {
    const auto message = h_.Last(nodes_[node], Kind::kFold);
    return message.has_value() ? std::optional(message->fold()) : std::nullopt;
  }
  int RootAt() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const v1::ShardMessage& message : h_.Received(nodes_[i])) {
        if (message.has_fold() && message.fold().root()) return static_cast<int>(i);
      }
    }
    return -1;
  }
  // The target as the node that executes the order creates it.
  static v1::ObjectInfo ResultOf(const v1::Fold& fold) {
    v1::ObjectInfo info;
    info.set_size_bytes(fold.size_bytes());
    info.set_slices(fold.has_ring() ? fold.slots() : 1);
    info.set_metadata(fold.metadata());
    info.set_reduced_from(fold.reduced_from());
    info.set_asked_for(fold.asked_for());
    info.set_owned(fold.owned());
    if (fold.has_name()) *info.mutable_name() = fold.name();
    return info;
  }
  // The root begins to write the target.
  Generation Announce(int node, const v1::Fold& fold, bool complete = false,
                      const std::string& bytes = "") {
    const Generation generation = h_.NewGeneration(nodes_[node]);
    v1::NodeMessage message;
    v1::AnnounceCreate& create = *message.mutable_announce_create();
    create.set_object_id(Bytes(kTarget));
    ToProto(generation, create.mutable_generation());
    *create.mutable_info() = ResultOf(fold);
    create.set_complete(complete);
    create.set_has_inline(!bytes.empty());
    create.set_inline_bytes(bytes);
    *create.mutable_version() = fold.version();
    Send(node, message);
    return generation;
  }
  void Report(int node, const v1::Fold& fold, v1::FoldReport::Kind kind) {
    v1::NodeMessage message;
    message.mutable_fold_report()->set_object_id(Bytes(kTarget));
    *message.mutable_fold_report()->mutable_version() = fold.version();
    message.mutable_fold_report()->set_kind(kind);
    Send(node, message);
  }
  // The registration of a running fold with a restarted shard.
  static v1::NodeMessage Registered(const v1::Fold& fold) {
    v1::NodeMessage message;
    v1::RegisterFold& registered = *message.mutable_register_fold();
    registered.set_object_id(Bytes(kTarget));
    *registered.mutable_version() = fold.version();
    registered.set_slot(fold.slot());
    registered.set_slots(fold.slots());
    registered.set_degree(fold.degree());
    registered.set_root(fold.root());
    *registered.mutable_begun() = fold.begun();
    for (const v1::Fold::Input& input : fold.inputs()) {
      if (!input.source_id().empty()) registered.add_source_ids(input.source_id());
    }
    return message;
  }
  std::optional<v1::ReduceReply> Reply(int node) {
    const auto message = h_.Last(nodes_[node], Kind::kReduceReply);
    return message.has_value() ? std::optional(message->reduce_reply()) : std::nullopt;
  }
  int Code(int node) { return Reply(node).has_value() ? Reply(node)->code() : -1; }
  bool Has(int node, Kind kind) { return h_.Last(nodes_[node], kind).has_value(); }
  static int Number(absl::StatusCode code) { return static_cast<int>(code); }

  Harness h_;
  std::vector<NodeKey> nodes_;
  uint64_t requests_ = 0;
  // Nodes with clients that can close an open reduction of the target.
  std::set<int> holding_open_;
};

// Nodes keep what KeepReduction orders and the requests that they sent, with the number of each
// requested reduction once they have it.
class KeepingTest : public ReduceTest {
 protected:
  v1::NodeMessage OpenRequest(int sources) {
    v1::NodeMessage message = Request(sources);
    message.mutable_reduce_request()->mutable_reduction()->set_open(true);
    return message;
  }
  void Ask(int node, const v1::NodeMessage& message) {
    asked_[node].push_back(message);
    Send(node, message);
    Hear();
  }
  void Open(int node, int sources) { Ask(node, OpenRequest(sources)); }
  v1::NodeMessage ExtendRequest(const std::vector<int>& sources, bool close) {
    v1::NodeMessage message;
    message.mutable_extend_request()->set_request_id(++requests_);
    message.mutable_extend_request()->set_object_id(Bytes(kTarget));
    message.mutable_extend_request()->set_close(close);
    for (const int i : sources) message.mutable_extend_request()->add_source_ids(Bytes(Source(i)));
    return message;
  }
  int Extend(int node, const v1::NodeMessage& message) {
    h_.Clear();
    Send(node, message);
    Hear();
    const auto reply = h_.Last(nodes_[node], Kind::kExtendReply);
    return reply.has_value() ? reply->extend_reply().code() : -1;
  }
  int Add(int node, const std::vector<int>& sources) {
    return Extend(node, ExtendRequest(sources, false));
  }
  int Close(int node) { return Extend(node, ExtendRequest({}, true)); }
  // The last client of the node that could close it has ended.
  void EndClients(int node) {
    holding_open_.erase(node);
    h_.Unhold(nodes_[node], OpenHoldOf(kTarget, 1));
    Hear();
  }
  // Applies the nodes' messages since the last Clear.
  void Hear() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const v1::ShardMessage& message : h_.Received(nodes_[i])) {
        if (message.has_keep_reduction()) Hear(i, message.keep_reduction());
        if (message.has_reduce_reply()) asked_[i].clear();
      }
    }
  }
  void ComeBack(int node) {
    h_.NewSession(nodes_[node], /*had_session=*/true);
    if (holding_open_.contains(node)) h_.RegisterHold(nodes_[node], OpenHoldOf(kTarget, 1));
    RegisterReductions(node);
    h_.RegisterEnd(nodes_[node]);
  }
  void RegisterReductions(int node) {
    for (v1::NodeMessage asked : asked_[node]) {
      asked.mutable_reduce_request()->set_again(true);
      Send(node, asked);
    }
    for (const v1::NodeMessage& kept : kept_[node]) Send(node, kept);
  }
  // The shard restarts, and these nodes reconnect before its first lease has passed.
  void Restart(const std::vector<int>& nodes) {
    h_.Clear();
    h_.RestartShard();
    for (const int node : nodes) ComeBack(node);
    h_.Advance(absl::Seconds(3));
    Hear();
  }
  v1::Reduction Known() { return h_.Describe(kTarget).reduction().reduction(); }
  bool UnderWay() { return h_.Describe(kTarget).has_reduction(); }
  std::vector<std::string> KnownSources() {
    const v1::Reduction known = Known();
    return {known.source_ids().begin(), known.source_ids().end()};
  }
  static std::vector<std::string> Ids(const std::vector<int>& sources) {
    std::vector<std::string> ids;
    for (const int i : sources) ids.push_back(Bytes(Source(i)));
    return ids;
  }

  std::map<size_t, std::vector<v1::NodeMessage>> kept_;
  std::map<size_t, std::vector<v1::NodeMessage>> asked_;

 private:
  void Hear(size_t node, const v1::KeepReduction& keep) {
    std::vector<v1::NodeMessage>& kept = kept_[node];
    const Generation number = FromProto(keep.reduction().begun());
    const auto other = [&](const v1::NodeMessage& message) {
      return FromProto(message.reduce_request().reduction().begun()) != number;
    };
    if (keep.forget()) {
      if (!number.valid()) kept.clear();
      std::erase_if(kept, std::not_fn(other));
      return;
    }
    std::erase_if(kept, other);
    v1::NodeMessage again;
    again.mutable_reduce_request()->set_object_id(keep.object_id());
    *again.mutable_reduce_request()->mutable_reduction() = keep.reduction();
    again.mutable_reduce_request()->set_again(true);
    kept.push_back(again);
    for (v1::NodeMessage& asked : asked_[node]) {
      *asked.mutable_reduce_request()->mutable_reduction()->mutable_begun() =
          keep.reduction().begun();
    }
  }
};

}  // namespace phalanx::directory::testing

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TESTING_DIRECTORY_CORE_REDUCE_HARNESS_H_
