#include "src/client/ps/server_disks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/client/access.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::ps::internal {
namespace {

using phalanx::internal::Access;

// A server that has just joined may not be known yet.
constexpr absl::Duration kAskAgain = absl::Milliseconds(500);
// Servers can be a clock apart, and one can miss a state when a worker leaves.
constexpr size_t kExactStates = 4;
constexpr size_t kOtherStates = 2;
// More snapshots than a part gets between a file of it and the end of all nodes.
constexpr uint64_t kMoreStored = uint64_t{1} << 32;

size_t StatesOf(bool exact) { return exact ? kExactStates : kOtherStates; }

// All workers are at the beginning of clock m, as when it turns.
bool IsTurn(const SyncCore& sync) {
  for (int worker = 0; worker < sync.clocks().workers(); ++worker) {
    if (!sync.clocks().counted(worker)) continue;
    if (sync.PositionOf(worker) != Position{sync.min(), 0, 0}) return false;
  }
  return true;
}

}  // namespace

ServerDisks::ServerDisks(const Client& client, Membership member, std::string directory)
    : connection_(Access::ConnectionOf(client)),
      member_(std::move(member)),
      directory_(std::move(directory)),
      agreement_(member_.rank(), member_.world()),
      // What is lost is sent again by the next Tick.
      sends_(std::make_shared<MemberSends>(*Access::StateOf(member_)->call, member_.role(),
                                           [](int, uint64_t) {})) {}

// ---------------------------------------------------------------------------- lock held

void ServerDisks::OnMessage(const Message& message) {
  agreement_.OnMessage(message.rank, message.life, message.bytes);
  SendAll();
}

void ServerDisks::OnMember(const Member& member) {
  agreement_.OnServer(member.rank, member.live(), member.life);
  SendAll();
}

void ServerDisks::SendAll() {
  for (DiskAgreement::Send& send : agreement_.TakeSends()) {
    sends_->Add(send.server, send.life, std::move(send.bytes));
  }
}

// ---------------------------------------------------------------------------- the thread of Run

absl::Status ServerDisks::Begin(ServerCore& core, std::vector<Table> tables,
                                absl::Duration patience, Ended ended) {
  std::vector<DiskTable> named;
  std::vector<DiskOffer> offers;
  for (Table& table : tables) {
    PartFiles files(directory_, {.job = member_.job(),
                                 .role = member_.role(),
                                 .table = table.spec.name,
                                 .part = member_.rank(),
                                 .parts = member_.world(),
                                 .life = member_.life()});
    files.RemoveUnfinished();
    PHALANX_ASSIGN_OR_RETURN(std::vector<PartState> had, files.List());
    named.push_back({table.spec.name, IsExact(table.spec), table.spec.snapshot_every});
    DiskOffer& offer = offers.emplace_back();
    if (table.restored.has_value()) {
      offer.at = named.back().exact ? core.sync(table.number).min() : *table.restored;
    }
    offer.states = had;
    parts_.push_back({std::move(table), named.back().exact, std::move(files), std::move(had)});
  }
  if (parts_.empty()) return absl::OkStatus();
  connection_->Update([&] {
    agreement_.Begin(std::move(named), std::move(offers), FirstLine(SystemRandom64()));
    SendAll();
  });
  PHALANX_ASSIGN_OR_RETURN(const std::optional<DiskAgreement::Starts> starts,
                           Agree(patience, ended));
  if (!starts.has_value()) return absl::OkStatus();
  for (size_t i = 0; i < parts_.size(); ++i) {
    PHALANX_RETURN_IF_ERROR(BeginPart(core, parts_[i], (*starts)[i], patience, ended));
    parts_[i].begun = core.sync(parts_[i].table.number).min();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<DiskAgreement::Starts>> ServerDisks::Agree(absl::Duration patience,
                                                                        Ended ended) {
  const Instant until = MonotonicNow() + patience;
  while (true) {
    connection_->WaitInsideCall([this] { return agreement_.decided().has_value(); },
                                std::min(until, MonotonicNow() + kAskAgain));
    std::optional<absl::StatusOr<DiskAgreement::Starts>> decided;
    std::vector<int> missing;
    connection_->Update([&] {
      decided = agreement_.decided();
      missing = agreement_.missing();
      agreement_.Tick();
      SendAll();
    });
    if (decided.has_value()) {
      PHALANX_RETURN_IF_ERROR(decided->status());
      return std::optional(**std::move(decided));
    }
    const std::optional<absl::Status> end = ended();
    if (end.has_value()) {
      PHALANX_RETURN_IF_ERROR(*end);
      return std::nullopt;
    }
    if (MonotonicNow() < until) continue;
    return absl::DeadlineExceededError(absl::StrCat(
        "Run: server ", member_.rank(), " of job ", member_.job(), " has not heard from servers ",
        absl::StrJoin(missing, ", "), " with which files in ", directory_,
        " to begin; all servers have a directory of checkpoints, or none has"));
  }
}

absl::StatusOr<std::optional<ServerDisks::Loaded>> ServerDisks::Load(ServerCore& core,
                                                                     const Part& part,
                                                                     const DiskStart& start) const {
  PartState at{start.from, start.state};
  if (start.kind == DiskStart::Kind::kEmpty) return std::nullopt;
  if (start.kind == DiskStart::Kind::kNewest) {
    bool any = false;
    for (const PartState& had : part.had) {
      if (FamilyOf(had.line) != FamilyOf(start.from)) continue;
      at = had;
      any = true;
    }
    if (!any) return std::nullopt;
  }
  PHALANX_ASSIGN_OR_RETURN(const PartFiles::Content content, part.files.Read(at));
  const absl::Status loaded =
      core.Restore(part.table.number, content.numbers.snapshot, content.snapshot);
  if (loaded.ok()) return Loaded{at, content.numbers};
  return absl::Status(
      loaded.code(),
      absl::StrCat(
          part.files.PathOf(at), ": ", loaded.message(),
          ". Start the job with the tables and workers that it had, or remove the files of "
          "this job of all servers to begin anew"));
}

// A next life finds what is stored here. Until then it may need any of the files.
absl::Status ServerDisks::BeginPart(ServerCore& core, Part& part, const DiskStart& start,
                                    absl::Duration patience, Ended ended) const {
  part.line = start.line;
  if (part.table.restored.has_value()) {
    // Its files stay. On another host than before it has none of this line.
    const SyncCore& sync = core.sync(part.table.number);
    const PartState at{part.line, part.exact ? sync.min() : *part.table.restored};
    const bool has = std::any_of(part.had.begin(), part.had.end(),
                                 [&](const PartState& had) { return had.line == part.line; });
    if (has || (part.exact && !IsTurn(sync))) return absl::OkStatus();
    return WriteState(part, at.state, *part.table.restored,
                      core.Save(part.table.number, *part.table.restored));
  }
  PHALANX_ASSIGN_OR_RETURN(const std::optional<Loaded> loaded, Load(core, part, start));
  SnapshotStore& snapshots = *part.table.snapshots;
  if (loaded.has_value()) {
    PHALANX_RETURN_IF_ERROR(snapshots.BeginBehind(loaded->numbers.stored + kMoreStored, patience));
  } else {
    PHALANX_RETURN_IF_ERROR(
        part.files.Write({part.line, 0}, {1, snapshots.newest()}, core.Save(part.table.number, 1)));
  }
  const uint64_t number = loaded.has_value() ? loaded->numbers.snapshot : 1;
  PHALANX_ASSIGN_OR_RETURN(const bool stored, StoreNow(core, part, number, patience, ended));
  if (!stored || !start.all) return absl::OkStatus();
  // A newer life may have written some.
  const std::optional<absl::Status> end = ended();
  if (end.has_value()) return *end;
  part.files.RemoveOthers(loaded.has_value() ? loaded->at : PartState{part.line, 0});
  return absl::OkStatus();
}

// The core is restored from what was stored, so that its next snapshot has a later number.
absl::StatusOr<bool> ServerDisks::StoreNow(ServerCore& core, const Part& part, uint64_t number,
                                           absl::Duration patience, Ended ended) const {
  SnapshotStore& snapshots = *part.table.snapshots;
  const Instant until = MonotonicNow() + patience;
  for (uint64_t more = kMoreStored;; ++number) {
    const std::string bytes = core.Save(part.table.number, number);
    snapshots.Write(number, bytes, until - MonotonicNow());
    PHALANX_ASSIGN_OR_RETURN(const std::optional<absl::Status> written, AwaitWritten(part, ended));
    if (!written.has_value()) return false;
    if (written->ok()) {
      PHALANX_RETURN_IF_ERROR(core.Restore(part.table.number, number, bytes));
      return true;
    }
    const bool in_time = MonotonicNow() < until;
    // That of an earlier run of the job has this number.
    if (absl::IsAlreadyExists(*written) && in_time) continue;
    // The shards remember that an earlier run has ended this number, of which no file says so.
    if (absl::IsNotFound(*written) && in_time) {
      PHALANX_RETURN_IF_ERROR(
          snapshots.BeginBehind(snapshots.newest() + more, until - MonotonicNow()));
      more *= 2;
      continue;
    }
    return absl::Status(written->code(),
                        absl::StrCat("the first snapshot of table \"", part.table.spec.name,
                                     "\": ", written->message()));
  }
}

// In slices: Stop and a newer life of this server end the wait, which the store's patience alone
// would make minutes long.
absl::StatusOr<std::optional<absl::Status>> ServerDisks::AwaitWritten(const Part& part,
                                                                      Ended ended) const {
  SnapshotStore& snapshots = *part.table.snapshots;
  while (true) {
    std::optional<absl::Status> written = snapshots.TakeWritten();
    if (written.has_value()) return written;
    const std::optional<absl::Status> end = ended();
    if (end.has_value()) {
      PHALANX_RETURN_IF_ERROR(*end);
      return std::nullopt;
    }
    connection_->WaitInsideCall([&] { return snapshots.ready(); }, MonotonicNow() + kAskAgain);
  }
}

absl::Status ServerDisks::Write(const ServerCore& core, const ServerCore::Effects& effects) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (!part.moved && core.sync(part.table.number).min() > part.begun) {
      part.moved = true;
      connection_->Update([&] { agreement_.OnMoved(i); });
    }
    for (const ServerCore::File& file : effects.files) {
      if (file.table != part.table.number || !part.exact) continue;
      PHALANX_RETURN_IF_ERROR(WriteState(part, file.min, file.number, file.bytes));
    }
    for (const ServerCore::Store& store : effects.stores) {
      if (store.table != part.table.number || part.exact) continue;
      PHALANX_RETURN_IF_ERROR(WriteState(part, store.number, store.number, store.bytes));
    }
  }
  return absl::OkStatus();
}

// A part without a line has not begun: all workers had left.
absl::Status ServerDisks::WriteState(const Part& part, uint64_t state, uint64_t number,
                                     absl::string_view bytes) const {
  if (part.line == 0) return absl::OkStatus();
  PHALANX_RETURN_IF_ERROR(
      part.files.Write({part.line, state}, {number, part.table.snapshots->newest()}, bytes));
  part.files.KeepNewest(part.line, StatesOf(part.exact));
  return absl::OkStatus();
}

absl::Status ServerDisks::RemoveAll() const {
  absl::Status status;
  for (const Part& part : parts_) status.Update(part.files.RemoveAll());
  return status;
}

}  // namespace phalanx::ps::internal
