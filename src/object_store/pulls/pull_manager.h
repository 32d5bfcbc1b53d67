// What this node fetches: per object one want and one pull, however many clients ask. Decides when
// to ask the shard, when to reserve memory, when to start, cancel and report a pull. Pure: effects
// are values, which the store carries out in order.
//
//   Want ──► [asked] ──Assign/Deliver──► [memory] ──OnMemory──► [pulling] ──OnPullDone──► complete
//               ▲                           │                       │  ▲
//               └──────── void, replaced ───┴───────────────────────┘  └─ failed: reported; the
//               next Assign goes on
//                                                                          at the watermarks
// Invariants
//  1. At most one pull runs per object: a replaced one is cancelled, and the next starts when its
//     end was told. So a slice has one writer.
//  2. A pull starts when all its memory is there; nothing is held while it is waited for.
//  3. Bytes of one generation are fetched at a time; another generation begins with other memory.
//  4. A want is open at the shard (`told`) exactly while somebody here wants the object and no
//     Deliver has answered.
//  5. What has waited for memory for long is `parked`: the shard knows, names no sender and sends
//     nobody here. It keeps its place in the queue; when there is memory a sender is asked for
//     anew.
//
// Thread rule: no thread, lock, clock or I/O inside. Owned by the store, on the control loop.
#ifndef PHALANX_OBJECT_STORE_PULLS_PULL_MANAGER_H_
#define PHALANX_OBJECT_STORE_PULLS_PULL_MANAGER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/net/pull/pull.h"
#include "src/object_store/objects/copy_traits.h"

namespace phalanx::object_store {

// Who feeds a pull, as the shard assigned it.
struct PullSource {
  PlanId plan = 0;
  NodeKey sender;
  net::Address address;
  uint64_t slices = 1;
};

// What is being fetched.
struct PullTarget {
  Generation generation;
  uint64_t size_bytes = 0;
  int slices = 1;
  CopyTraits traits = {};
};

// ---- effects; each names its object
struct TellShard {
  ObjectId id;
  v1::NodeMessage message;
};
// Find memory for the target, then call OnMemory with this token.
struct ReserveMemory {
  ObjectId id;
  uint64_t token;
  PullTarget target;
};
// No longer needed: stop waiting for it, or give it back when it comes.
struct ForgetMemory {
  ObjectId id;
  uint64_t token;
};
// Begin a pull into the copy of this generation; call OnPullDone at its end.
struct StartPull {
  ObjectId id;
  Generation generation;
  PullSource source;
};
// OnPullDone follows.
struct CancelPull {
  ObjectId id;
};
// Write these bytes, the whole object, into the copy of this generation.
struct FillCopy {
  ObjectId id;
  Generation generation;
  std::string bytes;
};
// The partial copy is no more; who streams it is told so.
struct DropPartial {
  ObjectId id;
  Generation generation;
  absl::Status why;
};
// All bytes are here.
struct CompleteCopy {
  ObjectId id;
  Generation generation;
  bool keep;
};
// Gets that wait for the object end with this error.
struct EndGets {
  ObjectId id;
  absl::Status why;
};
using PullEffect = std::variant<TellShard, ReserveMemory, ForgetMemory, StartPull, CancelPull,
                                FillCopy, DropPartial, CompleteCopy, EndGets>;

// How a pull ended, and how far the copy has come.
struct PullEnd {
  net::PullOutcome outcome;
  bool complete = false;
  std::vector<uint64_t> watermarks;
};

class PullManager {
 public:
  PullManager();
  ~PullManager();

  // What was decided since the last call, in order.
  std::vector<PullEffect> TakeEffects();

  // ---- who wants
  // Clients here want the object, and may say from whose neighbourhood (v1::Want.near_id).
  // Idempotent.
  void Want(const ObjectId& id, const ObjectId& near = ObjectId());
  // They do not any more. What was fetched so far is dropped unless the node wants it on its own
  // account.
  void Unwant(const ObjectId& id);
  // The shard's Fetch: on the node's own account, until it is complete. If nothing comes of it, the
  // shard is told so under this number.
  void Fetch(const ObjectId& id, bool keep, PlanId order);
  // If a Deliver completes what is wanted, that is to be confirmed under this plan.
  void ConfirmDelivery(const ObjectId& id, PlanId plan);
  // The shard may have taken the open want, if there is one, for answered.
  void AskAgain(const ObjectId& id);
  // The object came here by another way.
  void EndFetch(const ObjectId& id);
  bool Fetches(const ObjectId& id) const;
  // Nothing brings bytes of it, and no memory is waited for.
  bool Idle(const ObjectId& id) const;

  // ---- from the shard; malformed and late messages are ignored
  void OnAssign(const ObjectId& id, const v1::Assign& assign);
  void OnDeliver(const ObjectId& id, const v1::Deliver& deliver);
  // Gone(VOID), and a Verdict that a pulled copy is to be dropped.
  void OnVoid(const ObjectId& id, const Generation& generation, const absl::Status& why);
  // Gone(REFUSED): the want has ended.
  void OnRefused(const ObjectId& id, const absl::Status& why);
  void OnDeleted(const ObjectId& id, const Generation& generation, const absl::Status& why);

  // ---- from the store
  // The memory with this token has been waited for too long: the pull is parked until OnMemory.
  void OnNoRoom(const ObjectId& id, uint64_t token);
  // Others need the memory of what was fetched so far: gives it up, and begins anew when the shard
  // assigns it again. False, and nothing done, while a pull of it runs or is about to.
  bool Yield(const ObjectId& id, const Generation& generation);
  // The copy exists with its buffer (OK), or memory could not be had. False: the token is not
  // waited for any more, and the copy must not be made.
  bool OnMemory(const ObjectId& id, uint64_t token, const absl::Status& status);
  // True while OnMemory with this token would be taken.
  bool AwaitsMemory(const ObjectId& id, uint64_t token) const;
  void OnPullDone(const ObjectId& id, PullEnd end);

  // ---- registration
  // Everything told to the shard before is void. The wants that it is to be told, in order; plans
  // of the old session end no new one.
  std::vector<v1::RegisterWant> Register(int shard, int num_shards);
  // Who feeds the pull that is under way for this generation, if one is.
  std::optional<NodeKey> RunningSender(const ObjectId& id, const Generation& generation) const;

  // ---- looking
  struct Running {
    ObjectId id;
    Generation generation;
    PlanId plan;
  };
  // In order of id.
  std::vector<Running> RunningPulls() const;
  size_t running() const { return running_; }
  // The generation that the shard last named for a want that is open; none if it has named none.
  const PullTarget* Target(const ObjectId& id) const;
  bool WaitsForMemory(const ObjectId& id) const;
  bool Wants(const ObjectId& id) const;
  // In order; without those wanted on the node's own account only.
  std::vector<ObjectId> WantedByClients() const;
  size_t size() const { return pulls_.size(); }

  absl::Status CheckInvariants() const;

 private:
  struct Pull;
  using PullMap = absl::flat_hash_map<ObjectId, std::unique_ptr<Pull>>;

  Pull* FindPull(const ObjectId& id) const;
  Pull& FindOrMake(const ObjectId& id);
  template <typename Effect>
  void Do(Effect effect) {
    effects_.push_back(std::move(effect));
  }
  v1::NodeMessage& Send(const ObjectId& id);
  void TellWant(const ObjectId& id, Pull& pull);
  void TellUnwant(const ObjectId& id, Pull& pull);
  void Report(const ObjectId& id, const Pull& pull, const PullEnd& end, bool complete);
  // Says, or says again, that there is no memory.
  void Park(const ObjectId& id, Pull& pull);
  void Withdraw(const ObjectId& id, const Generation& generation, absl::string_view why);
  void SetTarget(const ObjectId& id, Pull& pull, PullTarget target);
  void DropTarget(const ObjectId& id, Pull& pull, const absl::Status& why);
  void Stop(const ObjectId& id, Pull& pull);
  void StartNext(const ObjectId& id, Pull& pull);
  void Finish(const ObjectId& id, Pull& pull);
  // Nobody wants it: ends everything but a pull whose end is still to come.
  void GiveUp(const ObjectId& id, Pull& pull, const absl::Status& why);
  void EraseIfDone(const ObjectId& id);

  PullMap pulls_;
  size_t running_ = 0;
  uint64_t next_token_ = 1;
  uint64_t next_want_ = 1;
  std::vector<PullEffect> effects_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_PULLS_PULL_MANAGER_H_
