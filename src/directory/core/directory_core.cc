#include "src/directory/core/directory_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/core/directory_core_impl.h"
#include "src/directory/jobs/job_report.h"

namespace phalanx::directory {

DirectoryCore::DirectoryCore(DirectoryOptions options, Instant start, Random random)
    : impl_(std::make_unique<Impl>(options, start, random)) {}
DirectoryCore::~DirectoryCore() = default;

void DirectoryCore::NodeUp(const v1::NodeInfo& node, Instant now) {
  impl_->context.now = now;
  impl_->NodeUp(node);
  impl_->RunPendingWork();
}

void DirectoryCore::NodeDown(const NodeKey& node, Instant now, Instant serves_until) {
  impl_->context.now = now;
  impl_->NodeDown(node, serves_until);
  // The node may be the last one whose registration the end of learning waited for.
  impl_->EndLearningIfDue();
  impl_->RunPendingWork();
}

void DirectoryCore::NodeConnected(const NodeKey& node, bool connected, Instant now) {
  impl_->context.now = now;
  impl_->NodeConnected(node, connected);
  impl_->RunPendingWork();
}

absl::Status DirectoryCore::OnMessage(const NodeKey& node, const v1::NodeMessage& message,
                                      Instant now) {
  impl_->context.now = now;
  absl::Status status = impl_->OnMessage(node, message);
  impl_->RunPendingWork();
  return status;
}

absl::Status DirectoryCore::DrainNode(const v1::DrainNodeRequest& request, Instant now,
                                      v1::DrainNodeResponse* out) {
  impl_->context.now = now;
  // What is left is known only when the nodes have registered what they have.
  if (impl_->gate.learning()) {
    return absl::UnavailableError("the shard has just started, and learns what the nodes have");
  }
  const std::vector<Node*> named = impl_->NodesNamed(request.node());
  if (named.empty()) {
    return absl::NotFoundError(absl::StrCat("no node is named ", request.node()));
  }
  for (const Node* node : named) {
    if (node->connected && !node->registering) continue;
    return absl::UnavailableError(absl::StrCat("node ", request.node(), " is not connected"));
  }
  for (Node* node : named) {
    if (!node->draining) impl_->OnDrain(*node);
  }
  impl_->RunPendingWork();
  for (const Node* node : named) {
    const v1::DrainStatus status = impl_->orders.drains.StatusOf(node->key);
    out->set_objects_left(out->objects_left() + status.objects_left());
    if (!status.message().empty()) out->set_message(status.message());
  }
  return absl::OkStatus();
}

void DirectoryCore::NotePause(Instant now) {
  impl_->context.now = now;
  impl_->NotePause();
}

void DirectoryCore::Tick(Instant now) {
  impl_->context.now = now;
  impl_->Tick();
  impl_->RunPendingWork();
}

Instant DirectoryCore::NextDeadline() const { return impl_->NextDeadline(); }

std::vector<DirectoryCore::Outgoing> DirectoryCore::TakeOutbox() { return impl_->outbox.Take(); }

void DirectoryCore::NoteUnderWay(uint64_t bytes) { impl_->outbox.SetUnacknowledgedBytes(bytes); }

absl::Status DirectoryCore::Describe(const ObjectId& id, Instant now,
                                     v1::DescribeObjectResponse* out) const {
  return impl_->Report().Describe(id, now, out);
}
absl::Status DirectoryCore::List(const v1::ListObjectsRequest& request, Instant now,
                                 v1::ListObjectsResponse* out) const {
  return impl_->Report().List(request, now, out);
}
void DirectoryCore::ListJobs(const v1::ListJobsRequest& request, Instant now,
                             v1::ListJobsResponse* out) const {
  JobReport(impl_->jobs).List(request, now, out);
}
absl::Status DirectoryCore::DescribeJob(const v1::DescribeJobRequest& request, Instant now,
                                        v1::DescribeJobResponse* out) const {
  return JobReport(impl_->jobs).Describe(request, now, out);
}
void DirectoryCore::FillStatus(Instant now, v1::GetStatusResponse* out) const {
  impl_->Report().FillStatus(now, out);
}
absl::Status DirectoryCore::CheckInvariants() const { return impl_->CheckInvariants(); }

DirectoryCore::Impl::Impl(const DirectoryOptions& options, Instant start, Random random)
    : context(options, start, random),
      gate(context),
      inline_cache(options.inline_cache_bytes),
      tombstones(context),
      absences(context),
      hold_sets(options.max_holds),
      placement_table({options.max_sticky, options.max_broadcasts}),
      objects({context, nodes, outbox, gate, hold_sets, tombstones, absences.losses,
               absences.failures, inline_cache, expiries, absences.scopes},
              listeners),
      orders({context, nodes, outbox, gate, objects}),
      pulls({context, nodes, outbox, gate, objects, tombstones, absences.failures, inline_cache,
             placement_table},
            orders),
      placements({context, nodes, outbox, gate, objects, tombstones, absences.losses,
                  placement_table, orders.copies}),
      requests({context, nodes, outbox, gate, hold_sets, tombstones, absences.losses,
                absences.failures, placement_table, expiries, objects, pulls, orders.drains,
                placements, reductions}),
      reductions({context, nodes, outbox, gate, objects, tombstones, absences.failures, hold_sets,
                  pulls.planner().links(), pulls.planner().pairs()},
                 requests),
      holds({context, nodes, outbox, gate, hold_sets, tombstones, objects, reductions, requests}),
      jobs({context, nodes, outbox, gate}),
      scopes({context, nodes, outbox, gate, absences.scopes, absences.losses, placement_table,
              objects, pulls, orders.drains, reductions}) {
  // Last: the table refers to the components above it, which are constructed after it.
  listeners = {&pulls, &reductions, &orders.drains, &placements};
}

// A reduction that ends releases its sources, and an object that is freed can be the source of
// another reduction: the two take turns until neither has work. Placements and drains follow,
// because they report what the turn has left. Deletes are acknowledged last, after every message
// that they wait for.
void DirectoryCore::Impl::RunPendingWork() {
  scopes.RunPending();
  do {
    reductions.RunPending();
  } while (holds.FreeUnreferenced());
  placements.RunPending();
  orders.drains.ReportProgress();
  pulls.prober().RunPending();
  requests.delete_waits().RunPending();
  jobs.RunPending();
}

void DirectoryCore::Impl::NodeUp(const v1::NodeInfo& info) {
  const NodeKey key = FromProto(info.key());
  // A process that ended took its memory along, so the copies of that incarnation are gone. One
  // that still runs under the same name serves them for a lease at most.
  if (const NodeKey other_life = nodes.OtherLife(key); other_life.valid()) {
    NodeDown(other_life, context.now + context.options.lease);
  }
  reductions.NodeRestarted(key);
  const auto [node, added] = nodes.Open(key);
  if (!added) objects.SessionBegins(node);
  // Before the other components: they choose no node that registers.
  node.registering = true;
  if (!added) {
    orders.drains.SessionBegins(node);
    reductions.SessionBegins(key);
    placement_table.SessionBegins(key);
    orders.copies.SessionBegins(key);
    absences.scopes.SessionBegins(key);
    scopes.SessionEnds(key);
  }
  node.info = info;
  node.endpoint = Endpoint{key, Locality::FromNode(info)};
  node.host = HostOf(info);
  node.session = nodes.NewSession();
  node.connected = true;
  node.last_heard = context.now;
  // For a returning node this also ends the lease of its holds: the registration decides about
  // them.
  hold_sets.SessionBegins(key);
  jobs.SessionBegins(key);
  // Other shards can have named this node as a source's holder before it had a session here.
  if (added) {
    reductions.NodeAdded();
    absences.scopes.NodeAdded(key);
  }
}

void DirectoryCore::Impl::NodeDown(const NodeKey& key, Instant serves_until) {
  // First, so that no component plans for the node while the others settle its objects.
  Node* node = nodes.BeginRemove(key);
  if (node == nullptr) return;
  // The holds outlive the session by a lease: a node that only lost its connection still has
  // clients, and what they hold must not be freed meanwhile.
  hold_sets.SessionEnds(key, context.now + context.options.lease);
  orders.drains.NodeDown(key);
  // Before its objects and confirmations are forgotten: a Delete of them waits for its lease.
  requests.delete_waits().NodeDown(*node, serves_until);
  tombstones.NodeDown(key);
  // Before the copies go: a committed result is not lost while this node may come back with it.
  reductions.BeforeNodeDown(key);
  objects.NodeDown(*node);
  // After the copies: the plan moves the node's folds to the other holders of their sources.
  reductions.NodeDown(key);
  placement_table.NodeDown(key);
  jobs.NodeDown(key);
  orders.copies.SessionBegins(key);
  absences.scopes.NodeDown(key);
  scopes.SessionEnds(key);
  nodes.EndRemove();
  // Requests that waited for the node to return.
  orders.copies.RetryAll();
}

void DirectoryCore::Impl::NodeConnected(const NodeKey& key, bool connected) {
  Node* node = nodes.Find(key);
  if (node == nullptr || node->connected == connected) return;
  node->connected = connected;
  if (connected) node->last_heard = context.now;
  objects.SetConnected(*node, connected);
  if (!connected) return;
  // The node may have room for an object that no other node could take.
  orders.drains.RetryAll();
  orders.copies.RetryAll();
  reductions.NodeConnected();
}

namespace {

// The object that a message is about; empty if it is about several or none.
absl::string_view ObjectIdOf(const v1::NodeMessage& message) {
  switch (message.kind_case()) {
    case v1::NodeMessage::kRegisterCopy:
      return message.register_copy().object_id();
    case v1::NodeMessage::kRegisterWant:
      return message.register_want().object_id();
    case v1::NodeMessage::kRegisterTombstone:
      return message.register_tombstone().object_id();
    case v1::NodeMessage::kAnnounceCreate:
      return message.announce_create().object_id();
    case v1::NodeMessage::kAnnounceSeal:
      return message.announce_seal().object_id();
    case v1::NodeMessage::kWithdraw:
      return message.withdraw().object_id();
    case v1::NodeMessage::kWant:
      return message.want().object_id();
    case v1::NodeMessage::kUnwant:
      return message.unwant().object_id();
    case v1::NodeMessage::kPullReport:
      return message.pull_report().object_id();
    case v1::NodeMessage::kEvictRequest:
      return message.evict_request().object_id();
    case v1::NodeMessage::kDeleteRequest:
      return message.delete_request().object_id();
    case v1::NodeMessage::kDeleteConfirm:
      return message.delete_confirm().object_id();
    case v1::NodeMessage::kQueryRequest:
      return message.query_request().object_id();
    case v1::NodeMessage::kBroadcastRequest:
      return message.broadcast_request().object_id();
    case v1::NodeMessage::kReduceRequest:
      return message.reduce_request().object_id();
    case v1::NodeMessage::kExtendRequest:
      return message.extend_request().object_id();
    case v1::NodeMessage::kFoldReport:
      return message.fold_report().object_id();
    case v1::NodeMessage::kFailRequest:
      return message.fail_request().object_id();
    case v1::NodeMessage::kRegisterFold:
      return message.register_fold().object_id();
    case v1::NodeMessage::kSourceState:
      return message.source_state().source_id();
    case v1::NodeMessage::kKeepRequest:
      return message.keep_request().object_id();
    default:
      return {};
  }
}

}  // namespace

absl::Status DirectoryCore::Impl::OnMessage(const NodeKey& key, const v1::NodeMessage& message) {
  Node* node = nodes.Find(key);
  // The session ended before its message was handled.
  if (node == nullptr) {
    ++context.counters.late_messages;
    return absl::OkStatus();
  }
  node->last_heard = context.now;
  // The message arrived after the time to live: what it asks for is asked of a deleted object.
  if (!expiries.empty()) {
    const auto id = ParseObjectId(ObjectIdOf(message));
    if (id.ok()) requests.ExpireIfDue(*id);
  }
  if (absences.scopes.has_ended_objects()) {
    const auto id = ParseObjectId(ObjectIdOf(message));
    if (id.ok()) scopes.FreeIfEnded(*id);
  }
  const absl::Status status = Handle(*node, message);
  if (status.ok()) return status;
  // The id itself can be what is wrong with the message.
  const auto id = ParseObjectId(ObjectIdOf(message));
  return absl::Status(status.code(),
                      absl::StrCat("node ", node->info.name(),
                                   id.ok() ? ", object " + id->hex() : "", ": ", status.message()));
}

absl::Status DirectoryCore::Impl::Handle(Node& node, const v1::NodeMessage& message) {
  switch (message.kind_case()) {
    case v1::NodeMessage::kAnnounceCreate:
      if (scopes.Refuses(node, message.announce_create().info())) return absl::OkStatus();
      // Only folds name a version: the reduction decides whether it is still the current one.
      if (message.announce_create().has_version()) {
        return reductions.OnCreate(node, message.announce_create());
      }
      return objects.OnCreate(node, message.announce_create());
    case v1::NodeMessage::kAnnounceSeal:
      return objects.OnSeal(node, message.announce_seal());
    case v1::NodeMessage::kWithdraw:
      return objects.OnWithdraw(node, message.withdraw());
    case v1::NodeMessage::kWant:
      if (message.want().has_scope()) {
        PHALANX_RETURN_IF_ERROR(scopes.OnNamed(node, message.want().scope()));
      }
      return pulls.OnWant(node, message.want());
    case v1::NodeMessage::kUnwant:
      return pulls.OnUnwant(node, message.unwant());
    case v1::NodeMessage::kPullReport:
      return pulls.OnPullReport(node, message.pull_report());
    case v1::NodeMessage::kProgress:
      return pulls.OnProgress(node, message.progress());
    case v1::NodeMessage::kProbeReport:
      return pulls.prober().OnReport(node, message.probe_report());
    case v1::NodeMessage::kEvictRequest:
      return requests.OnEvict(node, message.evict_request());
    case v1::NodeMessage::kDeleteRequest:
      return requests.OnDelete(node, message.delete_request());
    case v1::NodeMessage::kDeleteConfirm:
      return requests.OnDeleteConfirm(node, message.delete_confirm());
    case v1::NodeMessage::kQueryRequest:
      return requests.OnQuery(node, message.query_request());
    case v1::NodeMessage::kBroadcastRequest:
      return placements.OnBroadcast(node, message.broadcast_request());
    case v1::NodeMessage::kDrainRequest:
      OnDrain(node);
      return absl::OkStatus();
    case v1::NodeMessage::kReduceRequest:
      return reductions.OnReduce(node, message.reduce_request());
    case v1::NodeMessage::kExtendRequest:
      return reductions.OnExtend(node, message.extend_request());
    case v1::NodeMessage::kFoldReport:
      return reductions.OnFoldReport(node, message.fold_report());
    case v1::NodeMessage::kFailRequest:
      return requests.OnFail(node, message.fail_request());
    case v1::NodeMessage::kWatchSource:
      return reductions.OnWatchSource(node, message.watch_source());
    case v1::NodeMessage::kSourceState:
      return reductions.OnSourceState(node, message.source_state());
    case v1::NodeMessage::kHold:
      return holds.OnHold(node, message.hold());
    case v1::NodeMessage::kUnhold:
      return holds.OnUnhold(node, message.unhold());
    case v1::NodeMessage::kClaim:
      return holds.OnClaim(node, message.claim());
    case v1::NodeMessage::kKeepRequest:
      return holds.OnKeep(node, message.keep_request());
    case v1::NodeMessage::kJob:
      return jobs.OnMessage(node, message.job());
    case v1::NodeMessage::kEndScopeRequest:
      return scopes.OnEndScope(node, message.end_scope_request());
    case v1::NodeMessage::kScopeConfirm:
      return scopes.OnConfirm(node, message.scope_confirm());
    default:
      return HandleRegistration(node, message);
  }
}

absl::Status DirectoryCore::Impl::HandleRegistration(Node& node, const v1::NodeMessage& message) {
  switch (message.kind_case()) {
    case v1::NodeMessage::kRegisterBegin: {
      const v1::RegisterBegin& m = message.register_begin();
      node.registering = true;
      // A node that had a session with this shard before proves that the shard had an earlier life,
      // and so that adopted generations can still be registered.
      if (m.had_session()) gate.NoteEarlierLife();
      node.lease_ended = m.lease_ended();
      // A stamp beyond the bound would leave no greater ones for this shard to mint.
      if (m.sticky_stamp() <= kMaxPolicyStamp) placement_table.NoteStamp(m.sticky_stamp());
      return absl::OkStatus();
    }
    case v1::NodeMessage::kRegisterScope:
      return scopes.OnRegister(message.register_scope());
    case v1::NodeMessage::kRegisterCopy:
      return OnRegisterCopy(node, message.register_copy());
    case v1::NodeMessage::kRegisterWant:
      if (message.register_want().has_scope()) {
        PHALANX_RETURN_IF_ERROR(scopes.OnNamed(node, message.register_want().scope()));
      }
      return pulls.OnRegisterWant(node, message.register_want());
    case v1::NodeMessage::kRegisterTombstone:
      return requests.OnRegisterTombstone(message.register_tombstone());
    case v1::NodeMessage::kRegisterEnd:
      OnRegisterEnd(node);
      return absl::OkStatus();
    case v1::NodeMessage::kRegisterFold:
      return reductions.OnRegisterFold(node, message.register_fold());
    case v1::NodeMessage::kRegisterHolds:
      return holds.OnRegisterHolds(node, message.register_holds());
    default:
      return absl::InvalidArgumentError("a message of no kind this shard knows");
  }
}

// In the order of keys: the same in every replay.
std::vector<Node*> DirectoryCore::Impl::NodesNamed(const std::string& name) const {
  std::vector<Node*> named;
  for (const auto& [key, node] : nodes.all()) {
    if (node->info.name() == name) named.push_back(node.get());
  }
  return named;
}

void DirectoryCore::Impl::OnDrain(Node& node) {
  if (!orders.drains.OnDrain(node)) return;
  placements.NodeDrains(node);
  // Requests that waited for the node to connect.
  orders.copies.RetryAll();
}

absl::Status DirectoryCore::Impl::OnRegisterCopy(Node& node, const v1::RegisterCopy& m) {
  if (scopes.Refuses(node, m.info())) return absl::OkStatus();
  bool adopted = false;
  const absl::Status status = objects.OnRegisterCopy(node, m, &adopted);
  // A request that waited because the object was unknown need not wait for the end of learning.
  if (adopted) AnswerDeferred(*ParseObjectId(m.object_id()));
  return status;
}

void DirectoryCore::Impl::OnRegisterEnd(Node& node) {
  // First: the calls below skip a node that registers.
  node.registering = false;
  hold_sets.Registered(node.key);
  tombstones.SessionRegistered(node.key, node.session);
  objects.SessionRegistered(node);
  reductions.SessionRegistered(node.key);
  placement_table.NodeJoined(node.key, node.info.name());
  orders.drains.RetryAll();
  orders.copies.RetryAll();
  requests.delete_waits().SessionRegistered(node.key);
  jobs.SessionRegistered(node.key);
  scopes.SessionRegistered(node);
  // A node that was out of touch for a lease can have missed a Delete that this shard has not
  // learned of yet.
  if (!gate.learning() || !node.lease_ended) SendRegistered(node);
  EndLearningIfDue();
}

void DirectoryCore::Impl::SendRegistered(Node& node) {
  node.lease_ended = false;
  outbox.Send(node.key).mutable_registered();
}

// Learning first: it may end in this turn, and the steps below decide from absence only after it.
void DirectoryCore::Impl::Tick() {
  EndLearningIfDue();
  hold_sets.Expire(context.now);
  requests.ExpireDue();
  objects.Tick();
  reductions.Tick();
  tombstones.Expire();
  absences.scopes.Expire();
  orders.copies.Tick();
  pulls.Tick();
  jobs.Tick();
}

void DirectoryCore::Impl::NotePause() {
  const Instant until = context.now + context.options.lease;
  gate.ExtendTo(until);
  hold_sets.Postpone(until);
  objects.NotePause(until);
  reductions.NotePause(until);
}

Instant DirectoryCore::Impl::NextDeadline() const {
  Instant next = hold_sets.NextDeadline();
  // A walk that the last turn did not finish continues at once.
  if (placement_table.walking()) next = std::min(next, context.now);
  next = std::min(next, orders.copies.NextDeadline());
  if (absences.scopes.has_ended_objects()) next = std::min(next, context.now);
  next = std::min(next, std::max(absences.scopes.NextDeadline(), context.now));
  next = std::min(next, gate.NextDeadline());
  // What the last turn left over is due now: a deadline in the past would look like a pause.
  next = std::min(next, std::max(expiries.NextDeadline(), context.now));
  next = std::min(next, std::max(jobs.NextDeadline(), context.now));
  next = std::min(next, objects.NextDeadline());
  next = std::min(next, reductions.NextDeadline());
  next = std::min(next, std::max(requests.delete_waits().NextDeadline(), context.now));
  return std::min(next, tombstones.NextDeadline());
}

void DirectoryCore::Impl::EndLearningIfDue() {
  if (!gate.learning()) return;
  const bool registering = std::any_of(nodes.all().begin(), nodes.all().end(),
                                       [](const auto& node) { return node.second->registering; });
  if (gate.Due(registering)) EndLearning();
}

// The order matters. Deleted reductions are refused before a plan can begin from them, generations
// are adopted before requests are answered from absence, and reductions come last, because they
// decide from the sources that are left.
void DirectoryCore::Impl::EndLearning() {
  reductions.BeforeLearningEnds();
  gate.Open();
  reductions.NoteLearned();
  objects.EndLearning();
  while (gate.has_requests()) AnswerDeferred(gate.NextRequestId());
  placements.EndLearning();
  absences.scopes.EndLearning();
  reductions.EndLearning();
  requests.delete_waits().EndLearning();
  jobs.EndLearning();
  // A node that has Registered believes that its members live unless it knows of their ends.
  jobs.RunPending();
  for (const auto& [key, node] : nodes.all()) {
    if (!node->lease_ended) continue;
    if (!node->registering) SendRegistered(*node);
    // What it has registered was not offered to other nodes so far.
    objects.SetConnected(*node, node->connected);
  }
}

void DirectoryCore::Impl::AnswerDeferred(const ObjectId& id) {
  for (const DeferredRequest& request : gate.TakeRequests(id)) {
    const Node* node = nodes.Find(request.node);
    // A node repeats its requests in a new session.
    if (node == nullptr || node->session != request.session) continue;
    switch (request.kind) {
      case DeferredRequest::Kind::kDelete:
        requests.AnswerDelete(id, request.node, request.request_id);
        break;
      case DeferredRequest::Kind::kKeep:
        holds.AnswerKeep(id, request.node, request.request_id);
        break;
      case DeferredRequest::Kind::kQuery:
        requests.AnswerQuery(id, request.node, request.request_id, request.names);
        break;
    }
  }
}

absl::Status DirectoryCore::Impl::CheckInvariants() const {
  for (const absl::Status& status :
       {objects.CheckInvariants(), pulls.CheckInvariants(), reductions.CheckInvariants(),
        orders.drains.CheckInvariants(), orders.copies.CheckInvariants(),
        absences.scopes.CheckInvariants(), hold_sets.CheckInvariants(),
        placement_table.CheckInvariants(), tombstones.CheckInvariants(),
        requests.delete_waits().CheckInvariants(), absences.losses.CheckInvariants(),
        absences.failures.CheckInvariants(), gate.CheckInvariants(), jobs.CheckInvariants()}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
