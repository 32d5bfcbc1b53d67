// LinkSession: which connection a link uses, and whether both sides mean the same link. Pure.
//
//            Dial            Ask               Welcomed: kConnected
//   kIdle ───────► kDialing ─────► kAsked ─────────────────────────────► kConnected
//     ▲               │ Failed       │ Failed, Welcomed: kRetry              │ Broken
//     │               ▼              ▼                                       │
//     │            kWaiting ◄────────┘          Requested: kAccept           │
//     │                                  (any phase) ────────► kConnected    │
//     └──────────────────────────────────────────────────────────────────────┘
//
// Both sides can dial at the same time. A side that has not asked yet abandons its own dial for the
// other's request. If both have asked, the request of the smaller node wins: the greater node
// abandons its own for it, and the smaller one refuses the other's. A request that was abandoned
// can still arrive late, so every side numbers its attempts, and a WELCOME names the attempts of
// its sender are over.
//
// Each side's state of the pair has a session number. If one side has given the link up, its next
// request has another session, or it does not know the session that the other side names: so the
// other side learns that the messages of the old session are lost.
//
// Owned by a Link; one loop.
#ifndef PHALANX_NET_LINK_LINK_SESSION_H_
#define PHALANX_NET_LINK_LINK_SESSION_H_

#include <cstdint>

#include "absl/time/time.h"
#include "src/common/ids/ids.h"
#include "src/net/frame/frame.h"
#include "src/net/link/link_frame.h"

namespace phalanx::net {

class LinkSession {
 public:
  enum class Phase { kIdle, kWaiting, kDialing, kAsked, kConnected };
  // What follows from a WELCOME, and from a LINK.
  enum class Outcome { kConnected, kRetry, kLost };
  enum class Answer {
    kAccept,     // the request's connection replaces what there is
    kBusy,       // refuse it: another connection precedes
    kForgotten,  // refuse it: it names a session that this side has given up
    kRenew,      // the peer has given its session up: so is this one
  };

  // The pauses before a connection is dialed again: doubled each time, up to the greatest.
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
  static constexpr absl::Duration kGreatestPause = absl::Seconds(1);

  // `session`: unpredictable and not 0.
  LinkSession(NodeKey self, NodeKey peer, uint64_t session)
      : self_(self), peer_(peer), session_(session) {}

  Phase phase() const { return phase_; }
  uint64_t session() const { return session_; }
  // The number of the last Dial; 0 if there was none.
  uint64_t attempt() const { return attempt_; }

  // REQUIRES: kIdle or kWaiting. `attempt` is greater than those of all earlier dials of this node.
  void Dial(uint64_t attempt);
  // The peer has proved itself. `received`: the bytes of its messages that have arrived.
  // REQUIRES: kDialing.
  LinkPayload Ask(uint64_t received);
  // Returns the pause before the next Dial. REQUIRES: kDialing or kAsked.
  absl::Duration Failed();
  // After kRetry the caller calls Failed. REQUIRES: kAsked.
  Outcome Welcomed(const WelcomeBody& welcome);

  // A request of the peer. After kAccept the session is connected by it, and the caller sends
  // Welcome(kAccepted).
  Answer Requested(const LinkPayload& request);
  WelcomeBody Welcome(LinkVerdict verdict) const;

  // The connection has ended. Returns the pause before the next Dial, if there is something to
  // send. REQUIRES: kConnected.
  absl::Duration Broken();
  // The connection has carried something: the next pause is the first one again.
  void Progress() { pause_ = absl::ZeroDuration(); }

 private:
  absl::Duration NextPause();

  // Constant after construction.
  const NodeKey self_;
  const NodeKey peer_;
  const uint64_t session_;

  Phase phase_ = Phase::kIdle;
  // 0 until the peer has named it.
  uint64_t peer_session_ = 0;
  // The last attempt of this side, and the peer's attempts that are over or accepted.
  uint64_t attempt_ = 0;
  uint64_t peer_attempts_ = 0;
  absl::Duration pause_ = absl::ZeroDuration();
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_LINK_LINK_SESSION_H_
