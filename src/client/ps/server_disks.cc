#include "src/client/ps/server_disks.h"

#include <algorithm>
#include <limits>
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
                                absl::Duration patience,
                                absl::FunctionRef<std::optional<absl::Status>()> ended) {
  std::vector<DiskAgreement::Table> named;
  std::vector<DiskOffer> offers;
  for (Table& table : tables) {
    PartFiles files(directory_, {.job = member_.job(),
                                 .role = member_.role(),
                                 .table = table.spec.name,
                                 .part = member_.rank(),
                                 .parts = member_.world()});
    PHALANX_ASSIGN_OR_RETURN(std::vector<PartState> had, files.List());
    named.push_back({table.spec.name, IsExact(table.spec)});
    DiskOffer& offer = offers.emplace_back();
    if (table.restored.has_value()) {
      offer.at = named.back().exact ? core.sync(table.number).min() : *table.restored;
    }
    offer.states = had;
    parts_.push_back({std::move(table), named.back().exact, std::move(files), std::move(had)});
  }
  if (parts_.empty()) return absl::OkStatus();
  connection_->Update([&] {
    agreement_.Begin(std::move(named), std::move(offers), std::max<uint64_t>(1, SystemRandom64()));
    SendAll();
  });
  PHALANX_RETURN_IF_ERROR(Agree(patience, ended));
  // Set once, and read here without the lock.
  if (!agreement_.decided().has_value()) return absl::OkStatus();
  PHALANX_RETURN_IF_ERROR(agreement_.decided()->status());
  for (size_t i = 0; i < parts_.size(); ++i) {
    PHALANX_RETURN_IF_ERROR(BeginPart(core, parts_[i], (**agreement_.decided())[i], patience));
  }
  return absl::OkStatus();
}

absl::Status ServerDisks::Agree(absl::Duration patience,
                                absl::FunctionRef<std::optional<absl::Status>()> ended) {
  const Instant until = MonotonicNow() + patience;
  while (true) {
    connection_->WaitInsideCall([this] { return agreement_.decided().has_value(); },
                                std::min(until, MonotonicNow() + kAskAgain));
    std::vector<int> missing;
    connection_->Update([&] {
      missing = agreement_.missing();
      agreement_.Tick();
      SendAll();
    });
    if (missing.empty()) return absl::OkStatus();
    const std::optional<absl::Status> end = ended();
    if (end.has_value()) return *end;
    if (MonotonicNow() < until) continue;
    return absl::DeadlineExceededError(absl::StrCat(
        "Run: server ", member_.rank(), " of job ", member_.job(), " has not heard from servers ",
        absl::StrJoin(missing, ", "), " with which files in ", directory_, " to begin"));
  }
}

absl::StatusOr<std::optional<PartState>> ServerDisks::Load(ServerCore& core, Part& part,
                                                           const DiskStart& start) const {
  PartState at{start.line, start.state};
  if (start.kind == DiskStart::Kind::kEmpty) return std::nullopt;
  if (start.kind == DiskStart::Kind::kNewest) {
    bool any = false;
    for (const PartState& had : part.had) {
      if (had.line != start.line) continue;
      at = had;
      any = true;
    }
    if (!any) return std::nullopt;
  }
  PHALANX_ASSIGN_OR_RETURN(const PartFiles::Content content, part.files.Read(at));
  const absl::Status loaded = core.Restore(part.table.number, content.number, content.snapshot);
  part.table.restored = content.number;
  if (loaded.ok()) return at;
  return absl::Status(
      loaded.code(),
      absl::StrCat(
          part.files.PathOf(at), ": ", loaded.message(),
          ". Start the job with the tables and workers that it had, or remove the files of "
          "this job of all servers to begin anew"));
}

absl::Status ServerDisks::BeginPart(ServerCore& core, Part& part, const DiskStart& start,
                                    absl::Duration patience) const {
  part.line = start.line;
  if (part.table.restored.has_value()) {
    // Its files stay. On another host than before it has none of this line.
    const SyncCore& sync = core.sync(part.table.number);
    const PartState at{part.line, part.exact ? sync.min() : *part.table.restored};
    const bool has = std::binary_search(part.had.begin(), part.had.end(), at);
    if (has || (part.exact && !IsTurn(sync))) return absl::OkStatus();
    return WriteState(part, at.state, *part.table.restored,
                      core.Save(part.table.number, *part.table.restored));
  }
  PHALANX_ASSIGN_OR_RETURN(const std::optional<PartState> at, Load(core, part, start));
  if (!at.has_value()) {
    PHALANX_RETURN_IF_ERROR(WriteState(part, 0, 1, core.Save(part.table.number, 1)));
  }
  // Other servers begin with this one, so later ones are of no use.
  part.files.KeepNewest(part.line, part.exact ? kExactStates : kOtherStates,
                        at.has_value() ? at->state : 0);
  return StoreNow(core, part, part.table.restored.value_or(1), patience);
}

absl::Status ServerDisks::StoreNow(ServerCore& core, const Part& part, uint64_t number,
                                   absl::Duration patience) const {
  SnapshotStore& snapshots = *part.table.snapshots;
  const Instant until = MonotonicNow() + patience;
  for (;; ++number) {
    const std::string bytes = core.Save(part.table.number, number);
    snapshots.Write(number, bytes, until - MonotonicNow());
    std::optional<absl::Status> written;
    while (!(written = snapshots.TakeWritten()).has_value()) {
      connection_->WaitInsideCall([&] { return snapshots.ready(); }, Instant::Infinite());
    }
    if (written->ok()) return core.Restore(part.table.number, number, bytes);
    // That of an earlier run of the job has this number.
    if (absl::IsAlreadyExists(*written) && MonotonicNow() < until) continue;
    return absl::Status(written->code(),
                        absl::StrCat("the first snapshot of table \"", part.table.spec.name,
                                     "\": ", written->message()));
  }
}

absl::Status ServerDisks::Write(const ServerCore::Effects& effects) const {
  for (const Part& part : parts_) {
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
  PHALANX_RETURN_IF_ERROR(part.files.Write({part.line, state}, number, bytes));
  part.files.KeepNewest(part.line, part.exact ? kExactStates : kOtherStates,
                        std::numeric_limits<uint64_t>::max());
  return absl::OkStatus();
}

void ServerDisks::RemoveAll() const {
  for (const Part& part : parts_) part.files.RemoveAll();
}

}  // namespace phalanx::ps::internal
