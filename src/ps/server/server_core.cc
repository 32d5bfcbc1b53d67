#include "src/ps/server/server_core.h"

#include <algorithm>
#include <new>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/ids/job_ids.h"
#include "src/common/status_macros.h"

namespace phalanx::ps::internal {

ServerCore::ServerCore(const Options& options)
    : options_(options), workers_(options.workers), unsent_bytes_(workers_.size(), 0) {
  PHALANX_CHECK(options.servers >= 1 && options.servers <= kMaxServers, "servers of a job");
  PHALANX_CHECK(options.rank >= 0 && options.rank < options.servers, "rank of a server");
  PHALANX_CHECK(options.unsent_bytes > 0, "there is room for an answer");
  PHALANX_CHECK(options.answer_bytes <= kBatchBytes, "answers fit into a message");
  PHALANX_CHECK(options.workers >= 0 && options.workers <= kMaxWorld, "workers of a job");
  PHALANX_CHECK(options.objects.size() <= kMaxObjectsPrefix, "names of objects");
}

absl::StatusOr<uint32_t> ServerCore::AddTable(const TableSpec& spec, OwnUpdate own) {
  PHALANX_CHECK(!begun_, "tables are added before Begin");
  PHALANX_RETURN_IF_ERROR(Check(spec));
  if ((own != nullptr) != (spec.update == Update::kOwn)) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", spec.name, "\": its update is ", UpdateName(spec.update), ", and ",
                     own == nullptr ? "there is no function" : "there is a function"));
  }
  if (tables_.size() >= kMaxTables) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table \"", spec.name, "\": a server has at most ", kMaxTables, " tables"));
  }
  for (const auto& table : tables_) {
    if (table->spec().name != spec.name) continue;
    return absl::AlreadyExistsError(absl::StrCat("table \"", spec.name, "\" is there already"));
  }
  const auto number = static_cast<uint32_t>(tables_.size());
  try {
    tables_.push_back(
        std::make_unique<ServerTable>(ServerTable::Options{.number = number,
                                                           .rank = options_.rank,
                                                           .servers = options_.servers,
                                                           .workers = options_.workers,
                                                           .objects = options_.objects,
                                                           .object_bytes = options_.object_bytes,
                                                           .ring_bytes = options_.ring_bytes,
                                                           .answer_bytes = options_.answer_bytes,
                                                           .files = options_.files},
                                      spec, std::move(own)));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table \"", spec.name, "\": no memory for part ", options_.rank));
  }
  return number;
}

// The core checks what it is given: the bytes come from a store, and from a process that may have
// run another program.
absl::Status ServerCore::Restore(uint32_t table, uint64_t number, absl::string_view bytes) {
  PHALANX_CHECK(!begun_, "tables are restored before Begin");
  PHALANX_CHECK(table < tables_.size(), "a table that was added");
  if (!tables_[table]->snapshots().enabled()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", tables_[table]->spec().name, "\" has no snapshots"));
  }
  return tables_[table]->Restore(number, bytes);
}

std::string ServerCore::Save(uint32_t table, uint64_t number) const {
  PHALANX_CHECK(!begun_, "a table is saved before Begin");
  PHALANX_CHECK(table < tables_.size(), "a table that was added");
  return tables_[table]->Save(number);
}

void ServerCore::Begin() {
  PHALANX_CHECK(!begun_, "a server begins once");
  begun_ = true;
  for (const auto& table : tables_) {
    const bool holds = options_.awaits_workers && table->spec().sync != Sync::kBsp &&
                       table->spec().snapshot_every > 0;
    if (!holds) continue;
    table->turns().Hold(true);
    holds_ = true;
  }
  for (int worker = 0; worker < options_.workers; ++worker) {
    // What was reported before counts in the state that was restored, too.
    if (workers_[worker].gone()) Lose(worker, workers_[worker].member);
    TryWelcome(worker);
  }
  EndEvent();
}

// ---- lives and channels

// A message can come before its life is reported: it begins the life.
bool ServerCore::Hears(int worker, uint64_t life) {
  if (worker < 0 || worker >= options_.workers) return false;
  WorkerPort& port = workers_[worker];
  if (port.life.has_value() && (life < *port.life || (life == *port.life && port.gone()))) {
    return DefectActive(Defect::kPsOldLifeHeard) && !port.gone();
  }
  if (port.life.has_value() && life == *port.life) return true;
  if (port.life.has_value() && !port.gone()) Lose(worker, MemberState::kDied);
  port.BeginLife(life);
  return true;
}

// A worker that has not joined changes nothing: the table waits for it from the start.
void ServerCore::OnMember(int worker, MemberState state, uint64_t life) {
  // Absent: its place is there, and no life has taken it.
  if (state == MemberState::kAbsent || !Hears(worker, life)) return;
  if (state != MemberState::kLive) Lose(worker, state);
  EndEvent();
}

void ServerCore::Lose(int worker, MemberState state) {
  WorkerPort& port = workers_[worker];
  Close(worker);
  port.member = state;
  // At Begin, if this is before it: a restored state is another one.
  if (!begun_) return;
  for (const auto& table : tables_) {
    if (state == MemberState::kLeft) {
      table->Leave(worker);
    } else {
      table->Lose(worker, *port.life);
    }
  }
}

void ServerCore::Close(int worker) {
  // The worker asks again on its next channel; an answer now would go to a channel that is gone.
  workers_[worker].Close();
  for (const auto& table : tables_) table->Forget(worker);
}

// The worker cannot know what is missing, so the channel begins anew. It says from where it has to
// send again.
void ServerCore::OnLost(int worker, uint64_t life) {
  if (worker < 0 || worker >= options_.workers) return;
  WorkerPort& port = workers_[worker];
  if (port.life != life || port.gone()) return;
  Close(worker);
  SendTo(worker, Encode(Reset{}));
}

void ServerCore::OnMessage(int worker, uint64_t life, absl::string_view bytes) {
  if (!Hears(worker, life)) return;
  absl::StatusOr<WorkerMessage> message = DecodeWorkerMessage(bytes);
  if (!message.ok()) {
    Break(worker, message.status());
  } else if (const auto* hello = std::get_if<Hello>(&*message)) {
    OnHello(worker, *hello);
  } else {
    OnBatch(worker, std::get<WorkerBatch>(*std::move(message)));
  }
  EndEvent();
}

// Everything before it on this channel's predecessors is void. The answer can take a while: see
// rule 5.
void ServerCore::OnHello(int worker, const Hello& hello) {
  WorkerPort& port = workers_[worker];
  // The same one again: the Welcome may be lost.
  // A Hello that was overtaken by a later one is old.
  if (port.channel.has_value() && hello.channel < *port.channel) return;
  Close(worker);
  port.channel = hello.channel;
  port.had = hello.had;
  port.broken = false;
  port.state = WorkerPort::State::kHello;
  TryWelcome(worker);
}

// Called when it can have become possible: at the Hello, at Begin, and when a snapshot was stored.
void ServerCore::TryWelcome(int worker) {
  WorkerPort& port = workers_[worker];
  if (!begun_ || port.state != WorkerPort::State::kHello) return;
  // Rule 5. Once welcomed, a life keeps what it has pushed itself, and later channels wait for
  // nothing.
  bool shown = true;
  for (const auto& table : tables_) {
    table->Join(worker);
    if (port.welcomed || table->Shows(worker) || DefectActive(Defect::kPsWelcomedEarly)) continue;
    table->OnAskSnapshot(worker);
    shown = false;
  }
  if (!shown) return;
  port.welcomed = true;
  port.state = WorkerPort::State::kOpen;
  Welcome welcome{.channel = *port.channel};
  for (const auto& table : tables_) {
    const Position at = table->PositionOf(worker);
    const Position durable = table->DurableOf(worker);
    // The clock of a position is the worker's.
    welcome.tables.push_back({.spec = table->spec(),
                              .at = at,
                              .durable = durable,
                              .min_clock = table->min(),
                              .clock = at.clock,
                              .repeats = table->HoldsObjectsOf(worker)});
    port.shown.push_back(
        {.min_clock = table->min(), .room_clock = table->min(), .durable = durable});
  }
  SendTo(worker, Encode(welcome));
  for (uint32_t table = 0; table < tables_.size(); ++table) ShowFailure(worker, table);
}

// A worker that comes later has to see it as well, so it follows each Welcome.
void ServerCore::ShowFailure(int worker, uint32_t table) {
  WorkerPort& port = workers_[worker];
  const absl::Status& failed = tables_[table]->failed();
  if (!port.open() || failed.ok() || port.shown[table].failed) return;
  port.shown[table].failed = true;
  Add(worker, TableFailed{.table = table, .why = failed});
}

// Its next entries could be anything, also pushes that count. So the channel is closed, and not
// begun anew: the same bytes would come again. Pulls of the others do not wait for what the worker
// cannot send again.
void ServerCore::Break(int worker, const absl::Status& why) {
  if (!workers_[worker].open()) return;
  const absl::Status named(why.code(), absl::StrCat("a message of worker ", worker, " to server ",
                                                    options_.rank, ": ", why.message()));
  for (uint32_t table = 0; table < tables_.size(); ++table) {
    Add(worker, TableFailed{.table = table, .why = named});
  }
  // The error goes out before the channel is closed, or it would never.
  Flush(worker);
  Close(worker);
  workers_[worker].broken = true;
}

// ---- batches

// Batches of older channels can still be on their way, and batches behind a Hello that is not
// answered yet have been sent without a Welcome. Neither counts.
void ServerCore::OnBatch(int worker, WorkerBatch batch) {
  WorkerPort& port = workers_[worker];
  if (batch.channel != port.channel || port.state == WorkerPort::State::kHello) return;
  if (!port.open()) {
    // The Reset may be lost: a question is answered with it again.
    if (batch.entries.empty()) SendTo(worker, Encode(Reset{}));
    return;
  }
  if (batch.number != port.batches && !DefectActive(Defect::kPsGapNotNoticed)) {
    Close(worker);
    SendTo(worker, Encode(Reset{}));
    return;
  }
  // Entries count in their order, and one can close the channel: the rest comes again.
  ++port.batches;
  for (WorkerEntry& entry : batch.entries) {
    // Pulls that wait for the last worker are without the pushes that it has made behind them.
    if (holds_) ReleasePulls();
    std::visit([this, worker](auto& one) { OnEntry(worker, one); }, entry);
    if (!port.open()) return;
  }
  // A batch without entries asks for an answer.
  if (port.taken == port.acknowledged && !batch.entries.empty()) return;
  // One for the whole batch.
  Add(worker, Done{port.taken});
  port.acknowledged = port.taken;
}

ServerTable* ServerCore::Find(uint32_t table) {
  return table < tables_.size() ? tables_[table].get() : nullptr;
}

absl::Status ServerCore::NoTable(uint32_t table) const {
  return absl::NotFoundError(
      absl::StrCat("server ", options_.rank, " has no table ", table, "; it has ", tables_.size()));
}

// Counted as taken also if it is refused: Done counts what has come, in order.
void ServerCore::OnEntry(int worker, Push& push) {
  WorkerPort& port = workers_[worker];
  ++port.taken;
  ServerTable* const table = Find(push.table);
  if (table == nullptr) {
    // The worker's lists have the keys now, and so do these.
    const auto keys = FromWire(push.table, std::move(push.keys), 0, port.lists);
    RefusePush(worker, push, NoTable(push.table));
    return;
  }
  const absl::Status taken = table->OnPush(worker, *port.life, push, port.lists);
  if (!taken.ok()) RefusePush(worker, push, taken);
}

void ServerCore::RefusePush(int worker, const Push& push, const absl::Status& why) {
  // Without a ticket no call waits that could get the error, and the push would be lost in silence:
  // so the table ends for this worker.
  if (push.ticket != 0) {
    Add(worker, Refused{.ticket = push.ticket, .why = why});
  } else if (Find(push.table) != nullptr) {
    Add(worker, TableFailed{.table = push.table, .why = why});
  } else {
    Break(worker, why);
  }
}

void ServerCore::OnEntry(int worker, ClockEnd& end) {
  ++workers_[worker].taken;
  ServerTable* const table = Find(end.table);
  if (table == nullptr) {
    Break(worker, NoTable(end.table));
    return;
  }
  const absl::Status taken = table->OnClock(worker, *workers_[worker].life, end.clock);
  if (!taken.ok()) Add(worker, TableFailed{.table = end.table, .why = taken});
}

void ServerCore::OnEntry(int worker, Pull& pull) {
  WorkerPort& port = workers_[worker];
  ServerTable* const table = Find(pull.table);
  absl::Status taken;
  if (table != nullptr) {
    taken = table->OnPull(worker, pull, port.lists);
  } else {
    const auto keys = FromWire(pull.table, std::move(pull.keys), 0, port.lists);
    taken = NoTable(pull.table);
  }
  if (!taken.ok()) Add(worker, Refused{.ticket = pull.ticket, .why = taken});
}

// Copied: the owner answers after the message is gone.
void ServerCore::OnEntry(int worker, Request& request) {
  effects_.asked.push_back({.worker = worker,
                            .life = *workers_[worker].life,
                            .ticket = request.ticket,
                            .head = request.head,
                            .body = std::string(request.body)});
}

void ServerCore::OnEntry(int worker, AskSnapshot& ask) {
  ServerTable* const table = Find(ask.table);
  if (table != nullptr) table->OnAskSnapshot(worker);
}

void ServerCore::OnEntry(int worker, Read& read) {
  ServerTable* const table = Find(read.table);
  if (table != nullptr) table->versions().OnRead({worker, read.ticket, read.piece}, read.lost);
}

// ---- answers

// The life may have ended while the program made the answer. A newer life has other tickets.
void ServerCore::Respond(const Asked& asked, int32_t head, absl::string_view body) {
  if (body.size() > kMaxBodyBytes) {
    Refuse(asked, absl::ResourceExhaustedError(absl::StrCat(
                      "a response of ", body.size(), " bytes; the greatest has ", kMaxBodyBytes)));
    return;
  }
  if (workers_[asked.worker].life != asked.life) return;
  Add(asked.worker, Response{.ticket = asked.ticket, .head = head, .body = body});
  Flush(asked.worker);
}

void ServerCore::Refuse(const Asked& asked, const absl::Status& why) {
  if (workers_[asked.worker].life != asked.life) return;
  Add(asked.worker, Refused{.ticket = asked.ticket, .why = why});
  Flush(asked.worker);
}

void ServerCore::Add(int worker, const ServerEntry& entry) {
  WorkerPort& port = workers_[worker];
  if (!port.open()) return;
  if (port.out.empty()) unsent_.insert(worker);
  port.out.Add(entry);
  if (port.out.size() >= kBatchBytes) Flush(worker);
}

void ServerCore::Flush(int worker) {
  WorkerPort& port = workers_[worker];
  if (!port.open() || port.out.empty()) return;
  // The least clocks go with other entries, never alone.
  for (uint32_t table = 0; table < tables_.size(); ++table) {
    const uint64_t min = tables_[table]->min();
    if (min <= port.shown[table].min_clock) continue;
    port.shown[table].min_clock = port.shown[table].room_clock = min;
    port.out.Add(MinClock{.table = table, .clock = min});
  }
  SendTo(worker, port.out.TakeServerBatch(*port.channel));
}

void ServerCore::SendTo(int worker, std::string bytes) {
  effect_bytes_ += bytes.size();
  unsent_bytes_[worker] += bytes.size();
  effects_.sends.push_back({worker, *workers_[worker].life, std::move(bytes)});
}

bool ServerCore::HasAll(int worker, uint32_t table) const {
  const WorkerPort& port = workers_[worker];
  if (port.member != MemberState::kLive || port.broken) return true;
  if (!port.open()) return false;
  if (DefectActive(Defect::kPsHeldPullEarly)) return true;
  return table >= port.had.size() || port.had[table] <= tables_[table]->sync().PositionOf(worker);
}

// Looks at all workers in each event, but only until the last one has sent again what it keeps.
void ServerCore::ReleasePulls() {
  holds_ = false;
  for (uint32_t table = 0; table < tables_.size(); ++table) {
    if (!tables_[table]->turns().holds()) continue;
    bool all = true;
    for (int worker = 0; worker < options_.workers && all; ++worker) all = HasAll(worker, table);
    if (all) tables_[table]->ReleasePulls();
    holds_ = holds_ || !all;
  }
}

// One batch for each worker and event, however many entries it has.
void ServerCore::EndEvent() {
  if (holds_) ReleasePulls();
  for (uint32_t table = 0; table < tables_.size(); ++table) TakeFrom(table);
  for (const int worker : std::exchange(unsent_, {})) Flush(worker);
}

// Answers before the failure of the table: those that are made were made before it. Pulls that
// waited for room get the failure.
void ServerCore::TakeFrom(uint32_t number) {
  ServerTable& table = *tables_[number];
  TakeAnswers(number);
  for (const int worker : table.pulls().TakeReadied()) AnswerReady(worker);
  if (table.TakeFailed()) {
    for (int worker = 0; worker < options_.workers; ++worker) ShowFailure(worker, number);
  }
  for (ServerTable::File& file : table.TakeFiles()) {
    effects_.files.push_back({number, file.min, file.number, std::move(file.bytes)});
  }
  if (auto taken = table.TakeSnapshot()) {
    effects_.stores.push_back({number, taken->number, std::move(taken->bytes)});
    if (DefectActive(Defect::kPsSnapshotCountedEarly)) table.snapshots().Stored(taken->number);
  }
  ShowRoom(number);
  ShowDurable(number);
}

void ServerCore::TakeAnswers(uint32_t number) {
  for (WaitingPulls::Answer& answer : tables_[number]->pulls().TakeAnswers()) {
    WorkerPort& port = workers_[answer.worker];
    // The channel was closed by a later entry of the same batch: it asks again.
    if (!port.open()) continue;
    answer.values.values = answer.bytes;
    answer.values.object = answer.object;
    port.shown[number].min_clock = answer.values.min_clock;
    Add(answer.worker, answer.values);
  }
}

// What is in the batch is not sent, either. A worker without room has bytes that are not sent, so
// OnSent comes.
void ServerCore::AnswerReady(int worker) {
  for (uint32_t number = 0; number < tables_.size(); ++number) {
    ServerTable& table = *tables_[number];
    while (unsent_bytes_[worker] + workers_[worker].out.size() < options_.unsent_bytes &&
           table.pulls().AnswerFirst(worker, table.min())) {
      TakeAnswers(number);
    }
  }
}

void ServerCore::OnSent(int worker, uint64_t bytes) {
  PHALANX_CHECK(worker >= 0 && worker < options_.workers, "a worker of the job");
  PHALANX_CHECK(bytes <= unsent_bytes_[worker], "bytes that were to be sent");
  unsent_bytes_[worker] -= bytes;
  AnswerReady(worker);
  Flush(worker);
  unsent_.erase(worker);
}

bool ServerCore::waits_for_room() const {
  return std::any_of(tables_.begin(), tables_.end(),
                     [](const auto& table) { return table->pulls().has_ready(); });
}

// Before ShowDurable. A worker that is ahead can be waiting for the least clock alone; others see
// it with their next answer. But objects are kept until it is behind their clock, and none is ahead
// then.
void ServerCore::ShowRoom(uint32_t number) {
  const ServerTable& table = *tables_[number];
  if (!table.MakesRoom()) return;
  const uint64_t min = table.min();
  for (int worker = 0; worker < options_.workers; ++worker) {
    WorkerPort& port = workers_[worker];
    if (!port.open() || port.shown[number].room_clock >= min) continue;
    if (!table.has_object_pushes() && table.sync().clocks().of(worker) <= min) continue;
    port.shown[number].min_clock = port.shown[number].room_clock = min;
    Add(worker, MinClock{.table = number, .clock = min});
  }
}

void ServerCore::ShowDurable(uint32_t number) {
  ServerTable& table = *tables_[number];
  // Looks at all workers, so only when something can have changed for one.
  if (!table.TakeDurableRisen()) return;
  // By those that have pushed: in some jobs few of many workers do.
  uint64_t pushers = 0;
  for (int worker = 0; worker < options_.workers; ++worker)
    pushers += table.sync().PositionOf(worker) > Position() ? 1 : 0;
  for (int worker = 0; worker < options_.workers; ++worker) {
    WorkerPort& port = workers_[worker];
    if (!port.open()) continue;
    const Position durable = table.DurableOf(worker);
    if (durable <= port.shown[number].durable) continue;
    port.shown[number].durable = durable;
    Add(worker, Durable{.table = number, .upto = durable, .keep = table.snapshots().keep(pushers)});
  }
}

// ---- snapshots

void ServerCore::OnStored(uint32_t table, uint64_t number) {
  PHALANX_CHECK(table < tables_.size(), "a table that was added");
  const std::optional<uint64_t> before = tables_[table]->snapshots().Stored(number);
  if (!before.has_value()) return;
  // Only now: until the new one had its copies, a next life would have restored the old one.
  if (*before > 0) effects_.frees.push_back({table, *before});
  for (int worker = 0; worker < options_.workers; ++worker) TryWelcome(worker);
  EndEvent();
}

void ServerCore::OnStoreFailed(uint32_t table, uint64_t number) {
  PHALANX_CHECK(table < tables_.size(), "a table that was added");
  tables_[table]->snapshots().Failed(number);
}

// Next lives of workers wait for a snapshot that shows them: none will.
void ServerCore::GiveUpSnapshots(uint32_t table) {
  PHALANX_CHECK(table < tables_.size(), "a table that was added");
  PHALANX_CHECK(!tables_[table]->snapshots().under_way(), "no snapshot is under way");
  tables_[table]->snapshots().GiveUp();
  for (int worker = 0; worker < options_.workers; ++worker) TryWelcome(worker);
  EndEvent();
}

void ServerCore::Retry() {
  for (const auto& table : tables_) {
    table->snapshots().Retry();
    table->sums().Retry();
  }
  EndEvent();
}

// ---- objects

bool ServerCore::OnReduced(uint32_t table, uint64_t attempt, absl::string_view sum, bool target) {
  PHALANX_CHECK(table < tables_.size(), "a table that was added");
  const bool version = tables_[table]->OnReduced(attempt, sum, target);
  EndEvent();
  return version;
}

void ServerCore::OnSlices(uint32_t table, uint64_t attempt) {
  PHALANX_CHECK(table < tables_.size(), "a table that was added");
  tables_[table]->sums().OnSlices(attempt);
  EndEvent();
}

void ServerCore::OnReduceFailed(uint32_t table, uint64_t attempt, const absl::Status& why,
                                absl::string_view handle) {
  PHALANX_CHECK(table < tables_.size(), "a table that was added");
  tables_[table]->OnReduceFailed(attempt, why, handle, [this](int worker, uint64_t life) {
    return workers_[worker].life == life && !workers_[worker].gone();
  });
  EndEvent();
}

bool ServerCore::wants_retry() const {
  return std::any_of(tables_.begin(), tables_.end(),
                     [](const auto& table) { return table->sums().wants_retry(); });
}

void ServerCore::OnPublishFailed(uint32_t table, absl::string_view handle,
                                 const absl::Status& why) {
  PHALANX_CHECK(table < tables_.size(), "a table that was added");
  const absl::Status named(why.code(), absl::StrCat("table \"", tables_[table]->spec().name,
                                                    "\": its rows could not be stored by server ",
                                                    options_.rank, ": ", why.message()));
  tables_[table]->sums().OnPublishFailed(handle);
  // Of channels that are open: what a closed one has not read is forgotten.
  for (const Versions::Reader& reader : tables_[table]->versions().OnPublishFailed(handle)) {
    Add(reader.worker, Refused{.ticket = reader.ticket, .why = named});
  }
  EndEvent();
}

// ---- queries

// One that comes all the same is counted again, as any next life of a worker that has left.
void ServerCore::DropGone() {
  for (int worker = 0; worker < options_.workers; ++worker) {
    const MemberState state = workers_[worker].member;
    if (state == MemberState::kAbsent || state == MemberState::kDied)
      Lose(worker, MemberState::kLeft);
  }
  EndEvent();
}

bool ServerCore::done() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const WorkerPort& port) { return port.member == MemberState::kLeft; });
}

std::string ServerCore::Describe() const {
  std::string text = absl::StrCat("server ", options_.rank, " of ", options_.servers, ", ",
                                  options_.workers, " workers\n");
  for (uint32_t table = 0; table < tables_.size(); ++table) {
    text += tables_[table]->Describe();
    text += DescribeHeld(table);
  }
  return text;
}

// The workers are named: one that is stopped holds up the pulls of all.
std::string ServerCore::DescribeHeld(uint32_t table) const {
  if (!tables_[table]->turns().holds()) return "";
  std::vector<std::string> missing;
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (!HasAll(worker, table)) missing.push_back(absl::StrCat(worker));
  }
  if (missing.size() > kDescribedWorkers) {
    const size_t more = missing.size() - kDescribedWorkers;
    missing.resize(kDescribedWorkers);
    missing.push_back(absl::StrCat(more, " more"));
  }
  return absl::StrCat("  ", tables_[table]->turns().held(),
                      " pulls wait until what the life before has had was sent again by worker ",
                      absl::StrJoin(missing, ", "), "\n");
}

size_t ServerCore::waiting() const {
  size_t waiting = 0;
  for (const auto& table : tables_) waiting += table->waiting();
  return waiting;
}

// A version is taken here, not when it is made: its rows can have changed since, and the table has
// made a copy then.
ServerCore::Effects ServerCore::TakeEffects() {
  Effects effects = std::exchange(effects_, {});
  effect_bytes_ = 0;
  for (uint32_t number = 0; number < tables_.size(); ++number) {
    ServerTable& table = *tables_[number];
    for (Versions::Publish& publish : table.versions().TakePublishes()) {
      effects.publishes.push_back(
          {number, std::move(publish.handle), std::move(publish.copy), table.rows()});
    }
    for (std::string& handle : table.versions().TakeUnpublishes()) {
      effects.unpublishes.push_back(std::move(handle));
    }
    for (std::string& handle : table.versions().TakeVoids()) {
      effects.voids.push_back(std::move(handle));
    }
    if (table.sums().TakeCancelled()) effects.cancels.push_back(number);
    if (std::optional<TurnSums::Reduce> reduce = table.sums().TakeReduce()) {
      effects.reduces.push_back({number, reduce->attempt, reduce->clock, std::move(reduce->handles),
                                 reduce->only, table.object_bytes(), std::move(reduce->base),
                                 std::move(reduce->target)});
    }
  }
  return effects;
}

}  // namespace phalanx::ps::internal
