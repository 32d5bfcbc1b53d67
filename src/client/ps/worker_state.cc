#include "src/client/ps/worker_state.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/client/access.h"
#include "src/client/verb.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::ps::internal {
namespace {

using phalanx::internal::Access;
using phalanx::internal::FutureState;
using phalanx::internal::MemberCall;

// Losses are rare, and a probe is a small message to each server of which something is awaited.
constexpr absl::Duration kProbeEvery = absl::Milliseconds(500);

MemberCall& CallOf(const Membership& member) { return *Access::StateOf(member)->call; }

// A barrier waits for the next life of a worker that has died, as tables do by default.
GroupOptions BarrierOptions(absl::Duration patience) {
  GroupOptions options;
  options.on_loss = LossPolicy::kWait;
  options.timeout = patience;
  return options;
}

// Only the client knows how much memory the program has passed.
absl::Status CheckBytes(const char* verb, const TableSpec& spec, uint64_t rows, uint64_t bytes) {
  const uint64_t row = spec.width * ElementSize(spec.dtype);
  if (bytes % row == 0 && bytes / row == rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(verb, ": table ", spec.name, ": ", bytes,
                                                 " bytes for ", rows, " keys of ", row,
                                                 " bytes each"));
}

}  // namespace

// The future of a push or a pull. It is not known to the connection: it ends when the core says so,
// or with the member.
struct WorkerState::TicketCall final : public FutureState<phalanx::Done> {
  TicketCall(const std::shared_ptr<WorkerState>& of, const char* verb)
      : FutureState(of->connection_, verb, ObjectId()), worker(of) {}
  // Cancelled: nothing is written to the caller's memory any more.
  void OnFailure(const absl::Status& why) override {
    const std::shared_ptr<WorkerState> state = worker.lock();
    if (state != nullptr) {
      state->core_.Cancel(ticket);
      state->under_way_.erase(ticket);
      // The last one takes the lock when it goes.
      connection().Trash(state);
    }
    if (!done()) Set(why);
  }
  const std::weak_ptr<WorkerState> worker;
  Ticket ticket = 0;
};

// The future of a request, which ends as that of a pull.
struct WorkerState::RequestCall final : public FutureState<Reply> {
  RequestCall(const std::shared_ptr<WorkerState>& of, const char* verb)
      : FutureState(of->connection_, verb, ObjectId()), worker(of) {}
  void OnFailure(const absl::Status& why) override {
    const std::shared_ptr<WorkerState> state = worker.lock();
    if (state != nullptr) {
      state->core_.Cancel(ticket);
      state->under_way_.erase(ticket);
      connection().Trash(state);
    }
    if (!done()) Set(why);
  }
  const std::weak_ptr<WorkerState> worker;
  Ticket ticket = 0;
};

// Messages that were lost on an idle link are noticed by the next one alone.
struct WorkerState::ProbeTimer final : public phalanx::internal::Call {
  explicit ProbeTimer(const std::shared_ptr<WorkerState>& of)
      : Call(of->connection_, "Probe", ObjectId()), worker(of) {}
  void OnAnswer(uint64_t, const phalanx::internal::local::Answer&) override {}
  void OnFailure(const absl::Status&) override {
    connection().Finish(*this);
    const std::shared_ptr<WorkerState> state = worker.lock();
    if (state == nullptr) return;
    state->Probe();
    connection().Trash(state);
  }
  const std::weak_ptr<WorkerState> worker;
};

WorkerState::WorkerState(std::shared_ptr<Client> client, Membership member, const Options& options,
                         int servers)
    : client_(std::move(client)),
      connection_(Access::ConnectionOf(*client_)),
      member_(std::move(member)),
      group_(member_, BarrierOptions(options.peer_timeout)),
      server_role_(options.server_role),
      patience_(options.peer_timeout),
      servers_(servers),
      core_({.rank = member_.rank(), .life = member_.life(), .servers = servers}),
      sends_(std::make_shared<MemberSends>(CallOf(member_), server_role_,
                                           [this](int server, uint64_t life) {
                                             core_.OnLost(server, life);
                                             Drain();
                                           })) {
  CallOf(member_).SetSink(this);
}

// Futures can outlive the worker: they end here, since nothing would end them later.
WorkerState::~WorkerState() {
  if (connection_->forked()) return;
  CallOf(member_).SetSink(nullptr);
  connection_->Update([this] {
    sends_->Stop();
    OnEnd(absl::CancelledError("the worker is gone"));
  });
}

absl::Status WorkerState::Begin() {
  // The constructor has no timer.
  connection_->Update([this] { Drain(); });
  const bool ready = connection_->WaitInsideCall([this] { return !over_.ok() || core_.ready(); },
                                                 MonotonicNow() + patience_);
  absl::Status status;
  connection_->Update([&] {
    if (!over_.ok()) {
      status = over_;
    } else if (!ready) {
      status = absl::DeadlineExceededError(
          absl::StrCat("Join: worker ", member_.rank(), " of job ", member_.job(),
                       " has had no answer of servers ", absl::StrJoin(core_.missing(), ", ")));
    }
  });
  return status;
}

// ---------------------------------------------------------------------------- events; lock held

void WorkerState::OnMessage(const Message& message) {
  if (message.role != server_role_) return;
  core_.OnMessage(message.rank, message.life, message.bytes);
  Drain();
}

// Ranks beyond the servers that this worker has counted are of a job that has changed: the core has
// no place for them.
void WorkerState::OnMember(const Member& member) {
  if (member.role != server_role_ || member.rank >= servers_) return;
  core_.OnServer(member.rank, member.live(), member.life);
  Drain();
}

// The sink can be called again by what ends a future: the first reason stays.
void WorkerState::OnEnd(const absl::Status& why) {
  if (!over_.ok()) return;
  over_ = why;
  // A callback of a future must not see the map half emptied.
  const std::map<Ticket, UnderWay> ended = std::exchange(under_way_, {});
  for (const auto& [ticket, call] : ended) {
    core_.Cancel(ticket);
    if (call.call != nullptr && !call.call->done()) call.call->Set(why);
    if (call.request != nullptr && !call.request->done()) call.request->Set(why);
    connection_->Trash(call.call);
    connection_->Trash(call.request);
  }
}

void WorkerState::Probe() {
  probes_ = false;
  if (!over_.ok()) return;
  core_.Probe();
  Drain();
}

// After everything that can have changed the core: sends, ends of calls, and whether there is
// something to probe for.
void WorkerState::Drain() {
  for (WorkerCore::Send& send : core_.TakeSends()) {
    sends_->Add(send.server, send.life, std::move(send.bytes));
  }
  for (const Ticket ticket : core_.TakeEnded()) {
    // Before Take, which forgets the ticket.
    std::optional<WorkerCore::Answer> answer = core_.AnswerOf(ticket);
    const std::optional<absl::Status> status = core_.Take(ticket);
    const auto found = under_way_.find(ticket);
    if (!status.has_value() || found == under_way_.end()) continue;
    const UnderWay call = found->second;
    under_way_.erase(found);
    if (call.call != nullptr) {
      if (status->ok()) {
        call.call->Set(phalanx::Done{});
      } else {
        call.call->Set(*status);
      }
    } else if (status->ok() && answer.has_value()) {
      call.request->Set(Reply{answer->head, std::move(answer->body)});
    } else {
      call.request->Set(status->ok() ? absl::InternalError("a request without an answer")
                                     : *status);
    }
    connection_->Trash(call.call);
    connection_->Trash(call.request);
  }
  if (probes_ || !over_.ok() || (core_.ready() && core_.idle())) return;
  // Not in the constructor.
  const std::shared_ptr<WorkerState> self = weak_from_this().lock();
  if (self == nullptr) return;
  probes_ = true;
  connection_->StartTimer(std::make_shared<ProbeTimer>(self), MonotonicNow() + kProbeEvery);
  connection_->Trash(self);
}

// ---------------------------------------------------------------------------- calls

// All servers have welcomed the worker by now, so this is a lookup and sends nothing.
absl::StatusOr<std::shared_ptr<OpenTable>> WorkerState::Open(absl::string_view name) {
  PHALANX_RETURN_IF_ERROR(connection_->CheckProcess());
  auto table = std::make_shared<OpenTable>();
  absl::Status status;
  connection_->Update([&] {
    const absl::StatusOr<uint32_t> number = core_.Open(name);
    status = number.status();
    if (!status.ok()) return;
    table->number = *number;
    table->spec = core_.table(*number).spec;
  });
  PHALANX_RETURN_IF_ERROR(status);
  return table;
}

// Room is made by messages of the servers, which this thread takes in while it waits.
absl::Status WorkerState::AwaitRoom(const char* verb, const OpenTable& table,
                                    absl::Duration timeout) {
  PHALANX_RETURN_IF_ERROR(connection_->CheckProcess());
  const bool in_time = connection_->WaitInsideCall(
      [&] { return !over_.ok() || !core_.must_wait(table.number); }, MonotonicNow() + timeout);
  if (in_time) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(verb, ": table ", table.spec.name,
                   ": more than snapshot_bytes of pushes are in no snapshot"));
}

// Bad arguments are refused without a ticket: the future has ended when it is returned. A push
// whose room another thread has taken meanwhile waits again.
Future<phalanx::Done> WorkerState::Call(const char* verb, const OpenTable& table, uint64_t rows,
                                        uint64_t bytes, bool pushes,
                                        absl::FunctionRef<absl::StatusOr<Ticket>()> make) {
  absl::Status status = connection_->CheckProcess();
  if (!status.ok()) {
    return phalanx::internal::Refused<phalanx::Done>(connection_, verb, ObjectId(),
                                                     std::move(status));
  }
  status = CheckBytes(verb, table.spec, rows, bytes);
  auto call = std::make_shared<TicketCall>(shared_from_this(), verb);
  const Instant until = MonotonicNow() + patience_;
  for (bool waits = true; waits;) {
    if (status.ok() && pushes) status = AwaitRoom(verb, table, until - MonotonicNow());
    connection_->Update([&] {
      waits = status.ok() && over_.ok() && pushes && core_.must_wait(table.number);
      if (waits) return;
      if (!over_.ok()) return call->Set(over_);
      if (!status.ok()) {
        if (pushes) core_.OnPushRefused(table.number, status);
        return call->Set(status);
      }
      const absl::StatusOr<Ticket> ticket = make();
      if (!ticket.ok()) return call->Set(ticket.status());
      call->ticket = *ticket;
      under_way_[*ticket] = {call, nullptr};
      Drain();
    });
  }
  return Future<phalanx::Done>(std::move(call));
}

Future<phalanx::Done> WorkerState::Push(const OpenTable& table, absl::Span<const Key> keys,
                                        const void* values, uint64_t bytes) {
  return Call("Push", table, keys.size(), bytes, /*pushes=*/true,
              [&] { return core_.Push(table.number, keys, values); });
}

// The servers are awaited: nothing is held back for a larger batch.
Future<phalanx::Done> WorkerState::Pull(const OpenTable& table, absl::Span<const Key> keys,
                                        void* out, uint64_t bytes) {
  return Call("Pull", table, keys.size(), bytes, /*pushes=*/false, [&] {
    const absl::StatusOr<Ticket> ticket = core_.Pull(table.number, keys, out);
    core_.Flush();
    return ticket;
  });
}

Future<phalanx::Done> WorkerState::PushPull(const OpenTable& table, absl::Span<const Key> keys,
                                            const void* values, void* out, uint64_t bytes) {
  return Call("PushPull", table, keys.size(), bytes, /*pushes=*/true, [&] {
    const absl::StatusOr<Ticket> ticket = core_.PushPull(table.number, keys, values, out);
    core_.Flush();
    return ticket;
  });
}

// Made once for each table: a dense push or pull names all keys, as a run.
absl::Span<const Key> WorkerState::AllKeys(OpenTable& table) {
  if (connection_->forked()) return {};
  connection_->Update([&] {
    if (table.all_keys.size() == table.spec.keys) return;
    table.all_keys.resize(table.spec.keys);
    std::iota(table.all_keys.begin(), table.all_keys.end(), Key{0});
  });
  return table.all_keys;
}

Future<phalanx::Done> WorkerState::PushDense(OpenTable& table, const void* values, uint64_t bytes) {
  return Push(table, AllKeys(table), values, bytes);
}

Future<phalanx::Done> WorkerState::PullDense(OpenTable& table, void* out, uint64_t bytes) {
  return Pull(table, AllKeys(table), out, bytes);
}

// The end of a clock is what others wait for: it is sent at once, with all that was held back.
absl::Status WorkerState::Clock(const OpenTable& table) {
  PHALANX_RETURN_IF_ERROR(AwaitRoom("Clock", table, patience_));
  absl::Status status;
  connection_->Update([&] {
    status = over_.ok() ? core_.Clock(table.number) : over_;
    core_.Flush();
    Drain();
  });
  return status;
}

WorkerState::ClocksSeen WorkerState::ClocksOf(const OpenTable& table) {
  ClocksSeen seen;
  if (connection_->forked()) return seen;
  // Takes in what has arrived.
  connection_->WaitInsideCall([] { return false; }, MonotonicNow());
  connection_->Update([&] {
    seen = {core_.table(table.number).clock, core_.table(table.number).min_clock};
  });
  return seen;
}

Future<Reply> WorkerState::Request(int server, int32_t head, absl::string_view body) {
  absl::Status status = connection_->CheckProcess();
  if (server < 0 || server >= servers_) {
    status.Update(
        absl::InvalidArgumentError(absl::StrCat("Request: to server ", server, " of ", servers_)));
  }
  if (!status.ok()) {
    return phalanx::internal::Refused<Reply>(connection_, "Request", ObjectId(), std::move(status));
  }
  auto call = std::make_shared<RequestCall>(shared_from_this(), "Request");
  connection_->Update([&] {
    if (!over_.ok()) return call->Set(over_);
    const absl::StatusOr<Ticket> ticket = core_.Request(server, head, body);
    if (!ticket.ok()) return call->Set(ticket.status());
    call->ticket = *ticket;
    under_way_[*ticket] = {nullptr, call};
    Drain();
  });
  return Future<Reply>(std::move(call));
}

// Two waits in one: that the servers have, in snapshots, what was pushed; and that the node has
// sent on what it was given.
absl::Status WorkerState::Leave() {
  PHALANX_RETURN_IF_ERROR(connection_->CheckProcess());
  connection_->Update([this] {
    core_.BeginLeave();
    Drain();
  });
  const bool idle = connection_->WaitInsideCall(
      [this] { return !over_.ok() || (core_.idle() && sends_->unsent() == 0); },
      MonotonicNow() + patience_);
  absl::Status status;
  connection_->Update([&] {
    status = over_;
    if (status.ok() && !idle) {
      status =
          absl::DeadlineExceededError(absl::StrCat("Leave: worker ", member_.rank(), " of job ",
                                                   member_.job(), " waits for ", core_.Pending()));
    }
  });
  PHALANX_RETURN_IF_ERROR(status);
  return member_.Leave();
}

}  // namespace phalanx::ps::internal
