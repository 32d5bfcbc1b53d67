#include "src/directory/session/directory_client.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/directory/session/loop_timer.h"

namespace phalanx::directory {
namespace {

// The messages of a turn leave after the answers of the turn to waiting clients. The store hands
// out an answer in a task of its own, and the client's session sends it in the next task.
constexpr int kTasksOfAnAnswer = 3;

}  // namespace

struct DirectoryClient::Impl {
  Impl(Executor& executor, std::unique_ptr<ShardConnector> connector, SessionConfig config,
       v1::NodeInfo self, Random random, Handlers handlers)
      : executor(executor),
        connector(std::move(connector)),
        config(config),
        random(std::move(random)),
        handlers(std::move(handlers)),
        session(std::move(config), std::move(self)),
        down_since(executor.Now()),
        error(absl::UnavailableError(
            absl::StrCat("directory ", this->connector->target(), " is being connected to"))),
        timer(executor, [this](Instant) { OnTimer(); }),
        flush(executor, [this] { OnFlush(); }) {}

  void Open();
  void OnTimer();
  void OnFrame(v1::ShardFrame frame);
  void OnFlush();
  void Pump();
  void Broken(const absl::Status& why);
  absl::Duration Delay(const absl::Status& why);

  // Constant after construction.
  Executor& executor;
  const std::unique_ptr<ShardConnector> connector;
  const SessionConfig config;

  Random random;
  Handlers handlers;
  NodeSession session;
  Counters counters;

  // Null between a break and the next attempt.
  std::unique_ptr<NodeStream> stream;
  std::optional<Instant> open_at;
  bool up = false;
  Instant down_since;
  absl::Status error;
  int tasks_waited = 0;  // since a message waits to be sent

  // Last, so that they are destroyed first: no callback runs while the rest is being destroyed.
  LoopTimer timer;
  LoopSignal flush;
};

void DirectoryClient::Impl::Open() {
  open_at.reset();
  ++counters.streams;
  session.StreamOpened(NewNonce(config), executor.Now());
  stream = connector->Connect(executor);
  stream->Start({.on_message = [this](v1::ShardFrame frame) { OnFrame(std::move(frame)); },
                 .on_writable = [this] { Pump(); },
                 .on_closed =
                     [this](const absl::Status& why) {
                       Broken(why.ok() ? absl::UnavailableError("the shard closed the stream")
                                       : why);
                     }});
  // The hello is due at once; no event of the loop would send it.
  Pump();
}

void DirectoryClient::Impl::OnTimer() {
  if (stream == nullptr) {
    if (open_at.has_value() && executor.Now() >= *open_at) return Open();
    if (open_at.has_value()) timer.Ensure(*open_at);
    return;
  }
  if (session.ShardSilent(executor.Now())) {
    return Broken(absl::UnavailableError(absl::StrCat("directory ", connector->target(),
                                                      " has been silent for ",
                                                      absl::FormatDuration(session.lease()))));
  }
  Pump();
}

void DirectoryClient::Impl::OnFrame(v1::ShardFrame frame) {
  const Instant heard = session.heard();
  const absl::Status taken = session.OnFrame(std::move(frame), executor.Now());
  if (const auto event = session.TakeEvent()) {
    // Handlers can send at once, so the state is consistent before they run.
    up = true;
    error = absl::OkStatus();
    handlers.on_connection(true, error);
    if (*event == NodeSession::Event::kRegister) {
      ++counters.sessions;
      handlers.on_register();
    } else {
      ++counters.resumed;
    }
  }
  // After the events: on_register comes before the messages of the new session.
  for (const v1::ShardMessage& message : session.TakeMessages()) handlers.on_message(message);
  // Last: the lease of a new session counts only when the store knows of the session.
  if (session.heard() != heard && handlers.on_heard) {
    handlers.on_heard(session.heard(), session.lease());
  }
  if (!taken.ok()) return Broken(taken);
  flush.Raise();
}

void DirectoryClient::Impl::OnFlush() {
  if (++tasks_waited < kTasksOfAnAnswer) return flush.Raise();
  tasks_waited = 0;
  Pump();
}

// Puts the due frames on the stream as long as the stream takes them.
void DirectoryClient::Impl::Pump() {
  if (stream == nullptr) return;
  if (session.overflowed()) {
    ++counters.overflows;
    return Broken(absl::ResourceExhaustedError(absl::StrCat(
        "directory ", connector->target(), " acknowledges too slowly: a new session is needed")));
  }
  // Checks the stream only if something is due, so that on_writable wakes the loop only for that.
  while (session.NextDeadline() <= executor.Now()) {
    // on_writable continues; until then only the shard's silence needs the timer.
    if (!stream->writable()) return timer.Ensure(session.SilenceDeadline());
    const auto* frame = session.NextFrame(executor.Now());
    if (frame == nullptr) break;
    stream->Send(*frame);
  }
  timer.Ensure(session.NextDeadline());
}

void DirectoryClient::Impl::Broken(const absl::Status& why) {
  const Instant now = executor.Now();
  // Before `up` changes: the delay depends on whether a stream was up.
  const absl::Duration delay = Delay(why);
  if (up) down_since = now;
  session.StreamClosed(now);
  stream->Close(why);
  stream.reset();
  open_at = now + delay;
  timer.Ensure(*open_at);
  const bool news = std::exchange(up, false) || why != error;
  error = why;
  // One report per cause: a shard that is down for an hour must not fill the log.
  if (news) handlers.on_connection(false, error);
}

absl::Duration DirectoryClient::Impl::Delay(const absl::Status& why) {
  // Only the shard's own answer counts as a refusal, not a stream that broke later.
  const bool refused = !up && (absl::IsFailedPrecondition(why) || absl::IsPermissionDenied(why) ||
                               absl::IsInvalidArgument(why));
  absl::Duration delay = up ? kFirstReconnectDelay : kReconnectDelay;
  if (!up && executor.Now() - down_since > kReconnectPatience) delay = kSlowReconnectDelay;
  if (refused) delay = kRefusedDelay;
  // Spread, so that the nodes of a restarted shard do not all connect at once.
  return delay * (0.75 + 0.5 * random.Unit());
}

DirectoryClient::DirectoryClient(Executor& executor, std::unique_ptr<ShardConnector> connector,
                                 SessionConfig config, v1::NodeInfo self, Random random,
                                 Handlers handlers)
    : impl_(std::make_unique<Impl>(executor, std::move(connector), std::move(config),
                                   std::move(self), std::move(random), std::move(handlers))) {
  impl_->Open();
}

DirectoryClient::~DirectoryClient() {
  // Between two streams there is nothing to say goodbye on; the shard's grace ends the session.
  if (impl_->stream == nullptr) return;
  if (impl_->stream->writable()) {
    if (const auto* frame = impl_->session.LastFrame(impl_->executor.Now())) {
      impl_->stream->Send(*frame);
    }
  }
  impl_->stream->Close(absl::OkStatus());
}

void DirectoryClient::Send(v1::NodeMessage&& message) {
  impl_->session.Send(std::move(message));
  impl_->flush.Raise();
}

bool DirectoryClient::connected() const { return impl_->up; }

std::string DirectoryClient::target() const { return impl_->connector->target(); }

DirectoryClient::Counters DirectoryClient::counters() const {
  Counters counters = impl_->counters;
  counters.oversized = impl_->session.oversized();
  return counters;
}

}  // namespace phalanx::directory
