#include "src/collectives/reducer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/collectives/fold_order.h"
#include "src/collectives/node_fold.h"
#include "src/collectives/reduce_requests.h"
#include "src/collectives/ring_fold.h"
#include "src/collectives/source_watches.h"
#include "src/common/defects.h"
#include "src/common/version.h"
#include "src/directory/reduce_messages.h"
#include "src/directory/validate.h"
#include "src/object_store/serve_waitlist.h"
#include "src/object_store/subject.h"

namespace phalanx::collectives {
namespace {

using object_store::ClientId;
using object_store::ReduceCall;
using object_store::ReduceDone;
using object_store::RequestId;

}  // namespace

struct Reducer::Impl final : public NodeFold::Host,
                             public RingFold::Host,
                             public object_store::Registrant {
  using Key = std::pair<ObjectId, Generation>;  // target, version

  // For a shard that begins anew.
  struct Kept {
    Generation number;
    // By place in the list of sources: one, of a reduction that is not open.
    std::map<uint32_t, v1::Reduction> parts;
    bool owned = false;
    Instant deadline = Instant::Infinite();
  };

  Impl(ReducerOptions options, Executor& control, std::vector<Executor*> io,
       object_store::Store& store, object_store::ShardChannel& channel);
  ~Impl() override;

  // ---- NodeFold::Host, RingFold::Host
  object_store::Store& store() override { return store_; }
  ClientId client() override;
  std::shared_ptr<void> Hold(object_store::PinId pin) override;
  net::DataPlane& data_plane() override { return *data_plane_; }
  Executor& NextIo() override { return *io_[next_io_++ % io_.size()]; }
  void Report(const FoldOrder& order, v1::FoldReport report) override;
  std::optional<net::ServeGrant> OutputOf(const ObjectId& target,
                                          const Generation& version) override;
  void OutputBegan(NodeFold& fold) override;
  void Folded(uint64_t bytes, bool done) override;
  void Sealed(const FoldOrder& order) override;
  void Leaving(NodeFold& fold) override;
  void Gone(NodeFold& fold) override;
  void OutputBegan(RingFold& fold) override;
  void Leaving(RingFold& fold) override;
  void Gone(RingFold& fold) override;

  // What holds nothing needs no client.
  void CloseIdleClient();

  // ---- directory
  void HandleShardMessages();
  NodeFold* Find(const Key& key) const;
  RingFold* FindRing(const Key& key) const;
  void OnFold(const v1::Fold& message);
  void OnRing(FoldOrder order);
  FoldOptions OptionsOfFolds() const {
    return {options_.self, options_.retry_after, options_.retry_at_most, options_.memory_patience};
  }
  // They live in one session of each member with the shard: what is not sealed ends.
  void EndRings(int shard);
  // The order cannot be carried out: if it says for what, that is told.
  void Reject(const v1::Fold& message, const absl::Status& why);
  void OnFoldDrop(const v1::FoldDrop& drop);
  void OnFoldCommit(const v1::FoldCommit& commit);
  void OnKeep(const v1::KeepReduction& keep);
  static void AddPart(const v1::Reduction& part, Kept& kept);
  std::vector<v1::NodeMessage> BeginSession(int shard) override;
  void RegisterKept(int shard, std::vector<v1::NodeMessage>& messages);

  // ---- data plane
  bool Serve(const net::ServeRequest& request, net::DataPlane::ServeReply& reply);
  void AnswerServes(const Key& key, uint64_t expired);

  void ArmProgress();
  void OnProgress();

  // Constant after construction.
  const ReducerOptions options_;
  Executor& control_;
  const std::vector<Executor*> io_;
  object_store::Store& store_;
  object_store::ShardChannel& channel_;
  net::DataPlane* data_plane_ = nullptr;
  std::shared_ptr<char> alive_ = std::make_shared<char>();

  ClientId client_ = 0;  // while there is something to hold
  size_t holds_ = 0;     // pins of its
  size_t next_io_ = 0;
  ReduceRequests requests_;
  SourceWatches watches_;
  std::map<ObjectId, Kept> kept_;
  std::map<Key, std::unique_ptr<NodeFold>> folds_;
  std::map<Key, std::unique_ptr<RingFold>> rings_;
  // Left, and not gone.
  std::vector<std::unique_ptr<NodeFold>> leaving_;
  std::vector<std::unique_ptr<RingFold>> leaving_rings_;
  object_store::ServeWaitlist waiting_serves_;
  uint64_t next_serial_ = 1;
  TimerId progress_timer_ = 0;

  uint64_t folds_done_ = 0;
  uint64_t bytes_folded_ = 0;
};

Reducer::Impl::Impl(ReducerOptions options, Executor& control, std::vector<Executor*> io,
                    object_store::Store& store, object_store::ShardChannel& channel)
    : options_(std::move(options)),
      control_(control),
      io_(std::move(io)),
      store_(store),
      channel_(channel),
      requests_(options_.name, control,
                [this](const ObjectId& target, v1::NodeMessage message) {
                  channel_.SendAfterHolds(channel_.ShardOf(target), std::move(message));
                }),
      watches_(options_.name, channel_.num_shards(),
               [this](int shard, v1::NodeMessage message) {
                 channel_.SendAfterHolds(shard, std::move(message));
               }),
      waiting_serves_(options_.max_waiting_serves) {
  channel_.AddRegistrant(this);
  HandleShardMessages();
}

Reducer::Impl::~Impl() {
  channel_.RemoveRegistrant(this);
  alive_.reset();
  if (progress_timer_ != 0) control_.Cancel(progress_timer_);
  folds_.clear();
  leaving_.clear();
  rings_.clear();
  leaving_rings_.clear();
  if (client_ != 0) store_.CloseClient(client_, /*clean=*/true);
}

// --------------------------------------------------------------------------------------- folds

ClientId Reducer::Impl::client() {
  if (client_ == 0) client_ = store_.OpenClient();
  return client_;
}

std::shared_ptr<void> Reducer::Impl::Hold(object_store::PinId pin) {
  ++holds_;
  return std::shared_ptr<void>(nullptr, [this, alive = std::weak_ptr<char>(alive_), pin](void*) {
    // Without the reducer its client has gone, with all its pins.
    if (alive.expired()) return;
    (void)store_.Release(client_, pin);
    --holds_;
    CloseIdleClient();
  });
}

void Reducer::Impl::CloseIdleClient() {
  const bool idle = folds_.empty() && leaving_.empty() && rings_.empty() && leaving_rings_.empty();
  if (client_ == 0 || holds_ > 0 || !idle) return;
  store_.CloseClient(std::exchange(client_, 0), /*clean=*/true);
}

void Reducer::Impl::Report(const FoldOrder& order, v1::FoldReport report) {
  v1::NodeMessage message;
  report.set_object_id(object_store::IdBytes(order.target));
  directory::ToProto(order.version, report.mutable_version());
  *message.mutable_fold_report() = std::move(report);
  channel_.SendAfterHolds(channel_.ShardOf(order.target), std::move(message));
}

NodeFold* Reducer::Impl::Find(const Key& key) const {
  const auto it = folds_.find(key);
  return it == folds_.end() ? nullptr : it->second.get();
}

std::optional<net::ServeGrant> Reducer::Impl::OutputOf(const ObjectId& target,
                                                       const Generation& version) {
  const NodeFold* fold = Find({target, version});
  return fold == nullptr ? std::nullopt : fold->Output();
}

void Reducer::Impl::OutputBegan(NodeFold& fold) {
  const Key key{fold.order().target, fold.order().version};
  AnswerServes(key, /*expired=*/0);
  for (auto it = folds_.lower_bound({key.first, Generation()});
       it != folds_.end() && it->first.first == key.first;) {
    NodeFold& other = *(it++)->second;
    if (&other != &fold) other.OutputBeganHere(key.second);
  }
  ArmProgress();
}

void Reducer::Impl::Folded(uint64_t bytes, bool done) {
  bytes_folded_ += bytes;
  if (done) ++folds_done_;
}

// Who asked here need not wait until the shard has heard of it: what they tell it from now on comes
// after the announcement.
void Reducer::Impl::Sealed(const FoldOrder& order) {
  requests_.OnMade(order.target,
                   [&order](const v1::Reduction& asked) { return order.Answers(asked); });
}

void Reducer::Impl::Leaving(NodeFold& fold) {
  const auto it = folds_.find({fold.order().target, fold.order().version});
  leaving_.push_back(std::move(it->second));
  folds_.erase(it);
}

void Reducer::Impl::Gone(NodeFold& fold) {
  control_.Post([this, alive = std::weak_ptr<char>(alive_), gone = &fold] {
    if (alive.expired()) return;
    std::erase_if(leaving_, [gone](const auto& left) { return left.get() == gone; });
    CloseIdleClient();
  });
}

RingFold* Reducer::Impl::FindRing(const Key& key) const {
  const auto it = rings_.find(key);
  return it == rings_.end() ? nullptr : it->second.get();
}

void Reducer::Impl::OutputBegan(RingFold& fold) {
  AnswerServes({fold.order().target, fold.order().version}, /*expired=*/0);
  ArmProgress();
}

void Reducer::Impl::Leaving(RingFold& fold) {
  const auto it = rings_.find({fold.order().target, fold.order().version});
  leaving_rings_.push_back(std::move(it->second));
  rings_.erase(it);
}

void Reducer::Impl::Gone(RingFold& fold) {
  control_.Post([this, alive = std::weak_ptr<char>(alive_), gone = &fold] {
    if (alive.expired()) return;
    std::erase_if(leaving_rings_, [gone](const auto& left) { return left.get() == gone; });
    CloseIdleClient();
  });
}

void Reducer::Impl::OnRing(FoldOrder order) {
  const Key key{order.target, order.version};
  auto& ring = rings_[key];
  ring = std::make_unique<RingFold>(std::move(order), OptionsOfFolds(), *this, control_);
  ring->Start();
}

void Reducer::Impl::EndRings(int shard) {
  std::vector<RingFold*> ended;
  for (const auto& [key, ring] : rings_) {
    if (channel_.ShardOf(key.first) == shard && !ring->sealed()) ended.push_back(ring.get());
  }
  for (RingFold* ring : ended) ring->Drop();
}

void Reducer::Impl::OnFold(const v1::Fold& message) {
  absl::StatusOr<FoldOrder> order = ParseFold(message);
  if (!order.ok()) return Reject(message, order.status());
  const Key key{order->target, order->version};
  if (FindRing(key) != nullptr) return;
  if (NodeFold* fold = Find(key); fold != nullptr) {
    if (fold->order().SameWork(*order, options_.self)) return fold->Update(*order);
    fold->Drop();
  }
  if (folds_.size() + rings_.size() >= options_.max_folds) {
    return Reject(message, absl::ResourceExhaustedError(
                               absl::StrCat("node ", options_.name, " computes ",
                                            folds_.size() + rings_.size(), " folds already")));
  }
  if (order->ring) return OnRing(*std::move(order));
  auto& fold = folds_[key];
  fold = std::make_unique<NodeFold>(*std::move(order), OptionsOfFolds(), *this, control_);
  fold->Start();
}

void Reducer::Impl::Reject(const v1::Fold& message, const absl::Status& why) {
  FoldOrder order;
  const absl::StatusOr<ObjectId> target = directory::ParseObjectId(message.object_id());
  const absl::StatusOr<Generation> version = directory::ParseGeneration(message.version());
  if (!target.ok() || !version.ok()) return;
  if (NodeFold* fold = Find({*target, *version}); fold != nullptr) fold->Drop();
  if (RingFold* ring = FindRing({*target, *version}); ring != nullptr) ring->Drop();
  order.target = *target;
  order.version = *version;
  v1::FoldReport report;
  report.set_kind(v1::FoldReport::DROPPED);
  report.set_code(static_cast<int>(why.code()));
  report.set_message(std::string(why.message()));
  Report(order, std::move(report));
}

void Reducer::Impl::OnFoldDrop(const v1::FoldDrop& drop) {
  const absl::StatusOr<ObjectId> target = directory::ParseObjectId(drop.object_id());
  if (!target.ok()) return;
  if (DefectActive(Defect::kFoldDropIgnored)) return;
  const Key key{*target, directory::FromProto(drop.version())};
  if (NodeFold* fold = Find(key); fold != nullptr) fold->Drop();
  if (RingFold* ring = FindRing(key); ring != nullptr) ring->Drop();
}

void Reducer::Impl::OnFoldCommit(const v1::FoldCommit& commit) {
  const absl::StatusOr<ObjectId> target = directory::ParseObjectId(commit.object_id());
  if (!target.ok()) return;
  const Key key{*target, directory::FromProto(commit.version())};
  if (NodeFold* fold = Find(key); fold != nullptr) fold->Commit();
  if (RingFold* ring = FindRing(key); ring != nullptr) ring->Commit();
}

void Reducer::Impl::ArmProgress() {
  if (progress_timer_ != 0) return;
  progress_timer_ =
      control_.RunAt(control_.Now() + options_.progress_interval, [this] { OnProgress(); });
}

void Reducer::Impl::OnProgress() {
  progress_timer_ = 0;
  bool more = false;
  for (auto& [key, fold] : folds_) more = fold->TellProgress(control_.Now()) || more;
  for (auto& [key, ring] : rings_) more = ring->TellProgress(control_.Now()) || more;
  if (more) ArmProgress();
}

// ----------------------------------------------------------------------------------- directory

void Reducer::Impl::HandleShardMessages() {
  using Message = v1::ShardMessage;
  const auto handle = [this](Message::KindCase kind, auto handler) {
    channel_.Handle(kind, [alive = std::weak_ptr<char>(alive_), handler](int, const Message& m) {
      if (!alive.expired()) handler(m);
    });
  };
  const auto answer = [this](const auto& reply) {
    requests_.OnReply(reply.request_id(), reply.code(), reply.message());
  };
  handle(Message::kReduceReply, [answer](const Message& m) { answer(m.reduce_reply()); });
  handle(Message::kExtendReply, [answer](const Message& m) { answer(m.extend_reply()); });
  handle(Message::kFailReply, [answer](const Message& m) { answer(m.fail_reply()); });
  handle(Message::kFold, [this](const Message& m) { OnFold(m.fold()); });
  handle(Message::kFoldDrop, [this](const Message& m) { OnFoldDrop(m.fold_drop()); });
  handle(Message::kFoldCommit, [this](const Message& m) { OnFoldCommit(m.fold_commit()); });
  handle(Message::kKeepReduction, [this](const Message& m) { OnKeep(m.keep_reduction()); });
  handle(Message::kWatchSource, [this](const Message& m) { watches_.OnWatch(m.watch_source()); });
  handle(Message::kSourceState, [this](const Message& m) { watches_.OnState(m.source_state()); });
}

void Reducer::Impl::OnKeep(const v1::KeepReduction& keep) {
  const absl::StatusOr<ObjectId> target = directory::ParseObjectId(keep.object_id());
  if (!target.ok()) return;
  const Generation number = directory::FromProto(keep.reduction().begun());
  const auto known = kept_.find(*target);
  const bool another = known != kept_.end() && known->second.number.valid() && number.valid() &&
                       known->second.number != number;
  if (keep.forget()) {
    // What is to be forgotten may be one that is forgotten already, for another of that target.
    if (known != kept_.end() && !another) kept_.erase(known);
    return;
  }
  // The list of another one, or of the same by another name: it is told from the start.
  if (another) kept_.erase(known);
  if (number.valid()) requests_.OnNumbered(*target, keep.reduction().begun());
  if (kept_.size() >= options_.max_kept && !kept_.contains(*target)) return;
  if (keep.reduction().first_source() > kMaxReduceSources) return;
  Kept& kept = kept_[*target];
  kept.number = number;
  AddPart(keep.reduction(), kept);
  kept.owned = keep.owned();
  kept.deadline = keep.timeout_ms() == 0 ? Instant::Infinite()
                                         : control_.Now() + absl::Milliseconds(keep.timeout_ms());
}

// What goes on where another part ends, or within it, is added to that.
void Reducer::Impl::AddPart(const v1::Reduction& part, Kept& kept) {
  const uint32_t first = part.first_source();
  auto before = kept.parts.upper_bound(first);
  if (before == kept.parts.begin() ||
      first - std::prev(before)->first >
          static_cast<uint32_t>(std::prev(before)->second.source_ids_size())) {
    kept.parts[first] = part;
    return;
  }
  v1::Reduction& grown = std::prev(before)->second;
  const int known = grown.source_ids_size() - static_cast<int>(first - grown.first_source());
  for (int i = known; i < part.source_ids_size(); ++i) grown.add_source_ids(part.source_ids(i));
  if (part.closed()) grown.set_closed(true);
}

std::vector<v1::NodeMessage> Reducer::Impl::BeginSession(int shard) {
  std::vector<v1::NodeMessage> messages;
  const auto here = [this, shard](const ObjectId& target) {
    return channel_.ShardOf(target) == shard;
  };
  // In the order of the lists: what was asked for, then what was added.
  for (v1::NodeMessage& asked : requests_.AskAgain(here)) {
    if (DefectActive(Defect::kCallerForgottenAtRestart)) break;
    messages.push_back(std::move(asked));
  }
  RegisterKept(shard, messages);
  for (const auto& [key, fold] : folds_) {
    if (!here(key.first)) continue;
    v1::RegisterFold* out = messages.emplace_back().mutable_register_fold();
    out->set_object_id(object_store::IdBytes(key.first));
    directory::ToProto(key.second, out->mutable_version());
    fold->Describe(out);
  }
  if (!DefectActive(Defect::kSourceWatchForgotten)) watches_.OnSession(shard);
  // Their copies may be told among the store's: what becomes of them is told behind.
  control_.Post([this, alive = std::weak_ptr<char>(alive_), shard] {
    if (!alive.expired()) EndRings(shard);
  });
  return messages;
}

void Reducer::Impl::RegisterKept(int shard, std::vector<v1::NodeMessage>& messages) {
  const Instant now = control_.Now();
  std::erase_if(kept_, [now](const auto& kept) { return kept.second.deadline <= now; });
  for (const auto& [target, kept] : kept_) {
    if (channel_.ShardOf(target) != shard) continue;
    for (const auto& [first, part] : kept.parts) {
      v1::ReduceRequest* request = messages.emplace_back().mutable_reduce_request();
      request->set_object_id(object_store::IdBytes(target));
      *request->mutable_reduction() = part;
      request->set_again(true);
      request->set_owned(kept.owned);
      if (kept.deadline.infinite()) continue;
      const int64_t ms = absl::ToInt64Milliseconds(kept.deadline - now);
      request->set_timeout_ms(static_cast<uint64_t>(std::max<int64_t>(1, ms)));
    }
  }
}

// ---------------------------------------------------------------------------------- data plane

bool Reducer::Impl::Serve(const net::ServeRequest& request, net::DataPlane::ServeReply& reply) {
  const Key key{request.object, request.generation};
  if (const RingFold* ring = FindRing(key); ring != nullptr) {
    if (std::optional<net::ServeGrant> folded = ring->Folded()) {
      reply(*std::move(folded));
      return true;
    }
  }
  const NodeFold* fold = Find(key);
  if (IsVersion(request.generation) && DefectActive(Defect::kAnyVersionServed)) {
    const auto any = folds_.lower_bound({request.object, Generation()});
    if (any != folds_.end() && any->first.first == request.object) fold = any->second.get();
  }
  if (fold != nullptr) {
    if (std::optional<net::ServeGrant> output = fold->Output()) {
      if (request.slices == 1) {
        reply(*std::move(output));
      } else {
        reply(absl::InvalidArgumentError("a fold's output has one slice"));
      }
      return true;
    }
  } else if (!IsVersion(request.generation)) {
    return false;
  }
  if (waiting_serves_.full()) return false;
  const uint64_t serial = next_serial_++;
  const absl::Duration patience = std::min(options_.serve_patience, request.patience);
  waiting_serves_.Add(serial, request, std::move(reply));
  control_.RunAt(control_.Now() + patience,
                 [this, alive = std::weak_ptr<char>(alive_), key, serial] {
                   if (!alive.expired()) AnswerServes(key, serial);
                 });
  return true;
}

// Answers the receivers of the fold's output if it has begun, and the one whose patience is over.
void Reducer::Impl::AnswerServes(const Key& key, uint64_t expired) {
  const NodeFold* fold = Find(key);
  const RingFold* ring = FindRing(key);
  const bool here = (fold != nullptr && fold->Output().has_value()) ||
                    (ring != nullptr && ring->Folded().has_value());
  const auto is_here = [&key, here](const net::ServeRequest& request) {
    return here && request.generation == key.second;
  };
  for (auto& waiting : waiting_serves_.Take(key.first, expired, is_here)) {
    if (here) {
      (void)Serve(waiting.request, waiting.reply);
    } else {
      waiting.reply(absl::NotFoundError(absl::StrCat("node ", options_.name, ": no fold of object ",
                                                     key.first.ShortHex(), ", version ",
                                                     key.second.ToString(), ", has begun here")));
    }
  }
}

// ------------------------------------------------------------------------------ public methods

Reducer::Reducer(ReducerOptions options, Executor& control, std::vector<Executor*> io,
                 object_store::Store& store, object_store::ShardChannel& channel)
    : impl_(std::make_unique<Impl>(std::move(options), control, std::move(io), store, channel)) {}

Reducer::~Reducer() = default;

void Reducer::SetDataPlane(net::DataPlane* data_plane) { impl_->data_plane_ = data_plane; }

RequestId Reducer::Reduce(ClientId client, ReduceCall call, ReduceDone done) {
  absl::Status status = CheckReducible(call.elements, call.op);
  if (call.target.nil()) status = absl::InvalidArgumentError("the nil id names no object");
  if (call.sources.size() > kMaxReduceSources) {
    status = absl::InvalidArgumentError(
        absl::StrCat(call.sources.size(), " sources; at most ", kMaxReduceSources));
  }
  if (!status.ok()) {
    impl_->requests_.Refuse(std::move(status), std::move(done));
    return 0;
  }
  v1::NodeMessage message;
  v1::ReduceRequest* request = message.mutable_reduce_request();
  request->set_object_id(object_store::IdBytes(call.target));
  request->set_owned(call.owned);
  v1::Reduction* reduction = request->mutable_reduction();
  reduction->set_dtype(directory::ToProto(call.elements, reduction->mutable_runs()));
  reduction->set_op(static_cast<uint32_t>(call.op));
  reduction->set_order(call.fixed_order ? 1 : 0);
  reduction->set_num_objects(call.num_objects);
  reduction->set_open(call.open);
  reduction->set_everybody(call.everybody);
  for (const ObjectId& source : call.sources) {
    reduction->add_source_ids(source.binary().data(), source.binary().size());
  }
  reduction->set_range_offset(call.range_offset);
  reduction->set_range_bytes(call.range_bytes);
  if (call.root_here) directory::ToProto(impl_->options_.self, reduction->mutable_root());
  return impl_->requests_.Ask(client, call.target, std::move(message), call.deadline,
                              std::move(done));
}

void Reducer::Extend(ClientId client, const ObjectId& target, std::vector<ObjectId> sources,
                     bool close, Instant deadline, ReduceDone done) {
  if (target.nil() || sources.size() > kMaxReduceSources) {
    return impl_->requests_.Refuse(
        absl::InvalidArgumentError("a reduction has an id, and a limited number of sources"),
        std::move(done));
  }
  v1::NodeMessage message;
  v1::ExtendRequest* request = message.mutable_extend_request();
  request->set_object_id(object_store::IdBytes(target));
  for (const ObjectId& source : sources) {
    request->add_source_ids(source.binary().data(), source.binary().size());
  }
  request->set_close(close);
  impl_->requests_.Ask(client, target, std::move(message), deadline, std::move(done));
}

void Reducer::Fail(ClientId client, const ObjectId& id, absl::Status why, Instant deadline,
                   ReduceDone done) {
  if (id.nil() || why.ok()) {
    return impl_->requests_.Refuse(
        absl::InvalidArgumentError("what fails has an id, and an error to fail with"),
        std::move(done));
  }
  v1::NodeMessage message;
  v1::FailRequest* request = message.mutable_fail_request();
  request->set_object_id(object_store::IdBytes(id));
  request->set_code(static_cast<int>(why.code()));
  request->set_message(std::string(why.message()));
  impl_->requests_.Ask(client, id, std::move(message), deadline, std::move(done));
}

void Reducer::Cancel(ClientId client, RequestId request) {
  impl_->requests_.Cancel(client, request);
}

void Reducer::ClientClosed(ClientId client) { impl_->requests_.ClientClosed(client); }

bool Reducer::Serve(const net::ServeRequest& request, net::DataPlane::ServeReply& reply) {
  return impl_->Serve(request, reply);
}

Reducer::Stats Reducer::stats() const {
  Stats stats;
  stats.folds = impl_->folds_.size() + impl_->rings_.size();
  stats.folds_done = impl_->folds_done_;
  stats.bytes_folded = impl_->bytes_folded_;
  for (const auto& [key, fold] : impl_->folds_) stats.scratch_bytes += fold->scratch_bytes();
  for (const auto& fold : impl_->leaving_) stats.scratch_bytes += fold->scratch_bytes();
  stats.waiting = impl_->requests_.size();
  return stats;
}

absl::Status Reducer::CheckInvariants() const {
  const absl::Status waiting = impl_->waiting_serves_.CheckInvariants();
  if (!waiting.ok()) return waiting;
  for (const auto& [key, fold] : impl_->folds_) {
    if (fold == nullptr || fold->order().target != key.first ||
        fold->order().version != key.second) {
      return absl::InternalError(
          absl::StrCat("a fold of object ", key.first.ShortHex(), " under another's name"));
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::collectives
