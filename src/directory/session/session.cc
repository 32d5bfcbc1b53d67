#include "src/directory/session/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"
#include "src/net/stream/handshake.h"

namespace phalanx::directory {
namespace {

// One hour: bounds what a node accepts from the wire.
constexpr uint32_t kMaxLeaseMs = 3'600'000;

absl::Status OutOfOrder(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, " came out of order"));
}

absl::Status Malformed(absl::string_view what, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", why));
}

// A registration does not count against the limits (SessionLimits): its length is that of the
// node's state.
bool Registers(const v1::NodeMessage& message) {
  switch (message.kind_case()) {
    case v1::NodeMessage::kRegisterBegin:
    case v1::NodeMessage::kRegisterHolds:
    case v1::NodeMessage::kRegisterCopy:
    case v1::NodeMessage::kRegisterWant:
    case v1::NodeMessage::kRegisterTombstone:
    case v1::NodeMessage::kRegisterFold:
    case v1::NodeMessage::kRegisterEnd:
      return true;
    default:
      return false;
  }
}

}  // namespace

NodeSession::NodeSession(SessionConfig config, v1::NodeInfo self)
    : config_(std::move(config)), self_(std::move(self)), link_(config_.lease, config_.limits) {}

void NodeSession::StreamOpened(absl::string_view nonce, Instant now) {
  // The link stays detached until the Welcome: no batch can go out before both ends have proved the
  // secret.
  link_.Detach();
  nonce_ = std::string(nonce);
  opened_ = now;
  link_.Heard(now);
  phase_ = Phase::kHelloDue;
}

void NodeSession::StreamClosed(Instant) {
  link_.Detach();
  phase_ = Phase::kNoStream;
}

absl::Status NodeSession::OnFrame(v1::ShardFrame frame, Instant now) {
  // Even a frame that is rejected below shows that the shard lives.
  link_.Heard(now);
  switch (frame.kind_case()) {
    case v1::ShardFrame::kChallenge:
      return OnChallenge(frame.challenge());
    case v1::ShardFrame::kWelcome:
      return OnWelcome(frame.welcome(), now);
    case v1::ShardFrame::kRefused:
      return RefusedStatus(frame.refused());
    case v1::ShardFrame::kBatch:
      // Before the Welcome both ends can disagree on the session, so no number in a batch has a
      // meaning.
      if (phase_ != Phase::kEstablished) return OutOfOrder("a batch");
      return OnBatch(*frame.mutable_batch(), now);
    case v1::ShardFrame::KIND_NOT_SET:
      break;
  }
  return Malformed("a frame", "its kind is missing or unknown");
}

absl::Status NodeSession::OnBatch(v1::ShardBatch& batch, Instant now) {
  // The shard returns a time that this node has sent, so it is never in the future.
  if (batch.heard_ns() > static_cast<uint64_t>(now.nanos())) {
    return Malformed("a batch", "it answers a frame of a later time");
  }
  PHALANX_RETURN_IF_ERROR(link_.Take(batch, now));
  heard_ = std::max(heard_, Instant::FromNanos(static_cast<int64_t>(batch.heard_ns())));
  return absl::OkStatus();
}

absl::Status NodeSession::OnChallenge(const v1::Challenge& challenge) {
  if (phase_ != Phase::kChallengeAwaited) return OutOfOrder("a challenge");
  if (challenge.nonce().size() != net::kNonceBytes) {
    return Malformed("a challenge", "its nonce has another length than ours");
  }
  const std::string expected =
      SessionProof(config_.secret, SessionEnd::kShard, hello_, challenge.nonce());
  // The shard proves the secret first. A node never proves it to a stranger.
  if (!net::ProofMatches(expected, challenge.proof())) {
    return absl::PermissionDeniedError(absl::StrCat("shard ", config_.shard_index,
                                                    " has not shown the secret of cluster \"",
                                                    config_.cluster_id, "\""));
  }
  shard_nonce_ = challenge.nonce();
  phase_ = Phase::kProofDue;
  return absl::OkStatus();
}

absl::Status NodeSession::OnWelcome(const v1::Welcome& welcome, Instant now) {
  if (phase_ != Phase::kWelcomeAwaited) return OutOfOrder("a welcome");
  if (welcome.session_id() == 0 || welcome.shard_incarnation() == 0 || welcome.lease_ms() == 0 ||
      welcome.lease_ms() > kMaxLeaseMs) {
    return Malformed("a welcome", "its session, incarnation or lease is missing");
  }
  if (welcome.resumed()) {
    // The incarnation counts too: a restarted shard can draw the same session id again.
    const bool ours = session_id_ != 0 && welcome.session_id() == session_id_ &&
                      welcome.shard_incarnation() == shard_incarnation_;
    if (!ours || !link_.CanResume(welcome.last_received())) {
      // The shard and this node disagree on what was received. Only a new session can repair that.
      session_id_ = 0;
      return Malformed("a welcome", "it resumes what is not our session");
    }
    event_ = Event::kResumed;
  } else {
    // The numbers of a new session start at 1 on both ends.
    if (welcome.last_received() != 0) return Malformed("a welcome", "a new session has messages");
    session_id_ = welcome.session_id();
    shard_incarnation_ = welcome.shard_incarnation();
    link_.Begin(absl::Milliseconds(welcome.lease_ms()));
    heard_ = Instant();
    event_ = Event::kRegister;
  }
  // The shard has read the proof, which was sent after the stream was opened.
  heard_ = std::max(heard_, opened_);
  link_.Attach(welcome.last_received(), now);
  phase_ = Phase::kEstablished;
  return absl::OkStatus();
}

std::optional<NodeSession::Event> NodeSession::TakeEvent() {
  return std::exchange(event_, std::nullopt);
}

google::protobuf::RepeatedPtrField<v1::ShardMessage> NodeSession::TakeMessages() {
  return link_.TakeDelivered();
}

void NodeSession::Send(v1::NodeMessage&& message) {
  // Without a session the message is void: the user registers its whole state at the next Welcome.
  if (session_id_ == 0) return;
  const bool registers = Registers(message);
  link_.Send(std::move(message), /*counts=*/!registers);
  // The next hello then carries no session id and requests a new session.
  if (link_.overflowed()) session_id_ = 0;
}

const v1::NodeFrame* NodeSession::NextFrame(Instant now) {
  v1::NodeFrame& frame = link_.NewFrame<v1::NodeFrame>();
  switch (phase_) {
    case Phase::kHelloDue:
      phase_ = Phase::kChallengeAwaited;
      frame = HelloFrame();
      return &frame;
    case Phase::kProofDue:
      phase_ = Phase::kWelcomeAwaited;
      frame = ProofFrame();
      return &frame;
    case Phase::kEstablished:
      if (link_.overflowed() || !link_.Fill(*frame.mutable_batch(), now)) return nullptr;
      frame.mutable_batch()->set_sent_ns(static_cast<uint64_t>(now.nanos()));
      return &frame;
    default:
      return nullptr;
  }
}

const v1::NodeFrame* NodeSession::LastFrame(Instant now) {
  if (phase_ != Phase::kEstablished || link_.overflowed()) return nullptr;
  v1::NodeFrame& frame = link_.NewFrame<v1::NodeFrame>();
  // If nothing is due, the goodbye still needs a batch to travel in.
  if (!link_.Fill(*frame.mutable_batch(), now)) frame.mutable_batch()->Clear();
  frame.mutable_batch()->set_goodbye(true);
  return &frame;
}

v1::NodeFrame NodeSession::HelloFrame() {
  hello_.Clear();
  hello_.set_protocol_version(config_.protocol_version);
  hello_.set_cluster_id(config_.cluster_id);
  hello_.set_shard_index(config_.shard_index);
  hello_.set_num_shards(config_.num_shards);
  *hello_.mutable_node() = self_;
  hello_.set_nonce(nonce_);
  // A hello with a session id requests resumption; last_received is where the shard continues.
  if (session_id_ != 0) {
    hello_.set_session_id(session_id_);
    hello_.set_shard_incarnation(shard_incarnation_);
    hello_.set_last_received(link_.received());
  }
  v1::NodeFrame frame;
  *frame.mutable_hello() = hello_;
  return frame;
}

v1::NodeFrame NodeSession::ProofFrame() const {
  v1::NodeFrame frame;
  frame.mutable_proof()->set_proof(
      SessionProof(config_.secret, SessionEnd::kNode, hello_, shard_nonce_));
  return frame;
}

Instant NodeSession::NextDeadline() const {
  // A frame of the handshake is due at once.
  if (phase_ == Phase::kHelloDue || phase_ == Phase::kProofDue) return Instant();
  return established() ? std::min(SilenceDeadline(), link_.NextSend()) : SilenceDeadline();
}

Instant NodeSession::SilenceDeadline() const {
  return phase_ == Phase::kNoStream ? Instant::Infinite() : link_.SilentAt();
}

ShardSession::ShardSession(SessionId id, uint64_t shard_incarnation, const SessionConfig& config,
                           v1::NodeInfo node, Instant now)
    : id_(id),
      shard_incarnation_(shard_incarnation),
      node_(std::move(node)),
      configured_grace_(config.reconnect_grace),
      link_(config.lease, config.limits),
      expected_until_(now + config.reconnect_grace) {
  // Silence counts from the creation; the default, a moment long ago, would expire the session.
  link_.Heard(now);
}

bool ShardSession::CanResume(const v1::Hello& hello) const {
  // A restarted node has the same number and another incarnation, and lost what it received.
  return hello.session_id() == id_ && hello.shard_incarnation() == shard_incarnation_ &&
         hello.node().key().node() == node_.key().node() &&
         hello.node().key().incarnation() == node_.key().incarnation() && !ended_ &&
         link_.CanResume(hello.last_received());
}

void ShardSession::StreamOpened(const v1::Hello& hello, Instant now, absl::Duration round_trip) {
  round_trip_ = round_trip;
  resumed_ = std::exchange(had_stream_, true);
  PHALANX_CHECK(!resumed_ || CanResume(hello), "a session resumes where both ends know it");
  // A new session ignores last_received: that number belongs to another session.
  link_.Attach(resumed_ ? hello.last_received() : 0, now);
  welcome_due_ = true;
}

void ShardSession::StreamClosed(Instant now) {
  link_.Detach();
  welcome_due_ = false;
  AwaitReconnect(now);
}

void ShardSession::AwaitReconnect(Instant now) {
  // Never shortens the wait that Forgive has granted.
  expected_until_ = std::max(expected_until_, now + grace());
}

Instant ShardSession::ExpiresAt() const {
  // Without a stream a live node reconnects within the grace, so the session expires at the earlier
  // time.
  return link_.attached() ? link_.SilentAt() : std::min(link_.SilentAt(), expected_until_);
}

void ShardSession::Forgive(Instant now) {
  link_.Heard(now);
  // The node can have closed its stream meanwhile and retry at a lower rate.
  expected_until_ = now + link_.lease();
}

absl::Status ShardSession::OnFrame(v1::NodeFrame frame, Instant now) {
  if (!frame.has_batch()) return OutOfOrder("a hello or proof");
  // A message after the goodbye would change a state that the shard is about to drop.
  if (ended_) return OutOfOrder("a batch after the goodbye");
  PHALANX_RETURN_IF_ERROR(link_.Take(*frame.mutable_batch(), now));
  heard_ns_ = std::max(heard_ns_, frame.batch().sent_ns());
  ended_ = frame.batch().goodbye();
  return absl::OkStatus();
}

const v1::ShardFrame* ShardSession::NextFrame(Instant now) {
  if (!link_.attached() || link_.overflowed()) return nullptr;
  v1::ShardFrame& frame = link_.NewFrame<v1::ShardFrame>();
  // The Welcome is the first frame: the node accepts no batch before it.
  if (welcome_due_) {
    welcome_due_ = false;
    v1::Welcome& welcome = *frame.mutable_welcome();
    welcome.set_session_id(id_);
    welcome.set_shard_incarnation(shard_incarnation_);
    welcome.set_resumed(resumed_);
    welcome.set_last_received(link_.received());
    welcome.set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(link_.lease())));
    return &frame;
  }
  if (!link_.Fill(*frame.mutable_batch(), now)) return nullptr;
  frame.mutable_batch()->set_heard_ns(heard_ns_);
  return &frame;
}

Instant ShardSession::NextDeadline() const {
  if (!link_.attached()) return ExpiresAt();
  return welcome_due_ ? Instant() : std::min(ExpiresAt(), link_.NextSend());
}

}  // namespace phalanx::directory
