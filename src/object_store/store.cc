#include "src/object_store/store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/object_store/store_impl.h"

namespace phalanx::object_store {
namespace {

// How soon the shards learn that the memory in use has changed.
constexpr absl::Duration kUsageInterval = absl::Seconds(1);
// How late the mistake is that Defect::kHoldAfterAnnouncement makes.
constexpr absl::Duration kTooLate = absl::Milliseconds(100);

}  // namespace

Store::Impl::Impl(StoreOptions options, Executor& executor, SharedMemory& memory,
                  ShardChannel& channel)
    : options_(std::move(options)),
      executor_(executor),
      memory_(memory),
      channel_(channel),
      table_(options_.capacity_bytes),
      eviction_(table_),
      pushes_(options_.self, PushLimits(), table_),
      holds_({options_.max_holds_per_client, options_.max_transits}),
      waiting_serves_(options_.max_waiting_serves),
      last_stamps_(static_cast<size_t>(channel_.num_shards())) {
  channel_.AddRegistrant(this);
  channel_.SetFlushHolds(WhileAlive([this] { FlushHolds(); }));
  HandleShardMessages();
}

Store::Impl::~Impl() {
  channel_.RemoveRegistrant(this);
  alive_.reset();
  if (timer_ != 0) executor_.Cancel(timer_);
  for (const auto& [id, pull] : running_) data_plane_->CancelPull(pull.handle);
}

// --------------------------------------------------------------------------------------- turns

void Store::Impl::Settle() {
  ++depth_;  // what runs here opens no turn of its own
  bool again = true;
  while (again) {
    again = false;
    for (PullEffect& effect : pulls_.TakeEffects()) {
      std::visit([this](auto& e) { Carry(e); }, effect);
      again = true;
    }
    for (const ObjectId& id : std::exchange(touched_, {})) {
      Resolve(id);
      again = true;
    }
    again = HandOutMemory() || again;
  }
  if (!DefectActive(Defect::kHoldAfterAnnouncement)) {
    FlushHolds();
  } else if (holds_.changed()) {
    executor_.RunAt(executor_.Now() + kTooLate, Guarded([this] { FlushHolds(); }));
  }
  --depth_;
  if (table_.used_bytes() != told_used_bytes_ && next_usage_.infinite()) {
    next_usage_ = executor_.Now() + kUsageInterval;
  }
  ArmTimer();
}

void Store::Impl::ArmTimer() {
  Instant next =
      std::min({eviction_.NextDeadline(), next_progress_, next_usage_, holds_.NextDeadline()});
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  while (!fetches_.empty() && !pulls_.Fetches(fetches_.front().second)) fetches_.pop_front();
  if (!fetches_.empty()) next = std::min(next, fetches_.front().first);
  while (!impatient_.empty() && !ticket_of_token_.contains(impatient_.front().token)) {
    impatient_.pop_front();
  }
  if (!impatient_.empty()) next = std::min(next, impatient_.front().when);
  if (next == timer_at_) return;
  if (timer_ != 0) executor_.Cancel(timer_);
  timer_at_ = next;
  timer_ = next.infinite() ? 0 : executor_.RunAt(next, Guarded([this] { OnTimer(); }));
}

void Store::Impl::OnTimer() {
  timer_ = 0;
  timer_at_ = Instant::Infinite();
  const Instant now = executor_.Now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Request* request = FindRequest(deadlines_.begin()->second);
    deadlines_.erase(deadlines_.begin());
    request->in_deadlines = false;
    OnDeadline(*request);
  }
  LoseFetchPatience();
  LoseMemoryPatience();
  holds_.Expire(now);
  if (next_progress_ <= now) SendProgress();
  if (next_usage_ <= now) TellUsage();
}

// ------------------------------------------------------------------------------------ requests

Store::Impl::Request* Store::Impl::FindRequest(RequestId id) {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : it->second.get();
}

Store::Impl::Client* Store::Impl::FindClient(ClientId id) {
  const auto it = clients_.find(id);
  return it == clients_.end() ? nullptr : it->second.get();
}

absl::Status Store::Impl::Admit(ClientId client, const ObjectId& id) const {
  const auto it = clients_.find(client);
  if (it == clients_.end()) return absl::InvalidArgumentError("the client is not open");
  if (it->second->requests.size() > options_.max_requests_per_client) {
    return absl::ResourceExhaustedError(absl::StrCat("node ", options_.name, ": ",
                                                     options_.max_requests_per_client,
                                                     " requests of this client wait already"));
  }
  if (id.nil()) return absl::InvalidArgumentError("the nil id names no object");
  return absl::OkStatus();
}

void Store::Impl::WatchDeadline(Request& request) {
  if (request.in_deadlines || request.deadline.infinite()) return;
  request.in_deadlines = true;
  deadlines_.emplace(request.deadline, request.id);
}

void Store::Impl::Queue(Request& request) {
  if (std::exchange(request.in_answers, true)) return;
  answers_.push_back(request.id);
  if (std::exchange(answers_posted_, true)) return;
  executor_.Post(Guarded([this] { HandOutAnswers(); }));
}

void Store::Impl::Finish(Request& request) {
  LeaveObject(request);
  request.stage = Request::Stage::kAnswered;
  if (request.in_deadlines) deadlines_.erase({request.deadline, request.id});
  request.in_deadlines = false;
  Queue(request);
}

void Store::Impl::HandOutAnswers() {
  answers_posted_ = false;
  for (const RequestId id : std::exchange(answers_, {})) {
    Request* request = FindRequest(id);
    if (request == nullptr) continue;
    request->in_answers = false;
    if (std::holds_alternative<GetPart>(request->part)) {
      HandOutGet(id);
      continue;
    }
    Task answer = std::move(request->answer);
    if (auto* create = std::get_if<CreatePart>(&request->part)) create->writer = 0;
    Forget(*request);
    answer();
  }
}

void Store::HandOutAnswers() {
  if (!impl_->answers_posted_) return;
  Impl::Turn turn(*impl_);
  impl_->HandOutAnswers();
}

void Store::Impl::Forget(Request& request) {
  LeaveBroadcast(request);
  LeaveObject(request);
  if (request.in_deadlines) deadlines_.erase({request.deadline, request.id});
  ForgetTicket(request.ticket);
  if (request.of_client.linked) FindClient(request.client)->requests.Remove(&request);
  requests_.erase(request.id);
}

void Store::Impl::CancelRequest(Request& request) {
  Touch(request.object);
  if (auto* create = std::get_if<CreatePart>(&request.part); create != nullptr) {
    if (create->writer != 0) AbortWriter(create->writer, absl::CancelledError("Create cancelled"));
  }
  if (auto* get = std::get_if<GetPart>(&request.part); get != nullptr) {
    EndStreaming(request.client, get->void_pin);
    // A view that was handed out is the reader's to release.
    if (get->view && get->view->ok()) {
      Unpin(*FindClient(request.client), get->pin, /*recycle=*/true);
    } else {
      EndStreaming(request.client, get->pin);
    }
  }
  for (Copy* copy = table_.First(request.object); copy != nullptr; copy = copy->next_generation) {
    if (copy->waiting_put == request.id) copy->waiting_put = 0;
  }
  if (drain_ == request.id) drain_ = 0;
  Forget(request);
}

void Store::Impl::OnDeadline(Request& request) {
  Touch(request.object);
  const auto text = [&](absl::string_view what) {
    return absl::StrCat("object ", request.object.hex(), " on node ", options_.name, ": ", what);
  };
  const bool memory = request.ticket != 0 || (std::holds_alternative<GetPart>(request.part) &&
                                              pulls_.WaitsForMemory(request.object));
  if (memory) {
    AnswerError(request,
                absl::ResourceExhaustedError(text(absl::StrCat(
                    "no memory became free before the deadline; ", table_.used_bytes(), " of ",
                    table_.capacity_bytes(), " bytes are used, ", table_.pinned_bytes(),
                    " by primary copies and readers: delete objects, release views, wait "
                    "longer or give the node a larger --capacity"))));
  } else if (auto* drain = std::get_if<DrainPart>(&request.part); drain != nullptr) {
    uint64_t left = 0;
    for (const auto& shard : drain->left) left += shard.value_or(0);
    AnswerError(request, absl::DeadlineExceededError(
                             absl::StrCat("node ", options_.name, ": ", left,
                                          " objects have no other copy yet; ", drain->message)));
  } else {
    AnswerError(request, absl::DeadlineExceededError(text("no answer before the deadline")));
  }
}

void Store::Impl::AnswerError(Request& request, const absl::Status& why) {
  ForgetTicket(std::exchange(request.ticket, 0));
  std::visit(
      [&](auto& part) {
        using Part = std::decay_t<decltype(part)>;
        if constexpr (std::is_same_v<Part, PutPart>) {
          AnswerPut(request, why);
        } else if constexpr (std::is_same_v<Part, CreatePart>) {
          AnswerCreate(request, why);
        } else if constexpr (std::is_same_v<Part, GetPart>) {
          AnswerGet(request, why);
        } else {
          request.answer = [done = std::move(part.done), why]() mutable { done(why); };
          Finish(request);
        }
      },
      request.part);
}

// ---------------------------------------------------------------------------------- invariants

absl::Status Store::Impl::CheckPins() const {
  absl::flat_hash_map<const Copy*, uint32_t> pins;
  for (const auto& [id, client] : clients_) {
    for (const auto& [pin, held] : client->pins) ++pins[held.copy];
  }
  for (const auto& [id, writer] : writers_) ++pins[writer.copy];
  for (const auto& [id, pull] : running_) ++pins[pull.copy];
  uint64_t explained = 0;
  for (const auto& [copy, count] : pins) {
    explained += count;
    if (count > copy->pins) {
      return absl::InternalError(absl::StrCat("object ", copy->id.ShortHex(), ": ", count,
                                              " holders, ", copy->pins, " pins"));
    }
  }
  explained += static_cast<uint64_t>(pushes_.active());
  if (explained != table_.pins()) {
    return absl::InternalError(
        absl::StrCat(explained, " holders of copies, ", table_.pins(), " pins"));
  }
  return absl::OkStatus();
}

absl::Status Store::Impl::CheckGets() const {
  for (const auto& [id, gets] : gets_) {
    if (gets->list.empty()) return absl::InternalError("a list of Gets without any");
    if (gets->waiting == 0) continue;
    if (table_.Complete(id) != nullptr) {
      return absl::InternalError(
          absl::StrCat("object ", id.ShortHex(), " is complete, and Gets wait for it"));
    }
    if (!pulls_.Wants(id) && StreamSource(id) == nullptr) {
      return absl::InternalError(
          absl::StrCat("Gets wait for object ", id.ShortHex(), ", and nobody is asked for it"));
    }
  }
  for (const ObjectId& id : pulls_.WantedByClients()) {
    if (gets_.contains(id)) continue;
    return absl::InternalError(
        absl::StrCat("object ", id.ShortHex(), " is wanted by clients, and no Get is open"));
  }
  return absl::OkStatus();
}

absl::Status Store::Impl::CheckInvariants() const {
  for (const absl::Status& status :
       {table_.CheckInvariants(), pulls_.CheckInvariants(), waiting_serves_.CheckInvariants(),
        CheckPins(), CheckGets(), CheckHolds()}) {
    if (!status.ok()) return status;
  }
  for (const Copy* copy : table_.Sorted()) {
    if (copy->state != CopyState::kComplete || copy->buffer->complete()) continue;
    return absl::InternalError(
        absl::StrCat("object ", copy->id.ShortHex(), ": called complete with bytes missing"));
  }
  if (table_.reserved_bytes() != allocating_bytes_ + scratch_bytes_) {
    return absl::InternalError("memory is reserved that nobody is to get");
  }
  if (running_.size() != pulls_.running()) {
    return absl::InternalError("the data plane runs other pulls than were decided");
  }
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------ public methods

Store::Store(StoreOptions options, Executor& executor, SharedMemory& memory, ShardChannel& channel)
    : impl_(std::make_unique<Impl>(std::move(options), executor, memory, channel)) {}

Store::~Store() = default;

void Store::SetDataPlane(net::DataPlane* data_plane) { impl_->data_plane_ = data_plane; }

ClientId Store::OpenClient() {
  const ClientId id = impl_->next_number_++;
  impl_->clients_.emplace(id, std::make_unique<Impl::Client>()).first->second->id = id;
  return id;
}

void Store::CloseClient(ClientId id, bool clean) {
  Impl::Turn turn(*impl_);
  Impl::Client* client = impl_->FindClient(id);
  if (client == nullptr) return;
  while (!client->requests.empty()) impl_->CancelRequest(*client->requests.front());
  for (const WriterId writer : std::set<WriterId>(client->writers)) {
    if (!clean) impl_->writers_.at(writer).copy->block->Condemn(id);
    impl_->AbortWriter(writer, absl::AbortedError("the writer ended before it sealed"));
  }
  std::vector<PinId> pins;
  for (const auto& [pin, held] : client->pins) pins.push_back(pin);
  std::sort(pins.begin(), pins.end());
  for (const PinId pin : pins) impl_->Unpin(*client, pin, /*recycle=*/clean);
  if (clean || !DefectActive(Defect::kDeadClientHolds)) impl_->holds_.CloseClient(id);
  impl_->clients_.erase(id);
}

void Store::Cancel(ClientId client, RequestId id) {
  Impl::Turn turn(*impl_);
  Impl::Request* request = impl_->FindRequest(id);
  if (request != nullptr && request->client == client) impl_->CancelRequest(*request);
}

bool Store::ContainsLocally(const ObjectId& id) const {
  return impl_->table_.Complete(id) != nullptr;
}

absl::StatusOr<net::ServeGrant> Store::Serve(const net::ServeRequest& request) {
  Impl::Turn turn(*impl_);
  return impl_->Serve(request);
}

void Store::Serve(const net::ServeRequest& request, net::DataPlane::ServeReply reply) {
  Impl::Turn turn(*impl_);
  impl_->Serve(request, std::move(reply));
}

StoreStats Store::stats() const {
  StoreStats stats;
  stats.capacity_bytes = impl_->table_.capacity_bytes();
  stats.used_bytes = impl_->table_.used_bytes();
  stats.pinned_bytes = impl_->table_.pinned_bytes();
  stats.objects = impl_->table_.objects();
  stats.clients = impl_->clients_.size();
  for (const auto& [id, client] : impl_->clients_) stats.pins += client->pins.size();
  stats.waiting_gets = impl_->waiting_gets_;
  stats.waiting_for_memory = impl_->eviction_.waiting();
  stats.evictions = impl_->evictions_;
  stats.pulls_started = impl_->pulls_started_;
  stats.pulls_failed = impl_->pulls_failed_;
  stats.conflicts = impl_->conflicts_;
  stats.held = impl_->holds_.ids();
  stats.transits = impl_->holds_.transits();
  stats.unclaimed = impl_->holds_.unclaimed();
  stats.cut_short = impl_->holds_.cut_short();
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
                      {}});
    const auto sticky = impl_->stickies_.find({copy->id, copy->generation});
    if (sticky != impl_->stickies_.end()) copies.back().sticky = sticky->second;
  }
  return copies;
}

}  // namespace phalanx::object_store
