// The calls of a WorkerCore; worker_core.cc has the events.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/ps/rows/length_values.h"
#include "src/ps/worker_core.h"

namespace phalanx::ps::internal {
namespace {

absl::Status NoRoom(absl::string_view where, uint64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      where, ": more than ", bytes, " bytes of pushes are kept that the servers could lose"));
}

// What a program's slicer has said of keys. A key that it gives to no server would be lost in
// silence, so the whole call is refused.
absl::Status CheckServers(const TableSpec& spec, int count, absl::Span<const Key> keys,
                          absl::Span<const int32_t> servers) {
  if (spec.split != Split::kOwn) {
    PHALANX_CHECK(servers.empty(), "the split of the table says where keys are");
    return absl::OkStatus();
  }
  if (servers.size() != keys.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("its slicer names ", servers.size(), " servers for ", keys.size(), " keys"));
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    if (servers[i] >= 0 && servers[i] < count) continue;
    return absl::InvalidArgumentError(
        servers[i] == kNoServer ? absl::StrCat("its slicer drops key ", keys[i])
                                : absl::StrCat("its slicer names server ", servers[i], " for key ",
                                               keys[i], "; there are ", count));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int> WorkerCore::missing() const {
  std::vector<int> missing;
  for (int server = 0; server < options_.servers; ++server) {
    if (!servers_[server].welcomed) missing.push_back(server);
  }
  return missing;
}

// The tables are known since Begin; nothing is sent.
absl::StatusOr<uint32_t> WorkerCore::Open(absl::string_view name) const {
  PHALANX_CHECK(ready_, "Open before all servers have welcomed the worker");
  PHALANX_RETURN_IF_ERROR(tables_differ_);
  std::vector<std::string> names;
  for (uint32_t table = 0; table < tables_.size(); ++table) {
    if (tables_[table].view.spec.name == name) return table;
    names.push_back(absl::StrCat("\"", tables_[table].view.spec.name, "\""));
  }
  return absl::NotFoundError(absl::StrCat(
      "no table \"", name, "\"; there are: ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

// Checked here, though servers check again: an error at once names the call, and nothing is half
// sent.
absl::Status WorkerCore::CheckCall(uint32_t table, absl::Span<const Key> keys, bool pushes) const {
  if (table >= tables_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table, ": there are ", tables_.size(), " tables"));
  }
  const TableState& state = tables_[table];
  PHALANX_RETURN_IF_ERROR(state.failed);
  const TableSpec& spec = state.view.spec;
  const auto invalid = [&](auto... why) {
    return absl::InvalidArgumentError(absl::StrCat(Where(table, state.view.clock), ": ", why...));
  };
  if (keys.size() > kMaxCallKeys) return invalid(keys.size(), " keys, at most ", kMaxCallKeys);
  // At once, before anything is sent: the servers would refuse the push, after others have counted
  // their parts of it.
  for (size_t i = 1; i < keys.size(); ++i) {
    if (keys[i - 1] < keys[i]) continue;
    return invalid("key ", keys[i], " after key ", keys[i - 1],
                   ": keys must be strictly increasing");
  }
  if (!keys.empty() && spec.keys > 0 && keys.back() >= spec.keys) {
    return invalid("no key ", keys.back(), ", the last one is ", spec.keys - 1);
  }
  if (pushes && state.pushes == kAllPushes - 1) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Where(table, state.view.clock), ": 2^32 - 2 pushes without a call of Clock"));
  }
  return absl::OkStatus();
}

// Pieces of the call before have lower numbers, and go first.
absl::StatusOr<WorkerCore::Ticket> WorkerCore::Start(const Rows& rows) {
  while (Cut()) {
  }
  absl::Status checked = CheckCall(rows.table, rows.keys, rows.pushes);
  if (checked.ok()) {
    const Table& view = tables_[rows.table].view;
    const absl::Status sliced = CheckServers(view.spec, options_.servers, rows.keys, rows.servers);
    if (!sliced.ok()) {
      checked = absl::Status(sliced.code(),
                             absl::StrCat(Where(rows.table, view.clock), ": ", sliced.message()));
    }
  }
  if (!checked.ok() && rows.pushes) OnPushRefused(rows.table, checked);
  PHALANX_RETURN_IF_ERROR(checked);
  TableState& state = tables_[rows.table];
  PHALANX_CHECK(!rows.pushes || !state.dense_begun, "a push within another one");
  const bool has_lengths = rows.pushes && state.view.spec.lengths;
  PHALANX_CHECK(rows.lengths.size() == (has_lengths ? rows.keys.size() : 0),
                "a length of each row");
  // Not refused: the caller is to call again.
  if (rows.pushes && state.must_wait()) {
    return NoRoom(Where(rows.table, state.view.clock), state.may_keep());
  }
  const Ticket ticket = operations_.next;
  Operation& operation = operations_.New(rows.table);
  operation.out = rows.out;
  if (rows.pulls && state.view.spec.lengths) operation.answer.rows.lengths.resize(rows.keys.size());
  operation.clock = state.view.clock;
  operation.cutting = true;
  if (rows.pushes) ++state.pushes;
  cutting_.emplace(
      Cutting{.ticket = ticket,
              .rows = rows,
              .starts = rows.lengths.empty() ? std::vector<uint64_t>() : StartsOf(rows.lengths),
              .at = {.clock = state.view.clock, .push = state.pushes},
              .cutter = Cutter(state.view.spec, state.splitter, rows.keys, options_.batch_bytes,
                               rows.servers, rows.lengths),
              .touched = std::vector<bool>(servers_.size(), false)});
  return ticket;
}

// Push before pull, so that with SSP and ASP a pull of the same call sees the push. The keys are
// cut twice then: a list that was pushed is a hash in the pull.
bool WorkerCore::Cut(std::optional<Ticket> only) {
  if (!cutting_.has_value() || only.value_or(cutting_->ticket) != cutting_->ticket) return false;
  Cutting& cut = *cutting_;
  const uint32_t table = cut.rows.table;
  TableState& state = tables_[table];
  const auto lists = [this](int server) -> const KeyLists& {
    return servers_[server].channel.lists();
  };
  while (true) {
    const auto found = operations_.all.find(cut.ticket);
    // The call can have ended meanwhile, and its ticket can have been taken.
    const bool ended = found == operations_.all.end() || found->second.ended.has_value();
    Operation* const operation = ended ? nullptr : &found->second;
    const bool wanted = state.failed.ok() && (!ended || (cut.cancelled && cut.rows.pushes));
    std::optional<Piece> piece;
    if (wanted) piece = cut.cutter->Next(table, lists);
    if (wanted && !piece.has_value() && cut.rows.pushes && cut.rows.pulls) {
      cut.rows.pushes = false;
      cut.cutter.emplace(state.view.spec, state.splitter, cut.rows.keys, options_.batch_bytes,
                         cut.rows.servers);
      continue;
    }
    if (!piece.has_value()) break;
    const int server = piece->server;
    cut.touched[server] = true;
    if (cut.rows.pushes) {
      AddPush(*piece, operation);
    } else {
      AddQuestion(cut.ticket, *std::move(piece), /*by_object=*/false);
    }
    if (servers_[server].channel.has_messages()) return true;
  }
  // Before the end of the call, which the caller may answer with the next one.
  const Cutting made = *std::exchange(cutting_, std::nullopt);
  const auto found = operations_.all.find(made.ticket);
  if (found != operations_.all.end() && !found->second.ended.has_value()) {
    found->second.cutting = false;
    // A call without keys, or of pushes that an earlier life has made, has nothing to wait for.
    if (found->second.done()) End(made.ticket, found->second, absl::OkStatus());
  }
  // Only those: another server's batch may be waiting for its answers.
  for (size_t server = 0; server < servers_.size(); ++server) {
    if (made.touched[server]) servers_[server].channel.FlushIfIdle();
  }
  AskIfNeeded(table);
  return false;
}

// Servers refuse too many of a clock as well; here none of them has taken its part. A push without
// memory leaves its number to the next one: a program that makes another push instead cannot have
// a next life that makes the same ones.
absl::StatusOr<WorkerCore::DensePush> WorkerCore::BeginPushDense(uint32_t table) {
  while (Cut()) {
  }
  absl::Status checked = CheckCall(table, {}, /*pushes=*/true);
  if (checked.ok() && tables_[table].dense >= MaxClockObjects(options_.workers)) {
    checked = absl::ResourceExhaustedError(absl::StrCat(
        Where(table, tables_[table].view.clock), ": ", tables_[table].dense,
        " pushes of all rows in one clock; no more with ", options_.workers, " workers"));
  }
  if (!checked.ok()) OnPushRefused(table, checked);
  PHALANX_RETURN_IF_ERROR(checked);
  TableState& state = tables_[table];
  PHALANX_CHECK(state.view.pushes_objects && !state.dense_begun, "one push of objects at a time");
  if (state.must_wait()) return NoRoom(Where(table, state.view.clock), state.may_keep());
  state.dense_begun = true;
  ++state.dense;
  DensePush push{.at = {.clock = state.view.clock, .push = ++state.pushes}, .parts = {}};
  const uint64_t number = next_push_++;
  for (int server = 0; server < options_.servers; ++server) {
    if (push.at <= state.servers[server].kept.freed()) continue;
    // Another attempt at the same push, after one that has failed, has another number.
    push.parts.push_back({.server = server,
                          .name = absl::StrCat(options_.objects, "/", table, "/", server, "/",
                                               push.at.clock, ".", push.at.push, "/", number),
                          .bytes = ObjectPartBytes(state.view.spec, state.splitter, server)});
  }
  return push;
}

absl::StatusOr<WorkerCore::Ticket> WorkerCore::EndPushDense(uint32_t table, DensePush push,
                                                            const absl::Status& put, bool refuses) {
  TableState& state = tables_[table];
  PHALANX_CHECK(std::exchange(state.dense_begun, false), "a push of objects has begun");
  absl::Status status = state.failed;
  status.Update(put);
  if (!status.ok()) {
    --state.pushes;
    --state.dense;
    for (DensePush::Part& part : push.parts) objects_.frees.push_back(std::move(part.name));
    if (refuses) OnPushRefused(table, status);
    return status;
  }
  const Ticket ticket = operations_.next;
  Operation& operation = operations_.New(table);
  for (DensePush::Part& part : push.parts) {
    const TableAtServer& here = state.servers[part.server];
    // What an earlier life has pushed, as the server has shown meanwhile.
    if (push.at <= here.kept.freed()) {
      objects_.frees.push_back(std::move(part.name));
      continue;
    }
    const bool had = push.at <= here.had;
    if (!had) ++operation.pushes;
    AddKept(part.server, table,
            {.call = next_call_++,
             .at = push.at,
             .done = had,
             .ticket = ticket,
             .object = std::move(part.name),
             .object_bytes = part.bytes});
  }
  if (operation.done()) End(ticket, operation, absl::OkStatus());
  for (Server& server : servers_) server.channel.FlushIfIdle();
  AskIfNeeded(table);
  return ticket;
}

absl::StatusOr<WorkerCore::Ticket> WorkerCore::PullDense(uint32_t table, void* out) {
  while (Cut()) {
  }
  PHALANX_RETURN_IF_ERROR(CheckCall(table, {}, /*pushes=*/false));
  const TableState& state = tables_[table];
  PHALANX_CHECK(state.view.pulls_objects, "a table that travels as objects");
  const Ticket ticket = operations_.next;
  Operation& operation = operations_.New(table);
  operation.out = out;
  operation.clock = state.view.clock;
  for (int server = 0; server < options_.servers; ++server) {
    Piece piece;
    piece.server = server;
    piece.keys.count = state.splitter.KeysOf(server);
    AddQuestion(ticket, std::move(piece), /*by_object=*/true);
  }
  for (Server& server : servers_) server.channel.FlushIfIdle();
  return ticket;
}

// A piece is numbered among those of its server, in the order of keys: a next life cuts the same
// push in the same way.
void WorkerCore::AddPush(const Piece& piece, Operation* operation) {
  const Cutting& cut = *cutting_;
  const TableState& state = tables_[cut.rows.table];
  Position at = cut.at;
  at.piece = piece.number;
  const TableAtServer& here = state.servers[piece.server];
  // What an earlier life has pushed.
  if (at <= here.kept.freed()) return;
  // The server has it, but could still lose it with its life: it is kept and not sent.
  const bool had = at <= here.had;
  if (!had && operation != nullptr) ++operation->pushes;
  AddKept(piece.server, cut.rows.table,
          {.call = next_call_++,
           .at = at,
           .done = had,
           .ticket = cut.ticket,
           .keys = piece.keys,
           .values = state.view.spec.lengths
                         ? GatherLengthRows(state.view.spec, piece, cut.rows.lengths, cut.starts,
                                            cut.rows.values)
                         : GatherRows(state.view.spec, piece, cut.rows.values)});
}

// The entry is kept whether or not the channel is open: a Welcome sends it.
void WorkerCore::AddKept(int server, uint32_t table, KeptEntries::Kept kept) {
  TableAtServer& here = tables_[table].servers[server];
  // A server that has it already from an earlier life is not sent it, but it is kept: this server
  // can die, and restore what is before it.
  const bool had = kept.done;
  if (!had) SendKept(server, table, kept);
  // What was asked between the ends of two clocks is sent again between them.
  const auto& asked = servers_[server].channel.asked();
  const bool join = here.kept.entries().empty() || asked.empty() ||
                    asked.rbegin()->first < here.kept.entries().back().call;
  here.kept.Add(std::move(kept), join);
  if (had) tables_[table].FreeDone(server);
}

void WorkerCore::SendKept(int server, uint32_t table, KeptEntries::Kept& kept) {
  WorkerChannel& channel = servers_[server].channel;
  if (!channel.open() || kept.call >= tables_[table].HeldFrom()) return;
  if (!kept.object.empty()) {
    return channel.AddPush(
        {.ticket = kept.ticket, .table = table, .at = kept.at, .object = kept.object});
  }
  if (!kept.is_clock) {
    return channel.AddPush({.ticket = kept.ticket,
                            .table = table,
                            .at = kept.at,
                            .keys = ToWire(table, kept.keys, channel.lists()),
                            .values = kept.values});
  }
  // Of several clocks in one entry the server may have the first ones.
  const uint64_t had = tables_[table].servers[server].had.clock;
  for (uint64_t clock = std::max(kept.first_clock, had); clock < kept.at.clock; ++clock) {
    channel.AddClock(table, clock);
  }
}

// A channel names a question by its place.
void WorkerCore::AddQuestion(Ticket ticket, Piece piece, bool by_object) {
  Operation& operation = operations_.all.at(ticket);
  const int server = piece.server;
  const auto number = static_cast<uint32_t>(operation.questions.size());
  operation.questions.push_back(
      {.piece = std::move(piece), .call = next_call_++, .by_object = by_object});
  Question& question = operation.questions.back();
  ++operation.pulls;
  servers_[server].channel.Ask(question.call, {ticket, number});
  SendQuestion(server, ticket, operation, question);
}

void WorkerCore::SendQuestion(int server, Ticket ticket, Operation& operation, Question& question) {
  WorkerChannel& channel = servers_[server].channel;
  if (!channel.open()) return;
  if (!operation.table.has_value()) {
    return channel.AddRequest(
        question.call,
        {.ticket = ticket, .head = operation.request.head, .body = operation.request.body});
  }
  if (question.call >= tables_[*operation.table].HeldFrom()) return;
  // All rows come on one channel.
  if (!DefectActive(Defect::kPsAnswersMixed)) question.rows = {};
  const auto piece = static_cast<uint32_t>(&question - operation.questions.data());
  if (question.by_object) {
    // The server answers anew: it has forgotten what it has answered on an earlier channel.
    if (question.fetch != 0) objects_.dropped.push_back(EndFetch(ticket, question));
    question.lost = false;
    question.channel = channel.channel();
    return channel.AddPull(question.call,
                           {.ticket = ticket,
                            .piece = piece,
                            .table = *operation.table,
                            .clock = operation.clock,
                            .object = true},
                           /*answer_bytes=*/0);
  }
  channel.AddPull(question.call,
                  {.ticket = ticket,
                   .piece = piece,
                   .table = *operation.table,
                   .clock = operation.clock,
                   .keys = ToWire(*operation.table, question.piece.keys, channel.lists())},
                  question.piece.keys.count * LeastRowBytes(tables_[*operation.table].view.spec));
}

// Every server has a clock of its own for each worker, so the end goes to all, also to those that
// were pushed nothing.
absl::Status WorkerCore::Clock(uint32_t table) {
  while (Cut()) {
  }
  PHALANX_RETURN_IF_ERROR(CheckCall(table, {}, /*pushes=*/false));
  TableState& state = tables_[table];
  PHALANX_CHECK(!state.dense_begun, "Clock within a push");
  if (!state.refused.ok()) {
    const absl::Status why = std::exchange(state.refused, absl::OkStatus());
    return absl::Status(why.code(), absl::StrCat("the clock has not ended, as a push was refused: ",
                                                 why.message()));
  }
  const uint64_t clock = state.view.clock;
  if (state.marked()) AddMarks(table);
  const Position at = {.clock = clock + 1};
  for (int server = 0; server < options_.servers; ++server) {
    const TableAtServer& here = state.servers[server];
    // An earlier life has ended it here, and that cannot be lost.
    if (at <= here.kept.freed()) continue;
    AddKept(server, table,
            {.call = next_call_++,
             .at = at,
             .done = at <= here.had,
             .is_clock = true,
             .first_clock = clock});
  }
  ++state.view.clock;
  state.pushes = 0;
  state.dense = 0;
  Release(table);
  for (Server& server : servers_) server.channel.FlushIfIdle();
  AskIfNeeded(table);
  return absl::OkStatus();
}

// A program that drops the futures of its pushes sees in Clock that one of them does not count.
void WorkerCore::OnPushRefused(uint32_t table, const absl::Status& why) {
  if (table < tables_.size()) tables_[table].refused.Update(why);
}

// What a server has can have been lost at another one: pushes that are behind in one of them are
// taken as made, too. Where a server waits for objects, this life's numbers are those of pushes
// that the server has, so it would take new pushes for these.
uint64_t WorkerCore::SkipPushed(uint32_t table) {
  TableState& state = tables_[table];
  if (state.repeats && state.view.clock == state.first) {
    OnPushRefused(table, absl::FailedPreconditionError(absl::StrCat(
                             Where(table, state.view.clock),
                             ": an earlier life has pushed all rows in this clock, which are in no "
                             "sum yet: its pushes cannot be skipped, and count if they are made "
                             "again")));
    return 0;
  }
  // This life has begun to push.
  if (state.dense_begun) return 0;
  const uint32_t before = state.pushes;
  for (const TableAtServer& at : state.servers) {
    if (at.had.clock != state.view.clock || at.had.push == kAllPushes) continue;
    state.pushes = std::max(state.pushes, at.had.push);
  }
  return state.pushes - before;
}

std::string WorkerCore::Where(uint32_t table, uint64_t clock) const {
  return absl::StrCat("table \"", tables_[table].view.spec.name, "\" of worker ", options_.rank,
                      " at clock ", clock);
}

// A mark is kept, sent again and done as a push; it has no keys, and no ticket waits for it.
void WorkerCore::AddMarks(uint32_t table) {
  TableState& state = tables_[table];
  const Position at = {.clock = state.view.clock, .push = kAllPushes};
  for (int server = 0; server < options_.servers; ++server) {
    const TableAtServer& here = state.servers[server];
    if (at <= here.kept.freed()) continue;
    AddKept(server, table, {.call = next_call_++, .at = at, .done = at <= here.had});
  }
  // Behind all marks, and before the first end: a server that is sent everything again, in the
  // order of calls, gets its mark before the end.
  state.held.push_back(next_call_);
}

uint64_t WorkerCore::TableState::HeldFrom() const {
  return held.empty() ? std::numeric_limits<uint64_t>::max() : held.front();
}

std::vector<int> WorkerCore::TableState::Unmarked() const {
  std::vector<int> unmarked;
  if (held.empty()) return unmarked;
  const Position mark = {.clock = view.clock - held.size(), .push = kAllPushes};
  for (size_t server = 0; server < servers.size(); ++server) {
    if (!servers[server].kept.IsDone(mark)) unmarked.push_back(static_cast<int>(server));
  }
  return unmarked;
}

// A server that dies later and loses a mark is sent all of it again, behind the pushes, as anything
// else: the others have the end of the clock by then.
void WorkerCore::Release(uint32_t table) {
  TableState& state = tables_[table];
  while (!state.held.empty() && state.Unmarked().empty()) {
    const uint64_t from = state.HeldFrom();
    state.held.pop_front();
    for (int server = 0; server < options_.servers; ++server) SendAgain(server, table, from);
  }
}

// A question without keys: sent again until it is answered, as a pull is.
absl::StatusOr<WorkerCore::Ticket> WorkerCore::Request(int server, int32_t head,
                                                       absl::string_view body) {
  PHALANX_CHECK(server >= 0 && server < options_.servers, "rank of a server");
  if (body.size() > kMaxRequestBody) {
    return absl::InvalidArgumentError(
        absl::StrCat("a request of ", body.size(), " bytes, at most ", kMaxRequestBody));
  }
  const Ticket ticket = operations_.next;
  Operation& operation = operations_.New(std::nullopt);
  operation.request = {.head = head, .body = std::string(body)};
  operation.pulls = 1;
  Question& question = operation.questions.emplace_back();
  question.piece.server = server;
  question.call = next_call_++;
  WorkerChannel& channel = servers_[server].channel;
  channel.Ask(question.call, {ticket, 0});
  SendQuestion(server, ticket, operation, question);
  channel.FlushIfIdle();
  return ticket;
}

bool WorkerCore::must_wait(uint32_t table) const {
  return tables_[table].dense_begun || tables_[table].must_wait();
}

// All servers together: it is the worker's memory, or its node's, that is bounded. But for an
// object of the worker's own clock, and all behind it: the servers can lose these until the clock
// turns, so waiting for them would be waiting for itself.
uint64_t WorkerCore::TableState::kept_bytes() const {
  uint64_t bytes = 0;
  for (const TableAtServer& at : servers) {
    bytes += at.kept.bytes() - at.kept.BytesFromObject(view.clock);
  }
  return bytes;
}

// What a large part costs to write is worth more pushes: the servers know how large they are.
uint64_t WorkerCore::TableState::may_keep() const {
  if (view.spec.snapshot_bytes > 0) return view.spec.snapshot_bytes;
  uint64_t bytes = 0;
  for (const TableAtServer& at : servers) bytes += at.keep;
  return std::max(bytes, kLeastSnapshotBytes);
}

// A server may not answer, since a newer snapshot shows no more: Probe asks again. What is kept
// without snapshots goes by itself when the clock turns.
void WorkerCore::AskIfNeeded(uint32_t table, bool no_memory) {
  const TableState& state = tables_[table];
  const bool frees = no_memory && state.view.pushes_objects;
  if (!state.has_snapshots() || !(leaving_ || frees || state.must_wait())) return;
  for (int server = 0; server < options_.servers; ++server) {
    TableAtServer& here = tables_[table].servers[server];
    WorkerChannel& channel = servers_[server].channel;
    if (here.snapshot_asked || here.kept.entries().empty() || !channel.open()) continue;
    // No snapshot frees an object before its clock has turned.
    if ((leaving_ || frees) && !state.HoldsUpLeave(here)) continue;
    // Not again before it has answered: each further one would be a snapshot of its own.
    here.snapshot_asked = true;
    channel.AskSnapshot(table);
  }
}

// The servers would make the next snapshot some clocks later, and this worker would not be there to
// send again what is in none.
void WorkerCore::BeginLeave() {
  leaving_ = true;
  Flush();
  for (uint32_t table = 0; table < tables_.size(); ++table) AskIfNeeded(table);
}

// Before it leaves, a worker can stop when all is done; when it leaves, nothing may be kept that is
// to count. Without snapshots it waits for m alone, when a push has to: the others can be waiting
// for it to leave.
bool WorkerCore::TableState::Awaits(const TableAtServer& at, bool leaving) const {
  if (at.kept.undone() > 0) return true;
  return leaving ? HoldsUpLeave(at) : !has_snapshots() && must_wait();
}

// With kBsp a clock that the worker has not ended does not count when it has left. What is behind
// an object of such a clock is of that clock, too, and in no snapshot before the clock turns.
bool WorkerCore::TableState::HoldsUpLeave(const TableAtServer& at) const {
  const std::deque<KeptEntries::Kept>& entries = at.kept.entries();
  const auto object = [this](const KeptEntries::Kept& kept, bool ended) {
    return !kept.object.empty() && (kept.at.clock < view.clock) == ended;
  };
  if (has_snapshots()) return !entries.empty() && !object(entries.front(), /*ended=*/false);
  return std::any_of(entries.begin(), entries.end(),
                     [&](const KeptEntries::Kept& kept) { return object(kept, /*ended=*/true); });
}

bool WorkerCore::idle() const {
  if (operations_.under_way > 0) return false;
  for (uint32_t table = 0; table < tables_.size(); ++table) {
    for (const TableAtServer& at : tables_[table].servers) {
      if (tables_[table].Awaits(at, leaving_)) return false;
    }
  }
  return true;
}

std::string WorkerCore::Pending() const {
  std::vector<std::string> texts;
  if (operations_.under_way > 0) texts.push_back(absl::StrCat(operations_.under_way, " calls"));
  for (uint32_t table = 0; table < tables_.size(); ++table) {
    const TableState& state = tables_[table];
    for (size_t server = 0; server < servers_.size(); ++server) {
      if (!state.Awaits(state.servers[server], leaving_)) continue;
      texts.push_back(absl::StrCat("server ", server, " (", servers_[server].channel.Describe(),
                                   ") for table \"", state.view.spec.name, "\""));
    }
  }
  return texts.empty() ? "nothing" : absl::StrJoin(texts, "; ");
}

void WorkerCore::Flush() {
  for (Server& server : servers_) server.channel.Flush();
}

// Nothing is awaited from a server that has taken all: the loss of what it says of clocks and
// snapshots shows when something is.
void WorkerCore::Probe(bool no_memory) {
  for (int server = 0; server < options_.servers; ++server) {
    WorkerChannel& channel = servers_[server].channel;
    bool awaited = channel.state() == WorkerChannel::State::kHello || !channel.asked().empty();
    for (uint32_t table = 0; table < tables_.size(); ++table) {
      TableAtServer& here = tables_[table].servers[server];
      awaited =
          awaited || here.snapshot_asked || here.kept.undone() > 0 ||
          (!(leaving_ && tables_[table].has_snapshots()) && tables_[table].Awaits(here, leaving_));
      here.snapshot_asked = false;
    }
    // Where the object of an answer was not there: a server that knows it makes another one.
    for (const auto& [call, asked] : channel.asked()) {
      Operation& operation = operations_.all.at(asked.ticket);
      Question& question = operation.questions[asked.piece];
      if (question.lost) SendQuestion(server, asked.ticket, operation, question);
    }
    if (awaited) channel.Probe();
  }
  for (uint32_t table = 0; table < tables_.size(); ++table) AskIfNeeded(table, no_memory);
  if (no_memory) Flush();
}

}  // namespace phalanx::ps::internal
