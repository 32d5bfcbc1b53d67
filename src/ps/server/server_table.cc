#include "src/ps/server/server_table.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/ids/ids.h"
#include "src/common/status_macros.h"
#include "src/ps/rows/length_values.h"
#include "src/ps/rows/object_parts.h"
#include "src/ps/rows/ring_sums.h"
#include "src/ps/split.h"

namespace phalanx::ps::internal {
namespace {

absl::Status Prefixed(absl::string_view prefix, const absl::Status& why) {
  return {why.code(), absl::StrCat(prefix, why.message())};
}

// The errors of SyncCore and Part name the table; these add which entry it is.
absl::Status Placed(const absl::Status& why, absl::string_view what, uint64_t clock, int worker) {
  return {why.code(),
          absl::StrCat(why.message(), " (", what, " of clock ", clock, " by worker ", worker, ")")};
}

// OK if the values of a push are those of so many rows.
absl::Status CheckValues(const TableSpec& spec, absl::string_view values, size_t rows) {
  // A mark has neither keys nor values.
  if (spec.lengths && (rows > 0 || !values.empty())) {
    PHALANX_ASSIGN_OR_RETURN(const LengthValues read, ReadLengthValues(spec, values));
    if (read.lengths.size() == rows) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(read.lengths.size(), " lengths for ", rows, " keys"));
  }
  const uint64_t row = LeastRowBytes(spec);
  if (values.size() == rows * row) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("values of ", values.size(), " bytes; ", rows,
                                                 " keys of ", row, " bytes need ", rows * row));
}

// 0: the table is no object table.
uint64_t ObjectBytes(const TableSpec& spec, const ServerTable::Options& options) {
  const Splitter splitter(spec, options.servers);
  return IsObjectTable(spec, splitter, options.object_bytes)
             ? ObjectPartBytes(spec, splitter, options.rank)
             : 0;
}

bool PushesByObject(const TableSpec& spec, const ServerTable::Options& options) {
  return PushesObjects(spec, Splitter(spec, options.servers), options.workers,
                       options.object_bytes);
}

uint64_t RingBytes(const TableSpec& spec, const ServerTable::Options& options) {
  const uint64_t part = ObjectBytes(spec, options);
  return PushesByObject(spec, options) &&
                 SumsInRing(spec, part, options.workers, options.ring_bytes)
             ? part
             : 0;
}

}  // namespace

ServerTable::ServerTable(const Options& options, const TableSpec& spec, OwnUpdate own)
    : options_(options),
      spec_(spec),
      part_(spec, Splitter(spec, options.servers), options.rank, std::move(own)),
      by_object_{ObjectBytes(spec, options), PushesByObject(spec, options),
                 RingBytes(spec, options)},
      sync_({.table = spec.name,
             .sync = spec.sync,
             .staleness = spec.staleness,
             .workers = options.workers}),
      objects_(options.workers),
      versions_(absl::StrCat(options.objects, "/", options.number, "/"), spec.sync == Sync::kBsp,
                options.workers),
      pulls_(spec_, part_, options.workers, options.answer_bytes),
      of_worker_(options.workers),
      snapshots_(spec, options.workers) {}

uint64_t ServerTable::row_bytes() const { return LeastRowBytes(spec_); }

absl::Status ServerTable::Error(absl::StatusCode code, absl::string_view why) const {
  return {code, absl::StrCat("table \"", spec_.name, "\": ", why)};
}

uint64_t ServerTable::min() const {
  return turns_.first() == nullptr ? sync_.min() : turns_.first()->clock;
}

// The position of pushes that can die with the worker would be shown to its next life as one that
// it need not push again, and be in snapshots without them.
Position ServerTable::PositionOf(int worker) const {
  return objects_.SafeOf(worker).value_or(sync_.PositionOf(worker));
}

// ---- pushes, clocks and pulls

// Before anything of the push is taken: a refused push has changed nothing.
absl::Status ServerTable::CheckPush(const Push& push, const absl::StatusOr<KeyList>& keys) const {
  if (!keys.ok()) return Error(keys.status().code(), keys.status().message());
  const absl::Status values = CheckValues(spec_, push.values, (*keys)->size());
  if (!values.ok()) return Error(values.code(), values.message());
  return part_.CheckKeys(**keys);
}

absl::Status ServerTable::CheckObjectPush(int worker, uint64_t life, const Push& push) const {
  const auto refused = [&](absl::StatusCode code, auto... why) {
    return Placed(Error(code, absl::StrCat(why...)), "a push by object", push.at.clock, worker);
  };
  if (!has_object_pushes()) {
    return refused(absl::StatusCode::kInvalidArgument,
                   "its pushes are messages, as they are unless the table is dense, is of bsp and "
                   "not of assign, has parts of ",
                   options_.object_bytes, " bytes at least, and ", kMaxReduceSources,
                   " workers at most; it has ", options_.workers);
  }
  if (push.at.push == kAllPushes || !push.keys.keys.empty() || !push.values.empty()) {
    return refused(absl::StatusCode::kInvalidArgument, "a push by object has no keys and values");
  }
  // SyncCore refuses one of a later clock.
  if (push.at.clock > sync_.clocks().of(worker)) return absl::OkStatus();
  const uint64_t most = MaxClockObjects(options_.workers);
  if (!objects_.Has(worker, push.at) && objects_.CountFor(worker, life, push.at) >= most) {
    return refused(absl::StatusCode::kResourceExhausted, "a worker makes at most ", most,
                   " pushes of all keys in a clock");
  }
  return absl::OkStatus();
}

absl::Status ServerTable::OnObjectPush(int worker, uint64_t life, const Push& push) {
  PHALANX_RETURN_IF_ERROR(failed_);
  PHALANX_RETURN_IF_ERROR(CheckObjectPush(worker, life, push));
  const Position before = sync_.PositionOf(worker);
  const Token token = ++last_token_;
  PHALANX_ASSIGN_OR_RETURN(const bool counts, sync_.Push(worker, push.at, token));
  // What this life has not pushed again is not in its program.
  TakeOut(objects_.Older(worker, life, push.at));
  if (counts) {
    objects_.Add(token, {worker, push.at, before, life, std::string(push.object)});
    snapshots_.OnPushed(object_bytes(), part_.bytes());
  } else {
    Replace(worker, life, push, nullptr);
  }
  RunEffects(nullptr);
  return absl::OkStatus();
}

// SyncCore has the position already. If it was an object, it may be lost; and a life that goes on
// there does not repeat the life before if its program does not.
void ServerTable::Replace(int worker, uint64_t life, const Push& push, const KeyList& keys) {
  if (!has_object_pushes()) return;
  if (keys == nullptr) {
    const std::optional<Token> replaced = objects_.Replace(worker, push.at, life, push.object);
    if (replaced.has_value()) return sums_.OnReplaced(push.at);
  }
  std::optional<Token> earlier = kept_.Earlier(worker, push.at, life);
  if (keys == nullptr) {
    if (earlier.has_value()) ReplaceByObject(*earlier, push, worker, life);
    return;
  }
  if (!earlier.has_value()) {
    earlier = objects_.Earlier(worker, push.at, life);
    if (!earlier.has_value()) return;
    TakeOut({*earlier});
  }
  kept_.Add(*earlier, {worker, push.at, life, keys, std::string(push.values)});
}

void ServerTable::ReplaceByObject(Token token, const Push& push, int worker, uint64_t life) {
  Position before = {.clock = push.at.clock};
  before = std::max(before, kept_.Before(worker, push.at).value_or(before));
  before = std::max(before, objects_.Before(worker, push.at).value_or(before));
  kept_.Erase(token);
  objects_.Add(token, {worker, push.at, before, life, std::string(push.object)});
  sums_.OnChanged(push.at.clock);
}

absl::Status ServerTable::OnPush(int worker, uint64_t life, Push& push, KeyLists& lists) {
  if (!push.object.empty()) return OnObjectPush(worker, life, push);
  // In any case, and first: the worker has added the list to its own, and counts on the hash.
  const absl::StatusOr<KeyList> keys =
      FromWire(options_.number, std::move(push.keys), push.values.size() / row_bytes(), lists);
  PHALANX_RETURN_IF_ERROR(failed_);
  const absl::Status fits = CheckPush(push, keys);
  if (!fits.ok()) return Placed(fits, "a push", push.at.clock, worker);
  const Token token = ++last_token_;
  PHALANX_ASSIGN_OR_RETURN(const bool counts, sync_.Push(worker, push.at, token));
  TakeOut(objects_.Older(worker, life, push.at));
  if (!counts) {
    Replace(worker, life, push, *keys);
    RunEffects(nullptr);
    return absl::OkStatus();
  }
  snapshots_.OnPushed(push.values.size(), part_.bytes());
  // Views end with the message; a push of BSP waits for its clock to turn.
  if (spec_.sync == Sync::kBsp) {
    kept_.Add(token, {worker, push.at, life, *keys, std::string(push.values)});
  }
  const Incoming incoming{From{worker, push.at.clock, life}, **keys, push.values};
  RunEffects(&incoming);
  return absl::OkStatus();
}

absl::Status ServerTable::OnClock(int worker, uint64_t life, uint64_t clock) {
  PHALANX_RETURN_IF_ERROR(failed_);
  PHALANX_RETURN_IF_ERROR(sync_.Clock(worker, clock).status());
  TakeOut(objects_.Older(worker, life, Position{.clock = clock + 1}));
  RunEffects(nullptr);
  return absl::OkStatus();
}

absl::StatusOr<KeyList> ServerTable::KeysOfPull(int worker, Pull& pull, KeyLists& lists) const {
  // A worker that asks without waiting, or does not read, would take any memory here.
  const uint32_t waiting = pulls_.of(worker) + versions_.unread(worker);
  const absl::Status room = waiting < kMaxParkedPulls
                                ? absl::OkStatus()
                                : Error(absl::StatusCode::kResourceExhausted,
                                        absl::StrCat(waiting, " pulls of the worker wait already"));
  if (pull.object) {
    PHALANX_RETURN_IF_ERROR(room);
    if (object_bytes() > 0) return KeyList();
    return Error(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("its pulls are messages, as they are unless the table is dense and "
                              "has parts of ",
                              options_.object_bytes, " bytes at least"));
  }
  // The answer is one entry.
  const uint64_t most = std::max<uint64_t>(1, kBatchBytes / row_bytes());
  absl::StatusOr<KeyList> keys = FromWire(options_.number, std::move(pull.keys), most, lists);
  if (!keys.ok()) return Error(keys.status().code(), keys.status().message());
  PHALANX_RETURN_IF_ERROR(part_.CheckKeys(**keys));
  PHALANX_RETURN_IF_ERROR(room);
  return keys;
}

absl::Status ServerTable::OnPull(int worker, Pull& pull, KeyLists& lists) {
  // One that asks for more without taking its answers gets them made.
  if (pulls_.of(worker) + versions_.unread(worker) >= kMaxParkedPulls)
    pulls_.AnswerAllOf(worker, min());
  const bool run = pull.keys.form == WireKeys::Form::kRun;
  const uint64_t count = pull.keys.count;
  const Key begin = pull.keys.begin;
  absl::StatusOr<KeyList> keys = KeysOfPull(worker, pull, lists);
  PHALANX_RETURN_IF_ERROR(failed_);
  if (!keys.ok()) return Placed(keys.status(), "a pull", pull.clock, worker);
  const Token token = ++last_token_;
  PHALANX_RETURN_IF_ERROR(sync_.Pull(worker, pull.clock, token));
  pulls_.Add(token, {.worker = worker,
                     .ticket = pull.ticket,
                     .piece = pull.piece,
                     .clock = pull.clock,
                     .object = pull.object,
                     .keys = run ? nullptr : *std::move(keys),
                     .begin = begin,
                     .count = count});
  RunEffects(nullptr);
  return absl::OkStatus();
}

void ServerTable::OnAskSnapshot(int worker) {
  OfWorker& of = of_worker_[worker];
  snapshots_.Ask(worker, PositionOf(worker), of.dropped.first);
  // Objects of its clock can wait for what it does next, and it for room.
  of.asked = sync_.PositionOf(worker);
  of.next_snapshot.reset();
  const Position safe = PositionOf(worker);
  const Position ended = {.clock = of.asked.clock};
  if (safe < of.asked) of.next_snapshot = safe < ended ? ended : of.asked;
}

void ServerTable::AskAgain() {
  for (int worker = 0; worker < options_.workers; ++worker) {
    OfWorker& of = of_worker_[worker];
    const Position safe = PositionOf(worker);
    if (!of.next_snapshot.has_value() || safe < *of.next_snapshot) continue;
    of.next_snapshot.reset();
    if (safe < of.asked) of.next_snapshot = of.asked;
    snapshots_.Ask(worker, safe, of.dropped.first);
  }
}

// ---- workers

void ServerTable::Forget(int worker) {
  sync_.Forget(worker);
  DropPulls(worker);
  versions_.Forget(worker);
}

// In all three cases the pulls of that life are answered by no one any more.
void ServerTable::Lose(int worker, uint64_t life) {
  switch (spec_.on_loss) {
    // Others wait for it at its clock, and its next life goes on there.
    case OnLoss::kWait:
      Forget(worker);
      return;
    case OnLoss::kDrop:
      Leave(worker);
      return;
    // The table is given up, rather than trained without the worker's part of the data.
    case OnLoss::kFail:
      Forget(worker);
      Fail(Error(absl::StatusCode::kUnavailable,
                 absl::StrCat("worker ", worker, " died in life ", life, " at clock ",
                              sync_.clocks().of(worker))));
      return;
  }
}

void ServerTable::Leave(int worker) {
  sync_.Remove(worker);
  // Snapshots up to the one that may be under way have been made with what was dropped.
  // Its objects go with it, those of clocks that it has ended, too.
  TakeOut(objects_.Of(worker));
  of_worker_[worker].dropped = {snapshots_.last_number() + 1, sync_.PositionOf(worker)};
  DropPulls(worker);
  versions_.Forget(worker);
  RunEffects(nullptr);
}

// A worker that was dropped, or has left, and comes back in its next life.
void ServerTable::Join(int worker) {
  if (sync_.clocks().counted(worker)) return;
  sync_.Rejoin(worker);
  RunEffects(nullptr);
}

void ServerTable::DropPulls(int worker) {
  if (!pulls_.Drop(worker)) return;
  turns_.DropPulls([this](Token pull) { return pulls_.Find(pull) == nullptr; });
}

// ---- effects

// Effects of a failed table are dropped: its rows are not read any more.
void ServerTable::RunEffects(const Incoming* incoming) {
  for (SyncCore::Effect& effect : sync_.TakeEffects()) {
    // An update that has failed leaves rows half changed: nothing is applied or answered after it.
    if (!failed_.ok()) break;
    if (std::holds_alternative<SyncCore::Apply>(effect)) {
      // SSP and ASP: the effect is that of the push that is under way.
      PHALANX_CHECK(incoming != nullptr, "a push counts when it comes");
      Apply(*incoming);
    } else if (auto* turn = std::get_if<SyncCore::Turn>(&effect)) {
      turns_.Add(std::move(*turn));
    } else if (const auto* answer = std::get_if<SyncCore::Answer>(&effect)) {
      turns_.AddPull(pulls_.Find(answer->pull)->clock, answer->pull);
    } else {
      const Token dropped = std::get<SyncCore::Drop>(effect).push;
      kept_.Erase(dropped);
      objects_.Erase(dropped);
    }
  }
  Proceed();
}

void ServerTable::Proceed() {
  while (failed_.ok()) {
    if (const std::optional<Token> pull = turns_.TakePull()) {
      AnswerPull(*pull);
      continue;
    }
    const SyncCore::Turn* const first = turns_.first();
    if (first == nullptr) break;
    if (sums_.Await() && !DefectActive(Defect::kPsTurnNotAwaited)) break;
    TakeTurn(turns_.TakeTurn(), nullptr);
  }
  // What a ring makes is the answer of all that pull all rows behind the turn: nothing else is in
  // them then. They read it while it is made.
  while (failed_.ok() && sums_.answers_ahead()) {
    const auto wanted = [this](Token token) {
      const WaitingPulls::Pull* const pull = pulls_.Find(token);
      return pull != nullptr && pull->object;
    };
    const std::optional<Token> token = turns_.TakePullBehind(wanted);
    if (!token.has_value()) break;
    const WaitingPulls::Pull pull = pulls_.Take(*token);
    pulls_.AddAnswer({.worker = pull.worker,
                      .values = {.ticket = pull.ticket, .piece = pull.piece, .min_clock = min()},
                      .object = versions_.AnswerAhead({pull.worker, pull.ticket, pull.piece})});
  }
  snapshots_.OnMin(min());
  MakeFile();
}

void ServerTable::TakeOut(const std::vector<Token>& pushes) {
  if (pushes.empty()) return;
  sums_.TakeOut(pushes);
  AskAgain();
}

bool ServerTable::OnReduced(uint64_t attempt, absl::string_view sum, bool target) {
  if (!failed_.ok() || !turns_.Takes(attempt)) return false;
  if (sum.size() != object_bytes()) {
    Fail(Error(absl::StatusCode::kInternal,
               absl::StrCat("server ", options_.rank, ": ", sums_.NameOf(""), " has ", sum.size(),
                            " bytes; the part has ", object_bytes())));
    return false;
  }
  // The rows are in the sum whether a ring has made it or not.
  const bool ring = sums_.has_rows(attempt);
  const bool made = target && versions_.ahead(attempt);
  if (ring) sums_.OnRing(attempt, made);
  // The owner ends the others itself.
  sums_.Void();
  sums_.TakeCancelled();
  TakeTurn(turns_.TakeTurn(), sum.data(), ring);
  Proceed();
  return made;
}

void ServerTable::OnReduceFailed(uint64_t attempt, const absl::Status& why,
                                 absl::string_view handle, const TurnSums::Lives& lives) {
  if (!failed_.ok()) return;
  const absl::Status failed = sums_.OnFailed(attempt, why, handle, lives);
  if (failed.ok()) return;
  Fail(Error(failed.code(), absl::StrCat("server ", options_.rank, ": ", failed.message())));
}

// At once, whatever else is under way: other servers make theirs of the same state, as the end of a
// clock reaches them one by one. When several clocks turn in one event, as when a worker leaves
// that was behind, there is one file behind all of them: between two turns the pushes of the next
// ones are neither in the rows nor kept.
void ServerTable::MakeFile() {
  const uint64_t every = spec_.snapshot_every;
  const bool exact = spec_.sync == Sync::kBsp && spec_.on_loss == OnLoss::kWait && every > 0;
  if (!options_.files || !exact || !failed_.ok()) return;
  const uint64_t before = std::exchange(files_.min, min());
  if (files_.min / every == before / every) return;
  const uint64_t number = snapshots_.last_number() + 1;
  files_.made.push_back({files_.min, number, Save(number)});
}

// One buffer for all: the values are used before the next ones are converted. What is pushed was
// checked before.
ServerTable::Pushed ServerTable::Elements(absl::string_view values) {
  lengths_.clear();
  if (spec_.lengths && !values.empty()) {
    LengthValues read = *ReadLengthValues(spec_, values);
    lengths_ = std::move(read.lengths);
    values = read.elements;
  }
  if (spec_.wire == spec_.dtype) return {values.data(), lengths_};
  const uint64_t elements = values.size() / ElementSize(spec_.wire);
  scratch_.resize(elements * ElementSize(spec_.dtype));
  Convert(spec_.wire, spec_.dtype, values.data(), scratch_.data(), elements);
  return {scratch_.data(), lengths_};
}

void ServerTable::Apply(const Incoming& incoming) {
  const From& from = incoming.from;
  // What the worker has asked for before is without this push.
  pulls_.AnswerAllOf(from.worker, min());
  versions_.OnChange(rows(), 0);
  const Pushed pushed = Elements(incoming.values);
  const absl::Status made = part_.Push(from, incoming.keys, pushed.values, pushed.lengths);
  if (!made.ok()) Fail(Placed(made, "with a push", from.clock, from.worker));
}

// The sum of all pushes of the clock first, then one update for each key. A program's function sees
// the sum.
void ServerTable::TakeTurn(const SyncCore::Turn& turn, const void* sum, bool ring) {
  // Those of a worker that has ended its clock without its answers are of the clock before.
  pulls_.AnswerAll(min());
  versions_.OnChange(rows(), turn.clock);
  const absl::Status made = AddAndTurn(turn, sum, ring);
  if (sum != nullptr) AskAgain();
  if (made.ok()) return;
  Fail({made.code(), absl::StrCat(made.message(), " (with the pushes of clock ", turn.clock, ")")});
}

// Pushes that were taken out are in neither map.
absl::Status ServerTable::AddAndTurn(const SyncCore::Turn& turn, const void* sum, bool ring) {
  const bool has_keys =
      absl::c_any_of(turn.pushes, [this](const Token token) { return kept_.Has(token); });
  if (sum != nullptr && has_keys) part_.AddAll(sum);
  for (const Token token : turn.pushes) {
    objects_.Erase(token);
    const KeptPushes::One* const kept = kept_.Find(token);
    if (kept == nullptr) continue;
    const Pushed pushed = Elements(kept->values);
    part_.Add(*kept->keys, pushed.values, pushed.lengths);
    kept_.Erase(token);
  }
  if (ring) {
    part_.SetAll(sum);
    return absl::OkStatus();
  }
  if (sum != nullptr && !has_keys) return part_.TurnAll(turn.clock, sum);
  return part_.Turn(turn.clock);
}

// The worker's channel may have closed while the pull waited for a turn. A name needs no room.
void ServerTable::AnswerPull(Token token) {
  const WaitingPulls::Pull* const pull = pulls_.Find(token);
  if (pull == nullptr) return;
  if (!pull->object) return pulls_.MakeReady(token);
  const WaitingPulls::Pull all = pulls_.Take(token);
  const Versions::Reader reader{all.worker, all.ticket, all.piece};
  // A worker that is beyond the clock makes it again in its next life, for another server: with
  // kBsp it gets what the life before has had, or its pushes there would be others.
  const bool again = all.clock < sync_.clocks().of(all.worker) && versions_.has_previous(all.clock);
  pulls_.AddAnswer({.worker = all.worker,
                    .values = {.ticket = all.ticket, .piece = all.piece, .min_clock = min()},
                    .object = again ? versions_.AnswerPrevious(reader) : versions_.Answer(reader)});
}

// The first reason stays. What waits is answered with it by the owner, which knows the channels.
void ServerTable::Fail(absl::Status why) {
  if (!failed_.ok()) return;
  failed_ = std::move(why);
  newly_failed_ = true;
  kept_.Clear();
  objects_.Clear();
  sums_.Void();
  turns_.Clear();
  versions_.Clear();
  pulls_.Clear();
}

void ServerTable::ReleasePulls() {
  turns_.Hold(false);
  while (const std::optional<Token> pull = turns_.TakePull()) AnswerPull(*pull);
}

// ---- snapshots

// Between two events, so positions, clocks and rows are of one moment: what is in the rows is
// exactly what is at or before the positions, less what is kept.
std::optional<ServerTable::Taken> ServerTable::TakeSnapshot() {
  // The rows of a failed table can have half of an update.
  if (!snapshots_.due() || !failed_.ok()) return std::nullopt;
  const SyncCore::Saved saved = SafeState();
  const uint64_t number = snapshots_.Begin(saved.min, saved.positions);
  // Nothing is written, and workers keep what they push no longer.
  if (snapshots_.given_up()) {
    snapshots_.Stored(number);
    return std::nullopt;
  }
  return Taken{number, Save(number)};
}

std::string ServerTable::Save(uint64_t number) const {
  const SyncCore::Saved saved = SafeState();
  // A turn has all its pushes or none of them, so no Add is between two calls.
  const std::string part = part_.Save();
  Snapshot snapshot{.number = number,
                    .rank = options_.rank,
                    .servers = options_.servers,
                    .spec = spec_,
                    .min = saved.min,
                    .clocks = saved.clocks,
                    .positions = saved.positions,
                    .part = part};
  // With BSP the workers' pushes of clocks that have not turned belong to the state: their
  // positions are in it.
  for (const SyncCore::Saved::Kept& kept : saved.kept) {
    const KeptPushes::One& push = *kept_.Find(kept.push);
    snapshot.kept.push_back({kept.worker, kept.at, push.keys, push.values});
  }
  return Encode(snapshot);
}

// As SyncCore has saved it if the turns that wait had not been made, and all workers had come up to
// their positions alone: the rows are those of before the first turn, and objects are not saved.
// Pushes that were taken out are in neither map.
SyncCore::Saved ServerTable::SafeState() const {
  SyncCore::Saved saved = sync_.Save();
  if (!has_object_pushes()) return saved;
  saved.min = min();
  const auto safe_of = [this](int worker) {
    return DefectActive(Defect::kPsLostPushSaved) ? std::nullopt : objects_.SafeOf(worker);
  };
  for (int worker = 0; worker < options_.workers; ++worker) {
    const std::optional<Position> safe = safe_of(worker);
    if (!safe.has_value()) continue;
    saved.clocks[worker].clock = safe->clock;
    saved.positions[worker] = *safe;
  }
  for (const Token token : turns_.pushes()) {
    const KeptPushes::One* const kept = kept_.Find(token);
    if (kept != nullptr) saved.kept.push_back({kept->worker, kept->at, token});
  }
  std::erase_if(saved.kept, [&](const SyncCore::Saved::Kept& kept) {
    const std::optional<Position> safe = safe_of(kept.worker);
    return !kept_.Has(kept.push) || (safe.has_value() && kept.at > *safe);
  });
  absl::c_sort(saved.kept, [](const auto& a, const auto& b) {
    return std::tie(a.worker, a.at) < std::tie(b.worker, b.at);
  });
  return saved;
}

// Up to where the worker can drop what it keeps.
Position ServerTable::DurableOf(int worker) const {
  Position stored = snapshots_.stored(worker);
  // A snapshot that was under way then shows pushes that its next life makes again, and that can be
  // lost.
  const Dropped& dropped = of_worker_[worker].dropped;
  if (snapshots_.stored_number() < dropped.first) stored = std::min(stored, dropped.at);
  if (spec_.sync != Sync::kBsp) return stored;
  return std::min(stored, Position{.clock = min() + 2});
}

bool ServerTable::Shows(int worker) const {
  return !snapshots_.enabled() || snapshots_.given_up() || !failed_.ok() ||
         snapshots_.stored(worker) == PositionOf(worker);
}

bool ServerTable::MakesRoom() const {
  return spec_.sync == Sync::kBsp && !snapshots_.enabled() && shown_.min != min();
}

// With BSP also by m alone, as DurableOf is bounded by it.
bool ServerTable::TakeDurableRisen() {
  const uint64_t number = snapshots_.stored_number();
  const bool turned = spec_.sync == Sync::kBsp && number > 0 && shown_.min != min();
  shown_.min = min();
  return std::exchange(shown_.number, number) != number || turned;
}

absl::Status ServerTable::Restore(uint64_t number, absl::string_view bytes) {
  const std::string prefix = absl::StrCat("table \"", spec_.name, "\": snapshot ", number, ": ");
  const absl::StatusOr<Snapshot> snapshot = DecodeSnapshot(bytes);
  if (!snapshot.ok()) return Prefixed(prefix, snapshot.status());
  if (snapshot->number != number) {
    return absl::InvalidArgumentError(absl::StrCat(prefix, "its number is ", snapshot->number));
  }
  // With another number of servers the keys are split in another way.
  if (snapshot->rank != options_.rank || snapshot->servers != options_.servers) {
    return absl::InvalidArgumentError(absl::StrCat(prefix, "it is of server ", snapshot->rank,
                                                   " of ", snapshot->servers, "; this is server ",
                                                   options_.rank, " of ", options_.servers));
  }
  if (snapshot->spec != spec_) {
    return absl::InvalidArgumentError(
        absl::StrCat(prefix, "the table's spec is another one than when it was made (table \"",
                     snapshot->spec.name, "\")"));
  }
  const absl::Status loaded = LoadSnapshot(*snapshot);
  if (!loaded.ok()) return Prefixed(prefix, loaded);
  snapshots_.Restored(number, sync_.min(), snapshot->positions);
  files_.min = sync_.min();
  return absl::OkStatus();
}

absl::Status ServerTable::LoadSnapshot(const Snapshot& snapshot) {
  SyncCore::Saved saved{
      .clocks = snapshot.clocks, .positions = snapshot.positions, .kept = {}, .min = snapshot.min};
  KeptPushes kept;
  for (const Snapshot::KeptPush& push : snapshot.kept) {
    PHALANX_RETURN_IF_ERROR(part_.CheckKeys(*push.keys));
    const absl::Status values = CheckValues(spec_, push.values, push.keys->size());
    if (!values.ok()) return Prefixed(absl::StrCat("a push of worker ", push.worker, ": "), values);
    saved.kept.push_back({push.worker, push.at, ++last_token_});
    kept.Add(last_token_, {push.worker, push.at, 0, push.keys, std::string(push.values)});
  }
  // Clocks and rows are loaded both or not at all.
  const SyncCore::Saved before = sync_.Save();
  PHALANX_RETURN_IF_ERROR(sync_.Load(saved));
  const absl::Status loaded = part_.Load(snapshot.part);
  if (!loaded.ok()) {
    const absl::Status back = sync_.Load(before);
    PHALANX_CHECK(back.ok(), "what was saved loads");
    return loaded;
  }
  kept_ = std::move(kept);
  return absl::OkStatus();
}

// ---- describe

std::string ServerTable::Describe() const {
  std::string text = absl::StrCat("table \"", spec_.name, "\": ", SyncName(spec_.sync), ", clock ",
                                  min(), ", ", part_.rows(), " rows, ", part_.bytes(), " bytes");
  if (snapshots_.enabled()) {
    absl::StrAppend(&text, ", snapshot ", snapshots_.stored_number(),
                    snapshots_.given_up()    ? ", and no further ones"
                    : snapshots_.under_way() ? ", the next one under way"
                    : snapshots_.failed()    ? ", the next one could not be stored"
                                             : "");
  }
  absl::StrAppend(&text, "\n");
  if (!failed_.ok()) absl::StrAppend(&text, "  failed: ", failed_.ToString(), "\n");
  text += sums_.Describe();
  // The first pull of each worker that waits; all of one worker wait for the same one.
  absl::flat_hash_map<int, SyncCore::Parked> first;
  for (const SyncCore::Parked& parked : sync_.parked()) first.emplace(parked.worker, parked);
  const Clocks& clocks = sync_.clocks();
  for (int worker = 0; worker < clocks.workers(); ++worker) {
    if (worker == kDescribedWorkers) {
      absl::StrAppend(&text, "  and ", clocks.workers() - worker, " more workers\n");
      break;
    }
    absl::StrAppend(&text, "  worker ", worker, ": clock ", clocks.of(worker),
                    clocks.counted(worker) ? "" : ", not counted");
    const auto found = first.find(worker);
    if (found != first.end()) {
      absl::StrAppend(&text, ", ", pulls_.of(worker) - pulls_.ready(worker), " pulls of clock ",
                      found->second.clock, " on wait for worker ", found->second.on);
    }
    if (pulls_.ready(worker) > 0) {
      absl::StrAppend(&text, ", ", pulls_.ready(worker), " answers wait for room");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace phalanx::ps::internal
