// What tests of the core's broadcasts have in common. Testonly.
#ifndef PHALANX_DIRECTORY_TESTING_BROADCAST_HARNESS_H_
#define PHALANX_DIRECTORY_TESTING_BROADCAST_HARNESS_H_

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory::testing {

using Kind = v1::ShardMessage::KindCase;

inline constexpr absl::Duration kLease = absl::Seconds(2);
inline const ObjectId x = Id("x");
inline const ObjectId y = Id("y");

// Tests of broadcasts as nodes see them: requests in one line each, and what came of them.
class BroadcastTest : public ::testing::Test {
 protected:
  void Ask(const NodeKey& node, const ObjectId& id, const std::vector<std::string>& names,
           bool sticky, uint64_t request = 1) {
    v1::BroadcastRequest m;
    m.set_request_id(request);
    m.set_object_id(id.binary().data(), ObjectId::kSize);
    m.mutable_nodes()->Add(names.begin(), names.end());
    m.set_sticky(sticky);
    SendRequest(node, m);
  }
  // As a requester that knows that it has begun, in a new session.
  void AskAgain(const NodeKey& node, const ObjectId& id, const std::vector<std::string>& names,
                const std::optional<v1::StickyMark>& mark, uint64_t request = 1) {
    v1::BroadcastRequest m;
    m.set_request_id(request);
    m.set_object_id(id.binary().data(), ObjectId::kSize);
    m.mutable_nodes()->Add(names.begin(), names.end());
    m.set_sticky(mark.has_value());
    m.set_begun(true);
    if (mark.has_value()) *m.mutable_mark() = *mark;
    SendRequest(node, m);
  }
  void Stop(const NodeKey& node, const ObjectId& id) {
    v1::BroadcastRequest m;
    m.set_request_id(99);
    m.set_object_id(id.binary().data(), ObjectId::kSize);
    m.set_stop(true);
    SendRequest(node, m);
  }
  void Leave(const NodeKey& node, const ObjectId& id, uint64_t request = 1) {
    v1::BroadcastRequest m;
    m.set_request_id(request);
    m.set_object_id(id.binary().data(), ObjectId::kSize);
    m.set_end(true);
    SendRequest(node, m);
  }
  void SendRequest(const NodeKey& node, const v1::BroadcastRequest& m) {
    v1::NodeMessage message;
    *message.mutable_broadcast_request() = m;
    h_.Send(node, message).IgnoreError();
  }
  // Nothing comes of the node's last order.
  void Refuse(const NodeKey& node, const ObjectId& id) {
    v1::NodeMessage message;
    message.mutable_unwant()->set_object_id(id.binary().data(), ObjectId::kSize);
    message.mutable_unwant()->set_fetch(LastOrder(node));
    h_.Send(node, message).IgnoreError();
  }
  uint64_t LastOrder(const NodeKey& node) {
    const auto last = h_.Last(node, Kind::kFetch);
    return last.has_value() ? last->fetch().plan_id() : 0;
  }
  // As a node with room does.
  void Fetch(const NodeKey& node, const ObjectId& id) {
    h_.Want(node, id);
    h_.Finish(node, id);
  }
  int Orders(const NodeKey& node) { return h_.Count(node, Kind::kFetch); }
  int Answers(const NodeKey& node) { return h_.Count(node, Kind::kBroadcastReply); }
  v1::BroadcastReply Answer(const NodeKey& node) {
    const auto last = h_.Last(node, Kind::kBroadcastReply);
    return last.has_value() ? last->broadcast_reply() : v1::BroadcastReply();
  }
  v1::StickyMark MarkOf(const NodeKey& node) {
    const auto last = h_.Last(node, Kind::kSticky);
    return last.has_value() ? last->sticky().mark() : v1::StickyMark();
  }
  int Begun(const NodeKey& node) { return h_.Count(node, Kind::kBroadcastBegun); }
  // What its last request has made of it.
  v1::StickyMark BegunMark(const NodeKey& node) {
    const auto last = h_.Last(node, Kind::kBroadcastBegun);
    return last.has_value() ? last->broadcast_begun().mark() : v1::StickyMark();
  }
  bool Sticky(const ObjectId& id) { return h_.Describe(id).summary().has_sticky(); }
  v1::QueryReply Progress(const NodeKey& node, const ObjectId& id) {
    v1::NodeMessage message;
    message.mutable_query_request()->set_object_id(id.binary().data(), ObjectId::kSize);
    message.mutable_query_request()->add_nodes("*");
    h_.Send(node, message).IgnoreError();
    return h_.Last(node, Kind::kQueryReply)->query_reply();
  }
  void RegisterSticky(const NodeKey& node, const ObjectId& id, const Generation& generation,
                      const v1::StickyMark& mark) {
    v1::NodeMessage message;
    v1::RegisterCopy& m = *message.mutable_register_copy();
    m.set_object_id(id.binary().data(), ObjectId::kSize);
    ToProto(generation, m.mutable_generation());
    m.mutable_info()->set_size_bytes(1 << 20);
    m.mutable_info()->set_slices(1);
    m.set_adopted(true);
    m.set_complete(true);
    *m.mutable_sticky() = mark;
    h_.Send(node, message).IgnoreError();
  }
  // In a new session, a node with a complete copy.
  void Return(const NodeKey& node, const ObjectId& id, const Generation& generation,
              const v1::StickyMark& mark) {
    h_.NewSession(node, true);
    RegisterSticky(node, id, generation, mark);
    h_.RegisterEnd(node);
  }
  // In a new session, a node without any.
  void Return(const NodeKey& node, uint64_t last_stamp = 0) {
    h_.NewSession(node, true);
    v1::NodeMessage begin;
    begin.mutable_register_begin()->set_had_session(true);
    begin.mutable_register_begin()->set_sticky_stamp(last_stamp);
    h_.Send(node, begin).IgnoreError();
    h_.RegisterEnd(node);
  }
  uint64_t Counter(const std::string& name) {
    v1::GetStatusResponse status;
    h_.core().FillStatus(h_.now(), &status);
    return status.counters().at(name);
  }

  Harness h_;
};

}  // namespace phalanx::directory::testing

#endif  // PHALANX_DIRECTORY_TESTING_BROADCAST_HARNESS_H_
