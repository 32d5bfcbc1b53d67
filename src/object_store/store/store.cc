#include "src/object_store/store/store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/directory/core/validate.h"
#include "src/object_store/channel/copy_reporter.h"
#include "src/object_store/channel/directory_decisions.h"
#include "src/object_store/channel/hold_reporter.h"
#include "src/object_store/memory/memory_queue.h"
#include "src/object_store/objects/deleted_generations.h"
#include "src/object_store/objects/local_copies.h"
#include "src/object_store/objects/object_table.h"
#include "src/object_store/objects/sticky_marks.h"
#include "src/object_store/pulls/peer_server.h"
#include "src/object_store/pulls/pull_manager.h"
#include "src/object_store/pulls/pull_runner.h"
#include "src/object_store/store/get_requests.h"
#include "src/object_store/store/put_requests.h"
#include "src/object_store/store/request_table.h"
#include "src/object_store/store/shard_requests.h"
#include "src/object_store/store/store_registrant.h"
#include "src/object_store/store/turns.h"

namespace phalanx::object_store {

// The components of the store, and what passes between them: turns, the timer, memory that goes to
// its owner, requests that end.
struct Store::Impl final : public MemoryUser {
  Impl(StoreOptions options, Executor& executor, SharedMemory& memory, ShardChannel& channel);
  ~Impl() override;
  void HandleShardMessages(ShardChannel& channel);

  // ---- MemoryUser
  bool StillWants(const MemoryOwner& owner) const override;
  void OnMemory(const MemoryOwner& owner, std::shared_ptr<MemoryBlock> block) override;
  void OnNoMemory(const MemoryOwner& owner, const absl::Status& why) override;
  void RequestEviction(Copy* copy) override;

  // ---- turns
  // Carries out what was decided (effects of pulls, touched objects, memory to hand out) until
  // nothing is left.
  void Settle();
  void ArmTimer();
  void OnTimer();

  // Drops copies of ended scopes, and continues in a later turn if there are many.
  void DropEnded();

  // ---- requests
  // Returns a callback that waits for the copies before it calls `done`.
  PutDone AwaitCopies(ClientId client, const ObjectId& id, uint32_t copies, Instant deadline,
                      PutDone done);
  void HandOutAnswers();
  // Without calling back.
  void CancelRequest(Request& request);
  void OnDeadline(Request& request);
  void AnswerError(Request& request, const absl::Status& why);

  absl::Status CheckPins() const;
  absl::Status CheckInvariants() const;

  const StoreOptions options_;
  Executor& executor_;
  // Each component refers to those before it.
  Turns turns_;
  ObjectTable table_;
  PullManager pulls_;
  DeletedGenerations deleted_;
  StickyMarks stickies_;
  RequestTable requests_;
  HoldReporter holds_;
  CopyReporter reporter_;
  GetRequests gets_;
  LocalCopies copies_;
  PeerServer peers_;
  MemoryQueue memory_;
  PutRequests puts_;
  PullRunner runner_;
  ShardRequests shard_requests_;
  DirectoryDecisions decisions_;
  StoreRegistrant registrant_;

  // One timer for all deadlines.
  struct Timer {
    TimerId id = 0;
    Instant at = Instant::Infinite();
  };
  Timer timer_;
};

Store::Impl::Impl(StoreOptions options, Executor& executor, SharedMemory& memory,
                  ShardChannel& channel)
    : options_(std::move(options)),
      executor_(executor),
      turns_([this] { Settle(); }),
      table_(options_.capacity_bytes),
      deleted_(options_.max_tombstones),
      stickies_(channel.num_shards()),
      requests_(options_.name, options_.max_requests_per_client,
                [this] { executor_.Post(turns_.Guarded([this] { HandOutAnswers(); })); }),
      holds_(options_, executor_, channel, turns_, requests_),
      reporter_(executor_, channel, holds_),
      gets_(options_.name, executor_, turns_, requests_, table_, pulls_, channel.num_shards()),
      copies_(options_, turns_, table_, gets_, holds_, stickies_),
      peers_(options_, executor_, turns_, requests_, table_, pulls_),
      memory_(options_, executor_, memory, turns_, requests_, table_, pulls_, *this),
      puts_(options_, executor_, turns_, requests_, table_, copies_, reporter_, memory_, pulls_,
            peers_),
      runner_(options_, executor_, turns_, table_, pulls_, copies_, gets_, memory_, peers_,
              channel),
      shard_requests_(options_.name, executor_, turns_, requests_, table_, gets_, deleted_,
                      stickies_, channel),
      decisions_(options_.self, executor_, turns_, table_, pulls_, gets_, copies_, reporter_,
                 memory_, puts_, runner_, deleted_, stickies_),
      registrant_(options_.registered_per_turn, executor_, turns_, requests_, table_, pulls_, gets_,
                  copies_, holds_, reporter_, shard_requests_, runner_, deleted_, stickies_,
                  channel) {
  // The channel outlives the store.
  channel.SetFlushHolds([this, alive = turns_.alive()] {
    if (!alive.expired()) holds_.Flush();
  });
  // Last: a message must find every component.
  HandleShardMessages(channel);
}

Store::Impl::~Impl() {
  // First: callbacks that other loops have posted do nothing from now on.
  turns_.Close();
  if (timer_.id != 0) executor_.Cancel(timer_.id);
}

void Store::Impl::HandleShardMessages(ShardChannel& channel) {
  using Message = v1::ShardMessage;
  const auto handle = [this, &channel](Message::KindCase kind, auto handler) {
    // Each message is a turn of its own, and none reaches a store that is gone.
    channel.Handle(kind, turns_.Guarded(std::move(handler)));
  };
  DirectoryDecisions& d = decisions_;
  ShardRequests& r = shard_requests_;
  handle(Message::kVerdict, [&d](int, const Message& m) { d.OnVerdict(m.verdict()); });
  handle(Message::kAssign, [&d](int, const Message& m) { d.OnAssign(m.assign()); });
  handle(Message::kDeliver, [&d](int, const Message& m) { d.OnDeliver(m.deliver()); });
  handle(Message::kProbe, [this](int shard, const Message& m) { runner_.Probe(shard, m.probe()); });
  handle(Message::kFetch, [&d](int, const Message& m) { d.OnFetch(m.fetch()); });
  handle(Message::kGone, [&d](int, const Message& m) { d.OnGone(m.gone()); });
  handle(Message::kEvictReply, [&d](int, const Message& m) { d.OnEvictReply(m.evict_reply()); });
  handle(Message::kSticky, [&d](int shard, const Message& m) { d.OnSticky(shard, m.sticky()); });
  handle(Message::kKept, [&d](int, const Message& m) { d.OnKept(m.kept()); });
  handle(Message::kClaimed, [this](int, const Message& m) { holds_.OnClaimed(m.claimed()); });
  handle(Message::kDeleteReply, [&r](int, const Message& m) { r.OnDeleteReply(m.delete_reply()); });
  handle(Message::kDeleteWaiting,
         [&r](int, const Message& m) { r.OnDeleteWaiting(m.delete_waiting()); });
  handle(Message::kRegistered, [this](int shard, const Message&) {
    gets_.leases().Registered(shard);
    gets_.Unpark(shard);
  });
  handle(Message::kKeepReply, [&r](int, const Message& m) { r.OnKeepReply(m.keep_reply()); });
  handle(Message::kQueryReply, [&r](int, const Message& m) { r.OnQueryReply(m.query_reply()); });
  handle(Message::kBroadcastReply,
         [&r](int, const Message& m) { r.OnBroadcastReply(m.broadcast_reply()); });
  handle(Message::kBroadcastBegun,
         [&r](int shard, const Message& m) { r.OnBroadcastBegun(shard, m.broadcast_begun()); });
  handle(Message::kScopeEnded, [this](int shard, const Message& m) {
    decisions_.OnScopeEnded(shard, m.scope_ended());
    DropEnded();
  });
  handle(Message::kEndScopeReply,
         [&r](int shard, const Message& m) { r.OnEndScopeReply(shard, m.end_scope_reply()); });
  handle(Message::kDrainStatus,
         [&r](int shard, const Message& m) { r.OnDrainStatus(shard, m.drain_status()); });
}

// --------------------------------------------------------------------------------------- turns

void Store::Impl::Settle() {
  bool again = true;
  // Until nothing changes: memory that is handed out lets a pull begin, whose effects touch
  // objects, and what these give up is memory again.
  while (again) {
    again = runner_.ApplyEffects();
    for (const ObjectId& id : turns_.TakeTouched()) {
      gets_.Resolve(id);
      // Of each object at once: the effects of a turn with many Gets take no room.
      runner_.ApplyEffects();
      again = true;
    }
    again = memory_.HandOut() || again;
  }
  // After the rounds, so that the holds of one turn leave in one message.
  holds_.Settle();
  runner_.Settle();
  ArmTimer();
}

void Store::Impl::ArmTimer() {
  const Instant next = std::min({memory_.NextDeadline(), runner_.NextDeadline(),
                                 holds_.table().NextDeadline(), requests_.NextDeadline()});
  // Most turns move no deadline: cancelling and setting a timer would be their main cost.
  if (next == timer_.at) return;
  if (timer_.id != 0) executor_.Cancel(timer_.id);
  timer_.at = next;
  timer_.id = next.infinite() ? 0 : executor_.RunAt(next, turns_.Guarded([this] { OnTimer(); }));
}

void Store::Impl::OnTimer() {
  timer_ = Timer();
  const Instant now = executor_.Now();
  while (Request* request = requests_.TakeOverdue(now)) OnDeadline(*request);
  runner_.ExpireFetches(now);
  memory_.ExpireWaits();
  holds_.table().Expire(now);
  runner_.ReportDue(now);
}

// -------------------------------------------------------------------------------------- memory

bool Store::Impl::StillWants(const MemoryOwner& owner) const {
  // The pages are made on another thread, and what they were for may have ended meanwhile.
  if (owner.request == 0) return pulls_.AwaitsMemory(owner.object, owner.token);
  const Request* request = requests_.Find(owner.request);
  return request != nullptr && request->stage == Request::Stage::kWaiting;
}

void Store::Impl::OnMemory(const MemoryOwner& owner, std::shared_ptr<MemoryBlock> block) {
  if (Request* request = requests_.Find(owner.request); request != nullptr) {
    puts_.OnMemory(*request, std::move(block));
  } else {
    runner_.OnMemory(owner, std::move(block));
  }
}

void Store::Impl::OnNoMemory(const MemoryOwner& owner, const absl::Status& why) {
  // Number 0, which no request has, stands for a pull.
  if (Request* request = requests_.Find(owner.request); request != nullptr) {
    AnswerError(*request, why);
  } else {
    pulls_.OnMemory(owner.object, owner.token, why);
  }
}

void Store::Impl::RequestEviction(Copy* copy) {
  if (DefectActive(Defect::kEvictWithoutAsking)) {
    copies_.Evict(copy);
  } else {
    reporter_.RequestEviction(*copy);
  }
}

// ------------------------------------------------------------------------------------ requests

void Store::Impl::DropEnded() {
  if (!decisions_.DropEnded()) executor_.Post(turns_.Guarded([this] { DropEnded(); }));
}

PutDone Store::Impl::AwaitCopies(ClientId client, const ObjectId& id, uint32_t copies,
                                 Instant deadline, PutDone done) {
  return [this, client, id, copies, deadline,
          done = std::move(done)](absl::StatusOr<PutResult> put) mutable {
    if (!put.ok()) return done(std::move(put));
    BroadcastOptions options;
    options.copies = copies;
    auto placed = [put, done = std::move(done)](const absl::StatusOr<int>& hosts) mutable {
      done(hosts.ok() ? put : hosts.status());
    };
    shard_requests_.Start(client, id, deadline,
                          BroadcastPart{std::move(options), std::move(placed)});
  };
}

void Store::Impl::HandOutAnswers() {
  for (const RequestId id : requests_.TakeAnswers()) {
    Request* request = requests_.Find(id);
    // An earlier callback of this loop has cancelled it.
    if (request == nullptr) continue;
    request->in_answers = false;
    // A Get can have several answers (a view, its void, another view), so it is not erased here.
    if (std::holds_alternative<GetPart>(request->part)) {
      gets_.HandOut(id);
      continue;
    }
    Task answer = std::move(request->answer);
    shard_requests_.Leave(*request);
    // Before the call: the callback may start requests, or close its client.
    requests_.Erase(*request);
    answer();
  }
}

void Store::Impl::CancelRequest(Request& request) {
  if (std::holds_alternative<GetPart>(request.part)) return gets_.Cancel(request);
  // Without this request the node may not want the object any more.
  turns_.Touch(request.object);
  puts_.Cancel(request);
  shard_requests_.Leave(request);
  memory_.Forget(request);
  requests_.Erase(request);
}

void Store::Impl::OnDeadline(Request& request) {
  // The last Get that waited may be gone, and with it the node's Want.
  turns_.Touch(request.object);
  if (const auto* ending = std::get_if<EndScopePart>(&request.part)) {
    return AnswerError(request, ShardRequests::EndScopeOverdue(*ending));
  }
  const auto* drain = std::get_if<DrainPart>(&request.part);
  AnswerError(request, drain != nullptr ? shard_requests_.DrainOverdue(*drain)
                                        : gets_.DeadlineStatus(request));
}

void Store::Impl::AnswerError(Request& request, const absl::Status& why) {
  memory_.Forget(request);
  if (std::holds_alternative<GetPart>(request.part)) {
    gets_.Answer(request, why);
  } else {
    requests_.Fail(request, why);
  }
}

// ---------------------------------------------------------------------------------- invariants

absl::Status Store::Impl::CheckPins() const {
  absl::flat_hash_map<const Copy*, uint32_t> pins;
  for (const auto& [id, client] : requests_.clients()) {
    for (const auto& [pin, held] : client->pins) ++pins[held.copy];
  }
  for (const auto& [id, writer] : puts_.writers()) ++pins[writer.copy];
  for (const auto& [id, pull] : runner_.running()) ++pins[pull.copy];
  uint64_t explained = 0;
  for (const auto& [copy, count] : pins) {
    explained += count;
    if (count > copy->pins) {
      return absl::InternalError(absl::StrCat("object ", copy->id.ShortHex(), ": ", count,
                                              " holders, ", copy->pins, " pins"));
    }
  }
  // Pushes pin as well, but only their number is known here.
  explained += static_cast<uint64_t>(peers_.active());
  if (explained != table_.pins()) {
    return absl::InternalError(
        absl::StrCat(explained, " holders of copies, ", table_.pins(), " pins"));
  }
  return absl::OkStatus();
}

absl::Status Store::Impl::CheckInvariants() const {
  const std::vector<Copy*> copies = table_.Sorted();
  for (const absl::Status& status :
       {table_.CheckInvariants(), pulls_.CheckInvariants(), deleted_.CheckInvariants(),
        requests_.CheckInvariants(), CheckPins(), gets_.CheckInvariants(),
        holds_.CheckInvariants(copies), peers_.CheckInvariants(), memory_.CheckInvariants(),
        puts_.CheckInvariants(), runner_.CheckInvariants()}) {
    if (!status.ok()) return status;
  }
  for (const Copy* copy : copies) {
    if (copy->state != CopyState::kComplete || copy->buffer->complete()) continue;
    return absl::InternalError(
        absl::StrCat("object ", copy->id.ShortHex(), ": marked complete, but bytes are missing"));
  }
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------ public methods

using Turn = Turns::Turn;

Store::Store(StoreOptions options, Executor& executor, SharedMemory& memory, ShardChannel& channel)
    : impl_(std::make_unique<Impl>(std::move(options), executor, memory, channel)) {}

Store::~Store() = default;

void Store::SetDataPlane(net::DataPlane* data_plane) {
  impl_->copies_.SetDataPlane(data_plane);
  impl_->runner_.SetDataPlane(data_plane);
}

void Store::OnHeard(int shard, Instant heard, absl::Duration lease) {
  impl_->gets_.leases().Heard(shard, heard, lease);
  // Rarely there are any: a turn would settle the whole store for each answer of a shard.
  if (!impl_->gets_.has_parked()) return;
  Turn turn(impl_->turns_);
  impl_->gets_.Unpark(shard);
}

ClientId Store::OpenClient() { return impl_->requests_.OpenClient(); }

void Store::CloseClient(ClientId id, bool clean) {
  Turn turn(impl_->turns_);
  Client* client = impl_->requests_.FindClient(id);
  if (client == nullptr) return;
  // Requests first: a Get that is handed out later would leave a pin to a client that is gone.
  while (!client->requests.empty()) impl_->CancelRequest(*client->requests.front());
  impl_->puts_.CloseClient(*client, clean);
  impl_->gets_.CloseClient(*client, clean);
  // The objects that only a dead process held are freed at once (docs/lifetime.md).
  if (clean || !DefectActive(Defect::kDeadClientHolds)) impl_->holds_.table().CloseClient(id);
  impl_->requests_.CloseClient(id);
}

void Store::Cancel(ClientId client, RequestId id) {
  Turn turn(impl_->turns_);
  Request* request = impl_->requests_.Find(id);
  if (request != nullptr && request->client == client) impl_->CancelRequest(*request);
}

void Store::HandOutAnswers() {
  // Most calls answer nothing; a turn would settle the whole store for that.
  if (!impl_->requests_.has_answers()) return;
  Turn turn(impl_->turns_);
  impl_->HandOutAnswers();
}

RequestId Store::Put(ClientId client, PutOptions options, std::string bytes, PutDone done) {
  Turn turn(impl_->turns_);
  if (options.wait_for_copies && options.copies > 0) {
    done =
        impl_->AwaitCopies(client, options.id, options.copies, options.deadline, std::move(done));
  }
  return impl_->puts_.Put(client, std::move(options), std::move(bytes), std::move(done));
}

RequestId Store::Create(ClientId client, PutOptions options, uint64_t size, CreateDone done) {
  Turn turn(impl_->turns_);
  return impl_->puts_.Create(client, std::move(options), size, std::move(done));
}

absl::Status Store::Publish(ClientId client, WriterId writer, uint64_t n) {
  Turn turn(impl_->turns_);
  return impl_->puts_.Publish(client, writer, n);
}

void Store::Seal(ClientId client, WriterId writer, bool wait_for_adoption, PutDone done,
                 bool wait_for_copies) {
  Turn turn(impl_->turns_);
  const PutRequests::Writer* open =
      wait_for_copies ? impl_->puts_.FindWriter(client, writer) : nullptr;
  if (open != nullptr && open->copy->traits.copies > 0) {
    done = impl_->AwaitCopies(client, open->copy->id, open->copy->traits.copies,
                              impl_->executor_.Now() + open->timeout, std::move(done));
  }
  impl_->puts_.Seal(client, writer, wait_for_adoption, std::move(done));
}

absl::Status Store::Abort(ClientId client, WriterId writer) {
  Turn turn(impl_->turns_);
  return impl_->puts_.Abort(client, writer);
}

void Store::AnnounceAgain(const ObjectId& id, const Generation& generation,
                          const SlotVersion& version) {
  Turn turn(impl_->turns_);
  impl_->puts_.AnnounceAgain(id, generation, version);
}

RequestId Store::Get(ClientId client, GetOptions options, GetEvents events) {
  Turn turn(impl_->turns_);
  const bool ended = impl_->copies_.scopes().HasEnded(options.scope, impl_->executor_.Now());
  const absl::Status refused =
      ended ? EndedScopeStatus(options.id, options.scope) : absl::OkStatus();
  return impl_->gets_.Get(client, std::move(options), std::move(events), refused);
}

absl::StatusOr<View> Store::PinCopy(ClientId client, const ObjectId& id,
                                    const Generation& generation) {
  Turn turn(impl_->turns_);
  return impl_->gets_.PinCopy(client, id, generation);
}

absl::Status Store::Release(ClientId client, PinId pin, bool recycle) {
  Turn turn(impl_->turns_);
  return impl_->gets_.Release(client, pin, recycle);
}

absl::Status Store::Hold(ClientId client, absl::Span<const ObjectId> ids) {
  Turn turn(impl_->turns_);
  return impl_->holds_.Hold(client, ids);
}

void Store::Unhold(ClientId client, absl::Span<const ObjectId> ids) {
  Turn turn(impl_->turns_);
  impl_->holds_.table().Release(client, ids);
}

void Store::UnholdAll(ClientId client) {
  Turn turn(impl_->turns_);
  impl_->holds_.table().CloseClient(client);
}

bool Store::Holds(ClientId client, const ObjectId& id) const {
  return impl_->holds_.table().Holds(client, id);
}

void Store::Transit(const ObjectId& id, uint64_t number) {
  Turn turn(impl_->turns_);
  impl_->holds_.Transit(id, number);
}

absl::Status Store::Claim(ClientId client, const ObjectId& id, const TransitMark& from) {
  Turn turn(impl_->turns_);
  return impl_->holds_.Claim(client, id, from);
}

void Store::Gather(bool gather) {
  // Before the turn settles, so that the shards know of each hold before the Want of its object.
  if (!gather && impl_->turns_.gathers()) impl_->holds_.Settle();
  impl_->turns_.Gather(gather);
}

RequestId Store::ReserveScratch(ClientId client, const ObjectId& purpose, uint64_t bytes,
                                Instant deadline, ReserveDone done) {
  Turn turn(impl_->turns_);
  return impl_->memory_.Reserve(client, purpose, bytes, deadline, std::move(done));
}

uint64_t Store::CountedBytes(uint64_t size, const PutOptions& options) const {
  return size + impl_->copies_.RecordBytes(TraitsOf(options));
}

void Store::AllocateScratch(const std::shared_ptr<Reservation>& from, uint64_t bytes,
                            ScratchDone done) {
  Turn turn(impl_->turns_);
  impl_->memory_.AllocateScratch(*from, bytes, std::move(done));
}

void Store::Delete(ClientId client, const ObjectId& id, Instant deadline, StatusDone done) {
  Turn turn(impl_->turns_);
  impl_->shard_requests_.Start(client, id, deadline, DeletePart{std::move(done)});
}

void Store::Keep(ClientId client, const ObjectId& id, Instant deadline, StatusDone done) {
  Turn turn(impl_->turns_);
  impl_->shard_requests_.Start(client, id, deadline, KeepPart{std::move(done)});
}

void Store::Stat(ClientId client, const ObjectId& id, Instant deadline, StatDone done,
                 std::vector<std::string> nodes) {
  Turn turn(impl_->turns_);
  impl_->shard_requests_.Start(client, id, deadline, StatPart{std::move(nodes), std::move(done)});
}

RequestId Store::Broadcast(ClientId client, const ObjectId& id, BroadcastOptions options,
                           Instant deadline, NodesDone done) {
  Turn turn(impl_->turns_);
  return impl_->shard_requests_.Start(client, id, deadline,
                                      BroadcastPart{std::move(options), std::move(done)});
}

RequestId Store::EndScope(ClientId client, Scope scope, Instant deadline, StatusDone done) {
  Turn turn(impl_->turns_);
  return impl_->shard_requests_.StartEndScope(client, std::move(scope), deadline, std::move(done));
}

bool Store::HasEnded(const Scope& scope) const {
  return impl_->copies_.scopes().HasEnded(scope, impl_->executor_.Now());
}

void Store::Drain(Instant deadline, StatusDone done) {
  Turn turn(impl_->turns_);
  impl_->shard_requests_.StartDrain(deadline, std::move(done));
}

bool Store::ContainsLocally(const ObjectId& id) const {
  return impl_->table_.Complete(id) != nullptr;
}

absl::StatusOr<net::ServeGrant> Store::Serve(const net::ServeRequest& request) {
  Turn turn(impl_->turns_);
  return impl_->peers_.Serve(request);
}

void Store::Serve(const net::ServeRequest& request, net::DataPlane::ServeReply reply) {
  Turn turn(impl_->turns_);
  impl_->peers_.Serve(request, std::move(reply));
}

StoreStats Store::stats() const {
  StoreStats stats;
  stats.capacity_bytes = impl_->table_.capacity_bytes();
  stats.used_bytes = impl_->table_.used_bytes();
  stats.pinned_bytes = impl_->table_.pinned_bytes();
  stats.objects = impl_->table_.objects();
  stats.clients = impl_->requests_.clients().size();
  for (const auto& [id, client] : impl_->requests_.clients()) stats.pins += client->pins.size();
  stats.waiting_gets = impl_->gets_.open();
  stats.waiting_for_memory = impl_->memory_.waiting();
  stats.evictions = impl_->copies_.evictions();
  stats.pulls_started = impl_->runner_.started();
  stats.pulls_failed = impl_->runner_.failed();
  stats.conflicts = impl_->puts_.conflicts();
  const HoldTable& holds = impl_->holds_.table();
  stats.held = holds.ids();
  stats.transits = holds.transits();
  stats.unclaimed = holds.unclaimed();
  stats.cut_short = holds.cut_short();
  return stats;
}

absl::Status Store::CheckInvariants() const { return impl_->CheckInvariants(); }

std::vector<Store::CopyInfo> Store::Copies() const {
  std::vector<CopyInfo> copies;
  for (const Copy* copy : impl_->table_.Sorted()) {
    copies.push_back({copy->id,
                      copy->generation,
                      copy->size_bytes,
                      copy->counted_bytes(),
                      copy->state == CopyState::kComplete,
                      copy->primary,
                      copy->buffer->bytes_present(),
                      copy->buffer,
                      {},
                      copy->traits.name,
                      copy->traits.scope});
    const v1::StickyMark* sticky = impl_->stickies_.Find(copy->id, copy->generation);
    if (sticky != nullptr) {
      copies.back().sticky = *sticky;
    } else if (copy->traits.copies > 0) {
      copies.back().sticky.set_stamp(directory::kCreatorStamp);
      copies.back().sticky.set_copies(copy->traits.copies);
    }
  }
  return copies;
}

}  // namespace phalanx::object_store
