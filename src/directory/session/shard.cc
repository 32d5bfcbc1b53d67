#include "src/directory/session/shard.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/directory/core/status_counters.h"
#include "src/directory/session/loop_timer.h"

namespace phalanx::directory {
namespace {

using StreamId = uint64_t;

// One stream, before and after its node has proved the secret.
struct Stream {
  std::unique_ptr<ShardStream> stream;
  ShardHandshake handshake;
  Instant opened;
  uint64_t node = 0;  // the node of the session that it carries; 0 while unproven
};

// At most one per node: a later incarnation, or a new session of the same one, replaces it.
struct Session {
  ShardSession session;
  StreamId stream = 0;         // 0 while broken
  size_t under_way_bytes = 0;  // at the last count
};

struct Counters {
  uint64_t opened = 0;
  uint64_t resumed = 0;
  uint64_t fenced = 0;
  uint64_t goodbyes = 0;
  uint64_t overflowed = 0;
  uint64_t refused = 0;
  uint64_t malformed = 0;
  uint64_t silent = 0;
  uint64_t oversized = 0;  // of sessions that have ended
  uint64_t pauses = 0;
};

DirectoryOptions WithPlace(DirectoryOptions options, const SessionConfig& session) {
  options.shard_index = static_cast<int>(session.shard_index);
  options.num_shards = static_cast<int>(session.num_shards);
  return options;
}

std::string NodeName(const v1::NodeInfo& node) {
  return absl::StrCat("node \"", absl::CEscape(node.name()), "\"");
}

}  // namespace

struct Shard::Impl {
  Impl(Executor& executor, SessionConfig session, DirectoryOptions options, Random random)
      : executor(executor),
        config(std::move(session)),
        started(executor.Now()),
        random(std::move(random)),
        incarnation(NewId()),
        core(WithPlace(options, config), executor.Now(), this->random.Fork()),
        core_timer(executor, [this](Instant due) { OnCoreTimer(due); }),
        session_timer(executor, [this](Instant due) { OnSessionTimer(due); }),
        flush(executor, [this] { Flush(); }) {
    core_timer.Ensure(core.NextDeadline());
  }

  void Accept(std::unique_ptr<ShardStream> stream);
  void OnFrame(StreamId id, v1::NodeFrame frame);
  void OnHandshakeFrame(StreamId id, const v1::NodeFrame& frame);
  void Admit(StreamId id);
  void Attach(StreamId id, const v1::Hello& hello, Session& session);
  absl::Status Deliver(Session& session);
  void OnStreamClosed(StreamId id);
  void CloseStream(StreamId id, const absl::Status& why);
  void EndSession(uint64_t node, absl::string_view event, const absl::Status& why);

  void OnCoreTimer(Instant due);
  // Called so much later than `due` that the process must have been stopped meanwhile.
  bool Paused(Instant due) const { return executor.Now() - due > config.lease / 4; }
  // So late that a node's new stream can be waiting to be read.
  bool Late(Instant due) const { return executor.Now() - due > config.reconnect_grace / 4; }
  void OnSessionTimer(Instant due);
  absl::Status WhyFenced(const Session& session) const;
  void CloseSilentStreams(Instant now);
  void Flush();
  void Pump(Session& session);

  void Notify(absl::string_view event, absl::string_view node, const absl::Status& why) {
    if (observer) observer(event, node, why);
  }
  // Counts, reports and closes a stream that the shard rejects.
  void Refuse(StreamId id, const absl::Status& why);

  // Reports the bytes under way of all sessions to the core; `session` is the one that changed.
  void NoteUnderWay(Session& session) {
    under_way_bytes -= session.under_way_bytes;
    session.under_way_bytes = session.session.unacknowledged_bytes();
    under_way_bytes += session.under_way_bytes;
    core.NoteUnderWay(under_way_bytes);
  }
  void Forget(std::map<uint64_t, Session>::iterator session) {
    under_way_bytes -= session->second.under_way_bytes;
    core.NoteUnderWay(under_way_bytes);
    counters.oversized += session->second.session.oversized();
    sessions.erase(session);
  }

  uint64_t NewId() {
    uint64_t id = 0;
    while (id == 0) id = random.Next();
    return id;
  }
  size_t Unproven() const { return streams.size() - proven; }

  // Constant after construction.
  Executor& executor;
  const SessionConfig config;
  const Instant started;

  Random random;
  const uint64_t incarnation;
  DirectoryCore core;

  std::map<StreamId, Stream> streams;
  size_t proven = 0;  // the proven ones of them
  StreamId last_stream = 0;
  std::map<uint64_t, Session> sessions;  // by node
  size_t under_way_bytes = 0;            // of all sessions
  std::set<uint64_t> touched;            // nodes whose sessions can have something to send
  Counters counters;
  Observer observer;

  // Last, so that they are destroyed first: no callback runs while the rest is being destroyed.
  LoopTimer core_timer;
  LoopTimer session_timer;
  LoopSignal flush;
};

void Shard::Impl::Accept(std::unique_ptr<ShardStream> stream) {
  const StreamId id = ++last_stream;
  const Instant now = executor.Now();
  auto& entry = streams
                    .emplace(id, Stream{.stream = std::move(stream),
                                        .handshake = ShardHandshake(config, NewNonce(config)),
                                        .opened = now})
                    .first->second;
  entry.stream->Start(
      {.on_message = [this, id](v1::NodeFrame frame) { OnFrame(id, std::move(frame)); },
       .on_writable =
           [this, id] {
             const uint64_t node = streams.at(id).node;
             if (node != 0) Pump(sessions.at(node));
           },
       .on_closed = [this, id](const absl::Status&) { OnStreamClosed(id); }});
  // A peer that connects and says nothing would otherwise hold its place for ever.
  session_timer.Ensure(now + config.lease);
  if (streams.size() <= kMaxStreams && Unproven() <= kMaxUnprovenStreams) return;
  // The oldest has been silent longest: a node with the secret proves it at once, so strangers
  // cannot keep it out. One is always found, because the new stream itself is unproven.
  const auto oldest = std::find_if(streams.begin(), streams.end(),
                                   [](const auto& one) { return one.second.node == 0; });
  Refuse(oldest->first, absl::ResourceExhaustedError(
                            absl::StrCat("shard ", config.shard_index, " has ", streams.size() - 1,
                                         " streams, ", Unproven() - 1, " of them unproven")));
}

void Shard::Impl::OnFrame(StreamId id, v1::NodeFrame frame) {
  const uint64_t node = streams.at(id).node;
  if (node == 0) return OnHandshakeFrame(id, frame);
  Session& session = sessions.at(node);
  // The time after the frame was read: the node's lease counts from before it was sent.
  absl::Status taken = session.session.OnFrame(std::move(frame), executor.ReadClock());
  NoteUnderWay(session);
  // The node does not send delivered messages again, so the core gets them after an error too.
  taken.Update(Deliver(session));
  touched.insert(node);
  flush.Raise();
  if (!taken.ok()) {
    // Only the stream ends. The node can resume its session and send the next messages.
    ++counters.malformed;
    Notify("malformed message", session.session.node().name(), taken);
    return CloseStream(id, taken);
  }
  if (session.session.ended()) {
    // The core drops the node's copies now, without waiting for the lease.
    ++counters.goodbyes;
    EndSession(node, "goodbye", absl::OkStatus());
  }
}

void Shard::Impl::OnHandshakeFrame(StreamId id, const v1::NodeFrame& frame) {
  Stream& stream = streams.at(id);
  auto answer = stream.handshake.OnFrame(frame);
  if (!answer.ok()) return Refuse(id, answer.status());
  if (answer->has_value()) stream.stream->Send(**std::move(answer));
  if (stream.handshake.proven()) Admit(id);
}

// A node has proved the secret: resumes its session, or begins a new one.
void Shard::Impl::Admit(StreamId id) {
  const v1::Hello hello = streams.at(id).handshake.TakeHello();
  const uint64_t node = hello.node().key().node();
  const Instant now = executor.Now();
  const auto found = sessions.find(node);
  if (found != sessions.end()) {
    const ShardSession& session = found->second.session;
    // A delayed stream of an old incarnation must not end the session of the running one.
    if (hello.node().key().incarnation() < session.key().incarnation) {
      return Refuse(id,
                    absl::FailedPreconditionError(absl::StrCat(
                        NodeName(hello.node()), " at ", hello.node().address(),
                        " has a later life, which is registered from ", session.node().address())));
    }
    if (session.CanResume(hello)) {
      ++counters.resumed;
      Notify("session resumed", hello.node().name(), absl::OkStatus());
      Attach(id, hello, found->second);
      return core.NodeConnected(session.key(), true, now);
    }
    if (found->second.stream != 0) {
      CloseStream(found->second.stream, absl::AbortedError("another session has begun"));
    }
    // Without NodeDown: NodeUp below ends the node's earlier session, or life, in the core.
    Forget(found);
  }
  ++counters.opened;
  Notify("session opened", hello.node().name(), absl::OkStatus());
  const auto session = sessions.emplace(
      node, Session{ShardSession(NewId(), incarnation, config, hello.node(), now)});
  Attach(id, hello, session.first->second);
  core.NodeUp(hello.node(), now);
}

void Shard::Impl::Attach(StreamId id, const v1::Hello& hello, Session& session) {
  // The old stream can be half-open: the node has given it up, and the shard has not noticed.
  if (session.stream != 0) {
    CloseStream(session.stream, absl::AbortedError("another stream carries the session"));
  }
  Stream& stream = streams.at(id);
  session.session.StreamOpened(hello, executor.Now(), stream.stream->RoundTrip());
  session.stream = id;
  stream.node = session.session.key().node;
  ++proven;
  touched.insert(stream.node);
  flush.Raise();
}

// Passes the session's delivered messages to the core. Skips malformed messages and returns the
// error of the first one.
absl::Status Shard::Impl::Deliver(Session& session) {
  absl::Status first;
  const NodeKey key = session.session.key();
  for (const v1::NodeMessage& message : session.session.TakeMessages()) {
    first.Update(core.OnMessage(key, message, executor.Now()));
  }
  return first;
}

void Shard::Impl::OnStreamClosed(StreamId id) {
  const auto found = streams.find(id);
  const uint64_t node = found->second.node;
  // Destroyed at the end of this function, when `streams` and `sessions` agree again.
  const std::unique_ptr<ShardStream> closed = std::move(found->second.stream);
  streams.erase(found);
  if (node == 0) return;
  --proven;
  Session& session = sessions.at(node);
  // An earlier stream of the session, which another has replaced: the session is still connected.
  if (session.stream != id) return;
  session.stream = 0;
  session.session.StreamClosed(executor.Now());
  core.NodeConnected(session.session.key(), false, executor.Now());
  session_timer.Ensure(session.session.ExpiresAt());
  flush.Raise();
}

void Shard::Impl::CloseStream(StreamId id, const absl::Status& why) {
  ShardStream& stream = *streams.at(id).stream;
  // A frame has room for the whole cause; gRPC shortens the status of a close.
  if (!why.ok() && stream.writable()) stream.Send(RefusedFrame(why));
  stream.Close(why);
  OnStreamClosed(id);
}

void Shard::Impl::Refuse(StreamId id, const absl::Status& why) {
  ++counters.refused;
  Notify("stream refused", streams.at(id).stream->peer(), why);
  CloseStream(id, why);
}

// Ends the session: its messages are void, and its node is down.
void Shard::Impl::EndSession(uint64_t node, absl::string_view event, const absl::Status& why) {
  Notify(event, sessions.at(node).session.node().name(), why);
  const NodeKey key = sessions.at(node).session.key();
  const Instant serves_until = sessions.at(node).session.ServesUntil();
  // While the session is still in the map, because closing the stream looks it up.
  if (const StreamId stream = sessions.at(node).stream; stream != 0) CloseStream(stream, why);
  Forget(sessions.find(node));
  touched.erase(node);
  core.NodeDown(key, executor.Now(), serves_until);
  flush.Raise();
}

void Shard::Impl::OnCoreTimer(Instant due) {
  // Before Tick: the deadlines that passed during the pause must not expire.
  if (Paused(due)) core.NotePause(executor.Now());
  core.Tick(executor.Now());
  Flush();
}

void Shard::Impl::OnSessionTimer(Instant due) {
  const Instant now = executor.Now();
  // The process read nothing while it was stopped. The nodes' messages of that time wait on the
  // streams, so their silence does not count.
  const bool paused = Paused(due);
  if (paused) {
    ++counters.pauses;
    core.NotePause(now);
  }
  CloseSilentStreams(now);
  const bool late = Late(due);
  // Collected first: EndSession erases from the map of this loop.
  std::vector<uint64_t> expired;
  for (auto& [node, session] : sessions) {
    if (paused) session.session.Forgive(now);
    if (late && session.stream == 0) session.session.AwaitReconnect(now);
    if (session.session.Expired(now)) {
      expired.push_back(node);
    } else {
      Pump(session);
    }
  }
  for (const uint64_t node : expired) {
    ++counters.fenced;
    EndSession(node, "session fenced", WhyFenced(sessions.at(node)));
  }
}

absl::Status Shard::Impl::WhyFenced(const Session& session) const {
  const std::string name = NodeName(session.session.node());
  if (session.stream != 0 || session.session.Silent(executor.Now())) {
    return absl::DeadlineExceededError(
        absl::StrCat(name, " was silent for ", absl::FormatDuration(config.lease)));
  }
  return absl::UnavailableError(absl::StrCat(name, " was not back ",
                                             absl::FormatDuration(session.session.grace()),
                                             " after its connection had broken"));
}

void Shard::Impl::CloseSilentStreams(Instant now) {
  // Collected first: Refuse erases from the map of this loop.
  std::vector<StreamId> silent;
  for (const auto& [id, stream] : streams) {
    if (stream.node != 0) continue;
    if (now >= stream.opened + config.lease) {
      silent.push_back(id);
    } else {
      session_timer.Ensure(stream.opened + config.lease);
    }
  }
  for (const StreamId id : silent) {
    ++counters.silent;
    Refuse(id, absl::DeadlineExceededError("the node has not shown the secret in time"));
  }
}

// Passes the core's messages to the sessions, and the sessions' frames to the streams.
void Shard::Impl::Flush() {
  for (DirectoryCore::Outgoing& outgoing : core.TakeOutbox()) {
    const auto found = sessions.find(outgoing.to.node);
    // The message is for an earlier incarnation of the node, or the node's session has ended.
    if (found == sessions.end() || found->second.session.key() != outgoing.to) continue;
    found->second.session.Send(std::move(outgoing.message));
    touched.insert(outgoing.to.node);
  }
  for (const uint64_t node : std::exchange(touched, {})) {
    Session& session = sessions.at(node);
    NoteUnderWay(session);
    if (session.session.overflowed()) {
      ++counters.overflowed;
      EndSession(node, "session overflowed",
                 absl::ResourceExhaustedError(
                     absl::StrCat(NodeName(session.session.node()), " acknowledges too slowly")));
    } else {
      Pump(session);
    }
  }
  // Any message or session event can have moved the core's deadline.
  core_timer.Ensure(core.NextDeadline());
}

// Puts the due frames on the session's stream as long as the stream takes them.
void Shard::Impl::Pump(Session& session) {
  ShardSession& due = session.session;
  while (session.stream != 0 && due.NextDeadline() <= executor.Now()) {
    ShardStream& stream = *streams.at(session.stream).stream;
    // on_writable continues; until then only the expiry needs the timer.
    if (!stream.writable()) return session_timer.Ensure(due.ExpiresAt());
    const auto* frame = due.NextFrame(executor.Now());
    if (frame == nullptr) break;
    stream.Send(*frame);
  }
  session_timer.Ensure(due.NextDeadline());
}

Shard::Shard(Executor& executor, SessionConfig session, DirectoryOptions options, Random random)
    : impl_(std::make_unique<Impl>(executor, std::move(session), std::move(options),
                                   std::move(random))) {}

Shard::~Shard() {
  // The nodes reconnect at once instead of waiting for the lease.
  for (auto& [id, stream] : impl_->streams) {
    stream.stream->Close(absl::UnavailableError("the shard is shutting down"));
  }
}

void Shard::Accept(std::unique_ptr<ShardStream> stream) { impl_->Accept(std::move(stream)); }

void Shard::Observe(Observer observer) { impl_->observer = std::move(observer); }

const DirectoryCore& Shard::core() const { return impl_->core; }

const SessionConfig& Shard::config() const { return impl_->config; }

uint64_t Shard::incarnation() const { return impl_->incarnation; }

absl::Status Shard::DrainNode(const v1::DrainNodeRequest& request, v1::DrainNodeResponse* out) {
  const absl::Status status = impl_->core.DrainNode(request, impl_->executor.Now(), out);
  impl_->flush.Raise();
  return status;
}

void Shard::FillStatus(v1::GetStatusResponse* out) const {
  const Instant now = impl_->executor.Now();
  impl_->core.FillStatus(now, out);
  out->set_shard_index(impl_->config.shard_index);
  out->set_num_shards(impl_->config.num_shards);
  out->set_cluster_id(impl_->config.cluster_id);
  out->set_shard_incarnation(impl_->incarnation);
  out->set_uptime_ns(absl::ToInt64Nanoseconds(now - impl_->started));
  uint64_t unacknowledged = 0, oversized = impl_->counters.oversized;
  for (const auto& [node, session] : impl_->sessions) {
    unacknowledged += session.session.unacknowledged();
    oversized += session.session.oversized();
  }
  for (v1::NodeStatus& node : *out->mutable_nodes()) {
    const auto found = impl_->sessions.find(node.info().key().node());
    if (found == impl_->sessions.end()) continue;
    const ShardSession& session = found->second.session;
    node.set_connected(session.connected());
    // Heard within this turn, whose time is a little earlier.
    const absl::Duration since = std::max(now - session.last_heard(), absl::ZeroDuration());
    node.set_last_heard_ns(absl::ToInt64Nanoseconds(since));
  }
  const Counters& counters = impl_->counters;
  StatusCounters named(out);
  named.Gauge("streams", impl_->streams.size());
  named.Counter("streams_refused", counters.refused);
  named.Counter("streams_silent", counters.silent);
  named.Gauge("sessions", impl_->sessions.size());
  named.Counter("sessions_opened", counters.opened);
  named.Counter("sessions_resumed", counters.resumed);
  named.Counter("sessions_fenced", counters.fenced);
  named.Counter("sessions_goodbyes", counters.goodbyes);
  named.Counter("sessions_overflowed", counters.overflowed);
  named.Counter("messages_malformed", counters.malformed);
  named.Counter("messages_oversized", oversized);
  named.Gauge("messages_unacknowledged", unacknowledged);
  named.Counter("pauses", counters.pauses);
}

}  // namespace phalanx::directory
