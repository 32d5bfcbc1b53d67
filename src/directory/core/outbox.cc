#include "src/directory/core/outbox.h"

#include <algorithm>

#include "src/directory/core/validate.h"

namespace phalanx::directory {
namespace {

constexpr size_t kReserved = 1024;

// Gone, Verdict and Kept all begin with the object and the generation.
template <typename Message>
Message& SetSubject(Message& message, const ObjectId& id, const Generation& generation) {
  message.set_object_id(id.binary().data(), ObjectId::kSize);
  ToProto(generation, message.mutable_generation());
  return message;
}

}  // namespace

v1::ShardMessage& Outbox::Send(const NodeKey& to) {
  Outgoing& outgoing = messages_.emplace_back();
  outgoing.to = to;
  return outgoing.message;
}

void Outbox::SendDeleted(const NodeKey& to, const ObjectId& id, const Generation& generation,
                         bool expired) {
  v1::Gone& gone = SetSubject(*Send(to).mutable_gone(), id, generation);
  gone.set_kind(v1::Gone::DELETED);
  gone.set_reason(expired ? "its time to live had passed" : "deleted");
  gone.set_expired(expired);
}

void Outbox::SendVoid(const NodeKey& to, const ObjectId& id, const Generation& generation,
                      absl::string_view reason) {
  v1::Gone& gone = SetSubject(*Send(to).mutable_gone(), id, generation);
  gone.set_kind(v1::Gone::VOID);
  gone.set_reason(reason.data(), reason.size());
}

void Outbox::SendLost(const NodeKey& to, const ObjectId& id, absl::string_view reason) {
  v1::Gone& gone = *Send(to).mutable_gone();
  gone.set_object_id(id.binary().data(), ObjectId::kSize);
  gone.set_kind(v1::Gone::LOST);
  gone.set_reason(reason.data(), reason.size());
}

void Outbox::SendRefused(const NodeKey& to, const ObjectId& id, uint64_t want, absl::StatusCode why,
                         absl::string_view reason) {
  v1::Gone& gone = *Send(to).mutable_gone();
  gone.set_object_id(id.binary().data(), ObjectId::kSize);
  gone.set_kind(v1::Gone::REFUSED);
  gone.set_want(want);
  gone.set_code(static_cast<int>(why));
  gone.set_reason(reason.data(), reason.size());
}

void Outbox::SendVerdict(const NodeKey& to, const ObjectId& id, const Generation& generation,
                         v1::Verdict::Kind kind) {
  SetSubject(*Send(to).mutable_verdict(), id, generation).set_kind(kind);
}

void Outbox::SendVerdict(const NodeKey& to, const ObjectId& id, const Generation& generation,
                         v1::Verdict::Kind kind, const Generation& adopted,
                         const ObjectInfo& info) {
  v1::Verdict& verdict = SetSubject(*Send(to).mutable_verdict(), id, generation);
  verdict.set_kind(kind);
  ToProto(adopted, verdict.mutable_adopted());
  ToProto(info, verdict.mutable_info());
}

void Outbox::SendSuperseded(const NodeKey& to, const ObjectId& id, const Generation& generation,
                            const ObjectInfo& info) {
  v1::Verdict& verdict = SetSubject(*Send(to).mutable_verdict(), id, generation);
  verdict.set_kind(v1::Verdict::SUPERSEDED);
  ToProto(info, verdict.mutable_info());
}

void Outbox::SendFetch(const NodeKey& to, const ObjectId& id, PlanId plan, bool keep,
                       bool only_confirm) {
  v1::Fetch& fetch = *Send(to).mutable_fetch();
  fetch.set_object_id(id.binary().data(), ObjectId::kSize);
  fetch.set_keep(keep);
  fetch.set_plan_id(plan);
  fetch.set_only_confirm(only_confirm);
}

void Outbox::SendRelease(const NodeKey& to, const ObjectId& id, PlanId plan) {
  v1::Fetch& fetch = *Send(to).mutable_fetch();
  fetch.set_object_id(id.binary().data(), ObjectId::kSize);
  fetch.set_plan_id(plan);
  fetch.set_release(true);
}

void Outbox::SendFetchEnd(const NodeKey& to, const ObjectId& id, PlanId plan) {
  v1::Fetch& fetch = *Send(to).mutable_fetch();
  fetch.set_object_id(id.binary().data(), ObjectId::kSize);
  fetch.set_plan_id(plan);
  fetch.set_end(true);
}

void Outbox::SendScopeEnded(const NodeKey& to, const Scope& scope) {
  ToProto(scope, Send(to).mutable_scope_ended()->mutable_scope());
}

void Outbox::SendKept(const NodeKey& to, const ObjectId& id, const Generation& generation) {
  SetSubject(*Send(to).mutable_kept(), id, generation);
}

// Inline bytes count per turn, which ends when the shard takes the messages.
std::vector<Outgoing> Outbox::Take() {
  inline_bytes_ = 0;
  std::vector<Outgoing> taken = std::exchange(messages_, {});
  // The next turn decides about as many, and a vector that grows moves each of them.
  messages_.reserve(std::min(taken.size(), kReserved));
  return taken;
}

}  // namespace phalanx::directory
