#include "src/collectives/reducer/reducer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/collectives/fold/fold_order.h"
#include "src/collectives/fold/node_fold.h"
#include "src/collectives/fold/ring_fold.h"
#include "src/collectives/reducer/kept_reductions.h"
#include "src/collectives/reducer/open_reductions.h"
#include "src/collectives/reducer/reduce_requests.h"
#include "src/collectives/reducer/source_watches.h"
#include "src/common/defects.h"
#include "src/common/ids/version.h"
#include "src/common/threads/callback_guard.h"
#include "src/directory/core/reduce_messages.h"
#include "src/directory/core/validate.h"
#include "src/object_store/pulls/serve_waitlist.h"

namespace phalanx::collectives {
namespace {

using object_store::ClientId;
using object_store::RequestId;

// Folds that a node has at a time.
constexpr size_t kMaxFolds = 1 << 16;
// Folds report their progress at least so often; large ones report each eighth as well.
constexpr absl::Duration kProgressInterval = absl::Milliseconds(250);

}  // namespace

struct Reducer::Impl final : public Fold::Host, public object_store::Registrant {
  using Key = std::pair<ObjectId, SlotVersion>;  // target, version

  Impl(ReducerOptions options, Executor& control, std::vector<Executor*> io,
       object_store::Store& store, object_store::ShardChannel& channel);
  ~Impl() override;

  // ---- Fold::Host
  object_store::Store& store() override { return store_; }
  ClientId client() override;
  std::shared_ptr<void> Hold(object_store::PinId pin) override;
  net::DataPlane& data_plane() override { return *data_plane_; }
  Executor& NextIo() override { return *io_[next_io_++ % io_.size()]; }
  void Report(const FoldOrder& order, v1::FoldReport report) override;
  std::optional<net::ServeGrant> OutputOf(const ObjectId& target, const SlotVersion& version,
                                          uint64_t from) override;
  void OutputBegan(Fold& fold) override;
  void Folded(uint64_t bytes, bool done) override;
  void Sealed(const FoldOrder& order) override;
  void Leaving(Fold& fold) override;
  void Gone(Fold& fold) override;

  // Closes the store's client while no fold holds anything.
  void CloseIdleClient();

  // ---- directory
  void HandleShardMessages();
  Fold* Find(const Key& key) const;
  void OnFold(const v1::Fold& message);
  FoldOptions OptionsOfFolds() const {
    return {options_.self, options_.memory_patience, options_.connect_patience};
  }
  // Returns whether the output has the bytes from `from` on, or will have them. If not, the fold
  // starts over in a later turn, with an output that begins there.
  bool Reaches(const Fold& fold, uint64_t from);
  void StartOver(const Key& key, uint64_t from);
  void Add(FoldOrder order);
  // A fold whose predecessors of the same target are about to leave begins when they have: their
  // memory is back within a turn or two, and 32 MiB of new pages take 20 ms.
  void BeginWaiting(const ObjectId& target);
  // Drops the folds that cannot continue in a new session with the shard.
  void EndFoldsOf(int shard);
  // Reports that the order cannot be carried out, if it names a target and a version.
  void Reject(const v1::Fold& message, const absl::Status& why);
  void OnFoldDrop(const v1::FoldDrop& drop);
  void OnFoldCommit(const v1::FoldCommit& commit);
  void OnKeep(const v1::KeepReduction& keep);
  std::vector<v1::NodeMessage> BeginSession(int shard) override;

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
  CallbackGuard guard_;

  ClientId client_ = 0;  // 0 while no fold holds anything
  size_t holds_ = 0;     // its pins
  size_t next_io_ = 0;
  ReduceRequests requests_;
  SourceWatches watches_;
  KeptReductions kept_;
  OpenReductions open_;
  std::map<Key, std::unique_ptr<Fold>> folds_;
  struct Succession {
    // By target: not placed any more, and not gone.
    std::map<ObjectId, std::vector<std::unique_ptr<Fold>>> leaving;
    // Of folds_, those that have not begun, because others of their target are leaving.
    std::set<Key> waiting;
  };
  Succession succession_;
  object_store::ServeWaitlist waiting_serves_;
  uint64_t next_serial_ = 1;
  TimerId progress_timer_ = 0;
  Stats totals_;  // the counters since the start; gauges are computed by stats()
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
      open_(store, channel_.num_shards()),
      waiting_serves_(options_.max_waiting_serves) {
  channel_.AddRegistrant(this);
  HandleShardMessages();
}

Reducer::Impl::~Impl() {
  channel_.RemoveRegistrant(this);
  // Before the folds: their pins go with the client, not one by one.
  guard_.Close();
  if (progress_timer_ != 0) control_.Cancel(progress_timer_);
  folds_.clear();
  succession_.leaving.clear();
  if (client_ != 0) store_.CloseClient(client_, /*clean=*/true);
}

// --------------------------------------------------------------------------------------- folds

ClientId Reducer::Impl::client() {
  // On demand: CloseIdleClient closes it while no fold holds anything.
  if (client_ == 0) client_ = store_.OpenClient();
  return client_;
}

std::shared_ptr<void> Reducer::Impl::Hold(object_store::PinId pin) {
  ++holds_;
  // Once the reducer is destroyed its client is closed, with all its pins.
  return std::shared_ptr<void>(nullptr, guard_.Wrap([this, pin](void*) {
    (void)store_.Release(client_, pin);
    --holds_;
    CloseIdleClient();
  }));
}

void Reducer::Impl::CloseIdleClient() {
  if (client_ == 0 || holds_ > 0 || !folds_.empty() || !succession_.leaving.empty()) return;
  store_.CloseClient(std::exchange(client_, 0), /*clean=*/true);
}

void Reducer::Impl::Report(const FoldOrder& order, v1::FoldReport report) {
  v1::NodeMessage message;
  directory::ToProto(order.target, report.mutable_object_id());
  directory::ToProto(order.version, report.mutable_version());
  *message.mutable_fold_report() = std::move(report);
  channel_.SendAfterHolds(channel_.ShardOf(order.target), std::move(message));
}

Fold* Reducer::Impl::Find(const Key& key) const {
  const auto it = folds_.find(key);
  return it == folds_.end() ? nullptr : it->second.get();
}

std::optional<net::ServeGrant> Reducer::Impl::OutputOf(const ObjectId& target,
                                                       const SlotVersion& version, uint64_t from) {
  const Fold* fold = Find({target, version});
  // Slices of a ring are partial until they have gone around: no tree folds them.
  if (fold == nullptr || fold->order().ring) return std::nullopt;
  // First: a fold that waits for memory keeps its place in the queue.
  std::optional<net::ServeGrant> output = fold->Output();
  if (!output || !Reaches(*fold, from)) return std::nullopt;
  return output;
}

bool Reducer::Impl::Reaches(const Fold& fold, uint64_t from) {
  if (from >= fold.begin() || DefectActive(Defect::kBytesBelowBeginServed)) return true;
  const Key key{fold.order().target, fold.order().version};
  // In a later turn: this fold can be on the stack.
  control_.Post(guard_.Wrap([this, key, from] { StartOver(key, from); }));
  return false;
}

void Reducer::Impl::StartOver(const Key& key, uint64_t from) {
  Fold* fold = Find(key);
  if (fold == nullptr || from >= fold->begin()) return;
  FoldOrder order = fold->order();
  order.begin = from;
  fold->Drop();
  Add(std::move(order));
}

void Reducer::Impl::OutputBegan(Fold& fold) {
  const Key key{fold.order().target, fold.order().version};
  AnswerServes(key, /*expired=*/0);
  // Advanced before the call: a fold that refuses its inputs leaves the map.
  for (auto it = folds_.lower_bound({key.first, SlotVersion()});
       it != folds_.end() && it->first.first == key.first;) {
    Fold& other = *(it++)->second;
    if (&other != &fold) other.OutputBeganHere(key.second);
  }
  ArmProgress();
}

void Reducer::Impl::Folded(uint64_t bytes, bool done) {
  totals_.bytes_folded += bytes;
  if (done) ++totals_.folds_done;
}

// Calls of this node's clients end before the shard has confirmed the result: their later messages
// to the shard follow the announcement of the result.
void Reducer::Impl::Sealed(const FoldOrder& order) {
  requests_.OnMade(order.target,
                   [&order](const v1::Reduction& asked) { return order.Answers(asked); });
}

void Reducer::Impl::Leaving(Fold& fold) {
  const auto it = folds_.find({fold.order().target, fold.order().version});
  succession_.waiting.erase(it->first);
  succession_.leaving[fold.order().target].push_back(std::move(it->second));
  folds_.erase(it);
}

void Reducer::Impl::Gone(Fold& fold) {
  // In a later turn: the fold is still on the stack.
  control_.Post(guard_.Wrap([this, gone = &fold, target = fold.order().target] {
    const auto left = succession_.leaving.find(target);
    std::erase_if(left->second, [gone](const auto& fold) { return fold.get() == gone; });
    if (left->second.empty()) succession_.leaving.erase(left);
    BeginWaiting(target);
    CloseIdleClient();
  }));
}

void Reducer::Impl::BeginWaiting(const ObjectId& target) {
  if (succession_.leaving.contains(target)) return;
  // Collected first: a fold that begins can refuse its order and leave.
  std::vector<Key> begin;
  for (auto it = succession_.waiting.lower_bound({target, SlotVersion()});
       it != succession_.waiting.end() && it->first == target; ++it) {
    begin.push_back(*it);
  }
  for (const Key& key : begin) {
    if (succession_.waiting.erase(key) > 0) Find(key)->Start();
  }
}

void Reducer::Impl::EndFoldsOf(int shard) {
  // Collected first: a drop changes the map.
  std::vector<Fold*> ended;
  for (const auto& [key, fold] : folds_) {
    if (channel_.ShardOf(key.first) == shard && fold->ends_with_session())
      ended.push_back(fold.get());
  }
  for (Fold* fold : ended) fold->Drop();
}

void Reducer::Impl::OnFold(const v1::Fold& message) {
  absl::StatusOr<FoldOrder> order = ParseFold(message);
  if (!order.ok()) return Reject(message, order.status());
  const Key key{order->target, order->version};
  // An order that is repeated, after a restart of the shard or with a new sender, keeps what is
  // folded.
  if (Fold* fold = Find(key); fold != nullptr) {
    if (fold->Update(*order)) return;
    fold->Drop();
  }
  // After the known folds: an update needs no room.
  if (folds_.size() >= kMaxFolds) {
    return Reject(message,
                  absl::ResourceExhaustedError(absl::StrCat(
                      "node ", options_.name, " already computes ", folds_.size(), " folds")));
  }
  Add(*std::move(order));
}

void Reducer::Impl::Add(FoldOrder order) {
  const Key key{order.target, order.version};
  auto& fold = folds_[key];
  if (order.ring) {
    fold = std::make_unique<RingFold>(std::move(order), OptionsOfFolds(), *this, control_);
  } else {
    fold = std::make_unique<NodeFold>(std::move(order), OptionsOfFolds(), *this, control_);
  }
  if (succession_.leaving.contains(key.first)) {
    succession_.waiting.insert(key);
  } else {
    fold->Start();
  }
}

void Reducer::Impl::Reject(const v1::Fold& message, const absl::Status& why) {
  FoldOrder order;
  const absl::StatusOr<ObjectId> target = directory::ParseObjectId(message.object_id());
  const absl::StatusOr<SlotVersion> version = directory::ParseVersion(message.version());
  if (!target.ok() || !version.ok()) return;
  // The shard has replaced the fold here by an order that this node does not carry out.
  if (Fold* fold = Find({*target, *version}); fold != nullptr) fold->Drop();
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
  const Key key{*target, directory::VersionFromProto(drop.version())};
  if (Fold* fold = Find(key); fold != nullptr) fold->Drop();
}

void Reducer::Impl::OnFoldCommit(const v1::FoldCommit& commit) {
  const absl::StatusOr<ObjectId> target = directory::ParseObjectId(commit.object_id());
  if (!target.ok()) return;
  const Key key{*target, directory::VersionFromProto(commit.version())};
  // A commit of a version that is gone is late: the shard has dropped the fold since.
  if (Fold* fold = Find(key); fold != nullptr) fold->Commit();
}

// One timer for all folds: the shard gets their reports together, and an idle node no wakeups.
void Reducer::Impl::ArmProgress() {
  if (progress_timer_ != 0) return;
  progress_timer_ = control_.RunAt(control_.Now() + kProgressInterval, [this] { OnProgress(); });
}

void Reducer::Impl::OnProgress() {
  progress_timer_ = 0;
  bool more = false;
  // `|| more` last: every fold reports.
  for (auto& [key, fold] : folds_) more = fold->ReportProgress(control_.Now()) || more;
  if (more) ArmProgress();
}

// ----------------------------------------------------------------------------------- directory

void Reducer::Impl::HandleShardMessages() {
  using Message = v1::ShardMessage;
  const auto handle = [this](Message::KindCase kind, auto handler) {
    channel_.Handle(kind, guard_.Wrap([handler](int, const Message& m) { handler(m); }));
  };
  const auto answer = [this](const auto& reply) {
    requests_.Answer(reply.request_id(), object_store::ReplyStatus(reply.code(), reply.message()));
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
  // Also if there is no room to keep it: the calls that wait must carry the number.
  if (!keep.forget() && directory::ReductionIdFromProto(keep.reduction().begun()).valid()) {
    requests_.OnNumbered(*target, keep.reduction().begun());
  }
  if (!kept_.OnKeep(*target, keep, control_.Now())) return;
  // After the calls that the shard answered before this message: their callbacks wait for a later
  // turn, too.
  control_.Post(guard_.Wrap([this, over = *target] { open_.Over(over); }));
}

std::vector<v1::NodeMessage> Reducer::Impl::BeginSession(int shard) {
  std::vector<v1::NodeMessage> messages;
  const auto here = [this, shard](const ObjectId& target) {
    return channel_.ShardOf(target) == shard;
  };
  // Calls first, kept parts after them: the shard appends sources in the order of the messages.
  for (v1::NodeMessage& asked : requests_.AskAgain(here)) {
    if (DefectActive(Defect::kCallerForgottenAtRestart)) break;
    messages.push_back(std::move(asked));
  }
  kept_.Register(here, control_.Now(), messages);
  for (const auto& [key, fold] : folds_) {
    v1::NodeMessage message;
    v1::RegisterFold* out = message.mutable_register_fold();
    // Rings and relays are not registered: they end in a new session.
    if (!here(key.first) || !fold->Describe(out)) continue;
    directory::ToProto(key.first, out->mutable_object_id());
    directory::ToProto(key.second, out->mutable_version());
    messages.push_back(std::move(message));
  }
  if (!DefectActive(Defect::kSourceWatchForgotten)) watches_.OnSession(shard);
  // In a later turn: the store registers the rings' targets in this one, and messages about their
  // end must follow.
  control_.Post(guard_.Wrap([this, shard] { EndFoldsOf(shard); }));
  return messages;
}

// ---------------------------------------------------------------------------------- data plane

bool Reducer::Impl::Serve(const net::ServeRequest& request, net::DataPlane::ServeReply& reply) {
  const Key key{request.object, SlotVersion::FromGeneration(request.generation)};
  const Fold* fold = Find(key);
  if (IsVersion(request.generation) && DefectActive(Defect::kAnyVersionServed)) {
    const auto any = folds_.lower_bound({request.object, SlotVersion()});
    if (any != folds_.end() && any->first.first == request.object) fold = any->second.get();
  }
  if (fold != nullptr) {
    std::optional<net::ServeGrant> output = fold->Output();
    if (output && request.slices != 1 && !fold->order().ring) {
      reply(absl::InvalidArgumentError("a fold's output has one slice"));
      return true;
    }
    if (output && Reaches(*fold, request.from)) {
      reply(*std::move(output));
      return true;
    }
  } else if (!IsVersion(request.generation)) {
    // Not the output of a fold: the request is for the store.
    return false;
  }
  if (waiting_serves_.full()) return false;
  const uint64_t serial = next_serial_++;
  // The node above can ask before this node has its order: both are sent in the same turn of the
  // shard.
  const absl::Duration patience = std::min(options_.serve_patience, request.patience);
  waiting_serves_.Add(serial, request, std::move(reply));
  control_.RunAt(control_.Now() + patience,
                 guard_.Wrap([this, key, serial] { AnswerServes(key, serial); }));
  return true;
}

// Answers the receivers of the fold's output if it has begun, and the one whose patience is over.
void Reducer::Impl::AnswerServes(const Key& key, uint64_t expired) {
  const Fold* fold = Find(key);
  const bool here = fold != nullptr && fold->Output().has_value();
  const auto is_here = [&key, here](const net::ServeRequest& request) {
    return here && request.generation == key.second.AsGeneration();
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

RequestId Reducer::Reduce(ClientId client, const ReduceTarget& target, const ReduceSpec& spec,
                          Instant deadline, ReduceDone done) {
  // The client library checks the same, but the socket takes messages of any process of the user.
  absl::Status status = CheckReducible(spec.elements, spec.op);
  if (target.id.nil()) status = absl::InvalidArgumentError("the nil id names no object");
  if (spec.sources.size() > kMaxReduceSources) {
    status = absl::InvalidArgumentError(
        absl::StrCat(spec.sources.size(), " sources; at most ", kMaxReduceSources));
  }
  // Before the request, so that the shard knows the hold when the reduction begins.
  if (status.ok() && spec.open) status = impl_->open_.Begin(client, target.id);
  if (!status.ok()) {
    impl_->requests_.Refuse(std::move(status), std::move(done));
    return 0;
  }
  if (spec.open) {
    done = [impl = impl_.get(), client, id = target.id,
            done = std::move(done)](absl::Status result) mutable {
      // Refused, over, or at the end of the caller's patience: another caller's call is its own.
      impl->open_.Ended(client, id, /*holds=*/false);
      done(std::move(result));
    };
  }
  v1::NodeMessage message;
  v1::ReduceRequest* request = message.mutable_reduce_request();
  directory::ToProto(target.id, request->mutable_object_id());
  request->set_owned(target.owned);
  directory::ToProto(spec, target.root_here ? impl_->options_.self : NodeKey(),
                     request->mutable_reduction());
  request->mutable_reduction()->set_everybody(target.everybody);
  directory::SetName(target.name, request->mutable_reduction());
  return impl_->requests_.Ask(client, target.id, std::move(message), deadline, std::move(done));
}

void Reducer::Extend(ClientId client, const ObjectId& target, const std::vector<ObjectId>& sources,
                     bool close, Instant deadline, ReduceDone done) {
  if (target.nil() || sources.size() > kMaxReduceSources) {
    return impl_->requests_.Refuse(
        absl::InvalidArgumentError("a reduction has an id, and a limited number of sources"),
        std::move(done));
  }
  // A client that adds can close the reduction, so it holds it open from before the addition.
  if (!close) {
    if (absl::Status held = impl_->open_.Begin(client, target); !held.ok()) {
      return impl_->requests_.Refuse(std::move(held), std::move(done));
    }
  }
  done = [impl = impl_.get(), client, target, close,
          done = std::move(done)](absl::Status result) mutable {
    if (!close) impl->open_.Ended(client, target, /*holds=*/result.ok());
    if (close && result.ok()) impl->open_.Over(target);
    done(std::move(result));
  };
  v1::NodeMessage message;
  v1::ExtendRequest* request = message.mutable_extend_request();
  directory::ToProto(target, request->mutable_object_id());
  for (const ObjectId& source : sources) directory::ToProto(source, request->add_source_ids());
  request->set_close(close);
  impl_->requests_.Ask(client, target, std::move(message), deadline, std::move(done));
}

void Reducer::Fail(ClientId client, const ObjectId& id, const absl::Status& why, Instant deadline,
                   ReduceDone done) {
  if (id.nil() || why.ok()) {
    return impl_->requests_.Refuse(
        absl::InvalidArgumentError("a failed object needs an id and an error"), std::move(done));
  }
  v1::NodeMessage message;
  v1::FailRequest* request = message.mutable_fail_request();
  directory::ToProto(id, request->mutable_object_id());
  request->set_code(static_cast<int>(why.code()));
  request->set_message(std::string(why.message()));
  impl_->requests_.Ask(client, id, std::move(message), deadline, std::move(done));
}

void Reducer::Cancel(ClientId client, RequestId request) {
  const std::optional<ObjectId> open = impl_->requests_.Cancel(client, request);
  if (open.has_value()) impl_->open_.Ended(client, *open, /*holds=*/true);
}

void Reducer::ClientClosed(ClientId client) {
  impl_->requests_.ClientClosed(client);
  impl_->open_.ClientClosed(client);
}

bool Reducer::Serve(const net::ServeRequest& request, net::DataPlane::ServeReply& reply) {
  return impl_->Serve(request, reply);
}

Reducer::Stats Reducer::stats() const {
  Stats stats = impl_->totals_;
  stats.folds = impl_->folds_.size();
  for (const auto& [key, fold] : impl_->folds_) stats.scratch_bytes += fold->scratch_bytes();
  for (const auto& [target, folds] : impl_->succession_.leaving) {
    for (const auto& fold : folds) stats.scratch_bytes += fold->scratch_bytes();
  }
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
