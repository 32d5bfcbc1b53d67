#include "src/local/jobs/client_jobs.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::object_store {
namespace {

absl::Status UsedTwice(uint64_t request) {
  return absl::InvalidArgumentError(absl::StrCat("request ", request, " is used twice"));
}

}  // namespace

ClientJobs::ClientJobs(const LocalJobs& jobs, Session session)
    : session_(std::move(session)),
      members_(jobs.members, jobs.messages, jobs.groups,
               [this](LocalOutbox::Item item) { session_.send(std::move(item)); }),
      groups_(jobs.groups, jobs.group_memory,
              [this](LocalOutbox::Item item) { session_.send(std::move(item)); }) {}

absl::Status ClientJobs::On(const local::Join& join) {
  // The number names the member in all later messages, so it must not name two.
  if (members_.Contains(join.request)) return UsedTwice(join.request);
  const absl::Status joining = members_.Join(join, session_.deadline(join.timeout));
  if (!joining.ok()) session_.fail(join.request, joining);
  return absl::OkStatus();
}

absl::Status ClientJobs::On(const local::LeaveJob& leave) {
  members_.Leave(leave.member, leave.failed);
  return absl::OkStatus();
}

absl::Status ClientJobs::On(const local::SendMessage& message) {
  if (members_.messages().Sends(message.request)) return UsedTwice(message.request);
  members_.messages().Send(message, session_.deadline(message.timeout));
  return absl::OkStatus();
}

absl::Status ClientJobs::On(const local::MessageTaken& taken) {
  members_.messages().Taken(taken);
  return absl::OkStatus();
}

absl::Status ClientJobs::On(const local::GroupCall& call) {
  if (groups_.Fills(call.request)) return UsedTwice(call.request);
  // The member can end while the call is on its way, so this is no breach of the protocol.
  const jobs::LocalMember* member = members_.Find(call.member);
  const absl::Status called =
      member == nullptr ? absl::FailedPreconditionError("the member is not in its job any more")
                        : groups_.Call(*member, call, session_.deadline(call.timeout));
  if (!called.ok()) session_.fail(call.request, called);
  return absl::OkStatus();
}

absl::Status ClientJobs::On(const local::GroupResult& result) {
  const jobs::LocalMember* member = members_.Find(result.member);
  const absl::Status asked =
      member == nullptr ? absl::FailedPreconditionError("the member is not in its job any more")
                        : groups_.AskResult(*member, result, session_.deadline(result.timeout));
  if (!asked.ok()) session_.fail(result.request, asked);
  return absl::OkStatus();
}

absl::Status ClientJobs::On(const local::AskGroupProgress& ask) {
  const jobs::LocalMember* member = members_.Find(ask.member);
  const absl::Status asked =
      member == nullptr ? absl::FailedPreconditionError("the member is not in its job any more")
                        : groups_.AskProgress(*member, ask, session_.deadline(ask.timeout));
  if (!asked.ok()) session_.fail(ask.request, asked);
  return absl::OkStatus();
}

absl::Status ClientJobs::On(const local::GroupBuffer& buffer) {
  const absl::Status asked = groups_.MakeBuffer(buffer, session_.deadline(buffer.timeout));
  if (!asked.ok()) session_.fail(buffer.request, asked);
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
