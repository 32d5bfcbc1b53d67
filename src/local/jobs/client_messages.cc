#include "src/local/jobs/client_messages.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace phalanx::object_store {

static_assert(local::kMaxMessageBytes == jobs::kMaxMessageBytes);
static_assert(local::kMessageOverhead == jobs::kMessageOverhead);
static_assert(local::kTakenStep == jobs::kCreditStep);

void ClientMessages::Begin(uint64_t join, jobs::MemberId id) {
  ids_[join] = id;
  members_[id].join = join;
  messages_.Begin(id, this);
}

void ClientMessages::End(jobs::MemberId id) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  const Member member = std::move(found->second);
  ids_.erase(member.join);
  members_.erase(found);
  messages_.End(id);
  // Messages::End drops the callbacks of the Sends, so the client is answered here.
  for (const uint64_t request : member.sends) {
    sends_.erase(request);
    Fail(request, absl::AbortedError("the member has ended before its message had left"));
  }
}

void ClientMessages::Send(const local::SendMessage& message, Instant deadline) {
  const auto member = ids_.find(message.member);
  if (member == ids_.end()) {
    return Fail(message.request, absl::AbortedError("the member that sends has ended"));
  }
  if (sends_.size() >= local::kMaxRequestsUnderWay) {
    return Fail(message.request, absl::ResourceExhaustedError(absl::StrCat(
                                     "the client has ", sends_.size(), " messages that wait")));
  }
  std::optional<uint64_t> life;
  if (message.has_life) life = message.life;
  const uint64_t request = message.request;
  const jobs::SendId send =
      messages_.Send(member->second, message.role, message.rank, life, std::string(message.bytes),
                     deadline, [this, request](const absl::Status& status) {
                       Erase(request);
                       if (!status.ok()) return Fail(request, status);
                       answer_([request](LocalOutbox::Batch& batch) {
                         batch.Add(local::Counted{request, 1});
                         return true;
                       });
                     });
  // No callback runs inside Messages::Send, so the entry is there before the Send can end.
  sends_[request] = {member->second, send};
  members_.at(member->second).sends.insert(request);
}

void ClientMessages::Erase(uint64_t request) {
  const auto sending = sends_.find(request);
  members_.at(sending->second.from).sends.erase(request);
  sends_.erase(sending);
}

void ClientMessages::Cancel(uint64_t request) {
  const auto sending = sends_.find(request);
  if (sending == sends_.end()) return;
  messages_.Cancel(sending->second.send);
  Erase(request);
}

void ClientMessages::Taken(const local::MessageTaken& taken) {
  const auto member = ids_.find(taken.member);
  // It has ended meanwhile.
  if (member == ids_.end()) return;
  messages_.Taken(member->second, taken.role, taken.rank, taken.life, taken.stream, taken.cost);
}

void ClientMessages::OnMessage(jobs::MemberId member, const jobs::ArrivedMessage& message) {
  answer_([join = members_.at(member).join, message](LocalOutbox::Batch& batch) {
    const absl::string_view bytes =
        message.bytes == nullptr ? absl::string_view() : absl::string_view(*message.bytes);
    batch.AddMessage({join, message.role, message.rank, message.life, message.stream, bytes},
                     message.bytes);
    return true;
  });
}

void ClientMessages::Fail(uint64_t request, absl::Status why) {
  answer_([request, why = std::move(why)](LocalOutbox::Batch& batch) {
    batch.Add(local::Failed{request, why.code(), why.message()});
    return true;
  });
}

}  // namespace phalanx::object_store
