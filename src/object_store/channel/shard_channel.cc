#include "src/object_store/channel/shard_channel.h"

#include "src/common/check.h"

namespace phalanx::object_store {

absl::Status ReplyStatus(int code, absl::string_view message) {
  constexpr int kLast = static_cast<int>(absl::StatusCode::kUnauthenticated);
  if (code < 0 || code > kLast) code = static_cast<int>(absl::StatusCode::kUnknown);
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

ShardChannel::ShardChannel(int num_shards, SendToShard send, Later later)
    : num_shards_(num_shards),
      send_(std::move(send)),
      later_(std::move(later)),
      had_session_(static_cast<size_t>(num_shards)) {}

ShardChannel::~ShardChannel() = default;

void ShardChannel::Handle(v1::ShardMessage::KindCase kind, Handler handler) {
  // Two handlers would each answer the message, and the shard counts on one answer.
  const bool added = handlers_.emplace(kind, std::move(handler)).second;
  PHALANX_CHECK(added, "one component handles a kind of message");
}

void ShardChannel::AddRegistrant(Registrant* registrant) { registrants_.push_back(registrant); }

void ShardChannel::RemoveRegistrant(Registrant* registrant) {
  std::erase(registrants_, registrant);
  // A registration without one of its parts would make the shard remove what that part has.
  registrations_.clear();
}

void ShardChannel::OnSession(int shard) {
  v1::NodeMessage message;
  v1::RegisterBegin* begin = message.mutable_register_begin();
  begin->set_had_session(had_session_[static_cast<size_t>(shard)]);
  // Only from the second session on: the first one proves no earlier life of the shard.
  had_session_[static_cast<size_t>(shard)] = true;
  for (Registrant* registrant : registrants_) registrant->FillBegin(shard, begin);
  send_(shard, std::move(message));
  // Before BeginSession: what registrants send there follows the registration.
  const auto registration = std::make_shared<Registration>();
  // Replaces the registration of a broken session, and what that one held back with it.
  registrations_[shard] = registration;
  for (Registrant* registrant : registrants_) {
    for (v1::NodeMessage& last : registrant->BeginSession(shard)) {
      registration->last.push_back(std::move(last));
    }
  }
  Continue(shard);
  EndTurn();
}

void ShardChannel::Continue(int shard) {
  const std::shared_ptr<Registration> registration = registrations_.at(shard);
  for (Registrant* registrant : registrants_) {
    // In order: a later registrant begins when the ones before it have registered everything.
    if (registrant->RegisterSome(shard)) continue;
    later_([this, shard, current = std::weak_ptr<Registration>(registration)] {
      // A newer session has its own registration.
      if (current.expired()) return;
      Continue(shard);
      EndTurn();
    });
    return;
  }
  for (v1::NodeMessage& message : registration->last) send_(shard, std::move(message));
  v1::NodeMessage end;
  end.mutable_register_end();
  send_(shard, std::move(end));
  registrations_.erase(shard);
  // Messages of the time of the registration refer to a state that the shard has only now.
  for (v1::NodeMessage& message : registration->held) send_(shard, std::move(message));
}

void ShardChannel::EndTurn() {
  for (Registrant* registrant : registrants_) registrant->EndRegistrationTurn();
}

void ShardChannel::OnMessage(int shard, const v1::ShardMessage& message) {
  const auto handler = handlers_.find(message.kind_case());
  if (handler != handlers_.end()) handler->second(shard, message);
}

void ShardChannel::SendTo(int shard, v1::NodeMessage&& message) {
  const auto registration = registrations_.find(shard);
  if (registration == registrations_.end()) return send_(shard, std::move(message));
  registration->second->held.push_back(std::move(message));
}

void ShardChannel::SendAfterHolds(int shard, v1::NodeMessage&& message) {
  flush_holds_();
  SendTo(shard, std::move(message));
}

}  // namespace phalanx::object_store
