#include "src/ps/worker_core.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "phalanx/elements.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/ps/rows/length_values.h"

namespace phalanx::ps::internal {
namespace {

std::string Name(const Position& at) {
  return absl::StrCat("clock ", at.clock, ", push ", at.push, ".", at.piece);
}

template <typename Servers>
bool IsOneOf(const Servers& servers, int server) {
  return server >= 0 && static_cast<size_t>(server) < servers.size();
}

// All against the first: it names the table and the two servers.
template <typename Servers>
absl::Status CompareTables(const Servers& servers) {
  const std::vector<Welcome::Table>& first = servers[0].tables;
  for (size_t server = 1; server < servers.size(); ++server) {
    const std::vector<Welcome::Table>& other = servers[server].tables;
    if (first.size() != other.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "server 0 has ", first.size(), " tables, server ", server, " has ", other.size()));
    }
    for (size_t table = 0; table < first.size(); ++table) {
      if (first[table].spec == other[table].spec) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "table ", table, " of server 0, \"", first[table].spec.name, "\", is not that of server ",
          server, ", \"", other[table].spec.name, "\": names or specs differ"));
    }
  }
  return absl::OkStatus();
}

// Where this life begins in a table: at the greatest clock that a server has, if its clocks have
// marks, and the others lack nothing but the end of the one before it; else at the least one.
template <typename Servers>
uint64_t FirstClock(const Servers& servers, uint32_t table, bool marked) {
  uint64_t least = servers[0].tables[table].clock;
  uint64_t greatest = least;
  for (const auto& server : servers) {
    least = std::min(least, server.tables[table].clock);
    greatest = std::max(greatest, server.tables[table].clock);
  }
  if (DefectActive(Defect::kPsNextLifeSkips)) return greatest;
  if (least == greatest || !marked) return least;
  if (DefectActive(Defect::kPsNextLifeRepeats)) return least;
  const Position mark = {.clock = greatest - 1, .push = kAllPushes};
  const bool all = std::all_of(servers.begin(), servers.end(),
                               [&](const auto& server) { return server.tables[table].at >= mark; });
  return all ? greatest : least;
}

}  // namespace

WorkerCore::TableState::TableState(const TableSpec& spec, const Options& options)
    : view{.spec = spec}, splitter(spec, options.servers), servers(options.servers) {
  view.pulls_objects = IsObjectTable(spec, splitter, options.object_part_bytes);
  view.pushes_objects = PushesObjects(spec, splitter, options.workers, options.object_part_bytes);
}

WorkerCore::WorkerCore(const Options& options) : options_(options) {
  PHALANX_CHECK(options.servers >= 1 && options.servers <= kMaxServers, "servers of a job");
  PHALANX_CHECK(options.objects.size() <= kMaxObjectPrefix, "a prefix of names");
  PHALANX_CHECK(options.batch_bytes <= kBatchBytes, "a batch and an entry fit into a message");
  servers_.reserve(static_cast<size_t>(options.servers));
  for (int server = 0; server < options.servers; ++server) servers_.emplace_back(options);
  for (int server = 0; server < options.servers; ++server) {
    servers_[server].channel.SetHad([this, server] {
      std::vector<Position> had;
      for (TableState& table : tables_) {
        // Of a table that has failed nothing is sent again, and nothing is kept.
        TableAtServer& here = table.servers[server];
        had.push_back(here.kept.Had());
        here.named = had.back() > Position();
      }
      return had;
    });
  }
}

// ---- events

// A job that has changed since this worker has counted its servers can have more of them.
void WorkerCore::OnServer(int server, bool live, uint64_t life) {
  if (IsOneOf(servers_, server)) servers_[server].channel.OnServer(live, life);
}

void WorkerCore::OnLost(int server, uint64_t life) {
  if (IsOneOf(servers_, server)) servers_[server].channel.OnLost(life);
}

// Messages of a server's older life say nothing of what the newer one has.
void WorkerCore::OnMessage(int server, uint64_t life, absl::string_view bytes) {
  if (!IsOneOf(servers_, server)) return;
  WorkerChannel& channel = servers_[server].channel;
  // It can come before the news of this life.
  if (channel.IsNewer(life)) channel.OnServer(true, life);
  // Of a life that has died, or an older one: what it says of its rows is not true any more.
  if (!channel.Hears(life)) return;
  absl::StatusOr<ServerMessage> message = DecodeServerMessage(bytes);
  if (!message.ok()) {
    // Nothing that the server says can be trusted: what waits for it ends, and the tables with it.
    const absl::Status broken = absl::InternalError(absl::StrCat(
        "server ", server, " sent a message that is none: ", message.status().message()));
    // In all tables: whether the others are right cannot be seen.
    for (uint32_t table = 0; table < tables_.size(); ++table) FailTable(table, broken);
    const std::map<uint64_t, WorkerChannel::Asked> asked = channel.asked();
    for (const auto& [call, question] : asked) {
      Operation* const operation = operations_.Open(server, question.ticket, question.piece);
      // A pull of one of the tables has ended with it.
      if (operation != nullptr) End(question.ticket, *operation, broken);
    }
    return;
  }
  if (std::holds_alternative<Reset>(*message)) return channel.OnReset();
  if (auto* const welcome = std::get_if<Welcome>(&*message)) {
    return OnWelcome(server, std::move(*welcome));
  }
  const auto& batch = std::get<ServerBatch>(*message);
  // Of an older channel: its counts are of other messages.
  if (!channel.open() || batch.channel != channel.channel()) return;
  for (const ServerEntry& entry : batch.entries) {
    std::visit([this, server](const auto& one) { OnEntry(server, one); }, entry);
  }
  channel.FlushIfIdle();
}

// The server's tables must be those of before: numbers of tables are on the wire.
void WorkerCore::OnWelcome(int server, Welcome welcome) {
  Server& from = servers_[server];
  if (!from.channel.OnWelcome(welcome.channel)) return;
  from.welcomed = true;
  if (ready_) {
    for (uint32_t table = 0; table < tables_.size(); ++table) {
      // A server that was started again with another program would take rows for others.
      const bool same =
          table < welcome.tables.size() && welcome.tables[table].spec == tables_[table].view.spec;
      if (same) {
        OnWelcomeTable(server, table, welcome.tables[table]);
      } else {
        FailTable(table, absl::FailedPreconditionError(absl::StrCat(
                             "table \"", tables_[table].view.spec.name, "\": server ", server,
                             " does not have it as it was; its program has been changed")));
      }
    }
  } else {
    from.tables = std::move(welcome.tables);
    from.failed.clear();
  }
  SendAgain(server);
  if (!ready_ && missing().empty()) Begin();
  // What the server has, though it was not known, can be the last mark.
  for (uint32_t table = 0; table < tables_.size(); ++table) Release(table);
}

// What the Welcomes say is kept until the last one has come, since the clock at which a table
// begins depends on all of them.
void WorkerCore::Begin() {
  ready_ = true;
  tables_differ_ = CompareTables(servers_);
  // No table, if they differ: Open returns the error.
  const size_t tables = tables_differ_.ok() ? servers_[0].tables.size() : 0;
  // table() returns references.
  tables_.reserve(tables);
  for (uint32_t table = 0; table < tables; ++table) {
    TableState& state = tables_.emplace_back(servers_[0].tables[table].spec, options_);
    const uint64_t clock = FirstClock(servers_, table, state.marked());
    state.view.clock = state.first = clock;
    for (int server = 0; server < options_.servers; ++server) {
      const Welcome::Table& welcome = servers_[server].tables[table];
      const bool behind = welcome.clock < clock;
      state.repeats = state.repeats || (welcome.repeats && welcome.clock == clock);
      state.servers[server].kept.Begin(behind ? welcome.at : Position{.clock = clock});
      OnWelcomeTable(server, table, welcome);
      if (!behind) continue;
      AddKept(server, table,
              {.call = next_call_++,
               .at = {.clock = clock},
               .is_clock = true,
               .first_clock = welcome.clock});
    }
  }
  Flush();
  for (Server& server : servers_) {
    for (const TableFailed& failed : server.failed) OnEntry(0, failed);
    server.tables.clear();
    server.failed.clear();
  }
}

void WorkerCore::OnWelcomeTable(int server, uint32_t table, const Welcome::Table& welcome) {
  TableState& state = tables_[table];
  TableAtServer& here = state.servers[server];
  if (!state.failed.ok()) return;
  // Rule 3. It can happen without snapshots, or when more hosts were lost than a snapshot has
  // copies.
  if (welcome.at < here.kept.freed()) {
    return FailTable(
        table, absl::DataLossError(absl::StrCat(
                   "table \"", state.view.spec.name, "\": server ", server,
                   " has lost pushes: it has those up to ", Name(welcome.at), ", and those up to ",
                   Name(here.kept.freed()), " are not kept any more")));
  }
  // What is behind `at` was done, perhaps, but by a life that has taken it along.
  here.had = welcome.at;
  here.snapshot_asked = false;
  state.SetMinClock(server, welcome.min_clock);
  OnPushesDone(here.kept.MarkDone(welcome.at));
  // In this order: done up to there, not done behind it, and free what cannot be lost.
  here.kept.MarkLost(welcome.at);
  if (tables_[table].has_snapshots()) OnPushesDone(here.kept.Free(welcome.durable));
  tables_[table].FreeDone(server);
}

// Pushes and clocks behind what the server has, and all that was asked, in the order of the calls.
void WorkerCore::SendAgain(int server, std::optional<uint32_t> only, uint64_t from) {
  struct Again {
    uint64_t call;
    uint32_t table;
    KeptEntries::Kept* kept;          // or
    WorkerChannel::Asked asked = {};  // if that is null
  };
  // From the tables' lists and the questions, which are each in order, one list in order.
  std::vector<Again> all;
  for (uint32_t table = 0; table < tables_.size(); ++table) {
    if (only.value_or(table) != table) continue;
    TableAtServer& here = tables_[table].servers[server];
    for (KeptEntries::Kept& kept : here.kept.entries()) {
      if (kept.call < from) continue;
      if (here.had < kept.at || DefectActive(Defect::kPsPushCountedTwice)) {
        all.push_back({kept.call, table, &kept});
      }
    }
  }
  if (!DefectActive(Defect::kPsPullsNotSentAgain)) {
    const auto& all_asked = servers_[server].channel.asked();
    for (auto asked = all_asked.lower_bound(from); asked != all_asked.end(); ++asked) {
      const std::optional<uint32_t> of = operations_.all.at(asked->second.ticket).table;
      if (!only.has_value() || of == only) all.push_back({asked->first, 0, nullptr, asked->second});
    }
  }
  std::sort(all.begin(), all.end(), [](const Again& a, const Again& b) { return a.call < b.call; });
  for (const Again& again : all) {
    if (again.kept != nullptr) {
      SendKept(server, again.table, *again.kept);
      continue;
    }
    Operation& operation = operations_.all.at(again.asked.ticket);
    SendQuestion(server, again.asked.ticket, operation, operation.questions[again.asked.piece]);
  }
  for (uint32_t table = 0; table < tables_.size(); ++table) AskIfNeeded(table);
  servers_[server].channel.Flush();
}

void WorkerCore::TableState::SetMinClock(int server, uint64_t clock) {
  servers[server].min_clock = clock;
  view.min_clock = clock;
  for (const TableAtServer& at : servers) view.min_clock = std::min(view.min_clock, at.min_clock);
}

// In the order in which they were sent, on this channel.
void WorkerCore::OnEntry(int server, const Done& done) {
  for (const WorkerChannel::Sent& sent : servers_[server].channel.OnDone(done.count)) {
    KeptEntries& kept = tables_[sent.table].servers[server].kept;
    const Ticket ticket = kept.MarkOneDone(sent.at);
    if (ticket != 0) OnPushesDone({ticket});
    if (DefectActive(Defect::kPsFreedWhenDone)) kept.Free(sent.at);
    tables_[sent.table].FreeDone(server);
  }
  for (uint32_t table = 0; table < tables_.size(); ++table) Release(table);
}

// An answer can come twice, when the pull was sent again, or after the call has ended: only the
// first one for an open question is written. An object that nothing waits for is read all the same,
// for the server.
void WorkerCore::OnEntry(int server, const Values& values) {
  Operation* const operation = operations_.Open(server, values.ticket, values.piece);
  if (operation == nullptr || !operation->table.has_value()) {
    const auto unwanted = servers_[server].channel.TakeUnwanted(values.ticket, values.piece);
    if (unwanted.has_value()) servers_[server].channel.AddRead(*unwanted);
    return;
  }
  Question& question = operation->questions[values.piece];
  const uint32_t table = *operation->table;
  const TableSpec& spec = tables_[table].view.spec;
  const uint64_t expected = question.piece.keys.count * LeastRowBytes(spec);
  // The clock is right also if the values are not.
  tables_[table].SetMinClock(server, values.min_clock);
  tables_[table].FreeDone(server);
  // A name for values, or the reverse, is an answer without any.
  if (question.by_object && !values.object.empty()) {
    if (question.fetch != 0) objects_.dropped.push_back(EndFetch(values.ticket, question));
    question.fetch = next_fetch_++;
    fetching_[question.fetch] = {values.ticket, values.piece};
    objects_.fetches.push_back({question.fetch, server, std::string(values.object), expected});
    return;
  }
  if (spec.lengths) {
    const absl::Status taken =
        TakeLengthRows(spec, question.piece, values.values, question.rows, operation->answer.rows);
    if (!taken.ok()) {
      return End(values.ticket, *operation,
                 absl::InternalError(absl::StrCat("table \"", spec.name, "\": server ", server,
                                                  " answered ", question.piece.keys.count,
                                                  " keys with other rows: ", taken.message())));
    }
    if (question.rows.count == question.piece.keys.count) {
      OnAnswered(values.ticket, *operation, question);
    }
    return;
  }
  if (question.by_object || values.values.size() != expected) {
    return End(values.ticket, *operation,
               absl::InternalError(absl::StrCat(
                   "table \"", spec.name, "\": server ", server, " answered ",
                   question.piece.keys.count, " keys with ", values.values.size(),
                   " bytes, expected ", question.by_object ? "an object of " : "", expected)));
  }
  ScatterRows(spec, question.piece, values.values, operation->out);
  OnAnswered(values.ticket, *operation, question);
}

// The answer came on the channel on which the question was sent. When that has closed, the server
// has forgotten it.
uint64_t WorkerCore::EndFetch(Ticket ticket, Question& question, bool lost) {
  const auto of = fetching_.extract(question.fetch);
  PHALANX_CHECK(!of.empty(), "a fetch under way");
  WorkerChannel& channel = servers_[question.piece.server].channel;
  if (channel.channel() == question.channel) {
    const uint32_t table = *operations_.all.at(ticket).table;
    channel.AddRead({.table = table, .ticket = ticket, .piece = of.mapped().second, .lost = lost});
  }
  return std::exchange(question.fetch, 0);
}

// The object cannot have changed, so it is the answer also when its server has died meanwhile.
void WorkerCore::OnFetched(uint64_t number, const absl::StatusOr<absl::string_view>& bytes,
                           const ShownBytes& shown) {
  const auto found = fetching_.find(number);
  if (found == fetching_.end()) return;
  const auto [ticket, piece] = found->second;
  Operation& operation = operations_.all.at(ticket);
  Question& question = operation.questions[piece];
  const TableState& state = tables_[*operation.table];
  const int server = question.piece.server;
  const uint64_t expected = question.piece.keys.count * LeastRowBytes(state.view.spec);
  // One of another size is an error at its end.
  if (bytes.ok() && shown.more) {
    if (shown.place > expected || bytes->size() > expected - shown.place) return;
    return ScatterBytes(state.view.spec, state.splitter, server, shown.place, *bytes,
                        operation.out);
  }
  absl::Status wrong = bytes.status();
  const bool lost = absl::IsNotFound(wrong) || absl::IsDataLoss(wrong);
  EndFetch(ticket, question, lost);
  if (bytes.ok() && bytes->size() != expected) {
    wrong = absl::InternalError(absl::StrCat(bytes->size(), " bytes, expected ", expected));
  }
  if (wrong.ok()) {
    if (!shown.copied) {
      ScatterPart(state.view.spec, state.splitter, server, bytes->data(), operation.out);
    }
    OnAnswered(ticket, operation, question);
  } else if (absl::IsNotFound(wrong) && !question.again) {
    // The server has taken it back, as that of a ring that was not made, and knows better by now.
    question.again = true;
    SendQuestion(server, ticket, operation, question);
  } else if (lost) {
    // Not at once: what makes objects vanish can last for a while.
    question.lost = true;
  } else {
    End(ticket, operation,
        absl::Status(wrong.code(), absl::StrCat(Where(*operation.table, operation.clock),
                                                ": the object with the rows of server ", server,
                                                ": ", wrong.message())));
  }
  servers_[server].channel.Flush();
}

// What entries have freed is with them until here, however they have gone.
WorkerCore::Objects WorkerCore::TakeObjects() {
  for (TableState& table : tables_) {
    if (!table.view.pushes_objects) continue;
    for (TableAtServer& at : table.servers) {
      for (std::string& name : at.kept.TakeFreed()) objects_.frees.push_back(std::move(name));
    }
  }
  return std::exchange(objects_, {});
}

// A ticket of a pull is none of a request: a server that mixes them up is ignored.
void WorkerCore::OnEntry(int server, const Response& response) {
  Operation* const operation = operations_.Open(server, response.ticket, 0);
  if (operation == nullptr || operation->table.has_value()) return;
  operation->answer = {.head = response.head, .body = std::string(response.body)};
  OnAnswered(response.ticket, *operation, operation->questions[0]);
}

void WorkerCore::OnEntry(int server, const Refused& refused) {
  servers_[server].channel.ForgetUnwanted(refused.ticket);
  // A push that the server refuses is not to be sent again, also if its call has ended before:
  // several servers can refuse it, or it was cancelled. 0 is a push of no call.
  for (TableState& table : tables_) {
    if (refused.ticket != 0) table.servers[server].kept.Drop(refused.ticket);
  }
  const auto found = operations_.all.find(refused.ticket);
  if (found == operations_.all.end()) return;
  Operation& operation = found->second;
  if (operation.ended.has_value()) return;
  if (operation.pushes > 0) OnPushRefused(*operation.table, refused.why);
  End(refused.ticket, operation, refused.why);
}

// Before Begin it is part of what the Welcome has said.
void WorkerCore::OnEntry(int server, const Durable& durable) {
  if (!ready_ && durable.table < servers_[server].tables.size()) {
    servers_[server].tables[durable.table].durable = durable.upto;
  }
  if (durable.table >= tables_.size()) return;
  TableAtServer& here = tables_[durable.table].servers[server];
  OnPushesDone(here.kept.Free(durable.upto));
  here.keep = durable.keep;
  here.snapshot_asked = false;
  Release(durable.table);
  AskIfNeeded(durable.table);
}

void WorkerCore::OnEntry(int server, const MinClock& min) {
  if (!ready_ && min.table < servers_[server].tables.size()) {
    servers_[server].tables[min.table].min_clock = min.clock;
  }
  if (min.table >= tables_.size()) return;
  tables_[min.table].SetMinClock(server, min.clock);
  tables_[min.table].FreeDone(server);
}

void WorkerCore::OnEntry(int server, const TableFailed& failed) {
  if (!ready_) servers_[server].failed.push_back(failed);
  if (failed.table < tables_.size()) FailTable(failed.table, failed.why);
}

// Without snapshots what is done is not kept. But with kBsp what is two clocks ahead waits at the
// server for the others, so it counts against snapshot_bytes here until then. An object is read by
// the server when the clock turns.
void WorkerCore::TableState::FreeDone(int server) {
  if (view.spec.snapshot_every > 0) return;
  TableAtServer& here = servers[server];
  const Position most = {.clock = here.min_clock + 2};
  Position upto = here.kept.freed();
  for (const KeptEntries::Kept& kept : here.kept.entries()) {
    if (!kept.done || (view.spec.sync == Sync::kBsp && most < kept.at)) break;
    if (!kept.object.empty() && here.min_clock <= kept.at.clock) break;
    upto = kept.at;
  }
  here.kept.Free(upto);
}

// ---- ends

// A ticket is there once for each of its entries.
void WorkerCore::OnPushesDone(const std::vector<Ticket>& tickets) {
  for (const Ticket ticket : tickets) {
    const auto found = operations_.all.find(ticket);
    if (found == operations_.all.end() || found->second.ended.has_value()) continue;
    --found->second.pushes;
    if (found->second.done()) End(ticket, found->second, absl::OkStatus());
  }
}

WorkerCore::Operation& WorkerCore::Operations::New(std::optional<uint32_t> table) {
  ++under_way;
  Operation& operation = all[next++];
  operation.table = table;
  return operation;
}

// Tickets and pieces come off the wire: each is checked before it is used.
WorkerCore::Operation* WorkerCore::Operations::Open(int server, Ticket ticket, uint32_t piece) {
  const auto found = all.find(ticket);
  if (found == all.end() || found->second.ended.has_value()) return nullptr;
  std::vector<Question>& questions = found->second.questions;
  if (piece >= questions.size() || questions[piece].answered) return nullptr;
  return questions[piece].piece.server == server ? &found->second : nullptr;
}

// The memory of the keys goes now, not when the whole call has ended.
void WorkerCore::OnAnswered(Ticket ticket, Operation& operation, Question& question) {
  servers_[question.piece.server].channel.Answered(question.call);
  // Keys are needed no more, and a pull of many pieces can wait for long for the last one. Where
  // rows with lengths lie is known when all have come.
  question.answered = true;
  question.piece.keys.list = nullptr;
  if (operation.answer.rows.lengths.empty()) question.piece.rows = {};
  --operation.pulls;
  if (operation.done()) End(ticket, operation, absl::OkStatus());
}

// The memory of the call is not touched from here on.
void WorkerCore::End(Ticket ticket, Operation& operation, absl::Status status) {
  for (Question& question : operation.questions) {
    if (question.answered) continue;
    WorkerChannel& channel = servers_[question.piece.server].channel;
    channel.Answered(question.call);
    if (!question.by_object) continue;
    if (question.fetch != 0) {
      objects_.dropped.push_back(EndFetch(ticket, question));
      channel.FlushIfIdle();
    } else if (!question.lost && channel.open() && channel.channel() == question.channel) {
      const auto piece = static_cast<uint32_t>(&question - operation.questions.data());
      channel.GiveUp({.table = *operation.table, .ticket = ticket, .piece = piece});
    }
  }
  if (RowData& rows = operation.answer.rows; status.ok() && !rows.lengths.empty()) {
    const TableSpec& spec = tables_[*operation.table].view.spec;
    rows.starts = StartsOf(rows.lengths);
    rows.bytes.resize(rows.starts.back() * ElementSize(spec.dtype));
    for (Question& question : operation.questions) {
      ScatterLengthRows(spec, question.piece, question.rows.values, rows);
      question.rows = {};
    }
  }
  operation.questions = {};
  operation.request = {};
  operation.out = nullptr;
  operation.ended = std::move(status);
  operations_.ended.push_back(ticket);
  --operations_.under_way;
}

void WorkerCore::FailTable(uint32_t table, const absl::Status& why) {
  TableState& state = tables_[table];
  if (!state.failed.ok()) return;
  state.failed = why;
  state.held.clear();
  // No server is sent anything more of the table, so nothing is kept, and Leave does not wait. One
  // that waits for what it has lost is not to hold up others for it.
  for (int server = 0; server < options_.servers; ++server) {
    state.servers[server].kept.Clear();
    servers_[server].anew = servers_[server].anew || state.servers[server].named;
  }
  std::vector<Ticket> tickets;
  for (const auto& [ticket, operation] : operations_.all) {
    if (operation.table == table && !operation.ended.has_value()) tickets.push_back(ticket);
  }
  // The map has no order.
  std::sort(tickets.begin(), tickets.end());
  for (const Ticket ticket : tickets) End(ticket, operations_.all.at(ticket), why);
}

std::optional<absl::Status> WorkerCore::Take(Ticket ticket) {
  const auto found = operations_.all.find(ticket);
  if (found == operations_.all.end()) {
    return absl::NotFoundError(
        absl::StrCat("ticket ", ticket, " is none of this worker, or was waited for before"));
  }
  if (!found->second.ended.has_value()) return std::nullopt;
  std::optional<absl::Status> status = std::move(found->second.ended);
  operations_.all.erase(found);
  return status;
}

std::optional<WorkerCore::Answer> WorkerCore::TakeAnswer(Ticket ticket) {
  const auto found = operations_.all.find(ticket);
  if (found == operations_.all.end()) return std::nullopt;
  const std::optional<absl::Status>& ended = found->second.ended;
  if (!ended.has_value() || !ended->ok()) return std::nullopt;
  return std::move(found->second.answer);
}

// Pushes stay kept, and are sent again: other workers may have seen them.
void WorkerCore::Cancel(Ticket ticket) {
  const auto found = operations_.all.find(ticket);
  if (found == operations_.all.end() || found->second.ended.has_value()) return;
  if (cutting_.has_value() && cutting_->ticket == ticket) cutting_->cancelled = true;
  End(ticket, found->second, absl::CancelledError("the call was cancelled"));
}

std::vector<WorkerCore::Ticket> WorkerCore::TakeEnded() {
  return std::exchange(operations_.ended, {});
}

std::string WorkerCore::WaitsFor(Ticket ticket) const {
  const auto found = operations_.all.find(ticket);
  if (found == operations_.all.end() || found->second.ended.has_value()) return "";
  const Operation& operation = found->second;
  std::vector<bool> waits(servers_.size(), false);
  std::vector<bool> fetches(servers_.size(), false);
  const auto wait = [&](int server, uint64_t call) {
    if (operation.table.has_value() && call >= tables_[*operation.table].HeldFrom()) {
      for (const int other : tables_[*operation.table].Unmarked()) waits[other] = true;
    } else {
      waits[server] = true;
    }
  };
  for (const Question& question : operation.questions) {
    if (!question.answered) wait(question.piece.server, question.call);
    if (question.fetch != 0) fetches[question.piece.server] = true;
  }
  for (int server = 0; server < options_.servers && operation.pushes > 0; ++server) {
    for (const auto& kept : tables_[*operation.table].servers[server].kept.entries()) {
      if (!kept.done && kept.ticket == ticket) wait(server, kept.call);
    }
  }
  std::vector<std::string> texts;
  for (size_t server = 0; server < servers_.size(); ++server) {
    if (!waits[server]) continue;
    texts.push_back(absl::StrCat("server ", server, " (",
                                 fetches[server] ? "its object is being made, or is on its way"
                                                 : servers_[server].channel.Describe(),
                                 ")"));
  }
  return absl::StrJoin(texts, ", ");
}

std::vector<WorkerCore::Send> WorkerCore::TakeSends() {
  std::vector<Send> sends;
  for (int server = 0; server < options_.servers; ++server) {
    // Not where the table has failed, which can be in the middle of a message. A server that is
    // away gets the right Hello when it is back.
    const bool anew = std::exchange(servers_[server].anew, false);
    if (anew && servers_[server].channel.state() != WorkerChannel::State::kAway)
      servers_[server].channel.OnReset();
    for (WorkerChannel::Message& message : servers_[server].channel.TakeMessages()) {
      sends.push_back({server, message.life, std::move(message.bytes)});
    }
  }
  return sends;
}

}  // namespace phalanx::ps::internal
