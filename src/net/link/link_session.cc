#include "src/net/link/link_session.h"

#include <algorithm>

#include "src/common/check.h"
#include "src/common/defects.h"

namespace phalanx::net {

void LinkSession::Dial(uint64_t attempt) {
  PHALANX_CHECK(phase_ == Phase::kIdle || phase_ == Phase::kWaiting, "one connection at a time");
  PHALANX_CHECK(attempt > attempt_, "attempts are numbered upwards");
  phase_ = Phase::kDialing;
  attempt_ = attempt;
}

LinkPayload LinkSession::Ask(uint64_t received) {
  PHALANX_CHECK(phase_ == Phase::kDialing, "asks over the connection that it has dialed");
  phase_ = Phase::kAsked;
  return {session_, peer_session_, received, attempt_};
}

absl::Duration LinkSession::Failed() {
  PHALANX_CHECK(phase_ == Phase::kDialing || phase_ == Phase::kAsked, "a dial fails once");
  phase_ = Phase::kWaiting;
  return NextPause();
}

absl::Duration LinkSession::NextPause() {
  const absl::Duration pause = pause_;
  pause_ = std::clamp(2 * pause, kFirstPause, kGreatestPause);
  return pause;
}

LinkSession::Outcome LinkSession::Welcomed(const WelcomeBody& welcome) {
  PHALANX_CHECK(phase_ == Phase::kAsked, "a WELCOME answers a LINK");
  switch (welcome.verdict) {
    case LinkVerdict::kBusy:
    case LinkVerdict::kRefused:
      return Outcome::kRetry;
    case LinkVerdict::kForgotten:
      // Without a session of the peer there was nothing to forget.
      return peer_session_ != 0 ? Outcome::kLost : Outcome::kRetry;
    case LinkVerdict::kAccepted:
      break;
  }
  // The peer compares what we know; it would have answered kForgotten.
  if (peer_session_ != 0 && welcome.session != peer_session_) return Outcome::kLost;
  peer_session_ = welcome.session;
  // The peer's attempts up to this one are over, also one whose request is still on its way.
  peer_attempts_ = std::max(peer_attempts_, welcome.attempts);
  phase_ = Phase::kConnected;
  return Outcome::kConnected;
}

LinkSession::Answer LinkSession::Requested(const LinkPayload& request) {
  const bool compared = !DefectActive(Defect::kLinkSessionNotCompared);
  // The peer means a link that this side has given up and made anew.
  if (compared && request.known_session != 0 && request.known_session != session_) {
    return Answer::kForgotten;
  }
  // The peer has abandoned this attempt, and its request comes late.
  if (request.attempt <= peer_attempts_) return Answer::kBusy;
  // A new session of the peer: it has given up the one that this side knows.
  if (compared && peer_session_ != 0 && request.session != peer_session_) return Answer::kRenew;
  // Both sides have asked. This side's request wins, and the peer abandons its own.
  if (phase_ == Phase::kAsked && self_ < peer_) return Answer::kBusy;
  peer_session_ = request.session;
  peer_attempts_ = request.attempt;
  phase_ = Phase::kConnected;
  return Answer::kAccept;
}

WelcomeBody LinkSession::Welcome(LinkVerdict verdict) const {
  return {verdict, verdict == LinkVerdict::kAccepted ? session_ : 0, attempt_};
}

absl::Duration LinkSession::Broken() {
  PHALANX_CHECK(phase_ == Phase::kConnected, "a connection breaks once");
  phase_ = Phase::kIdle;
  return NextPause();
}

}  // namespace phalanx::net
