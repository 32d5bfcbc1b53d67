#include "src/net/plane/puller.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace phalanx::net {
namespace {

// Returns the status of a pull that got no connection; see PullOutcome.
absl::Status Unreachable(const PullSpec& spec, const absl::Status& error) {
  const std::string text =
      absl::StrFormat("pull of %s from node %s at %s: %s", spec.object.ShortHex(),
                      spec.sender.ToString(), spec.address, error.message());
  switch (error.code()) {
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
      return absl::PermissionDeniedError(text);
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return absl::Status(error.code(), text);
    default:
      return absl::UnavailableError(text);
  }
}

bool HasEverything(const PullSpec& spec) {
  const SliceLayout& layout = spec.into->layout();
  for (int i = 0; i < layout.slices; ++i) {
    if ((spec.slices >> i & 1) != 0 && spec.into->watermark(i) < layout.Size(i)) return false;
  }
  return true;
}

}  // namespace

// One pull. It destroys itself through Puller::Remove, always as its last action.
class Puller::Pull final : public PullReceiver::Observer {
 public:
  Pull(Puller& owner, uint64_t handle, PullSpec spec)
      : owner_(owner), handle_(handle), spec_(std::move(spec)) {}

  void Begin();
  // Called for a waiting pull: it may dial now, or gets a connection that another pull has
  // released.
  void DialInTurn();
  void TakeConnection(ConnectionPool::Connection connection);
  void Cancel();

 private:
  Peer peer() const { return {spec_.sender, spec_.address}; }
  void Dial();
  // Returns true if it was dialing.
  bool EndDial();
  void Dialed(absl::StatusOr<std::unique_ptr<ByteStream>> stream, ConnectionTicket ticket,
              Instant deadline);
  void Authenticated(absl::StatusOr<StreamHandshake::Authenticated> peer);
  void Receive();
  void Fail(absl::Status status);
  // A step of connecting begins.
  void NoteConnecting();

  void PullEnded(PullOutcome outcome) override;
  void StreamReleased(std::unique_ptr<ByteStream> stream) override;

  Puller& owner_;
  const uint64_t handle_;
  // `into` is reset before the outcome is reported, so that draining the connection keeps no
  // memory.
  PullSpec spec_;
  std::unique_ptr<StreamHandshake> handshake_;
  std::unique_ptr<PullReceiver> receiver_;
  // Its stream belongs to the handshake or the receiver while one of them exists.
  ConnectionPool::Connection connection_;
  Instant began_;  // restarts if a pooled connection was dead
  bool waiting_ = false;
  bool dialing_ = false;
  bool pooled_ = false;
  bool retrying_ = false;
};

void Puller::Pull::Begin() {
  began_ = owner_.executor_.Now();
  // An idle connection does not show that the sender can be reached now.
  if (spec_.into == nullptr) return Dial();
  // Empty objects and full slices need no connection.
  if (HasEverything(spec_)) return Fail(absl::OkStatus());
  if (spec_.into->closed()) return Fail(absl::AbortedError("the object was closed on this node"));
  auto idle = owner_.pool_.Take(peer());
  if (idle.has_value()) return TakeConnection(*std::move(idle));
  // Only peers with a dial in progress have an entry, so the end of a dial wakes a waiting pull.
  const auto dials = owner_.dials_.find(peer());
  if (dials == owner_.dials_.end() || dials->second.dialing < kDialsAtOnce) return Dial();
  waiting_ = true;
  dials->second.waiting.insert(handle_);
}

void Puller::Pull::DialInTurn() {
  waiting_ = false;
  if (owner_.executor_.Now() < began_ + owner_.options_.connect_timeout) return Dial();
  Fail(Unreachable(spec_, absl::DeadlineExceededError("no connection was made in time")));
}

void Puller::Pull::TakeConnection(ConnectionPool::Connection connection) {
  waiting_ = false;
  connection_ = std::move(connection);
  pooled_ = true;
  Receive();
}

void Puller::Pull::Dial() {
  pooled_ = false;
  connection_ = {};
  // The ticket belongs to the dial, which cannot be cancelled: a pull that is cancelled meanwhile
  // leaves a socket open until the dial ends.
  ConnectionTicket ticket = owner_.budget_.Dial(owner_.executor_);
  if (!ticket.valid()) {
    return Fail(Unreachable(
        spec_, absl::ResourceExhaustedError("all connections of this node are in use")));
  }
  dialing_ = true;
  NoteConnecting();
  ++owner_.dials_[peer()].dialing;
  const Instant deadline = began_ + owner_.options_.connect_timeout;
  owner_.network_.Dial(
      owner_.executor_, spec_.address, deadline,
      [weak = std::weak_ptr<Puller*>(owner_.self_), handle = handle_, deadline,
       ticket = std::move(ticket)](absl::StatusOr<std::unique_ptr<ByteStream>> stream) mutable {
        const std::shared_ptr<Puller*> puller = weak.lock();
        if (puller == nullptr) return;
        const auto pull = (*puller)->pulls_.find(handle);
        // The pull was cancelled meanwhile; the stream closes with this task.
        if (pull == (*puller)->pulls_.end()) return;
        pull->second->Dialed(std::move(stream), std::move(ticket), deadline);
      });
}

void Puller::Pull::Dialed(absl::StatusOr<std::unique_ptr<ByteStream>> stream,
                          ConnectionTicket ticket, Instant deadline) {
  if (!stream.ok()) return Fail(Unreachable(spec_, stream.status()));
  NoteConnecting();
  // The ticket now belongs to the connection, which counts until it closes.
  connection_.ticket = std::move(ticket);
  handshake_ = std::make_unique<StreamHandshake>(
      owner_.executor_, *std::move(stream), owner_.options_.handshake, Handshake::Role::kDialer,
      deadline, [this](absl::StatusOr<StreamHandshake::Authenticated> peer) {
        Authenticated(std::move(peer));
      });
}

void Puller::Pull::Authenticated(absl::StatusOr<StreamHandshake::Authenticated> peer) {
  handshake_.reset();
  if (!peer.ok()) {
    const absl::Status status = Unreachable(spec_, peer.status());
    if (absl::IsPermissionDenied(status)) {
      DataPlaneCounters::Add(owner_.counters_.handshakes_refused);
    }
    return Fail(status);
  }
  // Another node, or a later incarnation, can listen on the address now.
  if (peer->peer != spec_.sender) {
    return Fail(Unreachable(spec_, absl::UnavailableError(absl::StrCat(
                                       "the address belongs to node ", peer->peer.ToString()))));
  }
  // A sender only answers, so bytes before the first request cannot belong to a pull.
  if (!peer->rest.empty()) {
    return Fail(
        Unreachable(spec_, absl::UnavailableError("the peer sent bytes before the first request")));
  }
  // The dial ends before the pull begins, so that other pulls need not wait for the whole pull.
  connection_.stream = std::move(peer->stream);
  EndDial();
  owner_.DialNext(this->peer());
  if (spec_.into != nullptr) return Receive();
  owner_.Release(this->peer(), std::move(connection_));
  Fail(absl::OkStatus());
}

bool Puller::Pull::EndDial() {
  if (!std::exchange(dialing_, false)) return false;
  --owner_.dials_.at(peer()).dialing;
  return true;
}

void Puller::Pull::NoteConnecting() {
  if (spec_.progress == nullptr) return;
  spec_.progress->connecting_since.store(owner_.executor_.Now().nanos(), std::memory_order_relaxed);
}

void Puller::Pull::Receive() {
  if (spec_.progress != nullptr) {
    spec_.progress->connecting_since.store(PullProgress::kNotConnecting, std::memory_order_relaxed);
  }
  receiver_ = std::make_unique<PullReceiver>(owner_.executor_, std::move(connection_.stream),
                                             ++connection_.pulls, spec_, owner_.options_.receiver,
                                             owner_.scratch_, owner_.counters_, *this);
  receiver_->Start();
}

void Puller::Pull::Cancel() {
  if (receiver_ != nullptr) return receiver_->Cancel();
  Fail(absl::CancelledError("the pull was cancelled"));
}

void Puller::Pull::Fail(absl::Status status) {
  PullOutcome outcome;
  outcome.status = std::move(status);
  spec_.into.reset();
  // Remove destroys this pull, so everything that follows is copied.
  Puller& owner = owner_;
  const Peer peer = this->peer();
  if (waiting_) owner.dials_.at(peer).waiting.erase(handle_);
  const bool dialed = EndDial();
  owner.ended_(handle_, std::move(outcome));
  owner.Remove(handle_);
  if (dialed) owner.DialNext(peer);
}

void Puller::Pull::PullEnded(PullOutcome outcome) {
  // The peer can close an idle connection just when a pull takes it. This is no failure of the
  // peer, so the pull retries once with a new connection.
  retrying_ = pooled_ && absl::IsUnavailable(outcome.status) && !receiver_->answered();
  if (retrying_) return;
  spec_.into.reset();
  owner_.ended_(handle_, std::move(outcome));
}

void Puller::Pull::StreamReleased(std::unique_ptr<ByteStream> stream) {
  if (retrying_) {
    receiver_.reset();
    began_ = owner_.executor_.Now();
    return Dial();
  }
  connection_.stream = std::move(stream);
  if (connection_.stream != nullptr) owner_.Release(peer(), std::move(connection_));
  owner_.Remove(handle_);
}

Puller::Puller(Network& network, Executor& executor, Options options, absl::Span<char> scratch,
               DataPlaneCounters& counters, ConnectionBudget& budget, Ended ended)
    : network_(network),
      executor_(executor),
      options_(std::move(options)),
      scratch_(scratch),
      counters_(counters),
      budget_(budget),
      ended_(std::move(ended)),
      pool_(executor, options_.idle_timeout, options_.max_idle_per_peer),
      self_(std::make_shared<Puller*>(this)) {}

Puller::~Puller() = default;

void Puller::Start(uint64_t handle, PullSpec spec) {
  auto pull = std::make_unique<Pull>(*this, handle, std::move(spec));
  Pull* const started = pull.get();
  pulls_.emplace(handle, std::move(pull));
  started->Begin();
}

void Puller::Cancel(uint64_t handle) {
  const auto pull = pulls_.find(handle);
  if (pull != pulls_.end()) pull->second->Cancel();
}

void Puller::DialNext(const Peer& peer) {
  const auto dials = dials_.find(peer);
  std::set<uint64_t>& waiting = dials->second.waiting;
  while (dials->second.dialing < kDialsAtOnce && !waiting.empty()) {
    const uint64_t next = waiting.extract(waiting.begin()).value();
    pulls_.at(next)->DialInTurn();
  }
  // If no dial is in progress, the loop above has emptied `waiting`.
  if (dials->second.dialing == 0) dials_.erase(dials);
}

void Puller::Release(const Peer& peer, ConnectionPool::Connection connection) {
  const auto dials = dials_.find(peer);
  if (dials == dials_.end() || dials->second.waiting.empty()) {
    return pool_.Put(peer, std::move(connection));
  }
  const uint64_t next = dials->second.waiting.extract(dials->second.waiting.begin()).value();
  pulls_.at(next)->TakeConnection(std::move(connection));
}

void Puller::Remove(uint64_t handle) { pulls_.erase(handle); }

}  // namespace phalanx::net
