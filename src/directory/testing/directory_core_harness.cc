#include "src/directory/testing/directory_core_harness.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory::testing {
namespace {

void SetId(const ObjectId& id, std::string* out) {
  out->assign(id.binary().data(), id.binary().size());
}

template <typename Message>
void SetSubject(const ObjectId& id, const Generation& generation, Message* out) {
  SetId(id, out->mutable_object_id());
  ToProto(generation, out->mutable_generation());
}

}  // namespace

ObjectId Id(absl::string_view name) { return ObjectId::FromName("test", name); }

Harness::Harness(bool learning, DirectoryOptions options) : options_(options) {
  RestartShard();
  if (!learning) Advance(options_.lease);
}

void Harness::RestartShard() {
  core_ = std::make_unique<DirectoryCore>(options_, now_, Random(++lives_));
}

void Harness::Step() {
  for (DirectoryCore::Outgoing& out : core_->TakeOutbox()) {
    if (out.message.has_assign()) {
      const v1::Assign& assign = out.message.assign();
      const ObjectId id = *ObjectId::FromBinary(assign.object_id());
      assigned_[{out.to, id}] = Assignment{FromProto(assign.sender()), assign.plan_id(),
                                           FromProto(assign.generation()), assign.keep()};
    }
    // Every session has one, and few tests look at it.
    if (out.message.has_registered()) {
      ++registered_[out.to];
      before_registered_[out.to] = inboxes_[out.to].size();
    } else {
      inboxes_[out.to].push_back(std::move(out.message));
    }
  }
  if (++steps_ % check_every_ != 0) return;
  const absl::Status invariants = core_->CheckInvariants();
  if (invariants.ok()) return;
  ++broken_;
  if (!tolerate_) FAIL() << invariants;
}

void Harness::Advance(absl::Duration by) {
  now_ = now_ + by;
  core_->Tick(now_);
  Step();
}

NodeKey Harness::Up(const std::string& name, Labels labels) {
  const NodeKey key{next_node_++, 1};
  v1::NodeInfo& info = infos_[key];
  ToProto(key, info.mutable_key());
  info.set_name(name);
  info.set_address(absl::StrCat("10.0.0.", key.node, ":7411"));
  for (const auto& [label, value] : labels) (*info.mutable_labels())[label] = value;
  NewSession(key);
  RegisterEnd(key);
  return key;
}

void Harness::NewSession(const NodeKey& node, bool had_session, bool lease_ended) {
  core_->NodeUp(infos_.at(node), now_);
  v1::NodeMessage message;
  message.mutable_register_begin()->set_had_session(had_session);
  message.mutable_register_begin()->set_lease_ended(lease_ended);
  Send(node, message).IgnoreError();
}

void Harness::RegisterEnd(const NodeKey& node) {
  v1::NodeMessage message;
  message.mutable_register_end();
  Send(node, message).IgnoreError();
}

void Harness::Down(const NodeKey& node, absl::Duration serves) {
  core_->NodeDown(node, now_, now_ + serves);
  Step();
}

void Harness::Connected(const NodeKey& node, bool connected) {
  core_->NodeConnected(node, connected, now_);
  Step();
}

absl::Status Harness::Send(const NodeKey& node, const v1::NodeMessage& message) {
  status_ = core_->OnMessage(node, message, now_);
  Step();
  return status_;
}

Generation Harness::NewGeneration(const NodeKey& creator) {
  return Generation{creator, next_sequence_++};
}

Generation Harness::Create(const NodeKey& node, const ObjectId& id, const Creation& creation) {
  const Generation generation = NewGeneration(node);
  Announce(node, id, generation, creation);
  return generation;
}

void Harness::Announce(const NodeKey& node, const ObjectId& id, const Generation& generation,
                       const Creation& creation) {
  v1::NodeMessage message;
  v1::AnnounceCreate& create = *message.mutable_announce_create();
  SetSubject(id, generation, &create);
  const bool is_inline = !creation.inline_bytes.empty();
  create.mutable_info()->set_size_bytes(is_inline ? creation.inline_bytes.size() : creation.size);
  create.mutable_info()->set_slices(creation.slices);
  create.mutable_info()->set_metadata(creation.metadata);
  create.mutable_info()->set_owned(creation.owned);
  SetName(creation.name, create.mutable_info());
  create.set_complete(creation.complete || is_inline);
  create.set_has_inline(is_inline);
  create.set_inline_bytes(creation.inline_bytes);
  Send(node, message).IgnoreError();
}

void Harness::Seal(const NodeKey& node, const ObjectId& id, const Generation& generation,
                   const std::string& inline_bytes) {
  v1::NodeMessage message;
  SetSubject(id, generation, message.mutable_announce_seal());
  message.mutable_announce_seal()->set_has_inline(!inline_bytes.empty());
  message.mutable_announce_seal()->set_inline_bytes(inline_bytes);
  Send(node, message).IgnoreError();
}

void Harness::Withdraw(const NodeKey& node, const ObjectId& id, const Generation& generation) {
  v1::NodeMessage message;
  SetSubject(id, generation, message.mutable_withdraw());
  Send(node, message).IgnoreError();
}

void Harness::Want(const NodeKey& node, const ObjectId& id, bool keep) {
  v1::NodeMessage message;
  SetId(id, message.mutable_want()->mutable_object_id());
  message.mutable_want()->set_keep(keep);
  message.mutable_want()->set_number(++wants_);
  Send(node, message).IgnoreError();
}

void Harness::WantNear(const NodeKey& node, const ObjectId& id, const ObjectId& near) {
  v1::NodeMessage message;
  SetId(id, message.mutable_want()->mutable_object_id());
  SetId(near, message.mutable_want()->mutable_near_id());
  message.mutable_want()->set_number(++wants_);
  Send(node, message).IgnoreError();
}

void Harness::WantWithoutRoom(const NodeKey& node, const ObjectId& id,
                              const Generation& generation) {
  v1::NodeMessage message;
  SetId(id, message.mutable_want()->mutable_object_id());
  ToProto(generation, message.mutable_want()->mutable_no_room_for());
  message.mutable_want()->set_number(++wants_);
  Send(node, message).IgnoreError();
}

void Harness::Unwant(const NodeKey& node, const ObjectId& id) {
  v1::NodeMessage message;
  SetId(id, message.mutable_unwant()->mutable_object_id());
  Send(node, message).IgnoreError();
}

v1::PullReport Harness::ReportOf(const NodeKey& node, const ObjectId& id, bool complete) {
  v1::PullReport report;
  const Assignment& assigned = assigned_[{node, id}];
  SetSubject(id, assigned.generation, &report);
  report.set_plan_id(assigned.plan);
  report.set_complete(complete);
  return report;
}

void Harness::Report(const NodeKey& node, const v1::PullReport& report) {
  v1::NodeMessage message;
  *message.mutable_pull_report() = report;
  Send(node, message).IgnoreError();
}

void Harness::Finish(const NodeKey& node, const ObjectId& id) {
  Report(node, ReportOf(node, id, true));
}

void Harness::Fail(const NodeKey& node, const ObjectId& id, absl::StatusCode code) {
  v1::PullReport report = ReportOf(node, id, false);
  report.set_code(static_cast<int>(code));
  Report(node, report);
}

void Harness::Progress(const NodeKey& node, const ObjectId& id, uint64_t bytes, double rate,
                       absl::Duration starved, absl::Duration window) {
  v1::NodeMessage message;
  v1::Progress::Pull& pull = *message.mutable_progress()->add_pulls();
  const Assignment& assigned = assigned_[{node, id}];
  SetSubject(id, assigned.generation, &pull);
  pull.set_plan_id(assigned.plan);
  pull.add_watermarks(bytes);
  pull.set_bytes_per_second(rate);
  pull.set_starved_ns(absl::ToInt64Nanoseconds(starved));
  pull.set_window_ns(absl::ToInt64Nanoseconds(window));
  Send(node, message).IgnoreError();
}

void Harness::Delete(const NodeKey& node, const ObjectId& id, uint64_t request) {
  v1::NodeMessage message;
  SetId(id, message.mutable_delete_request()->mutable_object_id());
  message.mutable_delete_request()->set_request_id(request);
  Send(node, message).IgnoreError();
}

void Harness::Query(const NodeKey& node, const ObjectId& id, uint64_t request) {
  v1::NodeMessage message;
  SetId(id, message.mutable_query_request()->mutable_object_id());
  message.mutable_query_request()->set_request_id(request);
  Send(node, message).IgnoreError();
}

void Harness::Evict(const NodeKey& node, const ObjectId& id, const Generation& generation) {
  v1::NodeMessage message;
  SetSubject(id, generation, message.mutable_evict_request());
  Send(node, message).IgnoreError();
}

void Harness::Confirm(const NodeKey& node, const ObjectId& id, const Generation& generation) {
  v1::NodeMessage message;
  SetSubject(id, generation, message.mutable_delete_confirm());
  Send(node, message).IgnoreError();
}

void Harness::RegisterCopy(const NodeKey& node, const ObjectId& id, const Generation& generation,
                           const Copy& copy) {
  v1::NodeMessage message;
  v1::RegisterCopy& m = *message.mutable_register_copy();
  SetSubject(id, generation, &m);
  m.mutable_info()->set_size_bytes(copy.size);
  m.mutable_info()->set_slices(1);
  m.mutable_info()->set_owned(copy.owned);
  m.set_adopted(copy.adopted);
  m.set_complete(copy.complete);
  m.set_primary(copy.primary);
  if (!copy.complete) m.add_watermarks(0);
  if (copy.sender.valid()) ToProto(copy.sender, m.mutable_sender());
  m.set_writing(!copy.complete && !copy.sender.valid() && !copy.pulled &&
                generation.creator == node);
  Send(node, message).IgnoreError();
}

void Harness::RegisterHold(const NodeKey& node, const ObjectId& id) {
  v1::NodeMessage message;
  SetId(id, message.mutable_register_holds()->mutable_object_ids());
  Send(node, message).IgnoreError();
}

void Harness::Hold(const NodeKey& node, const ObjectId& id) {
  v1::NodeMessage message;
  SetId(id, message.mutable_hold()->mutable_object_ids());
  Send(node, message).IgnoreError();
}

void Harness::Unhold(const NodeKey& node, const ObjectId& id) {
  v1::NodeMessage message;
  SetId(id, message.mutable_unhold()->mutable_object_ids());
  Send(node, message).IgnoreError();
}

void Harness::Claim(const NodeKey& node, const ObjectId& id, const NodeKey& from, uint64_t number) {
  v1::NodeMessage message;
  SetId(id, message.mutable_claim()->mutable_object_ids());
  ToProto(from, message.mutable_claim()->mutable_node());
  message.mutable_claim()->add_numbers(number);
  Send(node, message).IgnoreError();
}

void Harness::Keep(const NodeKey& node, const ObjectId& id, uint64_t request) {
  v1::NodeMessage message;
  message.mutable_keep_request()->set_request_id(request);
  SetId(id, message.mutable_keep_request()->mutable_object_id());
  Send(node, message).IgnoreError();
}

void Harness::RegisterWant(const NodeKey& node, const ObjectId& id) {
  v1::NodeMessage message;
  SetId(id, message.mutable_register_want()->mutable_object_id());
  Send(node, message).IgnoreError();
}

void Harness::RegisterTombstone(const NodeKey& node, const ObjectId& id,
                                const Generation& generation) {
  v1::NodeMessage message;
  SetSubject(id, generation, message.mutable_register_tombstone());
  Send(node, message).IgnoreError();
}

size_t Harness::messages() const {
  size_t all = 0;
  for (const auto& [node, inbox] : inboxes_) all += inbox.size();
  return all;
}

std::optional<v1::ShardMessage> Harness::Last(const NodeKey& node,
                                              v1::ShardMessage::KindCase kind) {
  const std::vector<v1::ShardMessage>& inbox = inboxes_[node];
  for (auto at = inbox.rbegin(); at != inbox.rend(); ++at) {
    if (at->kind_case() == kind) return *at;
  }
  return std::nullopt;
}

std::optional<Assignment> Harness::LastAssign(const NodeKey& node, const ObjectId& id) {
  const auto found = assigned_.find({node, id});
  if (found == assigned_.end()) return std::nullopt;
  return found->second;
}

NodeKey Harness::SenderOf(const NodeKey& node, const ObjectId& id) {
  const auto assigned = LastAssign(node, id);
  return assigned.has_value() ? assigned->sender : NodeKey();
}

v1::Verdict::Kind Harness::LastVerdict(const NodeKey& node) {
  const auto last = Last(node, v1::ShardMessage::kVerdict);
  return last.has_value() ? last->verdict().kind() : v1::Verdict::UNKNOWN;
}

std::optional<v1::Gone::Kind> Harness::LastGone(const NodeKey& node) {
  const auto last = Last(node, v1::ShardMessage::kGone);
  if (!last.has_value()) return std::nullopt;
  return last->gone().kind();
}

int Harness::Count(const NodeKey& node, v1::ShardMessage::KindCase kind) {
  int count = 0;
  for (const v1::ShardMessage& message : inboxes_[node]) count += message.kind_case() == kind;
  return count;
}

v1::DescribeObjectResponse Harness::Describe(const ObjectId& id) {
  v1::DescribeObjectResponse out;
  core_->Describe(id, now_, &out).IgnoreError();
  return out;
}

bool Harness::Known(const ObjectId& id) {
  v1::DescribeObjectResponse out;
  return core_->Describe(id, now_, &out).ok();
}

}  // namespace phalanx::directory::testing
