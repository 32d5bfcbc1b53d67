#include "src/local/local_protocol.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::object_store::local {
namespace {

// The buffer of a quiet connection; more is allocated for a frame whose length has been checked.
constexpr size_t kRestingBytes = 16 * 1024;
// Every read has at least this much space, so that one read takes in many small frames.
constexpr size_t kMinSpace = 4096;
constexpr std::array<MemberState, 4> kMemberStates = {MemberState::kAbsent, MemberState::kLive,
                                                      MemberState::kDied, MemberState::kLeft};
constexpr std::array<jobs::CallKind, jobs::kCallKinds> kCallKindValues = {
    jobs::CallKind::kAllReduce, jobs::CallKind::kReduce,        jobs::CallKind::kBroadcast,
    jobs::CallKind::kAllGather, jobs::CallKind::kReduceScatter, jobs::CallKind::kAllToAll,
    jobs::CallKind::kBarrier};
constexpr std::array<jobs::OnLoss, jobs::kOnLosses> kOnLossValues = {
    jobs::OnLoss::kWait, jobs::OnLoss::kExclude, jobs::OnLoss::kFail};
constexpr uint64_t kForever = std::numeric_limits<uint64_t>::max();

// Each message lists its fields once, in `Visit(archive, message)`, for an archive that writes and
// one that reads, so that the two cannot differ. Both archives have the same functions:
//   U8 U32 U64 Flag  numbers          Id  an object's id     Code  a status code
//   Node  a node's key                Span  a timeout        Choice  one of an enum's values
//   Text  a bounded string            Bytes  a view          Ids Names Numbers Runs  lists
//   Flags  up to 8 flags in a byte    Name  an object's name, if there is one    InScope  a scope
//   Members  of a job
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}
  void U8(uint8_t v, uint8_t, uint8_t) { out_.U8(v); }
  void U32(uint32_t v) { out_.U32(v); }
  void U64(uint64_t v) { out_.U64(v); }
  void Flag(bool v) { out_.U8(v ? 1 : 0); }
  template <typename... Bool>
  void Flags(Bool... flags) {
    uint8_t byte = 0;
    int bit = 0;
    ((byte |= static_cast<uint8_t>(flags ? 1 << bit : 0), ++bit), ...);
    out_.U8(byte);
  }
  void Name(const ObjectName& name) {
    out_.Bytes(name.name_space());
    out_.Bytes(name.name());
  }
  void InScope(const Scope& scope) {
    out_.Bytes(scope.name);
    out_.U64(scope.number);
  }
  void Id(const ObjectId& id) { out_.Raw(id.binary()); }
  void Node(const NodeKey& node) {
    out_.U64(node.node);
    out_.U64(node.incarnation);
  }
  void Code(absl::StatusCode code) { out_.U8(static_cast<uint8_t>(code)); }
  void Bytes(absl::string_view bytes, size_t) { out_.Bytes(bytes); }
  // Cut, because an error text can have any length and the reader rejects longer ones.
  void Text(absl::string_view text) { out_.Bytes(text.substr(0, kMaxTextBytes)); }
  void Span(Timeout timeout) {
    // absl::ToInt64Nanoseconds saturates, so a long timeout would become a finite one.
    const bool endless = timeout >= absl::Nanoseconds(std::numeric_limits<int64_t>::max());
    const int64_t nanos = endless ? 0 : absl::ToInt64Nanoseconds(timeout);
    out_.U64(endless ? kForever : static_cast<uint64_t>(std::max<int64_t>(nanos, 0)));
  }
  void Names(const std::vector<absl::string_view>& names) {
    out_.U32(static_cast<uint32_t>(names.size()));
    for (const absl::string_view name : names) out_.Bytes(name);
  }
  void Numbers(const std::vector<uint64_t>& numbers) {
    out_.U32(static_cast<uint32_t>(numbers.size()));
    for (const uint64_t number : numbers) out_.U64(number);
  }
  template <typename Enum, size_t n>
  void Choice(Enum value, const std::array<Enum, n>&) {
    out_.U8(static_cast<uint8_t>(value));
  }
  void Ids(const std::vector<ObjectId>& ids) {
    out_.U32(static_cast<uint32_t>(ids.size()));
    for (const ObjectId& id : ids) out_.Raw(id.binary());
  }
  void Runs(const std::vector<ElementRun>& runs) {
    out_.U8(static_cast<uint8_t>(runs.size()));
    for (const ElementRun& run : runs) {
      out_.U64(run.end);
      Choice(run.dtype, kAllDTypes);
    }
  }
  void Members(const std::vector<MemberUpdate::Member>& members) {
    out_.U32(static_cast<uint32_t>(members.size()));
    for (const MemberUpdate::Member& member : members) {
      out_.U32(member.rank);
      out_.U64(member.life);
      out_.U8(static_cast<uint8_t>(member.state));
      out_.Bytes(member.task);
      out_.Bytes(member.host);
      out_.Bytes(member.node);
    }
  }

 private:
  ByteWriter out_;
};

// After an error every function of ByteReader returns zeros, so Reader checks for errors only where
// it loops, and in Finish.
class Reader {
 public:
  explicit Reader(absl::string_view in) : in_(in) {}
  void U8(uint8_t& v, uint8_t low, uint8_t high) {
    v = in_.U8();
    if (v < low || v > high) in_.Fail(absl::StrCat(v, " is not in ", low, "..", high));
  }
  void U32(uint32_t& v) { v = in_.U32(); }
  void U64(uint64_t& v) { v = in_.U64(); }
  void Flag(bool& v) {
    const uint8_t byte = in_.U8();
    // Any other byte means that the two ends disagree about the fields.
    if (byte > 1) in_.Fail("a flag is 0 or 1");
    v = byte == 1;
  }
  template <typename... Bool>
  void Flags(Bool&... flags) {
    const uint8_t byte = in_.U8();
    if (byte >> sizeof...(flags) != 0) in_.Fail("a flag that there is not is set");
    int bit = 0;
    ((flags = (byte >> bit++ & 1) != 0), ...);
  }
  void Name(ObjectName& name) {
    const absl::string_view name_space = in_.Bytes(kMaxObjectNameBytes);
    name = ObjectName::Of(name_space, in_.Bytes(kMaxObjectNameBytes));
    // Users see names in terminals, where control characters would have an effect.
    if (name.empty()) in_.Fail("a name is UTF-8 without control characters");
  }
  void InScope(Scope& scope) {
    const absl::string_view name = in_.Bytes(kMaxObjectNameBytes);
    // Users see these names, too.
    if (name.empty() || !CanBeKept(name)) {
      in_.Fail("a scope's name is UTF-8 without control characters");
    }
    scope.name = std::string(name);
    scope.number = in_.U64();
  }
  void Id(ObjectId& id) {
    const absl::StatusOr<ObjectId> read = ObjectId::FromBinary(in_.Raw(ObjectId::kSize));
    if (read.ok()) id = *read;
  }
  void Node(NodeKey& node) {
    node.node = in_.U64();
    node.incarnation = in_.U64();
  }
  void Code(absl::StatusCode& code) {
    const uint8_t byte = in_.U8();
    if (byte > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated))
      in_.Fail(absl::StrCat(byte, " is not a status code"));
    code = static_cast<absl::StatusCode>(byte);
  }
  void Bytes(absl::string_view& bytes, size_t max) { bytes = in_.Bytes(max); }
  void Bytes(std::string& bytes, size_t max) { bytes = std::string(in_.Bytes(max)); }
  void Text(absl::string_view& text) { text = in_.Bytes(kMaxTextBytes); }
  void Span(Timeout& timeout) {
    const uint64_t nanos = in_.U64();
    timeout = nanos > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
                  ? absl::InfiniteDuration()
                  : absl::Nanoseconds(static_cast<int64_t>(nanos));
  }
  void Names(std::vector<absl::string_view>& names) {
    const uint32_t count = in_.U32();
    // The count is checked before anything is allocated for it.
    if (count > kMaxNodeNames) return in_.Fail(absl::StrCat(count, " names are too many"));
    for (uint32_t i = 0; i < count && in_.ok(); ++i) names.push_back(in_.Bytes(kMaxNameBytes));
  }
  void Numbers(std::vector<uint64_t>& numbers) {
    const uint32_t count = in_.U32();
    if (count > kMaxPinsPerFrame) return in_.Fail(absl::StrCat(count, " pins are too many"));
    for (uint32_t i = 0; i < count && in_.ok(); ++i) numbers.push_back(in_.U64());
  }
  template <typename Enum, size_t n>
  void Choice(Enum& value, const std::array<Enum, n>& all) {
    const uint8_t byte = in_.U8();
    value = static_cast<Enum>(byte);
    // Any other value would reach a switch that has no case for it.
    if (!std::count(all.begin(), all.end(), value)) {
      in_.Fail(absl::StrCat(byte, " is not a valid choice"));
    }
  }
  void Ids(std::vector<ObjectId>& ids) {
    const uint32_t count = in_.U32();
    if (count > kMaxReduceSources) return in_.Fail(absl::StrCat(count, " ids are too many"));
    for (uint32_t i = 0; i < count && in_.ok(); ++i) Id(ids.emplace_back());
  }
  void Runs(std::vector<ElementRun>& runs) {
    const uint8_t count = in_.U8();
    if (count > kMaxElementRuns) return in_.Fail(absl::StrCat(count, " runs are too many"));
    for (uint8_t i = 0; i < count && in_.ok(); ++i) {
      ElementRun& run = runs.emplace_back();
      run.end = in_.U64();
      Choice(run.dtype, kAllDTypes);
    }
  }
  void Members(std::vector<MemberUpdate::Member>& members) {
    const uint32_t count = in_.U32();
    if (count > kMaxMembersPerFrame) {
      return in_.Fail(absl::StrCat(count, " members are too many"));
    }
    for (uint32_t i = 0; i < count && in_.ok(); ++i) {
      MemberUpdate::Member& member = members.emplace_back();
      member.rank = in_.U32();
      member.life = in_.U64();
      Choice(member.state, kMemberStates);
      member.task = in_.Bytes(kMaxJobNameBytes);
      member.host = in_.Bytes(kMaxHostBytes);
      member.node = in_.Bytes(kMaxHostBytes);
    }
  }
  absl::Status Finish() { return in_.Finish(); }

 private:
  ByteReader in_;
};

template <typename A, typename M>
void VisitDescription(A& a, M& m) {
  bool named = !m.name.empty();
  bool expires = m.ttl != absl::InfiniteDuration();
  bool copied = m.copies != 0;
  bool scoped = !m.scope.empty();
  a.Id(m.id);
  a.Flags(m.wait_for_adoption, m.owned, named, expires, copied, m.wait_for_copies, scoped);
  a.U8(m.slices, 1, kMaxSlices);
  a.Span(m.timeout);
  a.Bytes(m.metadata, kMaxMetadataBytes);
  a.Ids(m.refers_to);
  if (named) a.Name(m.name);
  if (expires) a.Span(m.ttl);
  if (copied) a.U32(m.copies);
  if (scoped) a.InScope(m.scope);
}

template <typename A, typename K>
void VisitKeep(A& a, K& keep) {
  a.U64(keep.boot);
  a.U64(keep.released);
  a.U64(keep.mark);
}

// The fields of every message, for Writer (const messages) and Reader alike. The null pointer
// selects the overload by the message's type without its const.
template <typename A>
struct Fields {
  A& a;

  template <typename M>
  void operator()(M& m) {
    Visit(static_cast<std::remove_const_t<M>*>(nullptr), m);
  }

  template <typename M>
  void Visit(ClientHello*, M& m) {
    a.U32(m.magic);
    a.U32(m.version);
  }
  template <typename M>
  void Visit(Put*, M& m) {
    a.U64(m.request);
    VisitDescription(a, m.object);
    // The last field: EncodeAllButBytes leaves the bytes to its caller.
    a.Bytes(m.bytes, kOwnFileBytes);
  }
  template <typename M>
  void Visit(Create*, M& m) {
    a.U64(m.request);
    VisitDescription(a, m.object);
    a.U64(m.size);
  }
  template <typename M>
  void Visit(Publish*, M& m) {
    a.U64(m.writer);
    a.U64(m.upto);
    a.Bytes(m.bytes, kOwnFileBytes);
  }
  template <typename M>
  void Visit(Seal*, M& m) {
    a.U64(m.request);
    a.U64(m.writer);
    a.Flags(m.wait_for_adoption, m.wait_for_copies);
    a.Bytes(m.bytes, kOwnFileBytes);
  }
  template <typename M>
  void Visit(Abort*, M& m) {
    a.U64(m.writer);
  }
  template <typename M>
  void Visit(Get*, M& m) {
    bool named = !m.name.empty();
    bool scoped = !m.scope.empty();
    a.U64(m.request);
    a.Id(m.id);
    a.Flags(m.streaming, m.fail_when_lost, named, scoped, m.by_slice);
    a.Span(m.timeout);
    a.U64(m.offset);
    a.U64(m.length);
    a.Id(m.near);
    if (named) a.Name(m.name);
    if (scoped) a.InScope(m.scope);
  }
  template <typename M>
  void Visit(Cancel*, M& m) {
    a.U64(m.request);
  }
  template <typename M>
  void Visit(Release*, M& m) {
    a.U64(m.pin);
    a.Flag(m.recycle);
  }
  template <typename M>
  void Visit(Delete*, M& m) {
    a.U64(m.request);
    a.Id(m.id);
    a.Span(m.timeout);
  }
  template <typename M>
  void Visit(Stat*, M& m) {
    a.U64(m.request);
    a.Id(m.id);
    a.Flag(m.only_complete);
    a.Flag(m.reduced_from);
    a.Span(m.timeout);
    a.Names(m.nodes);
  }
  template <typename M>
  void Visit(Forget*, M& m) {
    a.U64(m.file);
    a.Flag(m.writable);
  }
  template <typename M>
  void Visit(Leave*, M& m) {
    a.Flag(m.more);
    a.Numbers(m.pins);
  }
  template <typename M>
  void Visit(Reduce*, M& m) {
    bool named = !m.target.name.empty();
    a.U64(m.request);
    a.Id(m.target.id);
    a.Choice(m.spec.elements.dtype, kAllDTypes);
    a.Choice(m.spec.op, kAllReduceOps);
    a.Choice(m.spec.order, kAllReduceOrders);
    a.Flag(m.spec.open);
    a.U32(m.spec.num_objects);
    a.U64(m.spec.range_offset);
    a.U64(m.spec.range_bytes);
    a.Bytes(m.spec.source_metadata, kMaxMetadataBytes);
    a.Flags(m.target.root_here, m.target.everybody, m.target.owned, named);
    a.Span(m.timeout);
    a.Ids(m.spec.sources);
    a.Runs(m.spec.elements.runs);
    if (named) a.Name(m.target.name);
  }
  template <typename M>
  void Visit(Extend*, M& m) {
    a.U64(m.request);
    a.Id(m.target);
    a.Flag(m.close);
    a.Span(m.timeout);
    a.Ids(m.sources);
  }
  template <typename M>
  void Visit(Fail*, M& m) {
    a.U64(m.request);
    a.Id(m.id);
    a.Code(m.code);
    a.Text(m.message);
    a.Span(m.timeout);
  }

  template <typename M>
  void Visit(Hold*, M& m) {
    a.Ids(m.ids);
  }
  template <typename M>
  void Visit(Unhold*, M& m) {
    a.Ids(m.ids);
  }
  template <typename M>
  void Visit(Transit*, M& m) {
    a.Id(m.id);
    a.U64(m.number);
  }
  template <typename M>
  void Visit(Claim*, M& m) {
    a.Id(m.id);
    a.Node(m.node);
    a.U64(m.number);
  }
  template <typename M>
  void Visit(Keep*, M& m) {
    a.U64(m.request);
    a.Id(m.id);
    a.Span(m.timeout);
  }
  template <typename M>
  void Visit(Broadcast*, M& m) {
    a.U64(m.request);
    a.Id(m.id);
    a.Flag(m.sticky);
    a.Flag(m.stop);
    a.Span(m.timeout);
    a.Names(m.nodes);
  }
  template <typename M>
  void Visit(Replicate*, M& m) {
    a.U64(m.request);
    a.Id(m.id);
    a.U32(m.copies);
    a.Span(m.timeout);
  }
  template <typename M>
  void Visit(EndScope*, M& m) {
    a.U64(m.request);
    a.InScope(m.scope);
    a.Span(m.timeout);
  }

  template <typename M>
  void Visit(Join*, M& m) {
    a.U64(m.request);
    a.Bytes(m.job, kMaxJobNameBytes);
    a.Bytes(m.role, kMaxJobNameBytes);
    a.Bytes(m.task, kMaxJobNameBytes);
    a.U32(m.world);
    a.Flag(m.has_rank);
    a.U32(m.rank);
    a.Span(m.timeout);
  }
  template <typename M>
  void Visit(LeaveJob*, M& m) {
    a.U64(m.member);
    a.Flag(m.failed);
  }

  template <typename M>
  void Visit(SendMessage*, M& m) {
    a.U64(m.request);
    a.U64(m.member);
    a.Bytes(m.role, kMaxJobNameBytes);
    a.U32(m.rank);
    a.Flag(m.has_life);
    a.U64(m.life);
    a.Span(m.timeout);
    a.Bytes(m.bytes, kMaxMessageBytes);
  }
  template <typename M>
  void Visit(MessageTaken*, M& m) {
    a.U64(m.member);
    a.Bytes(m.role, kMaxJobNameBytes);
    a.U32(m.rank);
    a.U64(m.life);
    a.U64(m.stream);
    a.U64(m.cost);
  }
  template <typename M>
  void Visit(GroupCall*, M& m) {
    a.U64(m.request);
    a.U64(m.member);
    a.Choice(m.spec.kind, kCallKindValues);
    a.Choice(m.spec.op, kAllReduceOps);
    a.Choice(m.spec.dtype, kAllDTypes);
    a.Choice(m.spec.on_loss, kOnLossValues);
    a.U64(m.spec.bytes);
    a.U32(m.spec.root);
    a.U32(m.spec.retain);
    a.U32(m.spec.copies);
    VisitKeep(a, m.spec.keep);
    a.Span(m.timeout);
    a.U64(m.buffer);
    a.U64(m.input_size);
    a.Bytes(m.input, kMaxInlineGroupBytes);
    a.U64(m.filled_from);
    a.U64(m.filled);
  }
  template <typename M>
  void Visit(GroupFilled*, M& m) {
    a.U64(m.request);
    a.U64(m.from);
    a.U64(m.bytes);
  }
  template <typename M>
  void Visit(GroupBuffer*, M& m) {
    a.U64(m.request);
    a.U64(m.bytes);
    a.Span(m.timeout);
  }
  template <typename M>
  void Visit(GroupResult*, M& m) {
    a.U64(m.request);
    a.U64(m.member);
    a.U64(m.call);
    a.Span(m.timeout);
  }
  template <typename M>
  void Visit(AskGroupProgress*, M& m) {
    a.U64(m.request);
    a.U64(m.member);
    a.Span(m.timeout);
  }

  // The fields up to the message are the same in every version, so that another version can read
  // the refusal.
  template <typename M>
  void Visit(NodeHello*, M& m) {
    a.U32(m.magic);
    a.U32(m.version);
    a.Code(m.code);
    a.Text(m.message);
    a.Text(m.node_name);
    a.Text(m.directory);
    a.Node(m.node);
  }
  template <typename M>
  void Visit(File*, M& m) {
    a.U64(m.file);
    a.Flag(m.writable);
    a.U64(m.bytes);
  }
  template <typename M>
  void Visit(Failed*, M& m) {
    a.U64(m.request);
    a.Code(m.code);
    a.Text(m.message);
  }
  template <typename M>
  void Visit(PutDone*, M& m) {
    a.U64(m.request);
    a.Flag(m.already_existed);
  }
  template <typename M>
  void Visit(Granted*, M& m) {
    a.U64(m.request);
    a.U64(m.writer);
    a.Flag(m.has_file);
    a.U64(m.file);
    a.U64(m.offset);
  }
  template <typename M>
  void Visit(Object*, M& m) {
    a.U64(m.request);
    a.U64(m.object_size);
    a.Bytes(m.metadata, kMaxMetadataBytes);
    a.Bytes(m.bytes, kMaxInlineAnswerBytes);
  }
  template <typename M>
  void Visit(Mapped*, M& m) {
    a.U64(m.request);
    a.U64(m.pin);
    a.U64(m.file);
    a.U64(m.offset);
    a.U64(m.object_size);
    a.U64(m.watermark);
    a.Flag(m.final);
    a.Bytes(m.metadata, kMaxMetadataBytes);
  }
  template <typename M>
  void Visit(Progress*, M& m) {
    a.U64(m.request);
    a.U64(m.watermark);
    a.Flag(m.final);
    a.Numbers(m.slices);
  }
  template <typename M>
  void Visit(Void*, M& m) {
    a.U64(m.request);
    a.Text(m.reason);
  }
  template <typename M>
  void Visit(Described*, M& m) {
    bool has_name = !m.name.empty();
    bool expires = m.ttl != absl::InfiniteDuration();
    a.U64(m.request);
    a.Flags(m.known, m.deleted, m.complete, m.local, m.owned, m.sticky, has_name, expires);
    a.U64(m.size);
    a.U32(m.complete_copies);
    a.U32(m.partial_copies);
    a.U32(m.waiting);
    a.U32(m.conflicts);
    a.Bytes(m.metadata, kMaxMetadataBytes);
    a.Ids(m.reduced_from);
    a.U32(m.holders);
    if (has_name) a.Name(m.name);
    if (expires) a.Span(m.ttl);
    a.U32(m.named);
    a.U32(m.named_complete);
    a.U32(m.named_without_room);
    a.U64(m.named_bytes);
    a.U32(m.copies_wanted);
    a.U32(m.copies_there);
  }
  template <typename M>
  void Visit(Counted*, M& m) {
    a.U64(m.request);
    a.U32(m.count);
  }
  template <typename M>
  void Visit(Forgotten*, M& m) {
    a.U64(m.file);
    a.Flag(m.writable);
  }
  template <typename M>
  void Visit(Goodbye*, M& m) {
    a.Code(m.code);
    a.Text(m.message);
  }
  template <typename M>
  void Visit(Joined*, M& m) {
    a.U64(m.request);
    a.U32(m.rank);
    a.U64(m.life);
  }
  template <typename M>
  void Visit(MemberUpdate*, M& m) {
    a.U64(m.request);
    a.Bytes(m.role, kMaxJobNameBytes);
    a.U32(m.world);
    a.U64(m.epoch.incarnation);
    a.U64(m.epoch.counter);
    a.Flag(m.more);
    a.Members(m.members);
  }
  template <typename M>
  void Visit(MemberEnded*, M& m) {
    a.U64(m.request);
    a.Code(m.code);
    a.Text(m.message);
  }
  template <typename M>
  void Visit(MessageArrived*, M& m) {
    a.U64(m.request);
    a.Bytes(m.role, kMaxJobNameBytes);
    a.U32(m.rank);
    a.U64(m.life);
    a.U64(m.stream);
    // The last field: EncodeAllButBytes leaves the bytes to its caller.
    a.Bytes(m.bytes, kMaxMessageBytes);
  }
  template <typename M>
  void Visit(GroupDone*, M& m) {
    a.U64(m.request);
    a.U64(m.number);
    a.U32(m.members);
    a.Numbers(m.free_buffers);
    a.Bytes(m.bytes, kMaxInlineGroupBytes);
  }
  template <typename M>
  void Visit(GroupPart*, M& m) {
    a.U64(m.request);
    a.U64(m.from);
    a.U64(m.bytes);
  }
  template <typename M>
  void Visit(GroupProgress*, M& m) {
    a.U64(m.request);
    a.U64(m.ended);
    VisitKeep(a, m.keep);
  }
};

// Set last, because the length is known only then; `extra` bytes follow from elsewhere.
void SetLength(std::string& out, size_t frame_begin, size_t extra) {
  const size_t length = out.size() - frame_begin - kFrameHeaderBytes + extra;
  // Byte by byte: little-endian on every host.
  for (size_t i = 0; i < kFrameHeaderBytes; ++i) {
    out[frame_begin + i] = static_cast<char>((length >> (8 * i)) & 0xff);
  }
}

template <typename Message>
void EncodeFrame(const Message& message, std::string& out) {
  const size_t begin = out.size();
  out.append(kFrameHeaderBytes, '\0');
  // Encoded in place, without a temporary frame: every Put and Get passes here.
  std::visit(
      [&out](const auto& m) {
        out.push_back(static_cast<char>(std::remove_cvref_t<decltype(m)>::kKind));
        Writer writer(out);
        Fields<Writer>{writer}(m);
      },
      message);
  SetLength(out, begin, 0);
}

// Tries the alternatives of the variant in turn, so that a new message needs no entry in a table.
template <typename Message, size_t index = 0>
absl::StatusOr<Message> DecodeKind(uint8_t kind, absl::string_view fields) {
  if constexpr (index == std::variant_size_v<Message>) {
    return absl::InvalidArgumentError(absl::StrCat("message of unknown kind ", kind));
  } else {
    using M = std::variant_alternative_t<index, Message>;
    if (kind != M::kKind) return DecodeKind<Message, index + 1>(kind, fields);
    // Its views point into `fields`, so decoding copies no bytes.
    M message;
    Reader reader(fields);
    Fields<Reader>{reader}(message);
    const absl::Status status = reader.Finish();
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("message of kind ", kind, " ", status.message()));
    }
    return Message(std::move(message));
  }
}

template <typename Message>
absl::StatusOr<Message> Decode(absl::string_view payload) {
  if (payload.empty()) return absl::InvalidArgumentError("message without a kind");
  return DecodeKind<Message>(static_cast<uint8_t>(payload[0]), payload.substr(1));
}

}  // namespace

void Encode(const Request& request, std::string& out) { EncodeFrame(request, out); }
void Encode(const Answer& answer, std::string& out) { EncodeFrame(answer, out); }

void EncodeAllButBytes(const Put& put, std::string& out) {
  const size_t begin = out.size();
  out.append(kFrameHeaderBytes, '\0');
  out.push_back(static_cast<char>(Put::kKind));
  // The fields of Visit(Put), in which the bytes are the last.
  Writer writer(out);
  writer.U64(put.request);
  VisitDescription(writer, put.object);
  writer.U32(static_cast<uint32_t>(put.bytes.size()));
  SetLength(out, begin, put.bytes.size());
}

void EncodeAllButBytes(const MessageArrived& message, std::string& out) {
  const size_t begin = out.size();
  out.append(kFrameHeaderBytes, '\0');
  out.push_back(static_cast<char>(MessageArrived::kKind));
  // The fields of Visit(MessageArrived), in which the bytes are the last.
  Writer writer(out);
  writer.U64(message.request);
  writer.Bytes(message.role, kMaxJobNameBytes);
  writer.U32(message.rank);
  writer.U64(message.life);
  writer.U64(message.stream);
  writer.U32(static_cast<uint32_t>(message.bytes.size()));
  SetLength(out, begin, message.bytes.size());
}

absl::StatusOr<Request> DecodeRequest(absl::string_view payload) {
  return Decode<Request>(payload);
}
absl::StatusOr<Answer> DecodeAnswer(absl::string_view payload) { return Decode<Answer>(payload); }

absl::Span<char> FrameBuffer::Space() {
  // Frames are views, so they must be contiguous: the rest of an incomplete one moves to the front.
  if (begin_ != 0) {
    std::memmove(bytes_.data(), bytes_.data() + begin_, buffered());
    end_ -= begin_;
    begin_ = 0;
  }
  // Bounded: Next has refused lengths over the limit.
  size_t wanted = std::max(kRestingBytes, end_ + kMinSpace);
  if (end_ >= kFrameHeaderBytes) {
    const size_t length = ByteReader(absl::string_view(bytes_.data(), end_)).U32();
    wanted = std::max(wanted, std::min(length, kMaxFrameBytes) + kFrameHeaderBytes);
  }
  const size_t most = std::max(wanted, kept_bytes_);
  if (bytes_.size() < wanted || (end_ == 0 && bytes_.size() > most)) {
    bytes_.resize(wanted);
    if (end_ == 0) bytes_.shrink_to_fit();
  }
  return absl::MakeSpan(bytes_.data() + end_, bytes_.size() - end_);
}

void FrameBuffer::Filled(size_t bytes) { end_ += bytes; }

absl::StatusOr<std::optional<absl::string_view>> FrameBuffer::Next() {
  if (buffered() < kFrameHeaderBytes) return std::nullopt;
  const absl::string_view rest(bytes_.data() + begin_, buffered());
  const size_t length = ByteReader(rest).U32();
  // Refused before the frame has arrived, so that a peer cannot make this allocate more.
  if (length == 0 || length > kMaxFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame has 1 to ", kMaxFrameBytes, " bytes, not ", length));
  }
  if (rest.size() < kFrameHeaderBytes + length) return std::nullopt;
  begin_ += kFrameHeaderBytes + length;
  return rest.substr(kFrameHeaderBytes, length);
}

}  // namespace phalanx::object_store::local
