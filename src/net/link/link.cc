#include "src/net/link/link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"
#include "src/net/frame/frame.h"
#include "src/net/link/link_frame.h"

namespace phalanx::net {
namespace {

// Limits of one turn, so that a fast link does not starve the others.
constexpr size_t kMaxBytesPerTurn = size_t{1} << 20;
// So many bytes are acknowledged at once, fewer after the delay, unless a message carries the count
// before. The delay is a fraction of any silence that ends a connection.
constexpr uint64_t kAckBytes = 128 << 10;
constexpr absl::Duration kAckDelay = absl::Milliseconds(10);

// The data plane numbers pulls from 1; a LINK is the first frame of its connection.
std::string LinkRequest(const LinkPayload& request) {
  const std::string payload = EncodePayload(request);
  const FrameHeaderBytes header =
      EncodeFrameHeader(ControlHeader(FrameType::kLink, /*pull=*/1, payload));
  return absl::StrCat(absl::string_view(header.data(), header.size()), payload);
}

}  // namespace

Link::Link(Shared& shared, NodeKey peer, uint64_t session)
    : shared_(shared),
      peer_(peer),
      session_(shared.options.handshake.self, peer, session),
      inbox_(*this),
      writer_(outbox_) {}

Link::~Link() { CloseStream(); }

std::string Link::PeerName() const {
  return absl::StrCat("node ", peer_.ToString(), address_.empty() ? "" : " at ", address_);
}

absl::Status Link::Send(const Address& address, LinkService service, absl::string_view header,
                        absl::string_view payload, std::shared_ptr<const void> keep) {
  if (!address.empty()) address_ = address;
  const size_t bytes = kLinkHeaderBytes + header.size() + payload.size();
  if (outbox_.bytes() + bytes > kMaxLinkQueuedBytes ||
      outbox_.messages() >= kMaxLinkQueuedMessages) {
    return absl::ResourceExhaustedError(absl::StrCat("the link to ", PeerName(), " has ",
                                                     outbox_.messages(), " messages of ",
                                                     outbox_.bytes(), " bytes to be acknowledged"));
  }
  last_queued_ = shared_.executor.Now();
  // From here on an answer is due.
  if (outbox_.empty()) last_heard_ = last_queued_;
  outbox_.Add(service, header, payload, std::move(keep));
  ++shared_.counters.messages_sent;
  if (connected()) {
    FlushSoon();
  } else if (session_.phase() == Phase::kIdle && dial_timer_ == 0) {
    // In the other phases a connection is on its way, or a pause before one, and takes the message
    // along.
    Dial();
  }
  return absl::OkStatus();
}

void Link::GiveUp(const absl::Status& why, bool notify) {
  // Read before lost_ is set, on which connected() depends. An END cannot follow a part of a frame.
  const bool notified = notify && connected() && writer_.between_frames();
  if (std::exchange(lost_, true)) return;
  if (notified) {
    const std::string end = LinkFrame(LinkFrameType::kEnd, inbox_.received(), EncodeBody(why));
    const iovec piece = {const_cast<char*>(end.data()), end.size()};
    // If the stream does not take it now, the peer learns of the end when it dials.
    (void)stream_->Write({&piece, 1});
  }
  CloseStream();
  // Destroyed last: what the messages keep alive can belong to anyone.
  const LinkOutbox released = std::exchange(outbox_, LinkOutbox());
  shared_.on_lost(peer_, why);
}

// Making a connection.

void Link::Dial() {
  const uint64_t attempt = ++shared_.attempts;
  session_.Dial(attempt);
  dial_deadline_ = shared_.executor.Now() + shared_.options.connect_timeout;
  shared_.network.Dial(
      shared_.executor, address_, dial_deadline_,
      [weak = weak_from_this(), attempt](absl::StatusOr<std::unique_ptr<ByteStream>> stream) {
        const auto link = weak.lock();
        if (link != nullptr) link->Dialed(attempt, std::move(stream));
      });
}

void Link::Dialed(uint64_t attempt, absl::StatusOr<std::unique_ptr<ByteStream>> stream) {
  // Abandoned for a request of the peer, or given up.
  if (lost_ || session_.phase() != Phase::kDialing || session_.attempt() != attempt) return;
  if (!stream.ok()) return DialFailed();
  handshake_ = std::make_unique<StreamHandshake>(
      shared_.executor, *std::move(stream), shared_.options.handshake, Handshake::Role::kDialer,
      dial_deadline_,
      [this](absl::StatusOr<StreamHandshake::Authenticated> peer) { Proven(std::move(peer)); });
}

void Link::Proven(absl::StatusOr<StreamHandshake::Authenticated> peer) {
  // Allowed within the callback of the handshake, which is its last action.
  handshake_.reset();
  if (!peer.ok()) return DialFailed();
  if (peer->peer != peer_) {
    // A later incarnation: the process with which this link began does not come back.
    if (peer->peer.node == peer_.node && peer_ < peer->peer) {
      return GiveUp(
          absl::AbortedError(absl::StrCat(PeerName(), " has restarted as ", peer->peer.ToString())),
          /*notify=*/false);
    }
    // The address belongs to another node.
    return DialFailed();
  }
  // The peer goes on behind the bytes that have arrived here.
  const LinkPayload request = session_.Ask(inbox_.received());
  UseStream(std::move(peer->stream), LinkRequest(request));
  // The time for the dial includes the peer's WELCOME.
  SetTimer(&Link::dial_timer_, dial_deadline_, &Link::DialFailed);
  Flush();
}

void Link::DialFailed() {
  const auto& ended = shared_.options.ended;
  if (ended == nullptr || !ended(peer_)) return Retry();
  GiveUp(absl::UnavailableError(absl::StrCat(PeerName(), " has ended")), /*notify=*/false);
}

void Link::Retry() {
  CloseStream();
  DialAfter(session_.Failed());
}

void Link::DialAfter(absl::Duration pause) {
  SetTimer(&Link::dial_timer_, shared_.executor.Now() + pause, &Link::Dial);
}

void Link::UseStream(std::unique_ptr<ByteStream> stream, std::string first) {
  stream_ = std::move(stream);
  ++connection_;
  writer_.Begin(std::move(first), inbox_.received());
  // The acceptor's messages can follow its WELCOME at once. The dialer waits for that WELCOME.
  if (connected()) writer_.OpenForMessages();
  last_heard_ = shared_.executor.Now();
  inbox_.NewConnection(/*welcome_first=*/session_.phase() == Phase::kAsked);
  stream_->OnReadable([this] { Read(); });
}

void Link::CloseStream() {
  CancelTimer(&Link::dial_timer_);
  CancelTimer(&Link::ack_timer_);
  CancelTimer(&Link::watch_timer_);
  handshake_.reset();
  stream_.reset();
  writer_.Reset();
  writable_armed_ = false;
}

LinkSession::Answer Link::Accept(std::unique_ptr<ByteStream>& stream, const LinkPayload& request) {
  const LinkSession::Answer answer = session_.Requested(request);
  if (answer == LinkSession::Answer::kRenew) return answer;
  const LinkVerdict verdict = answer == LinkSession::Answer::kAccept      ? LinkVerdict::kAccepted
                              : answer == LinkSession::Answer::kForgotten ? LinkVerdict::kForgotten
                                                                          : LinkVerdict::kBusy;
  const std::string welcome =
      LinkFrame(LinkFrameType::kWelcome, inbox_.received(), EncodeBody(session_.Welcome(verdict)));
  if (answer != LinkSession::Answer::kAccept) {
    const iovec piece = {const_cast<char*>(welcome.data()), welcome.size()};
    // A new connection takes a few bytes. If it breaks, the peer dials again.
    (void)stream->Write({&piece, 1});
    return answer;
  }
  // The request replaces this side's connection, or its dial (LinkSession).
  CloseStream();
  // The peer chooses the byte at which this side goes on. If it was never written, or is not kept
  // any more, bytes are lost, and the link cannot go on.
  const absl::Status resumed = outbox_.Resume(request.received);
  if (!resumed.ok()) {
    GiveUp(resumed, /*notify=*/false);
    return answer;
  }
  ++shared_.counters.connects;
  UseStream(std::move(stream), welcome);
  Flush();
  return answer;
}

void Link::Broke() {
  CloseStream();
  const absl::Duration pause = session_.Broken();
  // With nothing to send, the next connection is for the next message, of either side.
  if (!outbox_.empty()) DialAfter(pause);
}

// A write fails within a call of a service, which must not see the connection change.
void Link::PostBroke() {
  shared_.executor.Post([weak = weak_from_this(), connection = connection_] {
    const auto link = weak.lock();
    if (link == nullptr || link->stream_ == nullptr || link->connection_ != connection) return;
    link->connected() ? link->Broke() : link->Retry();
  });
}

// Turns of the connection.

void Link::Read() {
  // A callback can give the link up.
  const std::shared_ptr<Link> self = shared_from_this();
  size_t total = 0;
  while (total < kMaxBytesPerTurn) {
    const absl::Span<char> place = inbox_.PayloadPlace();
    const iovec places[] = {{place.data(), place.size()},
                            {shared_.staging.data(), shared_.staging.size()}};
    const absl::StatusOr<size_t> size =
        stream_->Read(absl::MakeConstSpan(places).subspan(place.empty() ? 1 : 0));
    // A connection that ends before its WELCOME is a failed dial.
    if (!size.ok()) return connected() ? Broke() : DialFailed();
    if (*size == 0) break;
    const absl::Status taken = TakeBytes(place, *size);
    // Given up, or refused by the peer.
    if (stream_ == nullptr) break;
    if (!taken.ok()) {
      GiveUp(
          absl::Status(taken.code(), absl::StrCat("bytes of ", PeerName(), ": ", taken.message())),
          /*notify=*/true);
      break;
    }
    total += *size;
    // What has arrived was read.
    if (*size < place.size() + shared_.staging.size()) break;
  }
  if (stream_ == nullptr) return;
  Acknowledge();
  stream_->OnReadable([this] { Read(); });
}

absl::Status Link::TakeBytes(absl::Span<char> place, size_t size) {
  last_heard_ = shared_.executor.Now();
  const size_t placed = std::min(size, place.size());
  PHALANX_RETURN_IF_ERROR(inbox_.Placed(placed));
  return inbox_.Feed(absl::MakeSpan(shared_.staging.data(), size - placed));
}

void Link::Acknowledge() {
  if (!connected()) return;
  const uint64_t owed = writer_.Owed(inbox_.received());
  if (owed >= kAckBytes) {
    writer_.AcknowledgeSoon();
    Flush();
  } else if (owed > 0 && ack_timer_ == 0) {
    SetTimer(&Link::ack_timer_, shared_.executor.Now() + kAckDelay, &Link::OnAckTimer);
  }
}

void Link::OnAckTimer() {
  if (writer_.Owed(inbox_.received()) == 0) return;
  writer_.AcknowledgeSoon();
  Flush();
}

// The first message of a turn is written at once, and those that follow it together.
void Link::FlushSoon() {
  if (writable_armed_ || flush_posted_) return;
  if (last_write_ != shared_.executor.Now()) return Flush();
  flush_posted_ = true;
  shared_.executor.Post([weak = weak_from_this()] {
    const auto link = weak.lock();
    if (link == nullptr) return;
    link->flush_posted_ = false;
    if (link->stream_ != nullptr) link->Flush();
  });
}

void Link::Flush() {
  if (writable_armed_) return;
  last_write_ = shared_.executor.Now();
  size_t total = 0;
  for (;;) {
    const absl::Span<const iovec> pieces = writer_.Gather(inbox_.received());
    if (pieces.empty()) break;
    const absl::StatusOr<size_t> size = stream_->Write(pieces);
    if (!size.ok()) return PostBroke();
    total += *size;
    writer_.Wrote(*size);
    if (*size == 0 || total >= kMaxBytesPerTurn) {
      // The rest waits until the stream has room, and in any case for another turn.
      writable_armed_ = true;
      stream_->OnWritable([this] {
        writable_armed_ = false;
        Flush();
      });
      break;
    }
  }
  Watch();
}

void Link::Watch() {
  // Silence of the peer is a fault only while this side waits for an acknowledgement.
  if (outbox_.empty() || watch_timer_ != 0 || !connected()) return;
  SetTimer(&Link::watch_timer_, last_heard_ + shared_.options.silence_timeout, &Link::OnWatch);
}

void Link::OnWatch() {
  if (outbox_.empty()) return;
  const Instant now = shared_.executor.Now();
  // The peer was heard after the timer was set.
  if (now - last_heard_ < shared_.options.silence_timeout) return Watch();
  Broke();
}

void Link::SetTimer(TimerId Link::*timer, Instant when, void (Link::*then)()) {
  CancelTimer(timer);
  this->*timer = shared_.executor.RunAt(when, [this, timer, then] {
    this->*timer = 0;
    (this->*then)();
  });
}

void Link::CancelTimer(TimerId Link::*timer) {
  if (this->*timer != 0) shared_.executor.Cancel(std::exchange(this->*timer, 0));
}

// Frames of the peer.

absl::StatusOr<LinkReceiver*> Link::ReceiverOf(LinkService service) const {
  LinkReceiver* const receiver = shared_.receivers[static_cast<size_t>(service)];
  if (receiver != nullptr) return receiver;
  return absl::UnimplementedError(
      absl::StrCat("nothing receives messages of service ", static_cast<int>(service)));
}

absl::StatusOr<absl::Span<char>> Link::PlaceFor(LinkService service, absl::string_view header,
                                                size_t payload_bytes) {
  PHALANX_ASSIGN_OR_RETURN(LinkReceiver* const receiver, ReceiverOf(service));
  auto place = receiver->PlaceFor(peer_, header, payload_bytes);
  // The receiver can give the link up. Then its place is not used.
  if (lost_) return absl::CancelledError("given up");
  return place;
}

absl::Status Link::Message(LinkService service, absl::string_view header,
                           absl::Span<char> payload) {
  PHALANX_ASSIGN_OR_RETURN(LinkReceiver* const receiver, ReceiverOf(service));
  session_.Progress();
  ++shared_.counters.messages_received;
  receiver->OnMessage(peer_, header, payload);
  return lost_ ? absl::CancelledError("given up") : absl::OkStatus();
}

absl::Status Link::Acknowledged(uint64_t received) {
  session_.Progress();
  return outbox_.Acknowledge(received);
}

absl::Status Link::Welcome(const WelcomeBody& welcome, uint64_t received) {
  switch (session_.Welcomed(welcome)) {
    case LinkSession::Outcome::kRetry:
      Retry();
      return absl::CancelledError("refused");
    case LinkSession::Outcome::kLost:
      GiveUp(absl::UnavailableError(absl::StrCat(PeerName(), " has given the link up")),
             /*notify=*/false);
      return absl::CancelledError("given up");
    case LinkSession::Outcome::kConnected:
      break;
  }
  CancelTimer(&Link::dial_timer_);
  ++shared_.counters.connects;
  // Before any message is written, since messages go on at the byte that the peer expects.
  PHALANX_RETURN_IF_ERROR(outbox_.Resume(received));
  writer_.OpenForMessages();
  Flush();
  return absl::OkStatus();
}

absl::Status Link::End(const absl::Status& why) {
  GiveUp(
      absl::UnavailableError(absl::StrCat(PeerName(), " has given the link up: ", why.message())),
      /*notify=*/false);
  return absl::CancelledError("given up");
}

}  // namespace phalanx::net
