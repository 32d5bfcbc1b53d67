#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "phalanx/job.h"
#include "phalanx/spmd.h"
#include "src/client/access.h"
#include "src/client/spmd/session_core.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"
#include "src/jobs/group/group_call.h"

namespace phalanx::spmd {
namespace internal {
namespace {

// Names of checkpoints are in this namespace.
constexpr char kNameSpace[] = "phalanx.spmd";
// Of how many ranks it is asked at a time whether they have a checkpoint.
constexpr int kAskedRanks = 64;
// Leave waits so long for the deletion of the rank's checkpoints.
constexpr absl::Duration kDeletePatience = absl::Seconds(10);

using ::phalanx::internal::Access;
using ::phalanx::internal::DeathPoint;

constexpr bool kNeedsAll = true;
constexpr bool kNeedsRoot = false;

// What the ranks tell each other before data whose sizes they do not know.
struct Sizes {
  uint64_t bytes = 0;
  uint64_t element = 0;
};

}  // namespace

class SessionState {
 public:
  SessionState(std::shared_ptr<Client> client, Membership member, Options options)
      : began_(MonotonicNow()),
        client_(std::move(client)),
        member_(std::move(member)),
        group_(member_, {.on_loss = LossPolicy::kWait,
                         .timeout = options.peer_timeout,
                         .retain = kUntilReleased,
                         .retain_copies = options.result_copies}),
        patience_(options.peer_timeout) {}

  absl::Status Begin();

  // ---- verbs
  // Calls `body` unless the session is over or used by another thread, and explains its error.
  template <typename Body>
  absl::Status Run(const char* verb, Body body);
  absl::Status CheckRoot(int root) const;
  // Of sizes that other ranks have sent, before memory is taken for them. An error ends the
  // session.
  absl::Status CheckBytes(uint64_t bytes);
  // One call of the group. `make` makes it; if its result is kept, that comes to `output` instead.
  // An error ends the session.
  using Make = absl::FunctionRef<Future<Done>(const Group&)>;
  absl::Status Call(bool needs_all, void* output, uint64_t bytes, Make make,
                    const Prepare& prepare = nullptr);
  absl::Status End(absl::Status why);
  void CountCall() { ++seq_; }

  // ---- checkpoints
  absl::StatusOr<uint64_t> Load(absl::FunctionRef<absl::Status(absl::string_view)> take);
  absl::Status Checkpoint(absl::string_view bytes);
  absl::Status Leave();

  const Membership& member() const { return member_; }
  uint64_t version() const { return core_->version(); }
  uint64_t seq() const { return seq_; }
  const Stats& stats() const { return stats_; }

 private:
  struct Found {
    Buffer bytes;
    bool own = false;
  };

  absl::Status Explain(const char* verb, const absl::Status& why) const;
  ObjectId IdOf(int rank, uint64_t version) const;
  GetOptions Patiently() const;
  absl::StatusOr<Found> Find(uint64_t version);
  // The first of these ranks that has one; nothing if none has.
  std::optional<Found> FindAmong(const std::vector<int>& ranks, uint64_t version);
  // This rank's checkpoint is on its node when this returns.
  absl::Status Store(uint64_t version, absl::string_view bytes);
  void Free();

  const Instant began_;
  const std::shared_ptr<Client> client_;
  const Membership member_;
  Group group_;
  const absl::Duration patience_;

  std::atomic<bool> used_ = false;
  std::optional<SessionCore> core_;  // from Begin on
  bool recovers_ = false;            // until the first call with the other ranks
  uint64_t run_ = 0;
  uint64_t seq_ = 0;
  Stats stats_;
  absl::Status over_;  // not OK once the session is over
  // Checkpoints of this rank, by version, that an earlier life has put, perhaps on another node:
  // this node's copies stay as long as these.
  std::map<uint64_t, Buffer> held_;
};

// ---------------------------------------------------------------------------- calls

// The number of the run is that of the first call's result, so all lives of all ranks have the same
// one as long as any of them knows of the group.
absl::Status SessionState::Begin() {
  if (member_.life() == 0) PHALANX_RETURN_IF_ERROR(member_.WaitForWorld(patience_));
  PHALANX_ASSIGN_OR_RETURN(const GroupProgress progress, group_.Progress().Wait());
  const GroupKeep& said = progress.keep;
  core_.emplace(SessionProgress{progress.ended, {said.boot, said.released, said.mark}});
  recovers_ = progress.ended > 0;
  return Run("Join", [this] {
    run_ = SystemRandom64();
    return Call(kNeedsAll, &run_, sizeof(run_), [this](const Group& group) {
      return group.AllReduce(absl::MakeSpan(&run_, 1), ReduceOp::kMax);
    });
  });
}

template <typename Body>
absl::Status SessionState::Run(const char* verb, Body body) {
  if (used_.exchange(true, std::memory_order_acquire)) {
    return absl::FailedPreconditionError(
        absl::StrCat(verb, ": another call of the session is under way"));
  }
  // Also if a function of the program throws.
  const absl::Cleanup free = [this] { used_.store(false, std::memory_order_release); };
  absl::Status status = over_;
  if (status.ok()) {
    // Also in a child of fork, in which nothing else may be called.
    status = member_.status();
    if (status.ok()) status = body();
    status = Explain(verb, status);
    // The calls that follow return the error of the one that has failed.
    if (!status.ok() && !over_.ok()) over_ = status;
  }
  return status;
}

absl::Status SessionState::Explain(const char* verb, const absl::Status& why) const {
  if (why.ok()) return why;
  return absl::Status(
      why.code(), absl::StrCat("job ", member_.job(), "/", member_.role(), ", rank ",
                               member_.rank(), ", version ", core_->version(), ", seq ", seq_, ": ",
                               verb, ": ", why.message()));
}

absl::Status SessionState::CheckRoot(int root) const {
  if (root >= 0 && root < member_.world()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("root ", root, " is no rank of a world of ", member_.world()));
}

absl::Status SessionState::CheckBytes(uint64_t bytes) {
  if (bytes <= jobs::kMaxGroupBytes) return absl::OkStatus();
  return End(absl::InvalidArgumentError(
      absl::StrCat(bytes, " bytes; the limit is ", jobs::kMaxGroupBytes)));
}

absl::Status SessionState::Call(bool needs_all, void* output, uint64_t bytes, Make make,
                                const Prepare& prepare) {
  const uint64_t number = core_->next_call();
  const bool repeats = core_->repeats();
  if (repeats) {
    ++stats_.repeated;
    PHALANX_RETURN_IF_ERROR(End(group_.Result(number, output, bytes).Wait().status()));
  } else {
    if (prepare != nullptr) {
      prepare();
      ++stats_.prepared;
    }
    if (std::exchange(recovers_, false)) stats_.recovery = MonotonicNow() - began_;
    const SessionKeep keep = core_->keep();
    group_.Keep({.boot = keep.boot, .released = keep.released, .mark = keep.version});
    ++stats_.made;
    PHALANX_RETURN_IF_ERROR(End(make(group_).Wait().status()));
    if (group_.calls() != number) {
      return End(absl::InternalError(
          absl::StrCat("call ", number, " was call ", group_.calls(), " of the group")));
    }
  }
  core_->OnCallEnded(needs_all);
  Free();
  return absl::OkStatus();
}

absl::Status SessionState::End(absl::Status why) {
  over_ = why;
  return why;
}

// ---------------------------------------------------------------------------- checkpoints

ObjectId SessionState::IdOf(int rank, uint64_t version) const {
  return client_->Id(kNameSpace,
                     CheckpointName(member_.job(), member_.role(), run_, rank, version));
}

GetOptions SessionState::Patiently() const {
  GetOptions options;
  options.timeout = patience_;
  return options;
}

absl::Status SessionState::Store(uint64_t version, absl::string_view bytes) {
  const ObjectId id = IdOf(member_.rank(), version);
  PutOptions options;
  options.timeout = patience_;
  // Only an earlier life can have put it.
  options.wait_for_adoption = member_.life() > 0;
  const absl::StatusOr<PutResult> put = client_->Put(id, bytes, options).Wait();
  const bool there = put.ok() ? put->already_existed : absl::IsAlreadyExists(put.status());
  if (!there) return put.status();
  PHALANX_ASSIGN_OR_RETURN(held_[version], client_->Get(id, Patiently()).Wait());
  return absl::OkStatus();
}

std::optional<SessionState::Found> SessionState::FindAmong(const std::vector<int>& ranks,
                                                           uint64_t version) {
  std::vector<Future<bool>> there;
  for (const int rank : ranks) {
    there.push_back(client_->Contains(IdOf(rank, version), patience_));
  }
  GetOptions options = Patiently();
  options.on_lost = GetOptions::OnLost::kFail;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const absl::StatusOr<bool> has = there[i].Wait();
    if (!has.ok() || !*has) continue;
    // Its node can end now.
    absl::StatusOr<Buffer> bytes = client_->Get(IdOf(ranks[i], version), options).Wait();
    if (bytes.ok()) return Found{*std::move(bytes), ranks[i] == member_.rank()};
  }
  return std::nullopt;
}

// Its own checkpoint, or else the first one of another rank.
absl::StatusOr<SessionState::Found> SessionState::Find(uint64_t version) {
  const int world = member_.world();
  std::vector<ObjectId> ids;
  std::vector<int> ranks;
  for (int i = 0; i < world; ++i) {
    const int rank = (member_.rank() + i) % world;
    ids.push_back(IdOf(rank, version));
    ranks.push_back(rank);
    if (i > 0 && i + 1 < world && static_cast<int>(ranks.size()) < kAskedRanks) continue;
    std::optional<Found> found = FindAmong(ranks, version);
    if (found.has_value()) return *std::move(found);
    ranks.clear();
  }
  // All ranks have written it: the directory may not know yet, or their nodes are out of reach.
  absl::StatusOr<std::vector<Client::Arrival>> first =
      client_->GetFirst(ids, 1, Patiently()).Wait();
  if (!first.ok()) {
    return absl::Status(first.status().code(),
                        absl::StrCat("no rank has its checkpoint of version ", version, ": ",
                                     first.status().message()));
  }
  return Found{std::move(first->front().buffer), first->front().index == 0};
}

absl::StatusOr<uint64_t> SessionState::Load(
    absl::FunctionRef<absl::Status(absl::string_view)> take) {
  PHALANX_ASSIGN_OR_RETURN(const uint64_t version, core_->VersionToLoad());
  if (version > 0) {
    PHALANX_ASSIGN_OR_RETURN(Found found, Find(version));
    PHALANX_RETURN_IF_ERROR(take(found.bytes.view()));
    // What another rank has is deleted when that rank needs it no more.
    if (found.own) {
      held_[version] = std::move(found.bytes);
    } else {
      PHALANX_RETURN_IF_ERROR(Store(version, found.bytes.view()));
    }
  }
  Access::DieIfDeclared(member_, DeathPoint::Kind::kLoad);
  core_->OnLoaded();
  seq_ = 0;
  return version;
}

absl::Status SessionState::Checkpoint(absl::string_view bytes) {
  PHALANX_RETURN_IF_ERROR(core_->CheckCheckpoint());
  PHALANX_RETURN_IF_ERROR(Store(core_->version() + 1, bytes));
  stats_.checkpoint_bytes += bytes.size();
  Access::DieIfDeclared(member_, DeathPoint::Kind::kCheckpoint);
  core_->OnCheckpoint();
  seq_ = 0;
  return absl::OkStatus();
}

void SessionState::Free() {
  for (const uint64_t version : core_->TakeFreed()) {
    held_.erase(version);
    // A next life deletes it again.
    client_->Delete(IdOf(member_.rank(), version));
  }
}

// A rank that dies in the Barrier has its own checkpoint, unless its node ends as well, and results
// that the nodes still keep for it, so it comes here again. Only after that this rank's checkpoints
// go.
absl::Status SessionState::Leave() {
  Access::DieIfDeclared(member_, DeathPoint::Kind::kLeave);
  PHALANX_RETURN_IF_ERROR(
      Call(kNeedsAll, nullptr, 0, [](const Group& group) { return group.Barrier(); }));
  PHALANX_RETURN_IF_ERROR(End(member_.Leave()));
  over_ = Explain("Leave", absl::FailedPreconditionError("the rank has left"));
  held_.clear();
  std::vector<Future<Done>> deletions;
  for (const uint64_t version : core_->TakeRest()) {
    deletions.push_back(client_->Delete(IdOf(member_.rank(), version), kDeletePatience));
  }
  // The objects of a life that has found none of its own are not there.
  for (const Future<Done>& deletion : deletions) deletion.Wait(kDeletePatience).IgnoreError();
  return absl::OkStatus();
}

}  // namespace internal

// ---------------------------------------------------------------------------- Session

absl::StatusOr<Session> Session::Join(Client& client, Options options) {
  constexpr int kMost = jobs::kMaxRetainedCopies;
  if (options.result_copies < 1 || options.result_copies > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("result_copies is ", options.result_copies, "; it is 1 to ", kMost));
  }
  JoinOptions join;
  join.world = options.world;
  join.role = options.role;
  join.timeout = std::min(join.timeout, options.peer_timeout);
  PHALANX_ASSIGN_OR_RETURN(Membership member, client.Join(options.job, options.task, join));
  auto state = std::make_unique<internal::SessionState>(client.shared_from_this(),
                                                        std::move(member), options);
  PHALANX_RETURN_IF_ERROR(state->Begin());
  return Session(std::move(state));
}

Session::Session(std::unique_ptr<internal::SessionState> state) : state_(std::move(state)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

int Session::rank() const { return state_->member().rank(); }
int Session::world() const { return state_->member().world(); }
uint64_t Session::life() const { return state_->member().life(); }
uint64_t Session::version() const { return state_->version(); }
uint64_t Session::seq() const { return state_->seq(); }
Stats Session::stats() const { return state_->stats(); }

absl::Status Session::Allreduce(DType dtype, void* inout, uint64_t bytes, ReduceOp op,
                                const Prepare& prepare) {
  return state_->Run("Allreduce", [&]() -> absl::Status {
    PHALANX_RETURN_IF_ERROR(CheckReducible(dtype, op));
    PHALANX_RETURN_IF_ERROR(CountElements(dtype, bytes).status());
    if (bytes > 0) {
      PHALANX_RETURN_IF_ERROR(state_->Call(
          internal::kNeedsAll, inout, bytes,
          [&](const Group& group) { return group.AllReduce(dtype, inout, bytes, op); }, prepare));
    }
    state_->CountCall();
    return absl::OkStatus();
  });
}

absl::Status Session::Broadcast(void* inout, uint64_t bytes, int root) {
  return state_->Run("Broadcast", [&]() -> absl::Status {
    PHALANX_RETURN_IF_ERROR(state_->CheckRoot(root));
    if (bytes > 0) {
      PHALANX_RETURN_IF_ERROR(
          state_->Call(internal::kNeedsRoot, inout, bytes,
                       [&](const Group& group) { return group.Broadcast(root, inout, bytes); }));
    }
    state_->CountCall();
    return absl::OkStatus();
  });
}

absl::Status Session::Broadcast(std::string* inout, int root) {
  return BroadcastSized(inout->size(), 1, root, [inout](uint64_t bytes) {
    inout->resize(bytes);
    return static_cast<void*>(inout->data());
  });
}

absl::Status Session::BroadcastSized(uint64_t bytes, uint64_t element, int root, Place place) {
  return state_->Run("Broadcast", [&]() -> absl::Status {
    PHALANX_RETURN_IF_ERROR(state_->CheckRoot(root));
    internal::Sizes sizes{bytes, element};
    PHALANX_RETURN_IF_ERROR(state_->Call(
        internal::kNeedsRoot, &sizes, sizeof(sizes),
        [&](const Group& group) { return group.Broadcast(root, &sizes, sizeof(sizes)); }));
    if (sizes.element != element) {
      return state_->End(absl::InvalidArgumentError(
          absl::StrCat("elements of ", element, " bytes here, and of ", sizes.element,
                       " bytes at the root, rank ", root)));
    }
    PHALANX_RETURN_IF_ERROR(state_->CheckBytes(sizes.bytes));
    void* const data = place(sizes.bytes);
    if (sizes.bytes > 0) {
      PHALANX_RETURN_IF_ERROR(state_->Call(
          internal::kNeedsRoot, data, sizes.bytes,
          [&](const Group& group) { return group.Broadcast(root, data, sizes.bytes); }));
    }
    state_->CountCall();
    return absl::OkStatus();
  });
}

// Parts of different sizes are put in their places among zeros.
absl::StatusOr<std::vector<uint64_t>> Session::AllgatherSized(const void* input, uint64_t bytes,
                                                              uint64_t element, Place place) {
  std::vector<uint64_t> begins = {0};
  const absl::Status status = state_->Run("Allgather", [&]() -> absl::Status {
    const internal::Sizes mine{bytes, element};
    std::vector<internal::Sizes> sizes(static_cast<size_t>(world()));
    PHALANX_RETURN_IF_ERROR(state_->Call(
        internal::kNeedsAll, sizes.data(), sizes.size() * sizeof(mine), [&](const Group& group) {
          return group.AllGather(&mine, sizeof(mine), sizes.data(), sizes.size() * sizeof(mine));
        }));
    bool alike = true;
    for (const internal::Sizes& each : sizes) {
      const size_t rank = begins.size() - 1;
      if (each.element != element) {
        return state_->End(
            absl::InvalidArgumentError(absl::StrCat("elements of ", element, " bytes here, and of ",
                                                    each.element, " bytes at rank ", rank)));
      }
      alike &= each.bytes == bytes;
      PHALANX_RETURN_IF_ERROR(state_->CheckBytes(std::max(each.bytes, begins.back())));
      begins.push_back(begins.back() + each.bytes);
    }
    const uint64_t all = begins.back();
    PHALANX_RETURN_IF_ERROR(state_->CheckBytes(all));
    char* const output = static_cast<char*>(place(all));
    if (all > 0 && alike) {
      PHALANX_RETURN_IF_ERROR(state_->Call(
          internal::kNeedsAll, output, all,
          [&](const Group& group) { return group.AllGather(input, bytes, output, all); }));
    } else if (all > 0) {
      PHALANX_RETURN_IF_ERROR(
          state_->Call(internal::kNeedsAll, output, all, [&](const Group& group) {
            if (bytes > 0) {
              std::memcpy(output + begins[static_cast<size_t>(rank())], input, bytes);
            }
            return group.AllReduce(DType::kU8, output, all, ReduceOp::kBitOr);
          }));
    }
    state_->CountCall();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return begins;
}

absl::Status Session::Barrier() {
  return state_->Run("Barrier", [&]() -> absl::Status {
    PHALANX_RETURN_IF_ERROR(state_->Call(internal::kNeedsAll, nullptr, 0,
                                         [](const Group& group) { return group.Barrier(); }));
    state_->CountCall();
    return absl::OkStatus();
  });
}

absl::StatusOr<uint64_t> Session::LoadBytes(
    absl::FunctionRef<absl::Status(absl::string_view)> take) {
  uint64_t version = 0;
  const absl::Status status = state_->Run("Load", [&]() -> absl::Status {
    PHALANX_ASSIGN_OR_RETURN(version, state_->Load(take));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return version;
}

absl::Status Session::CheckpointBytes(absl::string_view bytes) {
  return state_->Run("Checkpoint", [&] { return state_->Checkpoint(bytes); });
}

absl::Status Session::Leave() {
  return state_->Run("Leave", [&] { return state_->Leave(); });
}

}  // namespace phalanx::spmd
