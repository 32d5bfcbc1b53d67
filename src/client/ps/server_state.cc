#include "src/client/ps/server_state.h"

#include <algorithm>
#include <exception>
#include <string>
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
using phalanx::internal::MemberCall;

// How long snapshots may fail before a table goes on without them (Server::OnUnsaved).
constexpr absl::Duration kSavePatience = absl::Minutes(2);
// For the end of the snapshots of a job that has failed.
constexpr absl::Duration kDropPatience = absl::Seconds(5);
// After a snapshot could not be written, or pushes could not be summed.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(500);

MemberCall& CallOf(const Membership& member) { return *Access::StateOf(member)->call; }

// What barriers do when a worker dies: a job with a table that fails fails, and one goes on without
// the worker if all of its tables do.
template <typename Tables>
OnLoss LossOf(const Tables& tables) {
  const auto has = [](OnLoss on_loss) {
    return [on_loss](const auto& table) { return table.spec.on_loss == on_loss; };
  };
  if (std::any_of(tables.begin(), tables.end(), has(OnLoss::kFail))) return OnLoss::kFail;
  const bool drops = std::all_of(tables.begin(), tables.end(), has(OnLoss::kDrop));
  return drops && !tables.empty() ? OnLoss::kDrop : OnLoss::kWait;
}

}  // namespace

// The sink is set last: it is shown at once what has arrived since the Join.
ServerState::ServerState(std::shared_ptr<Client> client, Membership member, const Options& options)
    : client_(std::move(client)),
      connection_(Access::ConnectionOf(*client_)),
      member_(std::move(member)),
      options_(options),
      objects_(client_),
      mark_(client_, absl::StrCat(member_.job(), "/", member_.role(), "/", member_.rank()),
            member_.life()),
      death_(member_),
      door_(client_, member_.job(),
            {.role = member_.role(), .rank = member_.rank(), .life = member_.life()}),
      disks_(options.checkpoint_dir.empty()
                 ? nullptr
                 : std::make_unique<ServerDisks>(*client_, member_, options.checkpoint_dir)),
      barriers_(member_, {member_.role(), options_.worker_role}),
      sends_(std::make_shared<MemberSends>(CallOf(member_), options_.worker_role,
                                           [this](int worker, uint64_t life) {
                                             events_.push_back(Lost{worker, life});
                                           })) {
  CallOf(member_).SetSink(this);
}

// The program can end without Run, or Run with an error. The others see a death then, so that they
// wait for the next life instead of an answer.
ServerState::~ServerState() {
  if (connection_->forked()) return;
  CallOf(member_).SetSink(nullptr);
  connection_->Update([this] {
    sends_->Stop();
    barriers_.OnEnd(absl::CancelledError("the server is gone"));
    if (disks_ != nullptr) disks_->Stop();
  });
  objects_.End();
  if (!left_) member_.Fail().IgnoreError();
}

// ---------------------------------------------------------------------------- events; lock held

// Members of other roles can have messages of their own, which are not for a parameter server.
void ServerState::OnMessage(const Message& message) {
  if (barriers_.OnMessage(message)) return;
  if (message.role == options_.worker_role) events_.push_back(message);
  if (disks_ != nullptr && message.role == member_.role()) disks_->OnMessage(message);
}

void ServerState::OnMember(const Member& member) {
  barriers_.OnMember(member);
  if (member.role == options_.worker_role) events_.push_back(member);
  if (disks_ != nullptr && member.role == member_.role()) disks_->OnMember(member);
}

void ServerState::OnEnd(const absl::Status& why) {
  if (end_.over.ok()) end_.over = why;
  barriers_.OnEnd(why);
}

// ---------------------------------------------------------------------------- the thread of Run

// The core does not exist yet: it is made by Run, when the number of workers is known. What it
// would refuse is refused here, so that AddTable returns the error.
absl::Status ServerState::AddTable(const TableSpec& spec, Server::OwnUpdate update) {
  PHALANX_RETURN_IF_ERROR(connection_->CheckProcess());
  PHALANX_RETURN_IF_ERROR(Check(spec));
  if (core_.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("AddTable: ", spec.name, ": the server runs already"));
  }
  for (const AddedTable& table : tables_) {
    if (table.spec.name == spec.name) {
      return absl::AlreadyExistsError(absl::StrCat("AddTable: there is a table ", spec.name));
    }
  }
  tables_.push_back({.spec = spec, .update = std::move(update), .snapshots = nullptr});
  return absl::OkStatus();
}

void ServerState::OnRequest(std::function<absl::StatusOr<Reply>(const RequestInfo&)> answer) {
  program_.answer = std::move(answer);
}

void ServerState::Stop() {
  if (connection_->forked()) return;
  connection_->Update([this] {
    if (end_.over.ok()) end_.over = absl::CancelledError("Run: stopped");
  });
}

// The snapshots are ended in the thread of Run, which may be writing one.
void ServerState::Drop() {
  if (connection_->forked()) return;
  connection_->Update([this] {
    end_.dropped = true;
    if (end_.over.ok()) end_.over = absl::CancelledError("Run: dropped");
  });
}

void ServerState::Finish() {
  if (connection_->forked()) return;
  connection_->Update([this] {
    end_.finishing = true;
    // What Run waits for has changed.
    events_.push_back(Finished());
  });
}

// A barrier before Run can wait for a task that has left before this life: it has to be known that
// the task has not left an earlier run of the job. Run asks the same, in its thread.
Future<phalanx::Done> ServerState::Barrier(BarrierGroup group, const BarrierOptions& options) {
  bool asks = false;
  if (!connection_->forked()) {
    connection_->Update(
        [&] { asks = barriers_.keeper() != nullptr && !barriers_.keeper()->resolved(); });
  }
  if (asks) {
    const absl::StatusOr<RunMark::Before> before = mark_.Begin(options_.peer_timeout);
    if (!before.ok()) {
      return phalanx::internal::Refused<phalanx::Done>(connection_, "Barrier", ObjectId(),
                                                       before.status());
    }
    ShowToBarriers(std::nullopt, *before == RunMark::Before::kEnded);
  }
  return barriers_.Begin(group, options, options_.peer_timeout);
}

void ServerState::ShowToBarriers(std::optional<int> workers, bool other_run) {
  connection_->Update([&] {
    BarrierKeeper* const keeper = barriers_.keeper();
    if (keeper == nullptr) return;
    keeper->Resolve(other_run);
    if (workers.has_value()) {
      keeper->SetWorkers(*workers);
      keeper->SetOnLoss(LossOf(tables_));
    }
    barriers_.Drain();
  });
}

std::string ServerState::Describe() const {
  if (!core_.has_value()) return "";
  std::string text = core_->Describe();
  // In a child of fork the lock can be held for ever.
  if (connection_->forked()) return text;
  connection_->Update([&] {
    if (barriers_.keeper() != nullptr) absl::StrAppend(&text, barriers_.keeper()->Describe());
  });
  return text;
}

// The first worker that joins shows how many there are.
absl::StatusOr<int> ServerState::AwaitWorkers() {
  const Instant until = MonotonicNow() + options_.peer_timeout;
  while (true) {
    const size_t workers = member_.Members(options_.worker_role).size();
    if (workers > 0) return static_cast<int>(workers);
    const bool changed = connection_->WaitInsideCall(
        [this] { return !end_.over.ok() || end_.finishing || !events_.empty(); }, until);
    absl::Status status;
    bool finishing = false;
    connection_->Update([&] {
      status = end_.over;
      finishing = end_.finishing;
    });
    PHALANX_RETURN_IF_ERROR(status);
    if (finishing && member_.Members(options_.worker_role).empty()) return 0;
    if (changed) continue;
    return absl::DeadlineExceededError(absl::StrCat("Run: server ", member_.rank(), " of job ",
                                                    member_.job(), ": no task of role ",
                                                    options_.worker_role, " has joined"));
  }
}

// Tables are restored before any worker is welcomed: what a worker is shown of its pushes must not
// get less.
absl::Status ServerState::BeginCore(int workers, bool anew) {
  core_.emplace(
      ServerCore::Options{.rank = member_.rank(),
                          .servers = member_.world(),
                          .workers = workers,
                          .objects = objects_.prefix(),
                          .files = disks_ != nullptr,
                          .awaits_workers = options_.await_workers && member_.life() > 0 && !anew});
  // The workers that it waits for. Their states come as events, too.
  if (options_.await_workers) {
    for (const Member& worker : Workers()) core_->OnMember(worker.rank, worker.state, worker.life);
  }
  for (AddedTable& table : tables_) {
    // The program's function is given its own names for what the core has.
    OwnUpdate own;
    if (table.update != nullptr) {
      own = [update = table.update](const From& from, absl::Span<const Key> keys,
                                    const void* values, absl::Span<const uint32_t> lengths,
                                    Part& part) {
        return update({from.worker, from.clock, from.life}, keys, values, lengths, part);
      };
    }
    PHALANX_ASSIGN_OR_RETURN(const uint32_t number, core_->AddTable(table.spec, std::move(own)));
    // Without snapshots there is nothing to find, and nothing is left behind.
    if (table.spec.snapshot_every == 0) continue;
    table.snapshots = std::make_unique<SnapshotStore>(
        client_,
        absl::StrCat(member_.job(), "/", member_.role(), "/", table.spec.name, "/", member_.rank()),
        member_.life(), table.spec.copies);
    PHALANX_ASSIGN_OR_RETURN(const std::optional<SnapshotStore::Found> found,
                             table.snapshots->Find(options_.peer_timeout));
    if (!found.has_value()) continue;
    PHALANX_RETURN_IF_ERROR(core_->Restore(number, found->attempt, found->bytes.view()));
    table.restored = found->attempt;
  }
  PHALANX_RETURN_IF_ERROR(BeginDisks());
  death_.OnRestored(*core_, tables_.size());
  core_->Begin();
  return absl::OkStatus();
}

absl::Status ServerState::BeginDisks() {
  if (disks_ == nullptr) return absl::OkStatus();
  std::vector<ServerDisks::Table> tables;
  for (uint32_t number = 0; number < tables_.size(); ++number) {
    const AddedTable& table = tables_[number];
    if (table.snapshots == nullptr) continue;
    tables.push_back({number, table.spec, table.snapshots.get(), table.restored});
  }
  return disks_->Begin(
      *core_, std::move(tables), options_.peer_timeout, [this]() -> std::optional<absl::Status> {
        // In a thread that waits, so that describe shows it. It is called often enough for that.
        const std::string waits =
            absl::StrCat("server ", member_.rank(), " of ", member_.world(),
                         ": agrees with the others with which files to begin, or stores that; all "
                         "servers have a directory of checkpoints, or none has\n");
        door_.Step([&waits] { return waits; });
        // Nothing is to be served any more, and other servers may have ended.
        const std::vector<Member> workers = Workers();
        if (std::all_of(workers.begin(), workers.end(),
                        [](const Member& worker) { return worker.state == MemberState::kLeft; })) {
          return absl::OkStatus();
        }
        absl::Status status;
        connection_->Update([&] { status = end_.over; });
        return status.ok() ? std::nullopt : std::optional(status);
      });
}

absl::Status ServerState::Run() {
  PHALANX_RETURN_IF_ERROR(connection_->CheckProcess());
  if (core_.has_value()) return absl::FailedPreconditionError("Run: it has run before");
  // All workers have left can be the first thing that a next life sees: the loop below ends at once
  // then.
  PHALANX_ASSIGN_OR_RETURN(const int workers, AwaitWorkers());
  PHALANX_ASSIGN_OR_RETURN(const RunMark::Before before, mark_.Begin(options_.peer_timeout));
  if (before == RunMark::Before::kSpare) return End();
  const bool anew = before == RunMark::Before::kEnded;
  if (anew) ForgetEnded();
  if (workers > 0) {
    const absl::Status served = Serve(workers, anew);
    if (!served.ok()) {
      EndDropped();
      return served;
    }
  }
  for (const AddedTable& table : tables_) {
    if (table.snapshots != nullptr) table.snapshots->End(options_.peer_timeout).IgnoreError();
  }
  objects_.End();
  door_.End();
  // Workers that have died can come back from there, when their hosts do. The next life after an
  // error ends at once as well, for there is no mark yet, and tries again.
  if (disks_ != nullptr && core_.has_value() && core_->done()) {
    PHALANX_RETURN_IF_ERROR(disks_->RemoveAll());
  }
  return End();
}

absl::Status ServerState::End() {
  // Its destructor does not count as a death any more, whatever Leave returns.
  left_ = true;
  PHALANX_RETURN_IF_ERROR(member_.Leave());
  // Not before: a server that dies between the two ends at once in its next life.
  return mark_.End(options_.peer_timeout);
}

// What cannot be freed in time stays as long as its nodes: the job has failed already.
void ServerState::EndDropped() {
  bool dropped = false;
  connection_->Update([&] { dropped = end_.dropped; });
  for (const AddedTable& table : tables_) {
    if (dropped && table.snapshots != nullptr) table.snapshots->End(kDropPatience).IgnoreError();
  }
}

absl::Status ServerState::Serve(int workers, bool anew) {
  ShowToBarriers(workers, anew);
  door_.Begin();
  PHALANX_RETURN_IF_ERROR(BeginCore(workers, anew));
  NoteAlone();
  PHALANX_RETURN_IF_ERROR(Act());
  while (!core_->done()) {
    PHALANX_RETURN_IF_ERROR(Turn());
    if (core_->done() || MonotonicNow() < times_.alone) continue;
    if (Abandoned()) break;
    return absl::DeadlineExceededError(absl::StrCat(
        "Run: server ", member_.rank(), " of job ", member_.job(), ": for ",
        absl::FormatDuration(options_.peer_timeout), " no worker has lived, and ", Missing()));
  }
  return absl::OkStatus();
}

void ServerState::ForgetEnded() {
  connection_->Update([this] {
    std::erase_if(events_, [this](const Event& event) {
      const auto* const member = std::get_if<Member>(&event);
      if (member == nullptr || member->live()) return false;
      ended_before_[member->rank] = member->life;
      return true;
    });
  });
}

std::vector<Member> ServerState::Workers() const {
  std::vector<Member> workers = member_.Members(options_.worker_role);
  for (Member& worker : workers) {
    const auto before = ended_before_.find(worker.rank);
    if (before == ended_before_.end() || worker.life > before->second) continue;
    worker.state = MemberState::kAbsent;
  }
  return workers;
}

absl::Status ServerState::Turn() {
  std::deque<Event> events;
  std::map<int, uint64_t> left_node;
  absl::Status status;
  bool finishing = false;
  // Of the core, which other threads that look whether to wake this one must not use.
  const bool waits_for_room = core_->waits_for_room();
  connection_->WaitInsideCall(
      [this, waits_for_room] {
        return !end_.over.ok() || !events_.empty() || objects_.ready() || door_.ready() ||
               (waits_for_room && sends_->has_left()) ||
               std::any_of(tables_.begin(), tables_.end(), [](const AddedTable& table) {
                 return table.snapshots != nullptr && table.snapshots->ready();
               });
      },
      std::min({times_.retry, times_.alone, door_.next()}));
  connection_->Update([&] {
    // The events are handled without the lock, so that the thread that drives the connection is not
    // held up by updates of rows.
    events.swap(events_);
    left_node = sends_->TakeLeft();
    status = end_.over;
    finishing = end_.finishing;
  });
  PHALANX_RETURN_IF_ERROR(status);
  for (const auto& [worker, bytes] : left_node) core_->OnSent(worker, bytes);
  // Before the events: workers can have read what a ring has made, so it counts, whatever they have
  // done since.
  TakeObjects();
  for (const Event& event : events) {
    Handle(event);
    // Answers leave while further messages are handled.
    if (core_->effect_bytes() >= kBatchBytes) PHALANX_RETURN_IF_ERROR(Act());
  }
  // Behind those that have joined meanwhile.
  if (finishing && !events.empty()) core_->DropGone();
  TakeWritten();
  door_.Step([this] { return Describe(); });
  if (MonotonicNow() >= times_.retry) {
    times_.retry = Instant::Infinite();
    core_->Retry();
  }
  return Act();
}

// Members says how they are now, which can be later than the event that is handled.
void ServerState::NoteAlone() {
  const std::vector<Member> workers = Workers();
  if (std::any_of(workers.begin(), workers.end(),
                  [](const Member& worker) { return worker.live(); })) {
    times_.alone = Instant::Infinite();
  } else if (times_.alone == Instant::Infinite()) {
    times_.alone = MonotonicNow() + options_.peer_timeout;
  }
}

std::string ServerState::Missing() const {
  std::vector<std::string> missing;
  for (const Member& worker : Workers()) {
    if (worker.state == MemberState::kDied) {
      missing.push_back(absl::StrCat("worker ", worker.rank, " has died in life ", worker.life));
    } else if (worker.state != MemberState::kLeft) {
      missing.push_back(absl::StrCat("worker ", worker.rank, " has not joined"));
    }
  }
  return absl::StrJoin(missing, ", ");
}

// One that has not joined yet is none of these: it can be on its way.
bool ServerState::Abandoned() const {
  const std::vector<Member> workers = Workers();
  const bool gone = std::all_of(workers.begin(), workers.end(), [](const Member& worker) {
    return worker.state == MemberState::kDied || worker.state == MemberState::kLeft;
  });
  return gone && std::all_of(tables_.begin(), tables_.end(), [](const AddedTable& table) {
           return table.spec.on_loss == OnLoss::kDrop;
         });
}

void ServerState::Handle(const Event& event) {
  if (const auto* message = std::get_if<Message>(&event)) {
    core_->OnMessage(message->rank, message->life, message->bytes);
    death_.OnMessage(*core_, message->bytes);
  } else if (const auto* member = std::get_if<Member>(&event)) {
    core_->OnMember(member->rank, member->state, member->life);
    NoteAlone();
  } else if (const auto* lost = std::get_if<Lost>(&event)) {
    core_->OnLost(lost->worker, lost->life);
  }
}

void ServerState::TakeWritten() {
  for (uint32_t number = 0; number < tables_.size(); ++number) {
    SnapshotStore* const snapshots = tables_[number].snapshots.get();
    if (snapshots == nullptr) continue;
    const std::optional<absl::Status> written = snapshots->TakeWritten();
    if (!written.has_value()) continue;
    if (written->ok()) {
      tables_[number].failing.reset();
      core_->OnStored(number, tables_[number].storing);
      snapshots->FreeOlder();
    } else {
      core_->OnStoreFailed(number, tables_[number].storing);
      NotStored(number, *written);
    }
  }
}

// A directory that is away for a while is no reason to go on without snapshots; a store that has no
// memory, in the time of a Put, is one.
void ServerState::NotStored(uint32_t number, const absl::Status& why) {
  AddedTable& table = tables_[number];
  const Instant now = MonotonicNow();
  if (!table.failing.has_value()) table.failing = now;
  const bool for_good = absl::IsResourceExhausted(why) || now - *table.failing >= kSavePatience;
  if (program_.unsaved == nullptr || !for_good) {
    times_.retry = std::min(times_.retry, now + kRetryAfter);
    return;
  }
  program_.unsaved(table.spec.name, why);
  core_->GiveUpSnapshots(number);
}

void ServerState::TakeObjects() {
  for (const ServerObjects::Sum& sum : objects_.TakeSums()) {
    if (sum.bytes.ok()) {
      const bool made = !sum.version.empty();
      const bool needed = core_->OnReduced(sum.table, sum.attempt, sum.view(), made);
      if (made) objects_.Keep(sum, needed);
    } else {
      core_->OnReduceFailed(sum.table, sum.attempt, sum.bytes.status(), sum.handle);
    }
  }
  for (const auto& [table, attempt] : objects_.TakeInSlices()) core_->OnSlices(table, attempt);
  for (const ServerObjects::Unpublished& version : objects_.TakeUnpublished()) {
    core_->OnPublishFailed(version.table, version.handle, version.why);
  }
}

// A worker that is sent the name of a version waits for it, and so does a sum of which it is a
// source.
void ServerState::ActOnObjects(const ServerCore::Effects& effects) {
  for (const ServerCore::Publish& publish : effects.publishes) objects_.Publish(publish);
  for (const std::string& handle : effects.unpublishes) objects_.Unpublish(handle);
  for (const std::string& handle : effects.voids) objects_.Void(handle);
  for (const uint32_t table : effects.cancels) objects_.CancelSums(table);
  for (const ServerCore::Reduce& reduce : effects.reduces) {
    objects_.Reduce(reduce, tables_[reduce.table].spec.dtype);
  }
}

// An answer of the program can lead to more.
absl::Status ServerState::Act() {
  while (true) {
    ServerCore::Effects effects = core_->TakeEffects();
    ActOnObjects(effects);
    if (!effects.sends.empty()) {
      connection_->Update([&] {
        for (ServerCore::Send& send : effects.sends) {
          sends_->Add(send.worker, send.life, std::move(send.bytes));
        }
      });
    }
    // They can be views of rows, which are as they are until the core is called.
    for (const ServerCore::Publish& publish : effects.publishes) objects_.Fill(publish);
    if (disks_ != nullptr) PHALANX_RETURN_IF_ERROR(disks_->Write(*core_, effects));
    for (const ServerCore::Store& store : effects.stores) {
      // The core has one snapshot of a table under way at a time, so one number is enough. It
      // counts attempts; the store counts those that are there.
      tables_[store.table].storing = store.number;
      death_.OnSnapshot(core_->sync(store.table).min(), store.number, store.bytes,
                        *tables_[store.table].snapshots);
      tables_[store.table].snapshots->Write(store.number, store.bytes);
    }
    if (effects.asked.empty()) break;
    for (const ServerCore::Asked& asked : effects.asked) Answer(asked);
  }
  if (core_->wants_retry()) times_.retry = std::min(times_.retry, MonotonicNow() + kRetryAfter);
  return absl::OkStatus();
}

// The program's function is none of ours: what it throws is the answer of this request, and the
// server goes on.
void ServerState::Answer(const ServerCore::Asked& asked) {
  if (program_.answer == nullptr) {
    return core_->Refuse(asked, absl::UnimplementedError(absl::StrCat("server ", member_.rank(),
                                                                      " answers no requests")));
  }
  absl::StatusOr<Reply> reply = absl::InternalError("no reply");
  try {
    reply = program_.answer({asked.worker, asked.head, asked.body});
  } catch (const std::exception& error) {
    reply = absl::InternalError(absl::StrCat("OnRequest has thrown: ", error.what()));
  } catch (...) {
    reply = absl::InternalError("OnRequest has thrown");
  }
  if (!reply.ok()) return core_->Refuse(asked, reply.status());
  core_->Respond(asked, reply->head, reply->body);
}

}  // namespace phalanx::ps::internal
