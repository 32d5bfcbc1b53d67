// The target's shard with nodes "n0", "n1", ... that keep to the protocol of reductions as far as a
// test tells them to. Testonly.
#ifndef PHALANX_DIRECTORY_DIRECTORY_CORE_REDUCE_HARNESS_H_
#define PHALANX_DIRECTORY_DIRECTORY_CORE_REDUCE_HARNESS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/elements.h"
#include "src/directory/directory_core_harness.h"
#include "src/directory/validate.h"

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
    ASSERT_TRUE(h_.Send(nodes_[node], message).ok()) << h_.status();
  }
  // The last Fold that the node was told, if it was told one.
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
  // The target as who carries out the order creates it.
  static v1::ObjectInfo ResultOf(const v1::Fold& fold) {
    v1::ObjectInfo info;
    info.set_size_bytes(fold.size_bytes());
    info.set_slices(fold.has_ring() ? fold.slots() : 1);
    info.set_metadata(fold.metadata());
    info.set_reduced_from(fold.reduced_from());
    info.set_asked_for(fold.asked_for());
    info.set_owned(fold.owned());
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
  // What a node that goes on with the fold tells a shard that began anew.
  static v1::NodeMessage Registered(const v1::Fold& fold) {
    v1::NodeMessage message;
    v1::RegisterFold& told = *message.mutable_register_fold();
    told.set_object_id(Bytes(kTarget));
    *told.mutable_version() = fold.version();
    told.set_slot(fold.slot());
    told.set_slots(fold.slots());
    told.set_degree(fold.degree());
    told.set_root(fold.root());
    for (const v1::Fold::Input& input : fold.inputs()) {
      if (!input.source_id().empty()) told.add_source_ids(input.source_id());
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
};

}  // namespace phalanx::directory::testing

#endif  // PHALANX_DIRECTORY_DIRECTORY_CORE_REDUCE_HARNESS_H_
