#include "src/ps/server/server_table.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"
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

}  // namespace

ServerTable::ServerTable(const Options& options, const TableSpec& spec, OwnUpdate own)
    : options_(options),
      spec_(spec),
      part_(spec, Splitter(spec, options.servers), options.rank, std::move(own)),
      sync_({.table = spec.name,
             .sync = spec.sync,
             .staleness = spec.staleness,
             .workers = options.workers}),
      parked_(options.workers),
      dropped_(options.workers),
      snapshots_(spec, options.workers) {}

uint64_t ServerTable::row_bytes() const { return spec_.width * ElementSize(spec_.wire); }

absl::Status ServerTable::Error(absl::StatusCode code, absl::string_view why) const {
  return {code, absl::StrCat("table \"", spec_.name, "\": ", why)};
}

// ---- pushes, clocks and pulls

// Before anything of the push is taken: a refused push has changed nothing.
absl::Status ServerTable::CheckPush(const Push& push, const absl::StatusOr<KeyList>& keys) const {
  if (!keys.ok()) return Error(keys.status().code(), keys.status().message());
  const uint64_t expected = (*keys)->size() * row_bytes();
  if (push.values.size() != expected) {
    return Error(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("values of ", push.values.size(), " bytes; ", (*keys)->size(),
                              " keys of ", row_bytes(), " bytes need ", expected));
  }
  return part_.CheckKeys(**keys);
}

absl::Status ServerTable::OnPush(int worker, uint64_t life, Push& push, KeyLists& lists) {
  // In any case, and first: the worker has added the list to its own, and counts on the hash.
  const absl::StatusOr<KeyList> keys =
      FromWire(options_.number, std::move(push.keys), push.values.size() / row_bytes(), lists);
  PHALANX_RETURN_IF_ERROR(failed_);
  const absl::Status fits = CheckPush(push, keys);
  if (!fits.ok()) return Placed(fits, "a push", push.at.clock, worker);
  const Token token = ++last_token_;
  PHALANX_ASSIGN_OR_RETURN(const bool counts, sync_.Push(worker, push.at, token));
  if (!counts) return absl::OkStatus();
  snapshots_.OnPushed(push.values.size());
  // Views end with the message; a push of BSP waits for its clock to turn.
  if (spec_.sync == Sync::kBsp) {
    kept_.emplace(token, Kept{worker, push.at, *keys, std::string(push.values)});
  }
  const Incoming incoming{From{worker, push.at.clock, life}, **keys, push.values};
  RunEffects(&incoming);
  return absl::OkStatus();
}

absl::Status ServerTable::OnClock(int worker, uint64_t clock) {
  PHALANX_RETURN_IF_ERROR(failed_);
  PHALANX_RETURN_IF_ERROR(sync_.Clock(worker, clock).status());
  RunEffects(nullptr);
  return absl::OkStatus();
}

absl::Status ServerTable::OnPull(int worker, Pull& pull, KeyLists& lists) {
  // The answer is one entry.
  const uint64_t most = std::max<uint64_t>(1, kBatchBytes / row_bytes());
  absl::StatusOr<KeyList> keys = FromWire(options_.number, std::move(pull.keys), most, lists);
  PHALANX_RETURN_IF_ERROR(failed_);
  absl::Status fits =
      keys.ok() ? part_.CheckKeys(**keys) : Error(keys.status().code(), keys.status().message());
  // A worker that asks without waiting would take any memory here.
  if (fits.ok() && parked_[worker] >= kMaxParkedPulls) {
    fits = Error(absl::StatusCode::kResourceExhausted,
                 absl::StrCat(parked_[worker], " pulls of the worker wait already"));
  }
  if (!fits.ok()) return Placed(fits, "a pull", pull.clock, worker);
  const Token token = ++last_token_;
  PHALANX_RETURN_IF_ERROR(sync_.Pull(worker, pull.clock, token));
  pulls_.emplace(token, Parked{worker, pull.ticket, pull.piece, *std::move(keys)});
  ++parked_[worker];
  RunEffects(nullptr);
  return absl::OkStatus();
}

void ServerTable::OnAskSnapshot(int worker) {
  snapshots_.Ask(worker, sync_.PositionOf(worker), dropped_[worker].first);
}

// ---- workers

void ServerTable::Forget(int worker) {
  sync_.Forget(worker);
  DropPulls(worker);
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
  dropped_[worker] = {snapshots_.last_number() + 1, sync_.PositionOf(worker)};
  DropPulls(worker);
  RunEffects(nullptr);
}

// A worker that was dropped, or has left, and comes back in its next life.
void ServerTable::Join(int worker) {
  if (sync_.clocks().counted(worker)) return;
  sync_.Rejoin(worker);
  RunEffects(nullptr);
}

void ServerTable::DropPulls(int worker) {
  absl::erase_if(pulls_, [worker](const auto& entry) { return entry.second.worker == worker; });
  parked_[worker] = 0;
}

// ---- effects

// Effects of a failed table are dropped: its rows are not read any more.
void ServerTable::RunEffects(const Incoming* incoming) {
  for (const SyncCore::Effect& effect : sync_.TakeEffects()) {
    // An update that has failed leaves rows half changed: nothing is applied or answered after it.
    if (!failed_.ok()) break;
    if (std::holds_alternative<SyncCore::Apply>(effect)) {
      // SSP and ASP: the effect is that of the push that is under way.
      PHALANX_CHECK(incoming != nullptr, "a push counts when it comes");
      Apply(*incoming);
    } else if (const auto* turn = std::get_if<SyncCore::Turn>(&effect)) {
      TakeTurn(*turn);
    } else if (const auto* answer = std::get_if<SyncCore::Answer>(&effect)) {
      AnswerPull(answer->pull);
    } else {
      DropKept(std::get<SyncCore::Drop>(effect).push);
    }
  }
  snapshots_.OnMin(sync_.min());
}

// One buffer for all: the values are used before the next ones are converted.
const void* ServerTable::Elements(absl::string_view values) {
  if (spec_.wire == spec_.dtype) return values.data();
  const uint64_t elements = values.size() / ElementSize(spec_.wire);
  scratch_.resize(elements * ElementSize(spec_.dtype));
  Convert(spec_.wire, spec_.dtype, values.data(), scratch_.data(), elements);
  return scratch_.data();
}

void ServerTable::Apply(const Incoming& incoming) {
  const From& from = incoming.from;
  const absl::Status made = part_.Push(from, incoming.keys, Elements(incoming.values));
  if (!made.ok()) Fail(Placed(made, "with a push", from.clock, from.worker));
}

// The sum of all pushes of the clock first, then one update for each key. A program's function sees
// the sum.
void ServerTable::TakeTurn(const SyncCore::Turn& turn) {
  for (const Token token : turn.pushes) {
    const Kept& kept = kept_.at(token);
    part_.Add(*kept.keys, Elements(kept.values));
    DropKept(token);
  }
  const absl::Status made = part_.Turn(turn.clock);
  if (made.ok()) return;
  Fail({made.code(), absl::StrCat(made.message(), " (with the pushes of clock ", turn.clock, ")")});
}

void ServerTable::AnswerPull(Token token) {
  const auto found = pulls_.find(token);
  PHALANX_CHECK(found != pulls_.end(), "a pull that waits");
  // The token is used once, so the entry goes before the answer is made.
  const Parked pull = std::move(found->second);
  pulls_.erase(found);
  --parked_[pull.worker];
  const uint64_t elements = pull.keys->size() * spec_.width;
  Answered answer{
      pull.worker,
      {.ticket = pull.ticket, .piece = pull.piece, .min_clock = sync_.min(), .values = {}},
      std::string(elements * ElementSize(spec_.wire), '\0')};
  if (spec_.wire == spec_.dtype) {
    part_.Pull(*pull.keys, answer.bytes.data());
  } else {
    scratch_.resize(elements * ElementSize(spec_.dtype));
    part_.Pull(*pull.keys, scratch_.data());
    Convert(spec_.dtype, spec_.wire, scratch_.data(), answer.bytes.data(), elements);
  }
  answers_.push_back(std::move(answer));
}

void ServerTable::DropKept(Token token) {
  const auto found = kept_.find(token);
  PHALANX_CHECK(found != kept_.end(), "a push that is kept");
  kept_.erase(found);
}

// The first reason stays. What waits is answered with it by the owner, which knows the channels.
void ServerTable::Fail(absl::Status why) {
  if (!failed_.ok()) return;
  failed_ = std::move(why);
  newly_failed_ = true;
  kept_.clear();
  pulls_.clear();
  std::fill(parked_.begin(), parked_.end(), 0);
}

std::vector<ServerTable::Answered> ServerTable::TakeAnswers() {
  return std::exchange(answers_, {});
}

// ---- snapshots

// Between two events, so positions, clocks and rows are of one moment: what is in the rows is
// exactly what is at or before the positions, less what is kept.
std::optional<ServerTable::Taken> ServerTable::TakeSnapshot() {
  // The rows of a failed table can have half of an update.
  if (!snapshots_.due() || !failed_.ok()) return std::nullopt;
  const SyncCore::Saved saved = sync_.Save();
  // A turn has all its pushes or none of them, so no Add is between two calls.
  const std::string part = part_.Save();
  Snapshot snapshot{.number = snapshots_.Begin(sync_.min(), saved.positions),
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
    const Kept& push = kept_.at(kept.push);
    snapshot.kept.push_back({kept.worker, kept.at, push.keys, push.values});
  }
  return Taken{snapshot.number, Encode(snapshot)};
}

// Up to where the worker can drop what it keeps.
Position ServerTable::DurableOf(int worker) const {
  Position stored = snapshots_.stored(worker);
  // A snapshot that was under way then shows pushes that its next life makes again, and that can be
  // lost.
  const Dropped& dropped = dropped_[worker];
  if (snapshots_.stored_number() < dropped.first) stored = std::min(stored, dropped.at);
  if (spec_.sync != Sync::kBsp) return stored;
  return std::min(stored, Position{.clock = sync_.min() + 2});
}

bool ServerTable::Shows(int worker) const {
  return !snapshots_.enabled() || !failed_.ok() ||
         snapshots_.stored(worker) == sync_.PositionOf(worker);
}

bool ServerTable::MakesRoom() const {
  return spec_.sync == Sync::kBsp && !snapshots_.enabled() && shown_min_ != sync_.min();
}

// With BSP also by m alone, as DurableOf is bounded by it.
bool ServerTable::TakeDurableRisen() {
  const uint64_t number = snapshots_.stored_number();
  const bool turned = spec_.sync == Sync::kBsp && number > 0 && shown_min_ != sync_.min();
  shown_min_ = sync_.min();
  return std::exchange(shown_number_, number) != number || turned;
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
  return absl::OkStatus();
}

absl::Status ServerTable::LoadSnapshot(const Snapshot& snapshot) {
  SyncCore::Saved saved{
      .clocks = snapshot.clocks, .positions = snapshot.positions, .kept = {}, .min = snapshot.min};
  absl::flat_hash_map<Token, Kept> kept;
  for (const Snapshot::KeptPush& push : snapshot.kept) {
    PHALANX_RETURN_IF_ERROR(part_.CheckKeys(*push.keys));
    if (push.values.size() != push.keys->size() * row_bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("a push of worker ", push.worker, " has ",
                                                     push.values.size(), " bytes for ",
                                                     push.keys->size(), " keys"));
    }
    saved.kept.push_back({push.worker, push.at, ++last_token_});
    kept.emplace(last_token_, Kept{push.worker, push.at, push.keys, std::string(push.values)});
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
  std::string text =
      absl::StrCat("table \"", spec_.name, "\": ", SyncName(spec_.sync), ", clock ", sync_.min(),
                   ", ", part_.rows(), " rows, ", part_.bytes(), " bytes");
  if (snapshots_.enabled()) {
    absl::StrAppend(&text, ", snapshot ", snapshots_.stored_number(),
                    snapshots_.under_way() ? ", the next one under way"
                    : snapshots_.failed()  ? ", the next one could not be stored"
                                           : "");
  }
  absl::StrAppend(&text, "\n");
  if (!failed_.ok()) absl::StrAppend(&text, "  failed: ", failed_.ToString(), "\n");
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
      absl::StrAppend(&text, ", ", parked_[worker], " pulls of clock ", found->second.clock,
                      " on wait for worker ", found->second.on);
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace phalanx::ps::internal
