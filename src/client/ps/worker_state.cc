#include "src/client/ps/worker_state.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/client/access.h"
#include "src/client/ps/part_puts.h"
#include "src/client/ps/server_objects.h"
#include "src/client/verb.h"
#include "src/common/ids/ids.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"
#include "src/ps/split.h"

namespace phalanx::ps::internal {
namespace {

using phalanx::internal::Access;
using phalanx::internal::DeathPoint;
using phalanx::internal::FutureState;
using phalanx::internal::MemberCall;

// Losses are rare, and a probe is a small message to each server of which something is awaited.
constexpr absl::Duration kProbeEvery = absl::Milliseconds(500);
// A node that has not found memory for so long is full.
constexpr absl::Duration kFullAfter = absl::Milliseconds(100);
// A node that has not answered for so long after a deadline does not.
constexpr absl::Duration kHangsAfter = absl::Seconds(5);

MemberCall& CallOf(const Membership& member) { return *Access::StateOf(member)->call; }

// The names of what a worker pushes. An earlier run of the job, or another worker after a node was
// out of touch, can have had the same rank and life.
std::string PrefixOf(const Membership& member) {
  return absl::StrCat(member.job().substr(0, 64), "/", member.role().substr(0, 32), "/",
                      member.rank(), "/", member.life(), "/", absl::Hex(SystemRandom64()));
}

}  // namespace

// A call of the core that has not ended. It is not known to the connection: it ends when the core
// says so, or with the member.
struct WorkerState::AnyCall {
  virtual ~AnyCall() = default;
  // The core has ended it, and forgets it next: takes the result.
  virtual void Collect() = 0;
  // OK: with the result. Nothing, if it has ended before.
  virtual void End(const absl::Status& status) = 0;

  Ticket ticket = 0;
  uint64_t clock = 0;
};

template <typename T>
struct WorkerState::TicketCall final : public FutureState<T>, public AnyCall {
  // Without a table: a request.
  TicketCall(WorkerState& of, const char* verb, std::optional<uint32_t> number)
      : FutureState<T>(of.connection_, verb, ObjectId()), worker(of), table(number) {}
  // Cancelled.
  void OnFailure(const absl::Status& why) override {
    worker.Forget(ticket);
    this->Set(why);
  }
  std::string WaitsFor() const override {
    const std::string servers = worker.core_.WaitsFor(ticket);
    return table.has_value() ? absl::StrCat(worker.core_.Where(*table, clock), ": ", servers)
                             : servers;
  }
  void Collect() override {
    if constexpr (!std::is_same_v<T, phalanx::Done>) {
      std::optional<WorkerCore::Answer> answer = worker.core_.TakeAnswer(ticket);
      if (!answer.has_value()) return;
      if constexpr (std::is_same_v<T, Reply>) {
        taken = {answer->head, std::move(answer->body)};
      } else {
        taken = PulledRows(std::move(answer->rows));
      }
    }
  }
  void End(const absl::Status& status) override {
    if (this->done()) return;
    if (status.ok()) {
      this->Set(std::move(taken));
    } else {
      this->Set(status);
    }
  }
  // Used under the lock and until the call has ended, which the worker's end makes sure of.
  WorkerState& worker;
  const std::optional<uint32_t> table;
  T taken = {};
};

// Messages that were lost on an idle link are noticed by the next one alone.
struct WorkerState::ProbeTimer final : public phalanx::internal::Call {
  explicit ProbeTimer(WorkerState& of) : Call(of.connection_, "Probe", ObjectId()), worker(of) {}
  void OnAnswer(uint64_t, const phalanx::internal::local::Answer&) override {}
  // The worker's end has finished a timer that runs, so this is not called behind it.
  void OnFailure(const absl::Status&) override {
    connection().Finish(*this);
    worker.Probe();
  }
  WorkerState& worker;
};

WorkerState::WorkerState(std::shared_ptr<Client> client, Membership member, const Options& options,
                         int servers)
    : client_(std::move(client)),
      connection_(Access::ConnectionOf(*client_)),
      member_(std::move(member)),
      server_role_(options.server_role),
      patience_(options.peer_timeout),
      servers_(servers),
      core_({.rank = member_.rank(),
             .life = member_.life(),
             .servers = servers,
             .workers = member_.world(),
             .objects = PrefixOf(member_)}),
      barriers_(member_, {options.server_role, member_.role()}),
      sends_(std::make_shared<MemberSends>(CallOf(member_), server_role_,
                                           [this](int server, uint64_t life) {
                                             core_.OnLost(server, life);
                                             Drain();
                                           })),
      reads_(std::make_shared<ObjectReads>(
          connection_, patience_,
          [this](uint64_t number, const absl::StatusOr<absl::string_view>& bytes, bool shown) {
            core_.OnFetched(number, bytes, {.copied = shown});
            Drain();
          },
          [this](uint64_t number, uint64_t place, absl::string_view bytes) {
            core_.OnFetched(number, bytes, {.more = true, .place = place});
          })) {}

// Futures can outlive the worker: they end here, since nothing would end them later. Until this has
// the lock, another thread can end one of them, with all that it needs of the worker.
WorkerState::~WorkerState() {
  if (connection_->forked()) return;
  CallOf(member_).SetSink(nullptr);
  connection_->Update([this] {
    sends_->Stop();
    reads_->Stop();
    OnEnd(absl::CancelledError("the worker is gone"));
    if (probe_timer_ != nullptr) connection_->Finish(*probe_timer_);
  });
}

absl::Status WorkerState::Begin() {
  // Not in the constructor: another thread that drives the connection would use a worker that is
  // not made yet.
  CallOf(member_).SetSink(this);
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
  if (message.role != server_role_ || barriers_.OnMessage(message)) return;
  core_.OnMessage(message.rank, message.life, message.bytes);
  Drain();
}

void WorkerState::OnMember(const Member& member) {
  barriers_.OnMember(member);
  if (member.role != server_role_) return;
  core_.OnServer(member.rank, member.live(), member.life);
  Drain();
}

// The sink can be called again by what ends a future: the first reason stays.
void WorkerState::OnEnd(const absl::Status& why) {
  if (!over_.ok()) return;
  over_ = why;
  barriers_.OnEnd(why);
  // A callback of a future must not see the map half emptied.
  const std::map<Ticket, std::shared_ptr<AnyCall>> ended = std::exchange(under_way_, {});
  for (const auto& [ticket, call] : ended) {
    core_.Cancel(ticket);
    call->End(why);
    connection_->Trash(call);
  }
  DrainObjects();
  // The next life pushes again.
  const std::vector<ObjectId> pushed(pushed_.begin(), pushed_.end());
  pushed_.clear();
  ReleaseObjects(pushed);
}

void WorkerState::Probe() {
  connection_->Trash(std::exchange(probe_timer_, nullptr));
  if (!over_.ok()) return;
  core_.Probe();
  reads_->Watch([this] { OnFull(); });
  Drain();
}

// A node that is full of what workers keep for snapshots is so until there are some. Nothing else
// asks for them while all wait for this worker.
void WorkerState::OnFull() {
  const Instant now = MonotonicNow();
  if (asked_for_memory_.has_value() && now - *asked_for_memory_ < kProbeEvery) return;
  asked_for_memory_ = now;
  core_.Probe(/*no_memory=*/true);
  Drain();
}

// After everything that can have changed the core: sends, ends of calls, and whether there is
// something to probe for.
void WorkerState::Drain() {
  for (WorkerCore::Send& send : core_.TakeSends()) {
    sends_->Add(send.server, send.life, std::move(send.bytes));
  }
  DrainObjects();
  for (const Ticket ticket : core_.TakeEnded()) {
    const auto found = under_way_.find(ticket);
    const std::shared_ptr<AnyCall> call = found == under_way_.end() ? nullptr : found->second;
    if (call != nullptr) call->Collect();
    const std::optional<absl::Status> status = core_.Take(ticket);
    if (!status.has_value() || call == nullptr) continue;
    under_way_.erase(found);
    call->End(*status);
    connection_->Trash(call);
  }
  if (probe_timer_ != nullptr || !over_.ok() || (core_.ready() && core_.idle())) return;
  // A connection that has failed ends the member, perhaps a moment later.
  if (!connection_->status().ok()) return;
  probe_timer_ = std::make_shared<ProbeTimer>(*this);
  connection_->StartTimer(probe_timer_, MonotonicNow() + kProbeEvery);
}

// What the program has called for is sent before.
void WorkerState::DieIfDeclared(DeathPoint::Kind point, uint64_t clock) {
  const DeathPoint& death = Access::DeathOf(member_);
  if (death.kind != point || death.number != clock) return;
  connection_->Update([this] {
    core_.Flush();
    Drain();
  });
  Access::DieWhenSent(member_);
}

void WorkerState::DrainObjects() {
  const WorkerCore::Objects objects = core_.TakeObjects();
  for (const WorkerCore::Objects::Fetch& fetch : objects.fetches) {
    reads_->Begin(fetch.number, IdOfHandle(fetch.name), fetch.bytes);
  }
  for (const uint64_t number : objects.dropped) reads_->Drop(number);
  std::vector<ObjectId> frees;
  for (const std::string& name : objects.frees) {
    frees.push_back(IdOfHandle(name));
    pushed_.erase(frees.back());
  }
  ReleaseObjects(frees);
}

// One that is not held, since it could not be put, is ignored by the node.
void WorkerState::ReleaseObjects(absl::Span<const ObjectId> ids) {
  for (; !ids.empty() && connection_->CanSend();
       ids.remove_prefix(std::min(ids.size(), kMaxReferences))) {
    const absl::Span<const ObjectId> some = ids.subspan(0, kMaxReferences);
    connection_->Send(phalanx::internal::local::Unhold{{some.begin(), some.end()}});
  }
}

// The core can have more for the store and the servers: an object that is read for nothing.
void WorkerState::Forget(Ticket ticket) {
  core_.Cancel(ticket);
  under_way_.erase(ticket);
  Drain();
}

// ---------------------------------------------------------------------------- calls

// All servers have welcomed the worker by now, so this is a lookup and sends nothing.
absl::StatusOr<std::shared_ptr<OpenTable>> WorkerState::Open(absl::string_view name,
                                                             Slicer slicer) {
  PHALANX_RETURN_IF_ERROR(connection_->CheckProcess());
  auto table = std::make_shared<OpenTable>();
  absl::Status status;
  connection_->Update([&] {
    const absl::StatusOr<uint32_t> number = core_.Open(name);
    status = number.status();
    if (!status.ok()) return;
    const WorkerCore::Table& view = core_.table(*number);
    table->number = *number;
    table->spec = view.spec;
    table->pulls_objects = view.pulls_objects;
    table->pushes_objects = view.pushes_objects;
  });
  PHALANX_RETURN_IF_ERROR(status);
  if ((table->spec.split == Split::kOwn) != (slicer != nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat("Open: table \"", name, "\": its split is ",
                                                   SplitName(table->spec.split), ", and there is ",
                                                   slicer == nullptr ? "no slicer" : "a slicer"));
  }
  table->slicer = std::move(slicer);
  return table;
}

// Room is made by messages of the servers, which this thread takes in while it waits.
absl::Status WorkerState::AwaitRoom(const char* verb, const OpenTable& table,
                                    absl::Duration timeout) {
  PHALANX_RETURN_IF_ERROR(connection_->CheckProcess());
  const bool in_time = connection_->WaitInsideCall(
      [&] { return !over_.ok() || !core_.must_wait(table.number); }, MonotonicNow() + timeout);
  if (in_time) return absl::OkStatus();
  absl::Status status = absl::DeadlineExceededError(
      "more than snapshot_bytes of pushes are in no snapshot, or wait for slower workers; or "
      "another push of this worker waits for memory of its node");
  connection_->Update([&] { status = Named(verb, table, status); });
  return status;
}

// Lock held.
absl::Status WorkerState::Named(const char* verb, const OpenTable& table,
                                const absl::Status& why) const {
  const std::string where = core_.Where(table.number, core_.table(table.number).clock);
  return absl::Status(why.code(), absl::StrCat(verb, ": ", where, ": ", why.message()));
}

// Servers check the same: here nothing has been sent, and the error names the key.
absl::Status WorkerState::CheckLengths(const TableSpec& spec, const Given& given) {
  if (given.lengths.size() != given.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat(given.lengths.size(), " lengths for ", given.rows, " keys"));
  }
  uint64_t elements = 0;
  for (size_t i = 0; i < given.rows; ++i) {
    if (given.lengths[i] > spec.width) {
      return absl::InvalidArgumentError(absl::StrCat("a row of length ", given.lengths[i],
                                                     " for key ", given.keys[i], "; the width is ",
                                                     spec.width));
    }
    elements += given.lengths[i];
  }
  if (elements * ElementSize(spec.dtype) == *given.pushed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the lengths do not add up: they are ", elements, " elements of ",
                   ElementSize(spec.dtype), " bytes, and there are ", *given.pushed, " bytes"));
}

// Only the client knows how much memory the program has passed.
absl::Status WorkerState::CheckMemory(const TableSpec& spec, const Given& given) {
  if (given.has_lengths != spec.lengths) {
    return absl::InvalidArgumentError(
        spec.lengths
            ? "its rows have lengths: they are pushed with these, and pulled without memory"
            : absl::StrCat("its rows have no lengths: all are ", spec.width, " elements"));
  }
  if (spec.lengths) return given.pushed.has_value() ? CheckLengths(spec, given) : absl::OkStatus();
  const uint64_t row = spec.width * ElementSize(spec.dtype);
  for (const std::optional<uint64_t>& bytes : {given.pushed, given.pulled}) {
    if (!bytes.has_value() || (*bytes % row == 0 && *bytes / row == given.rows)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(*bytes, " bytes for ", given.rows, " keys of ", row, " bytes each"));
  }
  return absl::OkStatus();
}

// A push whose room another thread has taken meanwhile waits again.
void WorkerState::Enter(const char* verb, const OpenTable& table, const Given& given,
                        absl::FunctionRef<void(const absl::Status&)> make) {
  absl::Status status = given.sliced;
  const bool pushes = given.pushed.has_value();
  status.Update(CheckMemory(table.spec, given));
  if (given.rows > kMaxCallKeys) {
    status = absl::InvalidArgumentError(
        absl::StrCat(given.rows, " keys in one call, at most ", kMaxCallKeys));
  }
  if (!status.ok()) connection_->Update([&] { status = Named(verb, table, status); });
  const Instant until = MonotonicNow() + patience_;
  for (bool waits = true; waits;) {
    if (status.ok() && pushes) status = AwaitRoom(verb, table, until - MonotonicNow());
    connection_->Update([&] {
      waits = status.ok() && over_.ok() && pushes && core_.must_wait(table.number);
      if (waits) return;
      if (!over_.ok()) return make(over_);
      if (!status.ok() && pushes) core_.OnPushRefused(table.number, status);
      make(status);
    });
  }
}

// Without the lock: the program's function can take long, or use the client. Of keys that do not
// increase it is not asked, as the core refuses these. Without a slicer the keys are not read.
WorkerState::Sliced WorkerState::Slice(const OpenTable& table, absl::Span<const Key> keys) {
  Sliced sliced;
  if (table.slicer == nullptr || keys.empty() || keys.size() > kMaxCallKeys) return sliced;
  if (std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<>()) != keys.end()) {
    return sliced;
  }
  sliced.servers.assign(keys.size(), kNoServer);
  std::string failed;
  try {
    const absl::Status status = table.slicer(keys, absl::MakeSpan(sliced.servers));
    if (status.ok()) return sliced;
    failed = absl::StrCat("failed: ", status.ToString());
  } catch (const std::exception& error) {
    failed = absl::StrCat("has thrown an exception: ", error.what());
  } catch (...) {
    failed = "has thrown something unknown";
  }
  sliced.status =
      absl::InvalidArgumentError(absl::StrCat("for ", keys.size(), " keys from ", keys.front(),
                                              " to ", keys.back(), " its slicer ", failed));
  return sliced;
}

// Bad arguments are refused without a ticket: the future has ended when it is returned.
template <typename T>
Future<T> WorkerState::Call(const char* verb, const OpenTable& table, const Given& given,
                            bool awaited, absl::FunctionRef<absl::StatusOr<Ticket>()> make) {
  absl::Status status = connection_->CheckProcess();
  if (!status.ok()) {
    return phalanx::internal::Refused<T>(connection_, verb, ObjectId(), std::move(status));
  }
  auto call = std::make_shared<TicketCall<T>>(*this, verb, table.number);
  // A short call is made at once, and the lock is taken once.
  bool more = false;
  Enter(verb, table, given, [&](const absl::Status& why) {
    if (!why.ok()) return call->Set(why);
    call->clock = core_.table(table.number).clock;
    Begun(call, make());
    more = Cut(call->ticket, awaited);
  });
  // The node has room for a part of a long call alone, so what it answers is taken in between.
  while (more) {
    connection_->WaitInsideCall([] { return false; }, MonotonicNow());
    connection_->Update([&] { more = Cut(call->ticket, awaited); });
  }
  if (given.pushed.has_value()) DieIfDeclared(DeathPoint::Kind::kPush, call->clock);
  if (given.pulled.has_value()) DieIfDeclared(DeathPoint::Kind::kPull, call->clock);
  return Future<T>(std::move(call));
}

void WorkerState::Begun(const std::shared_ptr<AnyCall>& call,
                        const absl::StatusOr<Ticket>& ticket) {
  if (ticket.ok()) {
    call->ticket = *ticket;
    under_way_[*ticket] = call;
  } else {
    call->End(ticket.status());
  }
  Drain();
}

// What has ended the worker has ended the call, and the program's memory is not used any more.
bool WorkerState::Cut(Ticket ticket, bool awaited) {
  if (!over_.ok()) return false;
  const bool more = core_.Cut(ticket);
  if (!more && awaited) core_.Flush();
  Drain();
  return more;
}

// The number is taken before the objects are put, and is that of the next push if they cannot be:
// names are sent when the objects are there.
absl::StatusOr<Future<phalanx::Done>> WorkerState::PushObjects(
    const OpenTable& table, const void* values, uint64_t bytes,
    std::optional<absl::Duration> timeout) {
  absl::Status status = connection_->CheckProcess();
  if (!status.ok()) {
    return phalanx::internal::Refused<phalanx::Done>(connection_, "Push", ObjectId(),
                                                     std::move(status));
  }
  auto call = std::make_shared<TicketCall<phalanx::Done>>(*this, "Push", table.number);
  absl::StatusOr<WorkerCore::DensePush> push = absl::CancelledError();
  const Given given = {.rows = table.spec.keys, .pushed = bytes};
  Enter("Push", table, given, [&](const absl::Status& why) {
    if (why.ok()) {
      push = core_.BeginPushDense(table.number);
    } else {
      push = why;
    }
    if (!push.ok()) return call->Set(push.status());
    call->clock = push->at.clock;
  });
  if (!push.ok()) return Future<phalanx::Done>(std::move(call));
  const std::optional<absl::Status> put = PutParts(table, *push, values, timeout);
  connection_->Update([&] {
    if (!put.has_value()) {
      status = Named("Push", table, absl::ResourceExhaustedError("the node has no memory for it"));
      status =
          core_.EndPushDense(table.number, *std::move(push), status, /*refuses=*/false).status();
      return Drain();
    }
    absl::Status why = put->ok() ? *put : Named("Push", table, *put);
    if (!over_.ok()) why = over_;
    for (const WorkerCore::DensePush::Part& part : push->parts) {
      pushed_.insert(IdOfHandle(part.name));
    }
    Begun(call, core_.EndPushDense(table.number, *std::move(push), why));
  });
  PHALANX_RETURN_IF_ERROR(status);
  DieIfDeclared(DeathPoint::Kind::kPush, call->clock);
  return Future<phalanx::Done>(std::move(call));
}

std::optional<absl::Status> WorkerState::PutParts(const OpenTable& table,
                                                  const WorkerCore::DensePush& push,
                                                  const void* values,
                                                  std::optional<absl::Duration> timeout) {
  const Instant begin = MonotonicNow();
  const Instant until = begin + patience_;
  const Instant within = std::min(until, begin + timeout.value_or(patience_));
  const auto stop = [this] { return !over_.ok(); };
  PartPuts puts(connection_, push, until);
  Instant next = begin + kFullAfter;
  while (!puts.AwaitMemory(std::min(within, next), stop)) {
    connection_->Update([this] { OnFull(); });
    const Instant now = MonotonicNow();
    if (now >= within && timeout.has_value()) return std::nullopt;
    if (now >= within) break;
    next = now + kProbeEvery;
  }
  // The node ends what waits for memory itself, unless it hangs.
  return puts.Put(table.spec, Splitter(table.spec, servers_), values, until + kHangsAfter, stop);
}

Future<phalanx::Done> WorkerState::Push(const OpenTable& table, absl::Span<const Key> keys,
                                        const void* values, uint64_t bytes) {
  const Sliced sliced = Slice(table, keys);
  const Given given = {.rows = keys.size(), .pushed = bytes, .sliced = sliced.status};
  return Call("Push", table, given, /*awaited=*/false, [&] {
    return core_.Start({.table = table.number,
                        .keys = keys,
                        .servers = sliced.servers,
                        .pushes = true,
                        .values = values});
  });
}

Future<phalanx::Done> WorkerState::Pull(const OpenTable& table, absl::Span<const Key> keys,
                                        void* out, uint64_t bytes) {
  const Sliced sliced = Slice(table, keys);
  const Given given = {.rows = keys.size(), .pulled = bytes, .sliced = sliced.status};
  return Call("Pull", table, given, /*awaited=*/true, [&] {
    return core_.Start({.table = table.number,
                        .keys = keys,
                        .servers = sliced.servers,
                        .pulls = true,
                        .out = out});
  });
}

Future<phalanx::Done> WorkerState::PushPull(const OpenTable& table, absl::Span<const Key> keys,
                                            const void* values, uint64_t pushed, void* out,
                                            uint64_t bytes) {
  const Sliced sliced = Slice(table, keys);
  const Given given = {
      .rows = keys.size(), .pushed = pushed, .pulled = bytes, .sliced = sliced.status};
  return Call("PushPull", table, given, /*awaited=*/true, [&] {
    return core_.Start({.table = table.number,
                        .keys = keys,
                        .servers = sliced.servers,
                        .pushes = true,
                        .values = values,
                        .pulls = true,
                        .out = out});
  });
}

Future<phalanx::Done> WorkerState::Push(const OpenTable& table, absl::Span<const Key> keys,
                                        const void* values, uint64_t bytes,
                                        absl::Span<const uint32_t> lengths) {
  const Sliced sliced = Slice(table, keys);
  const Given given = {.rows = keys.size(),
                       .pushed = bytes,
                       .sliced = sliced.status,
                       .has_lengths = true,
                       .keys = keys,
                       .lengths = lengths};
  return Call("Push", table, given, /*awaited=*/false, [&] {
    return core_.Start({.table = table.number,
                        .keys = keys,
                        .servers = sliced.servers,
                        .pushes = true,
                        .values = values,
                        .lengths = lengths});
  });
}

Future<PulledRows> WorkerState::Pull(const OpenTable& table, absl::Span<const Key> keys) {
  const Sliced sliced = Slice(table, keys);
  const Given given = {
      .rows = keys.size(), .pulled = 0, .sliced = sliced.status, .has_lengths = true};
  return Call<PulledRows>("Pull", table, given, /*awaited=*/true, [&] {
    return core_.Start(
        {.table = table.number, .keys = keys, .servers = sliced.servers, .pulls = true});
  });
}

Future<PulledRows> WorkerState::PushPull(const OpenTable& table, absl::Span<const Key> keys,
                                         const void* values, uint64_t pushed,
                                         absl::Span<const uint32_t> lengths) {
  const Sliced sliced = Slice(table, keys);
  const Given given = {.rows = keys.size(),
                       .pushed = pushed,
                       .pulled = 0,
                       .sliced = sliced.status,
                       .has_lengths = true,
                       .keys = keys,
                       .lengths = lengths};
  return Call<PulledRows>("PushPull", table, given, /*awaited=*/true, [&] {
    return core_.Start({.table = table.number,
                        .keys = keys,
                        .servers = sliced.servers,
                        .pushes = true,
                        .values = values,
                        .lengths = lengths,
                        .pulls = true});
  });
}

// Made once for each table: a dense push or pull names all keys, as a run.
absl::Span<const Key> WorkerState::AllKeys(OpenTable& table) const {
  if (table.all_keys.size() != table.spec.keys) {
    table.all_keys.resize(table.spec.keys);
    std::iota(table.all_keys.begin(), table.all_keys.end(), Key{0});
  }
  return table.all_keys;
}

// The keys are made when it is known that a call can have so many.
Future<phalanx::Done> WorkerState::PushDense(OpenTable& table, const void* values, uint64_t bytes) {
  // Without a timeout there is a future in any case.
  if (table.pushes_objects) return *PushObjects(table, values, bytes, std::nullopt);
  return Call("Push", table, {.rows = table.spec.keys, .pushed = bytes}, /*awaited=*/false, [&] {
    return core_.Start(
        {.table = table.number, .keys = AllKeys(table), .pushes = true, .values = values});
  });
}

absl::StatusOr<Future<phalanx::Done>> WorkerState::PushDenseWithin(OpenTable& table,
                                                                   const void* values,
                                                                   uint64_t bytes,
                                                                   absl::Duration timeout) {
  if (!table.pushes_objects) return PushDense(table, values, bytes);
  return PushObjects(table, values, bytes, std::max(absl::ZeroDuration(), timeout));
}

Future<phalanx::Done> WorkerState::PullDense(OpenTable& table, void* out, uint64_t bytes) {
  return Call("Pull", table, {.rows = table.spec.keys, .pulled = bytes}, /*awaited=*/true, [&] {
    if (table.pulls_objects) return core_.PullDense(table.number, out);
    return core_.Start({.table = table.number, .keys = AllKeys(table), .pulls = true, .out = out});
  });
}

// The end of a clock is what others wait for: it is sent at once, with all that was held back. It
// is behind the push that another thread puts meanwhile.
absl::Status WorkerState::Clock(const OpenTable& table) {
  const Instant until = MonotonicNow() + patience_;
  absl::Status status;
  uint64_t clock = 0;
  for (bool waits = true; waits;) {
    PHALANX_RETURN_IF_ERROR(AwaitRoom("Clock", table, until - MonotonicNow()));
    connection_->Update([&] {
      waits = over_.ok() && core_.must_wait(table.number);
      if (waits) return;
      clock = core_.table(table.number).clock;
      status = over_.ok() ? core_.Clock(table.number) : over_;
      core_.Flush();
      Drain();
    });
  }
  if (status.ok()) DieIfDeclared(DeathPoint::Kind::kClock, clock);
  return status;
}

uint64_t WorkerState::SkipPushed(const OpenTable& table) {
  uint64_t skipped = 0;
  if (connection_->forked()) return skipped;
  connection_->Update([&] { skipped = core_.SkipPushed(table.number); });
  return skipped;
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
  auto call = std::make_shared<TicketCall<Reply>>(*this, "Request", std::nullopt);
  connection_->Update([&] {
    if (!over_.ok()) return call->Set(over_);
    const absl::StatusOr<Ticket> ticket = core_.Request(server, head, body);
    // It is awaited, and not to be held back behind a pull that waits for other workers.
    core_.Flush();
    Begun(call, ticket);
  });
  return Future<Reply>(std::move(call));
}

// Two waits in one: that the servers have what was pushed, perhaps in snapshots; and that the node
// has sent on what it was given.
absl::Status WorkerState::Leave(bool durable) {
  PHALANX_RETURN_IF_ERROR(connection_->CheckProcess());
  connection_->Update([this, durable] {
    if (durable) core_.BeginLeave();
    core_.Flush();
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
