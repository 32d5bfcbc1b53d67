// The inside of Store, shared by its sources: what it keeps, and the steps that several of them
// take.
//
//   store.cc            construction, clients, answers, deadlines, settling, invariants
//   store_put.cc        Put, Create, Publish, Seal, Abort
//   store_get.cc        Get, streaming, pins
//   store_pull.cc       memory, effects of the pull manager, pushes
//   store_directory.cc  messages of the shards
//   store_register.cc   what a new session is told
//   store_requests.cc   Delete, Stat, Prefetch, Broadcast, Keep, Drain
//   store_hold.cc       who holds what; what is lost
//   store_scratch.cc    memory for what is no object
//
// Every entry point opens a Turn. When the outermost one ends, Settle carries out what was decided
// (effects of pulls, objects touched, memory to hand out) until nothing is left, so that no step
// runs inside another.
//
// Thread rule: as Store.
#ifndef PHALANX_OBJECT_STORE_STORE_IMPL_H_
#define PHALANX_OBJECT_STORE_STORE_IMPL_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "src/object_store/eviction.h"
#include "src/object_store/hold_table.h"
#include "src/object_store/intrusive_list.h"
#include "src/object_store/object_table.h"
#include "src/object_store/pull_manager.h"
#include "src/object_store/push_manager.h"
#include "src/object_store/serve_waitlist.h"
#include "src/object_store/store.h"

namespace phalanx::object_store {

struct Store::Impl final : public Registrant {
  // A Put, or a Seal that waits for its verdict.
  struct PutPart {
    PutOptions options;
    std::string bytes;
    PutDone done;
  };

  struct CreatePart {
    PutOptions options;
    uint64_t size_bytes = 0;
    CreateDone done;
    absl::Duration timeout = absl::InfiniteDuration();
    // Granted, and not yet handed out.
    WriterId writer = 0;
  };

  struct GetPart {
    bool streaming = false;
    bool fail_when_lost = false;
    ObjectId near;
    GetEvents events;
    // What it looks through: answered from it, or streaming it. The pin is the client's.
    Copy* copy = nullptr;
    PinId pin = 0;
    // Handed out in this order, then. Until the reader has heard that its view is void, letting go
    // of that view ends the Get as before.
    std::optional<absl::Status> why_void;
    PinId void_pin = 0;
    std::optional<absl::StatusOr<View>> view;
  };

  struct ScratchPart {
    ReserveDone done;
  };
  class CountedReservation;

  struct DeletePart {
    absl::AnyInvocable<void(absl::Status)> done;
  };
  struct KeepPart {
    absl::AnyInvocable<void(absl::Status)> done;
  };
  struct StatPart {
    std::vector<std::string> nodes;
    absl::AnyInvocable<void(absl::StatusOr<ObjectStat>)> done;
  };
  struct PrefetchPart {
    std::vector<std::string> nodes;
    absl::AnyInvocable<void(absl::StatusOr<int>)> done;
  };
  struct BroadcastPart {
    BroadcastOptions options;
    absl::AnyInvocable<void(absl::StatusOr<int>)> done;
    bool answered = false;  // by the shard
    bool begun = false;     // it has said so, and what is sticky now
    v1::StickyMark mark = {};
  };
  struct DrainPart {
    // By shard; nothing before it answers.
    std::vector<std::optional<uint32_t>> left;
    std::string message;
    absl::AnyInvocable<void(absl::Status)> done;
  };

  struct Request {
    enum class Stage : uint8_t {
      kWaiting,   // for a copy, memory, a verdict, a shard
      kAttached,  // a streaming Get with a view of a partial copy
      kAnswered,  // to be handed out and forgotten
    };
    RequestId id = 0;
    ClientId client = 0;
    ObjectId object;
    Instant deadline = Instant::Infinite();
    Stage stage = Stage::kWaiting;
    bool in_deadlines = false;
    bool in_answers = false;
    Eviction::Ticket ticket = 0;
    std::variant<PutPart, CreatePart, GetPart, ScratchPart, DeletePart, KeepPart, StatPart,
                 PrefetchPart, BroadcastPart, DrainPart>
        part;
    // Of everything but a Get: what to call when answered.
    Task answer;

    ListHook<Request> of_client;
    ListHook<Request> of_object;
  };

  // Gets for one object that have not ended.
  struct Gets {
    IntrusiveList<Request, &Request::of_object> list;
    size_t waiting = 0;            // those not attached
    size_t waiting_streaming = 0;  // of these, those that a partial copy would do for
    ObjectId near;                 // as the first of them said
  };

  struct Pin {
    Copy* copy = nullptr;
    // The streaming Get whose view this is, while it goes on; else 0.
    RequestId streaming = 0;
  };

  struct Client {
    ClientId id = 0;
    absl::flat_hash_map<PinId, Pin> pins;
    std::set<WriterId> writers;
    IntrusiveList<Request, &Request::of_client> requests;
  };

  struct Writer {
    ClientId client = 0;
    Copy* copy = nullptr;  // pinned
    // How long its Create was willing to wait: so is its Seal.
    absl::Duration timeout = absl::InfiniteDuration();
    // The generation ended before the Seal: what the Seal answers.
    std::optional<absl::StatusOr<PutResult>> outcome;
  };

  // Who a piece of memory is for: a request, or a pull.
  struct MemoryOwner {
    RequestId request = 0;
    ObjectId object;
    uint64_t token = 0;
    PullTarget target;
    uint64_t size_bytes = 0;  // of the object itself, set by AskMemory
  };

  struct RunningPull {
    net::DataPlane::PullHandle handle = 0;
    uint64_t serial = 0;
    Copy* copy = nullptr;  // pinned
    uint64_t bytes_at_progress = 0;
    Instant progress_at;  // the last report, or the start
    std::shared_ptr<net::PullProgress> progress;
  };

  Impl(StoreOptions options, Executor& executor, SharedMemory& memory, ShardChannel& channel);
  ~Impl() override;

  // ---- turns
  class Turn {
   public:
    explicit Turn(Impl& impl) : impl_(impl) { ++impl_.depth_; }
    ~Turn() {
      if (--impl_.depth_ == 0) impl_.Settle();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Impl& impl_;
  };
  // Wraps what is called back later, so that it does nothing once the store is gone.
  template <typename F>
  auto Guarded(F f) {
    return [this, alive = std::weak_ptr<char>(alive_), f = std::move(f)](auto&&... args) mutable {
      if (alive.expired()) return;
      Turn turn(*this);
      f(std::forward<decltype(args)>(args)...);
    };
  }
  // The same without a turn.
  template <typename F>
  auto WhileAlive(F f) {
    return [alive = std::weak_ptr<char>(alive_), f = std::move(f)](auto&&... args) mutable {
      if (!alive.expired()) f(std::forward<decltype(args)>(args)...);
    };
  }
  void Settle();
  void Touch(const ObjectId& id) { touched_.push_back(id); }

  // ---- requests
  template <typename Part>
  Request& NewRequest(ClientId client, const ObjectId& id, Instant deadline, Part part);
  // Null for an id that has ended.
  Request* FindRequest(RequestId id);
  // Null if it is no longer this client's.
  Client* FindClient(ClientId id);
  // Why a request is not even begun; OK if nothing speaks against it.
  absl::Status Admit(ClientId client, const ObjectId& id) const;
  void WatchDeadline(Request& request);
  // Something of it is to be handed out in a later turn.
  void Queue(Request& request);
  // Ends its waiting. REQUIRES: what is to be handed out is set.
  void Finish(Request& request);
  void HandOutAnswers();
  void Forget(Request& request);
  // Without calling back.
  void CancelRequest(Request& request);
  void OnDeadline(Request& request);
  void AnswerError(Request& request, const absl::Status& why);
  void ArmTimer();
  void OnTimer();

  // ---- put
  absl::Status CheckPut(const PutOptions& options, uint64_t size) const;
  void AnswerPut(Request& request, absl::StatusOr<PutResult> result);
  void AnswerCreate(Request& request, absl::StatusOr<WriteGrant> result);
  void FinishPut(Request& request, std::shared_ptr<MemoryBlock> block);
  void FinishCreate(Request& request, std::shared_ptr<MemoryBlock> block);
  Copy* AddCreated(const PutOptions& options, uint64_t size, std::shared_ptr<MemoryBlock> block);
  void SealCopy(Copy* copy);
  void SealWriter(Request& request, const Writer& writer, bool wait_for_adoption);
  void AbortWriter(WriterId id, const absl::Status& why);
  // The Put, or the writer, of this copy learns what became of it. False if nobody waits to know.
  bool TellCreator(Copy* copy, const absl::StatusOr<PutResult>& outcome);

  // ---- get
  void AnswerGet(Request& request, absl::StatusOr<View> result);
  void HandOutGet(RequestId id);
  View MakeView(Request& request, Copy* copy);
  // A partial copy that streaming Gets may look through; null if there is none.
  Copy* StreamSource(const ObjectId& id) const;
  void CountWaiting(Gets& gets, const Request& request, int change);
  void JoinObject(Request& request);
  void LeaveObject(Request& request);
  // After a change to the object's copies: answers Gets, attaches streaming ones, wants or no
  // longer wants.
  void Resolve(const ObjectId& id);
  void UpdateWant(const ObjectId& id);
  // Looks through the partial copy from now on.
  void Attach(Request& request, Copy* copy);
  std::vector<Request*> ReadersOf(const Copy* copy);
  // The generation died: what its streaming readers read is void, and they wait again.
  void VoidReaders(Copy* copy, const absl::Status& why);
  // The copy is complete: its streaming Gets have got it.
  void EndReaders(Copy* copy);
  // Those that wait; all, or those that are not to wait for what is lost.
  void EndAllGets(const ObjectId& id, const absl::Status& why, bool only_impatient = false);
  // The view is not (or no longer) one that the Get goes on for.
  void EndStreaming(ClientId client, PinId pin);
  // False for a pin that the client does not hold.
  bool Unpin(Client& client, PinId pin, bool recycle);

  // ---- memory and pulls
  // Ends in OnAllocated, in OnNoMemory, or waits.
  // What is fixed of a generation beside its bytes.
  struct Traits {
    std::string metadata;
    std::string reduced_from;
    std::string refers_to;
    bool owned = false;
  };
  static Traits TraitsOf(const PutOptions& options) {
    return {options.metadata, options.reduced_from, options.refers_to, options.owned};
  }
  static Traits TraitsOf(const PullTarget& target) {
    return {target.metadata, target.reduced_from, target.refers_to, target.owned};
  }
  // What an object counts beside its bytes.
  uint64_t RecordBytes(const Traits& traits) const;
  uint64_t RecordBytes(const PutOptions& options) const { return RecordBytes(TraitsOf(options)); }
  void AskMemory(uint64_t size, uint64_t record_bytes, MemoryOwner owner);
  // `counted`: with the records, and reserved.
  void Allocate(uint64_t counted, MemoryOwner owner);
  void OnAllocated(uint64_t bytes, const MemoryOwner& owner,
                   absl::StatusOr<std::shared_ptr<MemoryBlock>> result);
  void OnNoMemory(const MemoryOwner& owner, const absl::Status& why);
  // The memory that the request waited for is reserved.
  void Reserved(Request& request, uint64_t bytes);
  // REQUIRES: `from` has so much.
  std::shared_ptr<Reservation> TakeFrom(Reservation& from, uint64_t bytes);
  void CreateFrom(Request& request, Reservation& from, uint64_t bytes);
  void ForgetTicket(Eviction::Ticket ticket);
  bool HandOutMemory();
  // Prefetches of what nobody has end.
  void LoseFetchPatience();
  // Pulls that have waited for memory for too long are not promised to the shards any longer.
  void LoseMemoryPatience();
  absl::Status TooLarge(const ObjectId& id, uint64_t bytes) const;
  std::unique_ptr<Copy> NewCopy(const ObjectId& id, const Generation& generation, uint64_t size,
                                int slices, Traits traits, std::shared_ptr<MemoryBlock> block);
  // The copy leaves the table; readers are told, peers are refused. Callers touch the object.
  void DropCopy(Copy* copy, const absl::Status& why);
  void EvictCopy(Copy* copy);

  void Carry(TellShard& effect);
  void Carry(ReserveMemory& effect);
  void Carry(ForgetMemory& effect);
  void Carry(StartPull& effect);
  void Carry(CancelPull& effect);
  void Carry(FillCopy& effect);
  void Carry(DropPartial& effect);
  void Carry(CompleteCopy& effect);
  void Carry(EndGets& effect);
  void OnPullDone(const ObjectId& id, uint64_t serial, const net::PullOutcome& outcome);
  void SendProgress();
  void TellUsage();
  absl::StatusOr<net::ServeGrant> Serve(const net::ServeRequest& request);
  void Serve(const net::ServeRequest& request, net::DataPlane::ServeReply reply);
  // Answers the receivers that wait for bytes of the object which are here now, and the one whose
  // patience is over (`expired`; 0: none).
  void AnswerServes(const ObjectId& id, uint64_t expired);

  // ---- registration
  // What is registered in a new session, and how far that has come.
  struct Registration {
    std::vector<ObjectId> holds;
    std::vector<std::pair<ObjectId, Generation>> copies;
    std::vector<v1::RegisterWant> wants;
    std::vector<std::pair<ObjectId, Generation>> tombstones;
    size_t holds_told = 0;
    size_t copies_told = 0;
    size_t wants_told = 0;
    size_t tombstones_told = 0;
  };
  void FillBegin(int shard, v1::RegisterBegin* begin) override;
  std::vector<v1::NodeMessage> BeginSession(int shard) override;
  bool RegisterSome(int shard) override;
  void EndRegistrationTurn() override { Turn turn(*this); }
  void AskAgain(int shard);
  void RegisterCopy(int shard, Copy* copy);
  // At most `most` of the ids that are held; how many.
  size_t RegisterHolds(int shard, Registration& registration, size_t most);
  void DropPins(int shard);
  static void Describe(const Copy& copy, v1::ObjectInfo* out);

  // ---- lifetime
  // What has changed is told. Always before what must not be known sooner: that an owned object
  // begins, that a reduction of one is asked for, that a reference was claimed.
  void FlushHolds();
  void SendHolds(const std::vector<ObjectId>& ids, bool held);
  void HoldReferences(const Copy& copy);
  // The copy is about to leave the table.
  void LeaveReferences(const Copy& copy);
  void OnClaimed(const v1::Claimed& claimed);
  void OnKept(const v1::Kept& kept);
  void OnLost(const ObjectId& id, absl::string_view reason);
  // The shard knows better by now than that it is lost.
  void ForgetLost(const ObjectId& id) { lost_.erase(id); }
  absl::Status CheckHolds() const;

  // ---- directory
  void HandleShardMessages();
  // A complete copy's `bytes` travel inline if there are few enough of them.
  void AnnounceCreate(const Copy& copy, std::string bytes, const Generation& version = {});
  void AnnounceSeal(const Copy& copy);
  void SendWithdraw(const ObjectId& id, const Generation& generation, const absl::Status& why);
  void SendEvictRequest(const Copy& copy);
  void ReportComplete(const Copy& copy, PlanId plan);
  void SendDeleteConfirm(const ObjectId& id, const Generation& generation);
  void SendRequest(const Request& request);
  void SendDrain(int shard);
  // Sends a request that a shard answers, if nothing speaks against it.
  void Ask(Request& request);
  // Null unless such a request is open.
  template <typename Part>
  Request* OpenRequest(RequestId id);
  template <typename Part, typename Result>
  void AnswerWith(Request& request, Result result);
  void OnVerdict(const v1::Verdict& verdict);
  void OnSuperseded(Copy* copy, const v1::Verdict& verdict);
  bool TellIfDeleted(const ObjectId& id, const Generation& generation);
  void OnAssign(const v1::Assign& assign);
  void OnDeliver(const v1::Deliver& deliver);
  // The shard has named this copy's generation as the object's: so none that is being fetched is.
  void NoteAdopted(Copy* copy);
  // True: a copy of the generation is here and needs no pull.
  bool AlreadyHere(const ObjectId& id, const Generation& generation);
  // The shard names another generation than those created here.
  void StandBehind(const ObjectId& id, const Generation& adopted);
  void OnGone(const v1::Gone& gone);
  void OnDeleted(const ObjectId& id, const Generation& generation);
  void OnEvictReply(const v1::EvictReply& reply);
  void OnDeleteReply(const v1::DeleteReply& reply);
  void OnKeepReply(const v1::KeepReply& reply);
  void OnQueryReply(const v1::QueryReply& reply);
  void OnPrefetchReply(const v1::PrefetchReply& reply);
  void OnBroadcastReply(const v1::BroadcastReply& reply);
  void OnBroadcastBegun(int shard, const v1::BroadcastBegun& begun);
  // Who asked waits no longer, and the shard does not know.
  void LeaveBroadcast(const Request& request);
  void OnSticky(int shard, const v1::Sticky& sticky);
  void NoteStamp(int shard, const v1::StickyMark& mark);
  void OnFetch(const v1::Fetch& fetch);
  void OnDrainStatus(int shard, const v1::DrainStatus& status);
  void RememberTombstone(const ObjectId& id, const Generation& generation);
  ObjectStat LocalStat(const ObjectId& id) const;

  absl::Status CheckInvariants() const;
  absl::Status CheckPins() const;
  absl::Status CheckGets() const;

  // Constant after construction.
  const StoreOptions options_;
  Executor& executor_;
  SharedMemory& memory_;
  ShardChannel& channel_;
  net::DataPlane* data_plane_ = nullptr;
  std::shared_ptr<char> alive_ = std::make_shared<char>();

  ObjectTable table_;
  Eviction eviction_;
  PullManager pulls_;
  PushManager pushes_;
  HoldTable holds_;
  // Why Gets for these wait: no copy is left. While somebody here wants them.
  absl::flat_hash_map<ObjectId, absl::Status> lost_;

  uint64_t next_number_ = 1;  // clients, requests, writers, pins, pulls
  uint64_t next_sequence_ = 1;
  std::map<ClientId, std::unique_ptr<Client>> clients_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Request>> requests_;
  absl::flat_hash_map<WriterId, Writer> writers_;
  absl::flat_hash_map<ObjectId, std::unique_ptr<Gets>> gets_;
  absl::flat_hash_map<ObjectId, RunningPull> running_;
  ServeWaitlist waiting_serves_;
  // The node's own fetches, and when each is looked at; soonest first.
  std::deque<std::pair<Instant, ObjectId>> fetches_;
  // Pulls that wait for memory, or did; in order of time.
  struct Impatient {
    Instant when;
    ObjectId object;
    uint64_t token = 0;
  };
  std::deque<Impatient> impatient_;
  // Who waits for memory.
  absl::flat_hash_map<Eviction::Ticket, std::pair<uint64_t, MemoryOwner>> owners_;
  absl::flat_hash_map<uint64_t, Eviction::Ticket> ticket_of_token_;
  RequestId drain_ = 0;
  // What the shards have told of copies that are here; told again in a new session.
  absl::flat_hash_map<std::pair<ObjectId, Generation>, v1::StickyMark> stickies_;
  std::vector<uint64_t> last_stamps_;          // by shard, the greatest that it has told of any
  std::map<int, Registration> registrations_;  // under way, by shard

  absl::flat_hash_set<std::pair<ObjectId, Generation>> tombstones_;
  std::deque<std::pair<ObjectId, Generation>> tombstones_by_age_;

  // Of the turn.
  int depth_ = 0;
  std::vector<ObjectId> touched_;
  std::deque<RequestId> answers_;
  bool answers_posted_ = false;

  // One timer for all deadlines.
  std::set<std::pair<Instant, RequestId>> deadlines_;
  Instant next_progress_ = Instant::Infinite();
  // Told with the progress of pulls, and by itself when it has changed.
  Instant next_usage_ = Instant::Infinite();
  uint64_t told_used_bytes_ = 0;
  TimerId timer_ = 0;
  Instant timer_at_ = Instant::Infinite();

  uint64_t allocating_bytes_ = 0;
  uint64_t scratch_bytes_ = 0;  // of reservations
  uint64_t waiting_gets_ = 0;
  uint64_t evictions_ = 0;
  uint64_t pulls_started_ = 0;
  uint64_t pulls_failed_ = 0;
  uint64_t conflicts_ = 0;
};

template <typename Part>
Store::Impl::Request& Store::Impl::NewRequest(ClientId client, const ObjectId& id, Instant deadline,
                                              Part part) {
  auto request = std::make_unique<Request>();
  request->id = next_number_++;
  request->client = client;
  request->object = id;
  request->deadline = deadline;
  request->part = std::move(part);
  Request& made = *request;
  requests_.emplace(made.id, std::move(request));
  if (Client* owner = FindClient(client); owner != nullptr) owner->requests.PushBack(&made);
  return made;
}

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_STORE_IMPL_H_
