#include "src/ps/testing/ps_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"

namespace phalanx::ps::testing {
namespace {

constexpr uint64_t kProbeMicros = 30'000;
constexpr uint64_t kRetryMicros = 20'000;
// Far more than a run takes.
constexpr uint64_t kMostMicros = 60'000'000;

}  // namespace

PsWorld::PsWorld(uint64_t seed, const PsPlan& plan, uint64_t dies_at)
    : random_((seed * 7919 + 1) ^ dies_at << 40),
      plan_(plan),
      oracle_(plan_),
      workers_(static_cast<size_t>(plan_.workers)),
      servers_(static_cast<size_t>(plan_.servers)),
      reached_(static_cast<size_t>(plan_.workers), std::vector<uint64_t>(plan_.tables.size(), 0)),
      dies_at_(dies_at),
      faults_left_(plan_.chances.faults) {
  for (Server& server : servers_) server.stored.resize(plan_.tables.size());
}

std::vector<std::string> PsWorld::Run() {
  for (int rank = 0; rank < plan_.servers; ++rank) {
    After(Delay(), [this, rank] { BeginServer(rank); });
  }
  for (int rank = 0; rank < plan_.workers; ++rank) {
    After(Delay(), [this, rank] { BeginWorker(rank); });
  }
  if (faults_left_ > 0) After(random_.Below(20'000), [this] { Fault(); });
  while (wrong_.empty() && !events_.empty() && !AllIdle(Phase::kLeft)) {
    if (events_.begin()->first > kMostMicros) {
      Wrong(absl::StrCat("the run does not end: ", DescribeAll()));
      break;
    }
    RunEvent();
  }
  CheckVersionsLeft();
  for (const Worker& worker : workers_) {
    for (const auto& [call, bytes] : worker.given_up) {
      if (call->out != bytes) Wrong("the memory of a call that was cancelled has been written to");
    }
  }
  return wrong_;
}

void PsWorld::After(Micros delay, std::function<void()> event) {
  events_.emplace(now_ + delay, std::move(event));
}

void PsWorld::RunEvent() {
  now_ = events_.begin()->first;
  const std::function<void()> event = std::move(events_.begin()->second);
  events_.erase(events_.begin());
  event();
}

void PsWorld::Wrong(const std::string& what) {
  wrong_.push_back(absl::StrCat("at ", now_, " us: ", what));
}

std::string PsWorld::DescribeAll() const {
  std::string text;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    const Worker& worker = workers_[rank];
    absl::StrAppend(&text, "\nworker ", rank, " in life ", worker.life,
                    worker.live ? "" : " (dead)", ", clock ", worker.clock, ", step ", worker.step,
                    ", phase ", static_cast<int>(worker.phase));
    if (worker.core != nullptr) absl::StrAppend(&text, ", waits for ", worker.core->Pending());
    for (const auto& [ticket, call] : worker.calls) {
      absl::StrAppend(&text, "\n  call ", static_cast<int>(call->kind), " of table ",
                      call->read.table, " at clock ", call->read.clock, " waits for ",
                      worker.core->WaitsFor(ticket));
    }
  }
  for (const Server& server : servers_) {
    if (server.core != nullptr) absl::StrAppend(&text, "\n", server.core->Describe());
  }
  return text;
}

// ---- lives and links

void PsWorld::Fault() {
  if (--faults_left_ < 0) return;
  const double draw = random_.Unit();
  const int worker = static_cast<int>(random_.Below(workers_.size()));
  const int server = static_cast<int>(random_.Below(servers_.size()));
  if (draw < plan_.chances.worker_dies) {
    if (workers_[worker].live && workers_[worker].phase != Phase::kLeft) EndWorker(worker);
  } else if (draw < plan_.chances.worker_dies + plan_.chances.server_dies) {
    if (servers_[server].live) EndServer(server);
  } else {
    LoseLink(worker, server);
  }
  // Some come one upon the other.
  if (faults_left_ > 0) {
    After(random_.Below(random_.Chance(0.3) ? 500 : 10'000), [this] { Fault(); });
  }
}

bool PsWorld::IsLive(const Member& member, uint64_t life) const {
  return member.is_server ? servers_[member.rank].live && servers_[member.rank].life == life
                          : workers_[member.rank].live && workers_[member.rank].life == life;
}

uint64_t PsWorld::LifeOf(const Member& member) const {
  return member.is_server ? servers_[member.rank].life : workers_[member.rank].life;
}

void PsWorld::BeginWorker(int rank) {
  const uint64_t life = workers_[rank].life + 1;
  std::vector<std::pair<std::unique_ptr<Call>, std::string>> given_up =
      std::move(workers_[rank].given_up);
  workers_[rank] = Worker();
  Worker& worker = workers_[rank];
  worker.given_up = std::move(given_up);
  worker.life = life;
  worker.live = true;
  worker.core = std::make_unique<internal::WorkerCore>(
      internal::WorkerCore::Options{.rank = rank,
                                    .life = life,
                                    .servers = plan_.servers,
                                    .workers = plan_.workers,
                                    .objects = Member{false, rank}.Prefix(life),
                                    .object_part_bytes = plan_.object_bytes(),
                                    .batch_bytes = plan_.batch_bytes()});
  for (int server = 0; server < plan_.servers; ++server) News({false, rank}, {true, server});
  Announce({false, rank}, life, MemberState::kLive);
  Schedule(rank, 1);
  After(kProbeMicros, [this, rank, life] { Probe(rank, life); });
}

void PsWorld::EndWorker(int rank) {
  ++counts_.worker_deaths;
  oracle_.Died(rank);
  workers_[rank].live = false;
  Forget({false, rank}, workers_[rank].life);
  for (int server = 0; server < plan_.servers; ++server) {
    if (random_.Chance(0.5)) LoseSent(rank, server);
  }
  Announce({false, rank}, workers_[rank].life, MemberState::kDied);
  After(1'000 + random_.Below(20'000), [this, rank] { BeginWorker(rank); });
}

void PsWorld::BeginServer(int rank) {
  Server& server = servers_[rank];
  ++server.life;
  server.live = true;
  server.retries = false;
  server.core = std::make_unique<internal::ServerCore>(
      internal::ServerCore::Options{.rank = rank,
                                    .servers = plan_.servers,
                                    .workers = plan_.workers,
                                    .objects = Member{true, rank}.Prefix(server.life),
                                    .object_bytes = plan_.object_bytes(),
                                    .ring_bytes = plan_.ring_bytes(),
                                    .unsent_bytes = plan_.unsent_bytes(),
                                    .answer_bytes = plan_.answer_bytes(),
                                    .awaits_workers = plan_.awaits && server.life > 1});
  // Before anything that they send.
  for (int worker = 0; worker < plan_.workers && plan_.awaits; ++worker) {
    const auto found = states_.find({false, worker});
    if (found == states_.end()) continue;
    server.core->OnMember(worker, found->second, workers_[worker].life);
  }
  for (uint32_t table = 0; table < plan_.tables.size(); ++table) {
    const auto added = server.core->AddTable(plan_.tables[table]);
    PHALANX_CHECK(added.ok(), "a table of the plan");
    if (server.stored[table].empty()) continue;
    const auto& [number, bytes] = *server.stored[table].rbegin();
    const absl::Status restored = server.core->Restore(table, number, bytes);
    if (!restored.ok()) Wrong(absl::StrCat("Restore: ", restored.ToString()));
    ++counts_.restored;
  }
  for (int worker = 0; worker < plan_.workers; ++worker) News({true, rank}, {false, worker});
  Announce({true, rank}, server.life, MemberState::kLive);
  After(random_.Below(5'000), [this, rank, life = server.life] {
    if (!IsLive({true, rank}, life)) return;
    servers_[rank].core->Begin();
    Drain(servers_[rank], rank);
  });
}

void PsWorld::EndServer(int rank) {
  ++counts_.server_deaths;
  Server& server = servers_[rank];
  server.live = false;
  server.sums.clear();
  Forget({true, rank}, server.life);
  for (internal::ServerCore::Store& store : std::exchange(server.storing, {})) {
    if (random_.Chance(0.3)) server.stored[store.table][store.number] = std::move(store.bytes);
  }
  Announce({true, rank}, server.life, MemberState::kDied);
  After(1'000 + random_.Below(20'000), [this, rank] { BeginServer(rank); });
}

void PsWorld::LoseLink(int worker, int server) {
  ++counts_.lost_links;
  const auto is_end = [](const Member& member, bool is_server, int rank) {
    return member.is_server == is_server && member.rank == rank;
  };
  for (auto& [key, stream] : streams_) {
    const auto& [from, to] = key;
    const bool there = is_end(from.first, false, worker) && is_end(to.first, true, server);
    const bool back = is_end(from.first, true, server) && is_end(to.first, false, worker);
    if (!there && !back) continue;
    ++stream.link;
    // What arrives now has not yet; what has arrived may not have been acknowledged.
    if (stream.last >= now_ || random_.Chance(0.6)) stream.lost = true;
  }
}

void PsWorld::LoseSent(int worker, int server) {
  for (auto& [key, stream] : streams_) {
    const auto& [from, to] = key;
    if (from.first == Member{false, worker} && to.first == Member{true, server}) ++stream.link;
  }
}

void PsWorld::Announce(const Member& subject, uint64_t life, MemberState state) {
  states_[subject] = state;
  const int others = subject.is_server ? plan_.workers : plan_.servers;
  for (int rank = 0; rank < others; ++rank) {
    const Member to = {!subject.is_server, rank};
    if (!IsLive(to, LifeOf(to))) continue;
    Micros& heard = heard_[{to, LifeOf(to)}];
    heard = std::max(heard, now_ + Delay());
    events_.emplace(heard, [this, to, to_life = LifeOf(to), subject, life, state] {
      Hear(to, to_life, subject, life, state);
    });
  }
}

// A life that begins hears of those that are there.
void PsWorld::News(const Member& to, const Member& subject) {
  const auto found = states_.find(subject);
  if (found == states_.end()) return;
  Micros& heard = heard_[{to, LifeOf(to)}];
  heard = std::max(heard, now_ + Delay());
  events_.emplace(heard, [this, to, to_life = LifeOf(to), subject, life = LifeOf(subject),
                          state = found->second] { Hear(to, to_life, subject, life, state); });
}

void PsWorld::Hear(const Member& to, uint64_t to_life, const Member& subject, uint64_t life,
                   MemberState state) {
  if (!IsLive(to, to_life)) return;
  if (to.is_server) {
    servers_[to.rank].core->OnMember(subject.rank, state, life);
    Drain(servers_[to.rank], to.rank);
  } else {
    workers_[to.rank].core->OnServer(subject.rank, state == MemberState::kLive, life);
    Drain(workers_[to.rank], to.rank);
  }
}

void PsWorld::Carry(const Member& from, const Member& to, uint64_t to_life, std::string bytes) {
  const uint64_t from_life = LifeOf(from);
  // It can have died in the middle of what it sends.
  if (!IsLive(from, from_life)) return;
  if (from == Member{false, 0} && ++sent_ == dies_at_) return EndWorker(from.rank);
  Stream& stream = streams_[{{from, from_life}, {to, to_life}}];
  const bool refused = std::exchange(stream.lost, false);
  stream.last = std::max(stream.last, now_ + Delay());
  events_.emplace(stream.last, [this, from, from_life, to, to_life, refused, link = stream.link,
                                bytes = std::move(bytes)] {
    if (refused || !IsLive(to, to_life)) {
      if (IsLive(from, from_life)) Lost(from, to, to_life);
      return;
    }
    // It is on its way also when its sender has died.
    if (streams_[{{from, from_life}, {to, to_life}}].link != link) return;
    Arrive(from, from_life, to, bytes);
  });
}

void PsWorld::Arrive(const Member& from, uint64_t from_life, const Member& to,
                     absl::string_view bytes) {
  if (to.is_server) {
    servers_[to.rank].core->OnMessage(from.rank, from_life, bytes);
    Drain(servers_[to.rank], to.rank);
  } else {
    workers_[to.rank].core->OnMessage(from.rank, from_life, bytes);
    Drain(workers_[to.rank], to.rank);
  }
}

void PsWorld::Lost(const Member& at, const Member& to, uint64_t life) {
  if (at.is_server) {
    servers_[at.rank].core->OnLost(to.rank, life);
    Drain(servers_[at.rank], at.rank);
  } else {
    workers_[at.rank].core->OnLost(to.rank, life);
    Drain(workers_[at.rank], at.rank);
  }
}

// ---- servers

void PsWorld::Drain(Server& server, int rank) {
  internal::ServerCore::Effects effects = server.core->TakeEffects();
  ActOnObjects(server, rank, effects);
  if (server.core->wants_retry() && !server.retries) {
    server.retries = true;
    After(kRetryMicros, [this, rank, life = server.life] { Retry(rank, life); });
  }
  for (internal::ServerCore::Send& send : effects.sends) {
    After(SmallDelay(),
          [this, rank, life = server.life, to = send.worker, bytes = send.bytes.size()] {
            if (!IsLive({true, rank}, life)) return;
            servers_[rank].core->OnSent(to, bytes);
            Drain(servers_[rank], rank);
          });
    Carry({true, rank}, {false, send.worker}, send.life, std::move(send.bytes));
  }
  for (internal::ServerCore::Store& store : effects.stores) Store(rank, std::move(store));
  for (const internal::ServerCore::Free& free : effects.frees) {
    auto& stored = server.stored[free.table];
    if (!stored.empty() && stored.rbegin()->first <= free.number) {
      Wrong(absl::StrCat("server ", rank, " frees the newest snapshot"));
    }
    stored.erase(free.number);
  }
  for (const internal::ServerCore::Asked& asked : effects.asked) {
    After(random_.Below(3'000), [this, rank, life = server.life, asked] {
      if (!IsLive({true, rank}, life)) return;
      servers_[rank].core->Respond(asked, asked.head + 1, asked.body);
      Drain(servers_[rank], rank);
    });
  }
}

void PsWorld::Store(int rank, internal::ServerCore::Store store) {
  const uint32_t table = store.table;
  const uint64_t number = store.number;
  servers_[rank].storing.push_back(std::move(store));
  After(500 + random_.Below(15'000), [this, rank, life = servers_[rank].life, table, number] {
    if (IsLive({true, rank}, life)) Stored(rank, table, number);
  });
}

void PsWorld::Stored(int rank, uint32_t table, uint64_t number) {
  Server& server = servers_[rank];
  const auto found = std::find_if(
      server.storing.begin(), server.storing.end(),
      [table, number](const auto& one) { return one.table == table && one.number == number; });
  PHALANX_CHECK(found != server.storing.end(), "a snapshot that is under way");
  std::string bytes = std::move(found->bytes);
  server.storing.erase(found);
  if (!ending_ && random_.Chance(plan_.chances.store_fails)) {
    ++counts_.failed_stores;
    server.core->OnStoreFailed(table, number);
    After(kRetryMicros, [this, rank, life = server.life] { Retry(rank, life); });
  } else {
    server.stored[table][number] = std::move(bytes);
    server.core->OnStored(table, number);
  }
  Drain(server, rank);
}

void PsWorld::Retry(int rank, uint64_t life) {
  if (!IsLive({true, rank}, life)) return;
  servers_[rank].retries = false;
  servers_[rank].core->Retry();
  Drain(servers_[rank], rank);
}

// ---- workers

void PsWorld::Drain(Worker& worker, int rank) {
  for (internal::WorkerCore::Send& send : worker.core->TakeSends()) {
    Carry({false, rank}, {true, send.server}, send.life, std::move(send.bytes));
  }
  ActOnObjects(worker, rank);
  for (const Ticket ticket : worker.core->TakeEnded()) Ended(worker, rank, ticket);
  Schedule(rank, random_.Below(300) * (plan_.IsSlow(rank) ? 40 : 1));
}

void PsWorld::Schedule(int rank, Micros delay) {
  Worker& worker = workers_[rank];
  if (worker.scheduled || worker.phase == Phase::kLeft) return;
  worker.scheduled = true;
  After(delay, [this, rank, life = worker.life] {
    if (!IsLive({false, rank}, life)) return;
    workers_[rank].scheduled = false;
    Advance(rank);
  });
}

void PsWorld::Probe(int rank, uint64_t life) {
  if (!IsLive({false, rank}, life) || workers_[rank].phase == Phase::kLeft) return;
  workers_[rank].core->Probe();
  Drain(workers_[rank], rank);
  After(kProbeMicros, [this, rank, life] { Probe(rank, life); });
}

bool PsWorld::AllIdle(Phase least) const {
  return std::all_of(workers_.begin(), workers_.end(), [least](const Worker& worker) {
    return worker.phase == Phase::kLeft ||
           (worker.live && worker.phase >= least && worker.core->idle());
  });
}

void PsWorld::Begin(Worker& worker) {
  for (uint32_t table = 0; table < plan_.tables.size(); ++table) {
    const auto opened = worker.core->Open(plan_.tables[table].name);
    if (!opened.ok() || *opened != table) return Wrong("Open fails");
    worker.begun.push_back(worker.core->table(table).clock);
  }
  worker.clock = *std::min_element(worker.begun.begin(), worker.begun.end());
  worker.basis.resize(plan_.tables.size());
  worker.phase = Phase::kSteps;
}

void PsWorld::Advance(int rank) {
  Worker& worker = workers_[rank];
  if (!worker.core->ready() || worker.putting || worker.cutting) return;
  if (worker.phase == Phase::kBegin) Begin(worker);
  if (!wrong_.empty()) return;
  if (worker.waiting && !worker.calls.empty()) return;
  worker.waiting = false;
  if (worker.phase == Phase::kSteps) {
    if (worker.clock >= plan_.clocks_of[rank]) {
      worker.waiting = true;
      worker.core->Flush();
      worker.phase = plan_.clocks_of[rank] < plan_.clocks ? Phase::kLeaving : Phase::kIdle;
      if (worker.phase == Phase::kLeaving) worker.core->BeginLeave();
    } else {
      const auto& steps = plan_.steps[rank][worker.clock];
      const bool done = worker.step < steps.size() ? Do(worker, rank, steps[worker.step])
                                                   : EndClock(worker, rank);
      if (!done) return;
    }
  } else if (worker.phase == Phase::kIdle) {
    ending_ = ending_ || (faults_left_ <= 0 && AllIdle(Phase::kIdle));
    if (!ending_) return Schedule(rank, 2'000);
    worker.core->BeginLeave();
    worker.phase = Phase::kSettling;
  } else if (worker.phase == Phase::kSettling) {
    settled_ = settled_ || AllIdle(Phase::kSettling);
    if (!settled_) return Schedule(rank, 2'000);
    PullAll(worker, rank);
    worker.phase = Phase::kLeaving;
  } else if (worker.phase == Phase::kLeaving && worker.core->idle()) {
    worker.phase = Phase::kLeft;
    for (const auto& [name, object] : objects_) {
      if (object.owner == Member{false, rank} && object.life == worker.life) {
        Wrong(absl::StrCat("worker ", rank, " leaves the object ", name));
      }
    }
    return Announce({false, rank}, worker.life, MemberState::kLeft);
  }
  Drain(worker, rank);
}

bool PsWorld::Do(Worker& worker, int rank, const PsPlan::Step& step) {
  using Kind = PsPlan::Kind;
  if (step.kind == Kind::kWait) {
    worker.core->Flush();
    worker.waiting = true;
    ++worker.step;
    return true;
  }
  auto call = std::make_unique<Call>();
  call->kind = step.kind;
  if (step.kind == Kind::kRequest) {
    const auto ticket = worker.core->Request(step.server, 7, absl::StrCat("clock ", worker.clock));
    call->out = absl::StrCat("clock ", worker.clock);
    worker.calls[*ticket] = std::move(call);
    ++worker.step;
    return true;
  }
  // In another table an earlier life has ended this clock everywhere.
  if (worker.core->table(step.table).clock != worker.clock) {
    ++worker.step;
    return true;
  }
  if (step.kind != Kind::kPull && worker.core->must_wait(step.table)) {
    ++counts_.waits;
    worker.core->Flush();
    Drain(worker, rank);
    return false;
  }
  if (step.push > 0) oracle_.Made(step.table, rank, worker.clock, step.push);
  if (plan_.PushesObject(step)) return BeginPut(worker, rank, step);
  if (step.kind == Kind::kPush) {
    call->values = ValuesOf(worker, rank, step);
    call->lengths = plan_.LengthsOf(rank, worker.clock, step);
    call->read.keys = step.keys;
    call->servers = plan_.ServersOf(step.table, step.keys);
    const auto ticket = worker.core->Start({.table = step.table,
                                            .keys = call->read.keys,
                                            .servers = call->servers,
                                            .pushes = true,
                                            .values = call->values.data(),
                                            .lengths = call->lengths});
    if (!ticket.ok()) {
      Wrong(absl::StrCat("Push by worker ", rank, ": ", ticket.status().ToString()));
      return false;
    }
    call->read.table = step.table;
    call->read.clock = worker.clock;
    call->push = step.push;
    worker.calls[*ticket] = std::move(call);
    Cut(rank, worker.life);
  } else {
    const Ticket ticket = StartPull(worker, rank, step, false);
    if (step.cancel && step.kind == Kind::kPull) {
      After(random_.Below(2'000),
            [this, rank, life = worker.life, ticket] { Cancel(rank, life, ticket); });
    }
  }
  ++worker.step;
  return true;
}

std::string PsWorld::ValuesOf(const Worker& worker, int rank, const PsPlan::Step& step) const {
  return plan_.ValuesOf(rank, worker.clock, step, plan_.exact ? BasisOf(worker.basis) : 0);
}

PsWorld::Ticket PsWorld::StartPull(Worker& worker, int rank, const PsPlan::Step& step, bool last) {
  auto call = std::make_unique<Call>();
  call->kind = step.kind;
  call->basis = step.basis;
  call->dense = step.dense;
  call->push = step.push;
  call->read = {.table = step.table,
                .worker = rank,
                .clock = worker.core->table(step.table).clock,
                .begun = worker.begun[step.table],
                .last = last,
                .done = oracle_.done(),
                .keys = step.keys};
  // Its own pushes before it.
  if (!last) {
    for (size_t i = 0; i <= worker.step; ++i) {
      const PsPlan::Step& before = plan_.steps[rank][worker.clock][i];
      if (before.table == step.table) call->read.own = std::max(call->read.own, before.push);
    }
  }
  call->out.assign(step.keys.size() * plan_.RowBytes(step.table), '\x55');
  absl::StatusOr<Ticket> ticket = absl::InternalError("");
  const bool by_object = step.dense && worker.core->table(step.table).pulls_objects;
  if (step.push == 0 && by_object) {
    ticket = worker.core->PullDense(step.table, call->out.data());
  } else {
    if (step.push > 0) {
      call->values = ValuesOf(worker, rank, step);
      call->lengths = plan_.LengthsOf(rank, worker.clock, step);
    }
    call->servers = plan_.ServersOf(step.table, step.keys);
    ticket = worker.core->Start({.table = step.table,
                                 .keys = call->read.keys,
                                 .servers = call->servers,
                                 .pushes = step.push > 0,
                                 .values = call->values.data(),
                                 .lengths = call->lengths,
                                 .pulls = true,
                                 .out = call->out.data()});
  }
  if (!ticket.ok()) {
    Wrong(absl::StrCat("Pull by worker ", rank, ": ", ticket.status().ToString()));
    return 0;
  }
  worker.calls[*ticket] = std::move(call);
  Cut(rank, worker.life);
  return *ticket;
}

// The thread of the program is in the call meanwhile, and others take in what arrives.
void PsWorld::Cut(int rank, uint64_t life) {
  if (!IsLive({false, rank}, life)) return;
  Worker& worker = workers_[rank];
  const bool before = worker.cutting;
  worker.cutting = worker.core->Cut();
  if (before || worker.cutting) Drain(worker, rank);
  if (worker.cutting) After(SmallDelay(), [this, rank, life] { Cut(rank, life); });
}

void PsWorld::PullAll(Worker& worker, int rank) {
  for (uint32_t table = 0; table < plan_.tables.size(); ++table) {
    PsPlan::Step step;
    step.kind = PsPlan::Kind::kPull;
    step.table = table;
    step.keys = plan_.AllKeys(table);
    step.dense = plan_.objects && random_.Chance(0.5);
    StartPull(worker, rank, step, true);
  }
  worker.core->Flush();
  worker.waiting = true;
}

bool PsWorld::EndClock(Worker& worker, int rank) {
  for (uint32_t table = 0; table < plan_.tables.size(); ++table) {
    if (worker.core->table(table).clock != worker.clock) continue;
    absl::Status ended = worker.core->Clock(table);
    // The program has made that push again.
    if (worker.refused.erase(table) > 0) {
      if (ended.ok()) Wrong("a push was refused, and Clock returns OK");
      ended = worker.core->Clock(table);
    }
    if (!ended.ok()) {
      Wrong(absl::StrCat("Clock by worker ", rank, ": ", ended.ToString()));
      return false;
    }
    uint64_t& reached = reached_[rank][table];
    reached = std::max(reached, worker.clock + 1);
  }
  ++worker.clock;
  worker.step = 0;
  if (faults_left_ > 0 && random_.Chance(plan_.chances.dies_at_clock)) {
    --faults_left_;
    After(random_.Below(2'000), [this, rank, life = worker.life] {
      if (IsLive({false, rank}, life) && workers_[rank].phase != Phase::kLeft) EndWorker(rank);
    });
  }
  return true;
}

void PsWorld::Cancel(int rank, uint64_t life, Ticket ticket) {
  if (!IsLive({false, rank}, life)) return;
  Worker& worker = workers_[rank];
  const auto found = worker.calls.find(ticket);
  if (found == worker.calls.end()) return;
  found->second->cancelled = true;
  worker.core->Cancel(ticket);
  Drain(worker, rank);
}

void PsWorld::Ended(Worker& worker, int rank, Ticket ticket) {
  const auto found = worker.calls.find(ticket);
  if (found == worker.calls.end()) return Wrong("a call has ended twice");
  std::unique_ptr<Call> call = std::move(found->second);
  worker.calls.erase(found);
  const auto answer = worker.core->TakeAnswer(ticket);
  const absl::Status status =
      worker.core->Take(ticket).value_or(absl::InternalError("it has not ended"));
  if (call->cancelled) {
    if (!absl::IsCancelled(status)) Wrong("a call that was cancelled has not ended so");
    std::string bytes = call->out;
    worker.given_up.emplace_back(std::move(call), std::move(bytes));
    return;
  }
  // Of an object for which there is no memory.
  const bool may_fail = call->dense && call->kind == PsPlan::Kind::kPull && !plan_.exact;
  if (may_fail && absl::IsResourceExhausted(status)) return;
  if (!status.ok()) {
    return Wrong(absl::StrCat("a call of worker ", rank, " in life ", worker.life,
                              " has ended with ", status.ToString()));
  }
  if (call->kind == PsPlan::Kind::kRequest) {
    if (!answer.has_value() || answer->head != 8 || answer->body != call->out) {
      Wrong("a request has another answer");
    }
    return;
  }
  if (call->push > 0) oracle_.Done(call->read.table, rank, call->read.clock, call->push);
  if (call->kind == PsPlan::Kind::kPush) return;
  ++counts_.pulls;
  PsOracle::Read& read = call->read;
  if (plan_.tables[read.table].lengths) call->out = plan_.Filled(read.table, answer->rows);
  if (call->basis) worker.basis[read.table] = BasisOf(call->out);
  // A pull with keys in a clock that is made again can find a server ahead.
  const bool exact = plan_.exact && !plan_.IsCounts(read.table) &&
                     (call->dense || !worker.core->table(read.table).pushes_objects);
  const bool repeats = !exact && (read.begun > 0 || worker.life > 1);
  const uint64_t clock = worker.core->table(read.table).clock;
  read.latest_clock = std::max(clock, repeats ? reached_[rank][read.table] : 0);
  // Nothing was asked twice so far, so a pull has the state of its clock though nothing awaits it.
  const bool calm = counts_.worker_deaths + counts_.server_deaths + counts_.lost_links == 0;
  if (calm) read.latest_clock = read.clock;
  // A worker that was dropped comes again at a clock that it has not reached.
  if (repeats && plan_.tables[read.table].on_loss == OnLoss::kDrop) {
    read.latest_clock = plan_.clocks;
  }
  const std::string wrong = oracle_.Check(read, call->out, answer->rows.lengths);
  if (!wrong.empty()) Wrong(wrong);
}

}  // namespace phalanx::ps::testing
