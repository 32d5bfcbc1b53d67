// Reading, requests, writing. What answers look like is in local_session_answers.cc, reductions in
// local_session_reduce.cc.
#include "src/local/local_session.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/io/utf8.h"
#include "src/common/io/wire.h"
#include "src/common/status_macros.h"

namespace phalanx::object_store {
namespace {

// A client that has not said hello by then is closed.
constexpr absl::Duration kGreetingTimeout = absl::Seconds(10);
// When the kernel has no room for another descriptor in flight.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(5);
// Reads of one client in a turn: others want theirs.
constexpr int kReadsPerTurn = 4;
static_assert(local::kMaxRequestsUnderWay <= kMaxRequestsPerClient);

// What a shard would take for a broken node.
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

LocalSession::LocalSession(net::EventLoop& loop, Store& store, collectives::Reducer& reducer,
                           const LocalGreeting& greeting, int socket,
                           absl::AnyInvocable<void(const absl::Status&)> ended)
    : loop_(loop),
      store_(store),
      reducer_(reducer),
      greeting_(greeting),
      socket_(socket),
      ended_(std::move(ended)) {}

LocalSession::~LocalSession() {
  ended_ = nullptr;
  End(absl::OkStatus());
  watcher_.reset();
  close(socket_);
}

void LocalSession::Start() {
  absl::StatusOr<std::unique_ptr<net::FdWatcher>> watcher = loop_.Watch(socket_);
  if (!watcher.ok()) return End(watcher.status());
  watcher_ = *std::move(watcher);
  greeting_timer_ = loop_.RunAt(loop_.Now() + kGreetingTimeout, [this] {
    greeting_timer_ = 0;
    Close(absl::DeadlineExceededError("the client has not said hello"));
  });
  KeepReading();
}

void LocalSession::Close(const absl::Status& why) {
  if (state_ == State::kEnded) return;
  if (state_ == State::kGreeting) {
    out_.Add(local::NodeHello{local::kMagic, local::kVersion, why.code(), why.message(),
                              greeting_.node_name, greeting_.directory, greeting_.node});
  } else {
    // It is the last thing to be said; answers that have not been encoded are void.
    out_.Clear();
    out_.Add(local::Goodbye{why.code(), why.message()});
  }
  out_.Send(socket_);
  End(why);
}

void LocalSession::End(const absl::Status& why) {
  if (state_ == State::kEnded) return;
  const bool clean = state_ == State::kLeft && pins_.empty();
  state_ = State::kEnded;
  loop_.Cancel(greeting_timer_);
  loop_.Cancel(retry_timer_);
  if (watcher_ != nullptr) {
    watcher_->OnReadable(nullptr);
    watcher_->OnWritable(nullptr);
  }
  std::vector<uint64_t> streams;
  for (const auto& [request, stream] : streams_) streams.push_back(request);
  std::sort(streams.begin(), streams.end());
  for (const uint64_t request : streams) EndStream(request);
  if (client_ != 0) reducer_.ClientClosed(client_);
  if (client_ != 0) store_.CloseClient(client_, clean);
  // Before the search for processes that still have the node's files open.
  out_.Close();
  writers_.clear();
  shutdown(socket_, SHUT_RDWR);
  if (ended_) std::exchange(ended_, nullptr)(clean ? absl::OkStatus() : why);
}

// ---------------------------------------------------------------------------- reading

void LocalSession::KeepReading() {
  if (state_ == State::kEnded || reading_ || out_.size() >= kMaxWaitingAnswers) return;
  reading_ = true;
  watcher_->OnReadable([this] {
    reading_ = false;
    ReadSome();
  });
}

void LocalSession::ReadSome() {
  in_read_ = true;
  const bool go_on = TakeWhatCame();
  store_.HandOutAnswers();
  in_read_ = false;
  // Before a later task sends messages to the directory: the client waits for its answers.
  if (std::exchange(send_due_, false)) SendNow();
  if (go_on) KeepReading();
}

bool LocalSession::TakeWhatCame() {
  for (int reads = 0; reads < kReadsPerTurn && state_ != State::kEnded; ++reads) {
    if (out_.size() >= kMaxWaitingAnswers) return false;
    const absl::Span<char> space = in_.Space();
    // Without room for control messages, descriptors that a client sends are closed by the kernel.
    const ssize_t got = recv(socket_, space.data(), space.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got <= 0) {
      End(absl::UnavailableError(got == 0 ? "it closed its socket" : std::strerror(errno)));
      return false;
    }
    in_.Filled(static_cast<size_t>(got));
    const absl::Status taken = TakeFrames();
    if (!taken.ok()) {
      Close(taken);
      return false;
    }
    if (static_cast<size_t>(got) < space.size()) break;
  }
  return true;
}

absl::Status LocalSession::TakeFrames() {
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
  // Other versions may say more after these.
  ByteReader hello(payload);
  const uint8_t kind = hello.U8();
  const uint32_t magic = hello.U32();
  const uint32_t version = hello.U32();
  if (!hello.ok() || kind != local::ClientHello::kKind || magic != local::kMagic) {
    return absl::InvalidArgumentError("what connected is no Phalanx client");
  }
  if (version != local::kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the client speaks version ", version,
                                                      ", node ", greeting_.node_name, " ",
                                                      local::kVersion));
  }
  loop_.Cancel(std::exchange(greeting_timer_, 0));
  state_ = State::kOpen;
  client_ = store_.OpenClient();
  out_.SetViewer(client_);
  Answer(local::NodeHello{local::kMagic, local::kVersion, absl::StatusCode::kOk, "",
                          greeting_.node_name, greeting_.directory, greeting_.node});
  return absl::OkStatus();
}

absl::Status LocalSession::Handle(const local::Request& request) {
  if (state_ == State::kLeft && !std::holds_alternative<local::Release>(request)) {
    return absl::InvalidArgumentError("a client that has left sent a request");
  }
  return std::visit([this](const auto& message) { return On(message); }, request);
}

absl::Status LocalSession::On(const local::ClientHello&) {
  return absl::InvalidArgumentError("a second hello");
}

Instant LocalSession::Deadline(absl::Duration timeout) const { return loop_.Now() + timeout; }

PutOptions LocalSession::OptionsOf(const local::Description& object) const {
  PutOptions options;
  options.id = object.id;
  options.metadata = std::string(object.metadata);
  options.slices = object.slices;
  options.wait_for_adoption = object.wait_for_adoption;
  options.owned = object.owned;
  for (const ObjectId& id : object.refers_to) {
    options.refers_to.append(id.binary().data(), ObjectId::kSize);
  }
  options.deadline = Deadline(object.timeout);
  return options;
}

absl::Status LocalSession::On(const local::Put& put) {
  const uint64_t size = put.bytes.size();
  if (put_bytes_ > 0 && put_bytes_ + size > local::kMaxPutBytesInFlight) {
    AnswerFailed(put.request,
                 absl::ResourceExhaustedError(absl::StrCat(
                     put_bytes_, " bytes of this client's earlier Puts are not stored yet")));
    return absl::OkStatus();
  }
  put_bytes_ += size;
  store_.Put(client_, OptionsOf(put.object), std::string(put.bytes),
             [this, request = put.request, size](absl::StatusOr<PutResult> result) {
               put_bytes_ -= size;
               AnswerPut(request, result);
             });
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Create& create) {
  if (requests_.contains(create.request)) {
    return absl::InvalidArgumentError(absl::StrCat("request ", create.request, " is used twice"));
  }
  requests_[create.request] = store_.Create(
      client_, OptionsOf(create.object), create.size,
      [this, request = create.request, size = create.size](absl::StatusOr<WriteGrant> grant) {
        OnGrant(request, size, std::move(grant));
      });
  return absl::OkStatus();
}

absl::Status LocalSession::TakeBytes(Writer& writer, uint64_t upto, absl::string_view bytes) {
  if (upto < writer.published || upto > writer.size) {
    return absl::InvalidArgumentError(absl::StrCat("a writer of ", writer.size, " bytes published ",
                                                   upto, " after ", writer.published));
  }
  if (bytes.size() != (writer.has_file ? 0 : upto - writer.published)) {
    return absl::InvalidArgumentError(absl::StrCat("a writer published up to ", upto, " after ",
                                                   writer.published, " and sent ", bytes.size(),
                                                   " bytes"));
  }
  if (!bytes.empty()) {
    std::memcpy(writer.block->bytes().data() + writer.published, bytes.data(), bytes.size());
  }
  writer.published = upto;
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Publish& publish) {
  const auto it = writers_.find(publish.writer);
  if (it == writers_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("writer ", publish.writer, " is not open"));
  }
  PHALANX_RETURN_IF_ERROR(TakeBytes(it->second, publish.upto, publish.bytes));
  return store_.Publish(client_, publish.writer, publish.upto);
}

absl::Status LocalSession::On(const local::Seal& seal) {
  const auto it = writers_.find(seal.writer);
  if (it == writers_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("writer ", seal.writer, " is not open"));
  }
  PHALANX_RETURN_IF_ERROR(TakeBytes(it->second, it->second.size, seal.bytes));
  writers_.erase(it);
  store_.Seal(client_, seal.writer, seal.wait_for_adoption,
              [this, request = seal.request](absl::StatusOr<PutResult> result) {
                AnswerPut(request, result);
              });
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Abort& abort) {
  if (writers_.erase(abort.writer) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("writer ", abort.writer, " is not open"));
  }
  return store_.Abort(client_, abort.writer);
}

absl::Status LocalSession::On(const local::Get& get) {
  if (requests_.contains(get.request)) {
    return absl::InvalidArgumentError(absl::StrCat("request ", get.request, " is used twice"));
  }
  GetEvents events;
  events.on_view = [this, get](absl::StatusOr<View> view) { OnView(get, std::move(view)); };
  if (get.streaming) {
    events.on_void = [this, request = get.request](const absl::Status& why) {
      EndStream(request);
      Answer(local::Void{request, why.message()});
    };
  }
  requests_[get.request] = store_.Get(
      client_,
      GetOptions{get.id, Deadline(get.timeout), get.streaming, get.near, get.fail_when_lost},
      std::move(events));
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Cancel& cancel) {
  const auto it = requests_.find(cancel.request);
  if (it == requests_.end()) {
    CancelReduce(cancel.request);  // or the answer is on its way
    return absl::OkStatus();
  }
  store_.Cancel(client_, it->second);
  EndStream(cancel.request);
  requests_.erase(cancel.request);
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Release& release) {
  if (pins_.contains(release.pin)) {
    ReleasePin(release.pin, release.recycle);
    return absl::OkStatus();
  }
  // It may have been released for the client when it left.
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
  if (stat.reduced_from && reduced_from_answers_ == kMaxReducedFromAnswers) {
    AnswerFailed(stat.request,
                 absl::ResourceExhaustedError(absl::StrCat(reduced_from_answers_,
                                                           " of this client's calls of the kind "
                                                           "have not been answered")));
    return absl::OkStatus();
  }
  if (stat.reduced_from) ++reduced_from_answers_;
  std::vector<std::string> nodes(stat.nodes.begin(), stat.nodes.end());
  store_.Stat(
      client_, stat.id, Deadline(stat.timeout),
      [this, stat](const absl::StatusOr<ObjectStat>& found) {
        if (found.ok()) return AnswerStat(stat, *found);
        if (stat.reduced_from) --reduced_from_answers_;
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
  requests_[broadcast.request] =
      store_.Broadcast(client_, broadcast.id, std::move(options), Deadline(broadcast.timeout),
                       [this, request = broadcast.request](const absl::StatusOr<int>& nodes) {
                         requests_.erase(request);
                         if (!nodes.ok()) return AnswerFailed(request, nodes.status());
                         Answer(local::Counted{request, static_cast<uint32_t>(*nodes)});
                       });
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Prefetch& prefetch) {
  if (const absl::Status named = CheckNames(prefetch.nodes); !named.ok()) {
    AnswerFailed(prefetch.request, named);
    return absl::OkStatus();
  }
  store_.Prefetch(client_, prefetch.id,
                  std::vector<std::string>(prefetch.nodes.begin(), prefetch.nodes.end()),
                  Deadline(prefetch.timeout),
                  [this, request = prefetch.request](const absl::StatusOr<int>& told) {
                    if (!told.ok()) return AnswerFailed(request, told.status());
                    Answer(local::Counted{request, static_cast<uint32_t>(*told)});
                  });
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Forget& forget) {
  out_.Add([file = forget.file, writable = forget.writable](LocalOutbox::Batch& batch) {
    batch.Forget(file, writable);
    return true;
  });
  SendLater();
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Leave& leave) {
  kept_at_leave_.insert(leave.pins.begin(), leave.pins.end());
  if (leave.more) return absl::OkStatus();
  state_ = State::kLeft;
  // Everything ends but the pins that are kept: a new client of the store could not take them over,
  // so what the old one has besides is ended piece by piece.
  out_.Clear();
  std::vector<uint64_t> requests;
  for (const auto& [request, id] : requests_) requests.push_back(request);
  std::sort(requests.begin(), requests.end());
  for (const uint64_t request : requests) {
    PHALANX_RETURN_IF_ERROR(On(local::Cancel{request}));
  }
  CancelAllReduces();
  std::vector<WriterId> writers;
  for (const auto& [writer, state] : writers_) writers.push_back(writer);
  std::sort(writers.begin(), writers.end());
  for (const WriterId writer : writers) {
    // The client ends without a word about these: it may still have them mapped to write.
    const Writer& state = writers_.at(writer);
    if (state.has_file) state.block->Condemn(client_);
    PHALANX_RETURN_IF_ERROR(On(local::Abort{writer}));
  }
  std::vector<PinId> dropped;
  for (const PinId pin : pins_) {
    if (!kept_at_leave_.contains(pin)) dropped.push_back(pin);
  }
  std::sort(dropped.begin(), dropped.end());
  for (const PinId pin : dropped) ReleasePin(pin, true);
  kept_at_leave_.clear();
  store_.UnholdAll(client_);
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------- writing

void LocalSession::SendLater() {
  if (send_posted_ || waits_for_room_ || state_ == State::kEnded) return;
  if (in_read_) {
    send_due_ = true;
    return;
  }
  send_posted_ = true;
  loop_.Post([weak = weak_from_this()] {
    const std::shared_ptr<LocalSession> self = weak.lock();
    if (self == nullptr) return;
    self->send_posted_ = false;
    self->SendNow();
  });
}

void LocalSession::SendNow() {
  if (state_ == State::kEnded || waits_for_room_) return;
  const LocalOutbox::State sent = out_.Send(socket_);
  if (sent == LocalOutbox::State::kBroken) {
    return End(absl::UnavailableError("it does not take its answers"));
  }
  const auto again = [this] {
    waits_for_room_ = false;
    SendNow();
  };
  if (sent != LocalOutbox::State::kEmpty) {
    waits_for_room_ = true;
    if (sent == LocalOutbox::State::kFull) {
      watcher_->OnWritable(again);
    } else {
      retry_timer_ = loop_.RunAt(loop_.Now() + kRetryAfter, again);
    }
  }
  KeepReading();
}

void LocalSession::Answer(const local::Answer& answer) {
  if (state_ != State::kOpen) return;
  out_.Add(answer);
  SendLater();
}

void LocalSession::AnswerFailed(uint64_t request, const absl::Status& why) {
  Answer(local::Failed{request, why.code(), why.message()});
}

}  // namespace phalanx::object_store
