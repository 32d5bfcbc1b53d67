// Reading, requests, writing. local_session_answers.cc has the answers, local_session_reduce.cc the
// reductions.
#include "src/local/local_session.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/io/utf8.h"
#include "src/common/io/wire.h"
#include "src/common/status_macros.h"

namespace phalanx::object_store {
namespace {

// A client that sends no hello in this time is closed.
constexpr absl::Duration kGreetingTimeout = absl::Seconds(10);
// How long a send waits if the kernel has no room for another descriptor in flight.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(5);
// Reads of one client in a turn, so that one busy client does not delay the others.
constexpr int kReadsPerTurn = 4;
static_assert(local::kMaxRequestsUnderWay <= kMaxRequestsPerClient);

bool Gathers(const local::Request& request) {
  return std::holds_alternative<local::Hold>(request) ||
         std::holds_alternative<local::Claim>(request) ||
         std::holds_alternative<local::Get>(request) ||
         std::holds_alternative<local::Release>(request);
}

// Checked here, because a shard would end the session of a node that sent it such a name.
absl::Status CheckNames(absl::Span<const absl::string_view> names) {
  for (const absl::string_view name : names) {
    if (name.empty()) return absl::InvalidArgumentError("a node's name is empty");
    if (!IsUtf8(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the node's name \"", absl::CHexEscape(name), "\" is not UTF-8"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckName(const ObjectName& name, const ObjectId& id) {
  if (name.empty() || name.Names(id)) return absl::OkStatus();
  // Other users would see an object under the name of another one.
  return absl::InvalidArgumentError(
      absl::StrCat("object ", id.hex(), " does not have the name \"", name.ToString(), "\""));
}

namespace {

PutOptions OptionsOf(const local::Description& object, Instant deadline) {
  PutOptions options;
  options.id = object.id;
  options.metadata = std::string(object.metadata);
  options.slices = object.slices;
  options.wait_for_adoption = object.wait_for_adoption;
  options.copies = object.copies;
  options.wait_for_copies = object.wait_for_copies;
  options.scope = object.scope;
  options.owned = object.owned;
  options.name = object.name;
  options.ttl = object.ttl;
  for (const ObjectId& id : object.refers_to) {
    options.refers_to.append(id.binary().data(), ObjectId::kSize);
  }
  options.deadline = deadline;
  return options;
}

}  // namespace

LocalSession::LocalSession(net::EventLoop& loop, const LocalParts& parts,
                           const LocalGreeting& greeting, int socket,
                           absl::AnyInvocable<void(const absl::Status&)> ended)
    : loop_(loop),
      store_(parts.store),
      reducer_(parts.reducer),
      greeting_(greeting),
      socket_(socket),
      ended_(std::move(ended)),
      jobs_(parts.jobs,
            {[this](LocalOutbox::Item item) {
               if (state_ != State::kOpen) return;
               out_.Add(std::move(item));
               SendLater();
             },
             [this](absl::Duration timeout) { return Deadline(timeout); },
             [this](uint64_t request, const absl::Status& why) { AnswerFailed(request, why); }}) {}

LocalSession::~LocalSession() {
  // The owner destroys the session, so it needs no call.
  ended_ = nullptr;
  End(absl::OkStatus());
  watcher_.reset();
  close(socket_);
}

void LocalSession::Start() {
  absl::StatusOr<std::unique_ptr<net::FdWatcher>> watcher = loop_.Watch(socket_);
  if (!watcher.ok()) return End(watcher.status());
  watcher_ = *std::move(watcher);
  timer_ = loop_.RunAt(loop_.Now() + kGreetingTimeout, [this] {
    timer_ = 0;
    Close(absl::DeadlineExceededError("the client has not sent a hello"));
  });
  KeepReading();
}

void LocalSession::Close(const absl::Status& why) {
  if (state_ == State::kEnded) return;
  // Before the greeting a client understands only a hello.
  if (state_ == State::kGreeting) {
    out_.Add(local::NodeHello{local::kMagic, local::kVersion, why.code(), why.message(),
                              greeting_.node_name, greeting_.directory, greeting_.node});
  } else {
    // The Goodbye ends the stream, so answers that have not been encoded are dropped.
    out_.Clear();
    out_.Add(local::Goodbye{why.code(), why.message()});
  }
  out_.Send(socket_);
  End(why);
}

void LocalSession::End(const absl::Status& why) {
  if (state_ == State::kEnded) return;
  // Only such a client sees no memory of the node any more, so that it can be reused.
  const bool clean = state_ == State::kLeft && pins_.empty() && !jobs_.groups().shows_memory();
  state_ = State::kEnded;
  loop_.Cancel(timer_);
  if (watcher_ != nullptr) {
    watcher_->OnReadable(nullptr);
    watcher_->OnWritable(nullptr);
  }
  // Collected first, because EndStream changes the map.
  std::vector<uint64_t> streams;
  for (const auto& [request, stream] : streams_) streams.push_back(request);
  std::sort(streams.begin(), streams.end());
  for (const uint64_t request : streams) EndStream(request);
  jobs_.EndMembers();
  jobs_.groups().End(client_);
  if (client_ != 0) reducer_.ClientClosed(client_);
  if (client_ != 0) store_.CloseClient(client_, clean);
  // Before the owner, in `ended_`, waits for the process that can still have the node's files open.
  out_.Close();
  writes_.Clear();
  shutdown(socket_, SHUT_RDWR);
  if (ended_) std::exchange(ended_, nullptr)(clean ? absl::OkStatus() : why);
}

// ---------------------------------------------------------------------------- reading

void LocalSession::KeepReading() {
  if (state_ == State::kEnded || read_armed_ || out_.size() >= kMaxWaitingAnswers) return;
  read_armed_ = true;
  watcher_->OnReadable([this] {
    read_armed_ = false;
    ReadSome();
  });
}

void LocalSession::ReadSome() {
  sends_.BeginRead();
  const bool keep_reading = TakeReceived();
  store_.HandOutAnswers();
  // Before a later task sends messages to the directory, because the client waits for its answers.
  if (sends_.EndRead()) SendNow();
  if (keep_reading) KeepReading();
}

bool LocalSession::TakeReceived() {
  for (int reads = 0; reads < kReadsPerTurn && state_ != State::kEnded; ++reads) {
    if (out_.size() >= kMaxWaitingAnswers) return false;
    const absl::Span<char> space = in_.Space();
    // Without room for control messages, descriptors that a client sends are closed by the kernel.
    const ssize_t got = recv(socket_, space.data(), space.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got <= 0) {
      End(absl::UnavailableError(got == 0 ? "the client closed its socket" : std::strerror(errno)));
      return false;
    }
    in_.Filled(static_cast<size_t>(got));
    const absl::Status taken = TakeFrames();
    if (!taken.ok()) {
      Close(taken);
      return false;
    }
    // A short read has usually emptied the socket: another one would only return EAGAIN.
    if (static_cast<size_t>(got) < space.size()) break;
  }
  return true;
}

absl::Status LocalSession::TakeFrames() {
  const absl::Status handled = HandleFrames();
  store_.Gather(false);
  return handled;
}

absl::Status LocalSession::HandleFrames() {
  // A request can end the session.
  while (state_ != State::kEnded) {
    PHALANX_ASSIGN_OR_RETURN(const std::optional<absl::string_view> payload, in_.Next());
    if (!payload.has_value()) return absl::OkStatus();
    if (state_ == State::kGreeting) {
      PHALANX_RETURN_IF_ERROR(Greet(*payload));
      continue;
    }
    PHALANX_ASSIGN_OR_RETURN(const local::Request request, local::DecodeRequest(*payload));
    PHALANX_RETURN_IF_ERROR(Handle(request));
  }
  return absl::OkStatus();
}

absl::Status LocalSession::Greet(absl::string_view payload) {
  // Other versions can send more fields after these.
  ByteReader hello(payload);
  const uint8_t kind = hello.U8();
  const uint32_t magic = hello.U32();
  const uint32_t version = hello.U32();
  if (!hello.ok() || kind != local::ClientHello::kKind || magic != local::kMagic) {
    return absl::InvalidArgumentError("the peer is not a Phalanx client");
  }
  if (version != local::kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the client speaks version ", version,
                                                      ", node ", greeting_.node_name, " ",
                                                      local::kVersion));
  }
  loop_.Cancel(std::exchange(timer_, 0));
  state_ = State::kOpen;
  client_ = store_.OpenClient();
  out_.SetViewer(client_);
  Answer(local::NodeHello{local::kMagic, local::kVersion, absl::StatusCode::kOk, "",
                          greeting_.node_name, greeting_.directory, greeting_.node});
  return absl::OkStatus();
}

absl::Status LocalSession::Handle(const local::Request& request) {
  // A client that has left still has the pins that it kept, and nothing else.
  if (state_ == State::kLeft && !std::holds_alternative<local::Release>(request)) {
    return absl::InvalidArgumentError("a client that has left sent a request");
  }
  // A list of 10,000 refs arrives as so many claims and Gets. Before any other request the shards
  // are sent the holds: the request can release what else holds the objects.
  store_.Gather(Gathers(request));
  return std::visit([this](const auto& message) { return On(message); }, request);
}

absl::Status LocalSession::On(const local::ClientHello&) {
  return absl::InvalidArgumentError("a second hello");
}

Instant LocalSession::Deadline(absl::Duration timeout) const { return loop_.Now() + timeout; }

absl::Status LocalSession::On(const local::Put& put) {
  PHALANX_RETURN_IF_ERROR(CheckName(put.object.name, put.object.id));
  const uint64_t size = put.bytes.size();
  const absl::Status admitted = writes_.AdmitPut(size);
  if (!admitted.ok()) {
    AnswerFailed(put.request, admitted);
    return absl::OkStatus();
  }
  // `this` is safe in callbacks of the store: after CloseClient it makes none.
  store_.Put(client_, OptionsOf(put.object, Deadline(put.object.timeout)), std::string(put.bytes),
             [this, request = put.request, size](absl::StatusOr<PutResult> result) {
               writes_.PutStored(size);
               AnswerPut(request, result);
             });
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Create& create) {
  if (requests_.contains(create.request)) {
    return absl::InvalidArgumentError(absl::StrCat("request ", create.request, " is used twice"));
  }
  PHALANX_RETURN_IF_ERROR(CheckName(create.object.name, create.object.id));
  requests_[create.request] = store_.Create(
      client_, OptionsOf(create.object, Deadline(create.object.timeout)), create.size,
      [this, request = create.request, size = create.size](absl::StatusOr<WriteGrant> grant) {
        OnGrant(request, size, std::move(grant));
      });
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Publish& publish) {
  // Not answered, so an error ends the session.
  PHALANX_RETURN_IF_ERROR(writes_.Publish(publish.writer, publish.upto, publish.bytes));
  return store_.Publish(client_, publish.writer, publish.upto);
}

absl::Status LocalSession::On(const local::Seal& seal) {
  // Closed at once: the client cannot write any more, although the answer can take long.
  PHALANX_RETURN_IF_ERROR(writes_.Seal(seal.writer, seal.bytes));
  store_.Seal(
      client_, seal.writer, seal.wait_for_adoption,
      [this, request = seal.request](absl::StatusOr<PutResult> result) {
        AnswerPut(request, result);
      },
      seal.wait_for_copies);
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Abort& abort) {
  if (jobs_.groups().DropBuffer(abort.writer, client_)) return absl::OkStatus();
  PHALANX_RETURN_IF_ERROR(writes_.Abort(abort.writer));
  return store_.Abort(client_, abort.writer);
}

absl::Status LocalSession::On(const local::Get& get) {
  if (requests_.contains(get.request)) {
    return absl::InvalidArgumentError(absl::StrCat("request ", get.request, " is used twice"));
  }
  PHALANX_RETURN_IF_ERROR(CheckName(get.name, get.id));
  GetEvents events;
  events.on_view = [this, get](absl::StatusOr<View> view) { OnView(get, std::move(view)); };
  // The view of any other Get is final, so it cannot become void.
  if (get.streaming) {
    events.on_void = [this, request = get.request](const absl::Status& why) {
      EndStream(request);
      Answer(local::Void{request, why.message()});
    };
  }
  requests_[get.request] = store_.Get(client_,
                                      GetOptions{get.id, Deadline(get.timeout), get.streaming,
                                                 get.near, get.fail_when_lost, get.name, get.scope},
                                      std::move(events));
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Cancel& cancel) {
  jobs_.Cancel(cancel.request);
  const auto it = requests_.find(cancel.request);
  if (it == requests_.end()) {
    // If it is no Reduce either, the answer has crossed the Cancel.
    CancelReduce(cancel.request);
    return absl::OkStatus();
  }
  store_.Cancel(client_, it->second);
  EndStream(cancel.request);
  requests_.erase(cancel.request);
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Release& release) {
  if (jobs_.groups().Release(release.pin, release.recycle, client_)) return absl::OkStatus();
  if (pins_.Contains(release.pin)) {
    ReleasePin(release.pin, release.recycle);
    return absl::OkStatus();
  }
  // A client that leaves can release a pin that the session released when it handled the Leave.
  if (state_ == State::kLeft) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("pin ", release.pin, " is not held"));
}

absl::Status LocalSession::On(const local::Delete& remove) {
  store_.Delete(client_, remove.id, Deadline(remove.timeout),
                [this, request = remove.request](absl::Status done) {
                  if (!done.ok()) return AnswerFailed(request, done);
                  Answer(local::Counted{request, 0});
                });
  return absl::OkStatus();
}

// Not answered, so a client that holds too much ends with the error.
absl::Status LocalSession::On(const local::Hold& hold) { return store_.Hold(client_, hold.ids); }

absl::Status LocalSession::On(const local::Unhold& unhold) {
  store_.Unhold(client_, unhold.ids);
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Transit& transit) {
  if (transit.id.nil()) return absl::InvalidArgumentError("the nil id names no object");
  store_.Transit(transit.id, transit.number);
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Claim& claim) {
  if (!claim.node.valid()) return absl::InvalidArgumentError("a claim names no node");
  return store_.Claim(client_, claim.id, TransitMark{claim.node, claim.number});
}

absl::Status LocalSession::On(const local::Keep& keep) {
  store_.Keep(client_, keep.id, Deadline(keep.timeout),
              [this, request = keep.request](absl::Status done) {
                if (!done.ok()) return AnswerFailed(request, done);
                Answer(local::Counted{request, 0});
              });
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Stat& stat) {
  // A complete copy on this node answers without the directory.
  if (stat.only_complete && store_.ContainsLocally(stat.id)) {
    local::Described described;
    described.request = stat.request;
    described.known = described.complete = described.local = true;
    Answer(described);
    return absl::OkStatus();
  }
  if (const absl::Status named = CheckNames(stat.nodes); !named.ok()) {
    AnswerFailed(stat.request, named);
    return absl::OkStatus();
  }
  const absl::Status admitted = stat.reduced_from ? reductions_.AdmitSources() : absl::OkStatus();
  if (!admitted.ok()) {
    AnswerFailed(stat.request, admitted);
    return absl::OkStatus();
  }
  // A copy, because the names point into the receive buffer.
  std::vector<std::string> nodes(stat.nodes.begin(), stat.nodes.end());
  store_.Stat(
      client_, stat.id, Deadline(stat.timeout),
      [this, stat](const absl::StatusOr<ObjectStat>& found) {
        if (found.ok()) return AnswerStat(stat, *found);
        if (stat.reduced_from) reductions_.SourcesAnswered();
        AnswerFailed(stat.request, found.status());
      },
      std::move(nodes));
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Broadcast& broadcast) {
  if (requests_.contains(broadcast.request)) {
    return absl::InvalidArgumentError(
        absl::StrCat("request ", broadcast.request, " is used twice"));
  }
  absl::Status named = CheckNames(broadcast.nodes);
  if (broadcast.nodes.empty() && !broadcast.stop) {
    named = absl::InvalidArgumentError("no node is named");
  }
  if (!named.ok()) {
    AnswerFailed(broadcast.request, named);
    return absl::OkStatus();
  }
  BroadcastOptions options{
      {broadcast.nodes.begin(), broadcast.nodes.end()}, broadcast.sticky, broadcast.stop};
  StartBroadcast(broadcast.request, broadcast.id, std::move(options), broadcast.timeout);
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Replicate& replicate) {
  if (requests_.contains(replicate.request)) {
    return absl::InvalidArgumentError(
        absl::StrCat("request ", replicate.request, " is used twice"));
  }
  if (replicate.copies < 1 || replicate.copies > kMaxCopies) {
    AnswerFailed(replicate.request, absl::InvalidArgumentError(absl::StrCat(
                                        "1 to ", kMaxCopies, " copies, not ", replicate.copies)));
    return absl::OkStatus();
  }
  BroadcastOptions options;
  options.copies = replicate.copies;
  StartBroadcast(replicate.request, replicate.id, std::move(options), replicate.timeout);
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::EndScope& end) {
  store_.EndScope(client_, end.scope, Deadline(end.timeout),
                  [this, request = end.request](absl::Status done) {
                    if (!done.ok()) return AnswerFailed(request, done);
                    Answer(local::Counted{request, 0});
                  });
  return absl::OkStatus();
}

void LocalSession::StartBroadcast(uint64_t request, const ObjectId& id, BroadcastOptions options,
                                  absl::Duration timeout) {
  requests_[request] =
      store_.Broadcast(client_, id, std::move(options), Deadline(timeout),
                       [this, request](const absl::StatusOr<int>& nodes) {
                         requests_.erase(request);
                         if (!nodes.ok()) return AnswerFailed(request, nodes.status());
                         Answer(local::Counted{request, static_cast<uint32_t>(*nodes)});
                       });
}

absl::Status LocalSession::On(const local::Forget& forget) {
  // Queued like an answer: the client unmaps when Forgotten arrives, so answers that refer to the
  // file must go out before.
  out_.Add([file = forget.file, writable = forget.writable](LocalOutbox::Batch& batch) {
    batch.Forget(file, writable);
    return true;
  });
  SendLater();
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Leave& leave) {
  pins_.KeepAtLeave(leave.pins);
  if (leave.more) return absl::OkStatus();
  state_ = State::kLeft;
  // The store's client stays, because a new one could not take over the pins that are kept. So
  // everything else that the client has is ended piece by piece.
  out_.Clear();
  std::vector<uint64_t> requests;
  for (const auto& [request, id] : requests_) requests.push_back(request);
  std::sort(requests.begin(), requests.end());
  for (const uint64_t request : requests) {
    PHALANX_RETURN_IF_ERROR(On(local::Cancel{request}));
  }
  for (const uint64_t request : reductions_.requests()) CancelReduce(request);
  for (const WriterId writer : writes_.writers()) {
    // The client did not abort these, so it can still have them mapped to write.
    writes_.Condemn(writer, client_);
    PHALANX_RETURN_IF_ERROR(On(local::Abort{writer}));
  }
  for (const PinId pin : pins_.TakeNotKept()) ReleasePin(pin, true);
  store_.UnholdAll(client_);
  // A client that left its jobs before has none: there is nothing to report.
  jobs_.EndMembers();
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------- writing

void LocalSession::SendLater() {
  if (state_ == State::kEnded || !sends_.OnAnswer()) return;
  // The session can be destroyed before the task runs.
  loop_.Post([weak = weak_from_this()] {
    const std::shared_ptr<LocalSession> self = weak.lock();
    if (self == nullptr) return;
    self->sends_.Posted();
    self->SendNow();
  });
}

void LocalSession::SendNow() {
  if (state_ == State::kEnded || sends_.waiting_for_room()) return;
  // Each small object is released when it is encoded.
  store_.Gather(true);
  const LocalOutbox::State sent = out_.Send(socket_);
  store_.Gather(false);
  if (sent == LocalOutbox::State::kBroken) {
    // What it sent before it closed its socket still counts, such as that it left its job. The end
    // of what it sent ends the session.
    if (state_ == State::kOpen) state_ = State::kUnheard;
    out_.Clear();
    return KeepReading();
  }
  const auto again = [this] {
    sends_.OnRoom();
    SendNow();
  };
  if (sent != LocalOutbox::State::kEmpty) {
    sends_.WaitForRoom();
    if (sent == LocalOutbox::State::kFull) {
      watcher_->OnWritable(again);
    } else {
      // No event reports that descriptors in flight have arrived, so a timer retries.
      timer_ = loop_.RunAt(loop_.Now() + kRetryAfter, again);
    }
  }
  // Answers have left the outbox, which can have stopped the reading.
  KeepReading();
}

void LocalSession::Answer(const local::Answer& answer) {
  // A client that has left, or has closed its socket, waits for no answer.
  if (state_ != State::kOpen) return;
  out_.Add(answer);
  SendLater();
}

void LocalSession::AnswerFailed(uint64_t request, const absl::Status& why) {
  Answer(local::Failed{request, why.code(), why.message()});
}

}  // namespace phalanx::object_store
