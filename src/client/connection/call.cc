#include "src/client/connection/call.h"

#include "absl/strings/str_cat.h"

namespace phalanx::internal {

absl::Status Call::Explain(const absl::Status& why) const {
  const std::string object = id_.nil() ? "" : absl::StrCat(" of ", id_.hex());
  return absl::Status(
      why.code(), absl::StrCat(verb_, object, " at ", connection_->address(), ": ", why.message()));
}

void Call::LetGo() {
  // The node has dropped all holds of a connection that has failed.
  if (holds_ && connection_->status().ok()) connection_->Send(local::Unhold{{id_}});
}

absl::Status Call::Unexpected() const {
  return Explain(absl::StatusCode::kInternal, "the node's answer does not match the request");
}

absl::Status Call::Refusal(const local::Answer& answer) const {
  const auto* failed = std::get_if<local::Failed>(&answer);
  return failed == nullptr ? Unexpected() : Explain(failed->code, failed->message);
}

}  // namespace phalanx::internal
