#include "phalanx/group.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/client/access.h"
#include "src/client/connection/call.h"
#include "src/client/jobs/member_call.h"
#include "src/client/verb.h"
#include "src/jobs/group/group_call.h"
#include "src/jobs/overlap/byte_ranges.h"
#include "src/jobs/overlap/fill_order.h"
#include "src/jobs/overlap/yield_rule.h"
#include "src/local/jobs/refused_call.h"

namespace phalanx {
namespace internal {

using jobs::CallKind;
using jobs::CallSpec;

struct GroupState {
  explicit GroupState(std::shared_ptr<MembershipState> of);
  ~GroupState();
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;
  // Waits until the member can have one more call under way.
  absl::Status AwaitRoom(Instant until);
  // Returns a buffer of at least so many bytes; waits for the node if there is no free one.
  absl::StatusOr<GroupBuffer> TakeBuffer(uint64_t bytes, Instant until);
  // The slices of an input, of one slice if it is to be complete before the call begins.
  jobs::FillOrder OrderOf(jobs::CallKind kind, uint64_t bytes);

  // Keeps the member in its job.
  const std::shared_ptr<MembershipState> membership;
  const std::shared_ptr<MemberCall> member;
  const std::shared_ptr<Connection> connection;
  GroupOptions options;
  jobs::KeepSpec keep;  // of the next call
  jobs::YieldRule yields;

  // Guarded by the connection's lock.
  uint64_t calls = 0;
  int members = 0;
};

// The arguments of one call.
struct GroupArguments {
  const char* verb = nullptr;
  CallSpec spec;
  const void* input = nullptr;
  void* output = nullptr;
  // The sizes that the caller gave, if they must fit to each other.
  uint64_t input_bytes = 0;
  uint64_t output_bytes = 0;
  // Not OK: they do not.
  absl::Status refused = {};
};

namespace {

// Bytes that are copied before other threads may run.
constexpr uint64_t kCopyStep = 64 << 10;

void LetOthersRun(jobs::YieldRule& rule) {
  const Instant began = MonotonicNow();
  if (!rule.MayYield(began)) return;
  std::this_thread::yield();
  rule.EndYield(began, MonotonicNow());
}

// The nodes pass bytes meanwhile. On a host with more threads than cores its node runs first:
// the links of all nodes wait for a node that waits for a core.
void CopyBeside(char* to, const char* from, uint64_t bytes, jobs::YieldRule& rule) {
  for (uint64_t at = 0; at < bytes; at += kCopyStep) {
    if (at > 0) LetOthersRun(rule);
    std::memcpy(to + at, from + at, std::min(kCopyStep, bytes - at));
  }
}

// Lock held. The node does not use the pages again, whether this works or not.
void Drop(Connection& connection, GroupBuffer buffer) {
  buffer.mapping->EndWriting().IgnoreError();
  if (connection.status().ok()) connection.Send(local::Abort{buffer.number});
  connection.PutBackWriter(std::move(buffer.mapping));
}

struct BufferCall final : public FutureState<GroupBuffer> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t, const local::Answer& answer) override {
    const auto granted = Expect<local::Granted>(answer);
    if (!granted.ok()) return Set(granted.status());
    auto mapping = connection().TakeWriter(**granted, bytes);
    if (!mapping.ok()) return Set(Explain(mapping.status()));
    const absl::Status writing = (*mapping)->BeginWriting((*granted)->offset + bytes);
    if (!writing.ok()) {
      // No call will name the buffer, so the node gets it back.
      connection().Send(local::Abort{(*granted)->writer});
      connection().PutBackWriter(*std::move(mapping));
      return Set(Explain(writing));
    }
    char* const data = (*mapping)->writing() + (*granted)->offset;
    Set(GroupBuffer{(*granted)->writer, *std::move(mapping), data, bytes});
  }
  uint64_t bytes = 0;
};

// A call with a result. A large one is in memory of the node, which is mapped before the answer.
struct ResultCall : public FutureState<Done> {
  ResultCall(std::shared_ptr<GroupState> of, const char* verb, void* to, uint64_t bytes)
      : FutureState(of->connection, verb, ObjectId()),
        group(std::move(of)),
        output(static_cast<char*>(to)),
        output_bytes(bytes) {}

  virtual void OnDone(const local::GroupDone& done) = 0;
  virtual void Fail(const absl::Status& why) { End(why); }

  void OnAnswer(uint64_t, const local::Answer& answer) override {
    if (const auto* mapped = std::get_if<local::Mapped>(&answer)) {
      DropResult();
      large_result = connection().Take(*mapped);
      return;
    }
    const auto done = Expect<local::GroupDone>(answer);
    if (!done.ok()) return Fail(done.status());
    OnDone(**done);
  }
  void OnFailure(const absl::Status& why) override { Fail(Explain(why)); }

  absl::StatusOr<absl::string_view> ResultOf(const local::GroupDone& done) const {
    if (!large_result.ok()) return Explain(large_result.status());
    return large_result->bytes.empty() ? done.bytes : large_result->bytes;
  }
  void Copy(absl::string_view bytes, jobs::ByteRange range) const {
    CopyBeside(output + range.from, bytes.data() + range.from, range.bytes, group->yields);
  }
  // Releases its memory.
  void DropResult() {
    copied = jobs::ByteRanges(output_bytes);
    absl::StatusOr<MappedObject> result = std::exchange(large_result, MappedObject());
    if (result.ok()) connection().Trash(std::make_shared<MappedObject>(*std::move(result)));
  }
  void End(absl::StatusOr<Done> value) {
    // The caller can keep its future for long.
    DropResult();
    Set(std::move(value));
  }

  // Keeps the member in its job.
  const std::shared_ptr<GroupState> group;
  char* const output;
  const uint64_t output_bytes;
  // Of the output: what is copied from the result.
  jobs::ByteRanges copied{output_bytes};
  // Not OK: it cannot be read.
  absl::StatusOr<MappedObject> large_result = MappedObject();
};

struct GroupCallState final : public ResultCall {
  using ResultCall::ResultCall;
  void OnAnswer(uint64_t number, const local::Answer& answer) override {
    if (const auto* part = std::get_if<local::GroupPart>(&answer)) return OnPart(*part);
    ResultCall::OnAnswer(number, answer);
  }
  void OnDone(const local::GroupDone& done) override {
    group->calls = std::max(group->calls, done.number);
    // Failed follows.
    if (done.members == 0) return;
    group->member->EndGroupCall();
    const absl::StatusOr<absl::string_view> bytes = ResultOf(done);
    // The node has the buffer, and will name it when it is free.
    if (!bytes.ok() || (!bytes->empty() && bytes->size() != output_bytes)) {
      Restore();
      return End(bytes.ok() ? Unexpected() : bytes.status());
    }
    for (const jobs::ByteRange& range : copied.Rest()) {
      if (!bytes->empty()) Copy(*bytes, range);
    }
    group->members = static_cast<int>(done.members);
    End(Done{});
  }
  // What the result has by now is copied while the nodes pass the rest. In place that is possible
  // as long as the input is elsewhere, too.
  void OnPart(const local::GroupPart& part) {
    // The nodes take the call again, and need the memory.
    if (part.bytes == 0) return DropResult();
    if (in_place && connection().group_buffers().InputOf(request) == nullptr) return;
    if (!large_result.ok() || large_result->bytes.size() != output_bytes) return;
    const jobs::ByteRange range{part.from, part.bytes};
    // In too many places, or none of the result: the end of the call copies it.
    if (!touched.Add(range).ok() || !copied.Add(range).ok()) return;
    Copy(large_result->bytes, range);
  }
  // A call that fails leaves a vector in place as it was. Few calls fail, so these bytes are copied
  // at once, although the lock is held.
  void Restore() const {
    const char* const kept = connection().group_buffers().InputOf(request);
    if (!in_place || kept == nullptr) return;
    for (const jobs::ByteRange& range : touched.ranges()) {
      std::memcpy(output + range.from, kept + range.from, range.bytes);
    }
  }
  // The node names buffers that are free in the answers of calls that work. So the buffer of a call
  // that fails is given up.
  void Fail(const absl::Status& why) override {
    group->member->EndGroupCall();
    Restore();
    std::optional<GroupBuffer> used = connection().group_buffers().GiveUp(request);
    if (used.has_value()) Drop(connection(), *std::move(used));
    End(why);
  }

  bool in_place = false;  // the result comes where the input was, and is as large
  uint64_t request = 0;
  jobs::ByteRanges touched{output_bytes};  // of the output: what is not as it was
};

// A kept result. The node answers as it answers a call.
struct KeptResultCall final : public ResultCall {
  using ResultCall::ResultCall;
  void OnDone(const local::GroupDone& done) override {
    // Failed follows.
    if (done.members == 0) return;
    const absl::StatusOr<absl::string_view> bytes = ResultOf(done);
    if (!bytes.ok()) return End(bytes.status());
    if (bytes->size() != output_bytes) {
      return End(Explain(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("the result of call ", number, " has ", bytes->size(),
                                      " bytes, not ", output_bytes)));
    }
    Copy(*bytes, {0, output_bytes});
    End(Done{});
  }

  uint64_t number = 0;
};

struct GroupProgressCall final : public FutureState<GroupProgress> {
  explicit GroupProgressCall(std::shared_ptr<GroupState> of)
      : FutureState(of->connection, "Progress", ObjectId()), group(std::move(of)) {}
  void OnAnswer(uint64_t, const local::Answer& answer) override {
    // Failed follows.
    if (std::holds_alternative<local::GroupDone>(answer)) return;
    const auto progress = Expect<local::GroupProgress>(answer);
    if (!progress.ok()) return Set(progress.status());
    const auto& [request, ended, keep] = **progress;
    group->calls = std::max(group->calls, ended);
    Set(GroupProgress{ended, {keep.boot, keep.released, keep.mark}});
  }

  // Keeps the member in its job.
  const std::shared_ptr<GroupState> group;
};

}  // namespace

GroupState::GroupState(std::shared_ptr<MembershipState> of)
    : membership(std::move(of)), member(membership->call), connection(member->shared_connection()) {
  if (connection->forked()) return;
  connection->Update([this] { connection->group_buffers().BeginGroup(); });
}

GroupState::~GroupState() {
  if (connection->forked()) return;
  connection->Update([this] {
    for (GroupBuffer& buffer : connection->group_buffers().EndGroup()) {
      Drop(*connection, std::move(buffer));
    }
  });
}

// A call without a number would move those of the calls that follow, so a member that is far ahead
// of the others waits here.
absl::Status GroupState::AwaitRoom(Instant until) {
  const auto has_room = [this] {
    return !connection->status().ok() || member->HasRoomForGroupCall();
  };
  bool now = false;
  connection->Update([&] { now = has_room(); });
  if (now || connection->WaitInsideCall(has_room, until)) return absl::OkStatus();
  return absl::DeadlineExceededError("too many calls are under way before this one");
}

// In a row of calls two buffers alternate: the end of a call frees that of the call before.
absl::StatusOr<GroupBuffer> GroupState::TakeBuffer(uint64_t bytes, Instant until) {
  std::optional<GroupBuffer> buffer;
  connection->Update([&] {
    GroupBuffers& buffers = connection->group_buffers();
    buffer = buffers.Take(bytes);
    if (buffer.has_value()) return;
    // Sizes that grow leave buffers behind that fit no more.
    std::optional<GroupBuffer> surplus = buffers.TakeSurplus();
    if (surplus.has_value()) Drop(*connection, *std::move(surplus));
  });
  if (buffer.has_value()) return *std::move(buffer);
  auto call = std::make_shared<BufferCall>(connection, "GroupBuffer", ObjectId());
  // The node gives no smaller buffer, and later inputs can use all of it.
  call->bytes = std::max(bytes, object_store::kOwnFileBytes);
  const uint64_t request = connection->NewRequests(1);
  connection->Start(call, request, 1, until,
                    local::GroupBuffer{request, call->bytes, until - MonotonicNow()});
  if (!connection->WaitFor(*call, until + kDeadlineGrace)) connection->Cancel(*call);
  // The answer can come between the two.
  if (absl::IsCancelled(call->result->status())) {
    return absl::DeadlineExceededError("the node has given no memory for the input in time");
  }
  return *call->result;
}

jobs::FillOrder GroupState::OrderOf(CallKind kind, uint64_t bytes) {
  if (bytes < jobs::kFilledLateBytes) return jobs::FillOrder(bytes);
  MemberCall::Place place;
  connection->Update([&] { place = member->NodePlace(); });
  return {kind, bytes, place.nodes, place.node};
}

// Copies an input into its buffer, slice by slice: the first one before the call begins, the others
// beside it. The caller's memory can change only after the call has ended, and the copy is over
// before the caller has its future.
class InputCopy {
 public:
  // `most`: copies no more bytes than these.
  InputCopy(const GroupBuffer& buffer, const void* input, jobs::FillOrder order,
            jobs::YieldRule& yields, uint64_t most)
      : mapping_(buffer.mapping),
        to_(buffer.data),
        from_(static_cast<const char*>(input)),
        order_(std::move(order)),
        yields_(yields),
        left_(most) {}

  void CopyFirst(local::GroupCall& message) {
    CopySlice();
    message.filled_from = slice_.front().from;
    message.filled = slice_.front().bytes;
    slice_.erase(slice_.begin());
    more_ = !slice_.empty() || message.filled < message.input_size;
  }
  // Whether a part is left.
  bool more() const { return more_; }
  // Without the lock. Also if the call has ended: it may run again, for other members.
  void CopyRest(Connection& connection, const GroupCallState& call) {
    if (slice_.empty() && left_ > 0) CopySlice();
    while (!slice_.empty()) {
      connection.Update([&] {
        if (!connection.status().ok()) return;
        for (const jobs::ByteRange& each : slice_) {
          connection.Send(local::GroupFilled{call.request, each.from, each.bytes});
        }
      });
      slice_.clear();
      if (left_ > 0) CopySlice();
    }
    connection.Update([&] {
      std::optional<GroupBuffer> unused = connection.group_buffers().EndFilling(call.request);
      if (unused.has_value()) Drop(connection, *std::move(unused));
    });
  }

 private:
  void CopySlice() {
    slice_ = order_.Next();
    for (jobs::ByteRange& each : slice_) {
      each.bytes = std::min(each.bytes, left_);
      left_ -= each.bytes;
      CopyBeside(to_ + each.from, from_ + each.from, each.bytes, yields_);
    }
  }

  const std::shared_ptr<FileMapping> mapping_;
  char* const to_;
  const char* const from_;
  jobs::FillOrder order_;
  jobs::YieldRule& yields_;             // of the group, which outlives the call
  uint64_t left_;                       // bytes to copy
  std::vector<jobs::ByteRange> slice_;  // copied, and not named yet
  bool more_ = false;
};

}  // namespace internal

using internal::CallKind;
using internal::GroupArguments;

Group::Group(const Membership& member, GroupOptions options)
    : state_(std::make_shared<internal::GroupState>(internal::Access::StateOf(member))) {
  state_->options = options;
}

// Small inputs travel in the message. A large one is copied into memory that the node shares with
// this process.
Future<Done> Group::Call(const GroupArguments& arguments) const {
  internal::Connection& connection = *state_->connection;
  internal::MemberCall& member = *state_->member;
  if (const absl::Status process = connection.CheckProcess(); !process.ok()) {
    return internal::Refused<Done>(state_->connection, arguments.verb, ObjectId(), process);
  }
  jobs::CallSpec spec = arguments.spec;
  spec.on_loss = static_cast<jobs::OnLoss>(state_->options.on_loss);
  // Other negative numbers are refused as too large ones.
  static_assert(static_cast<uint32_t>(kUntilReleased) == jobs::kUntilReleased);
  spec.retain = static_cast<uint32_t>(state_->options.retain);
  if (spec.retain == jobs::kUntilReleased) spec.keep = state_->keep;
  spec.copies = spec.retain == 0 ? 0 : static_cast<uint32_t>(state_->options.retain_copies);
  const int world = member.world();
  const uint64_t input = jobs::InputBytes(spec, world, member.rank());
  const Instant until = MonotonicNow() + state_->options.timeout;
  auto call = std::make_shared<internal::GroupCallState>(
      state_, arguments.verb, arguments.output, jobs::ResultBytes(spec, world, member.rank()));
  call->in_place = arguments.input == arguments.output && input == call->output_bytes;
  call->request = connection.NewRequests(1);
  object_store::local::GroupCall message{
      call->request, member.request(), spec, absl::ZeroDuration(), 0, input, {}};
  // Late or not, the call takes its number.
  absl::Status refused = state_->AwaitRoom(until);
  if (refused.ok()) refused = arguments.refused;
  // A call that the group will refuse needs no memory, but the others must hear of it.
  const bool takes_input = refused.ok() && jobs::CheckCall(spec, world).ok();
  absl::StatusOr<internal::GroupBuffer> buffer = internal::GroupBuffer();
  const std::optional<uint64_t> fatal =
      takes_input ? member.FatalBytes(input) : std::optional<uint64_t>();
  // A message holds all of an input, so a death within a small one needs a buffer, too.
  if (takes_input && (input > object_store::local::kMaxInlineGroupBytes || fatal.has_value())) {
    buffer = state_->TakeBuffer(input, until);
    refused = buffer.status();
  } else if (takes_input) {
    message.input = {static_cast<const char*>(arguments.input), input};
  }
  if (!refused.ok()) object_store::local::Refuse(message, refused);
  message.timeout = std::max(until - MonotonicNow(), absl::ZeroDuration());
  std::optional<internal::InputCopy> copy;
  if (buffer.ok() && buffer->mapping != nullptr) {
    message.buffer = buffer->number;
    copy.emplace(*buffer, arguments.input, state_->OrderOf(spec.kind, input), state_->yields,
                 fatal.value_or(input));
    copy->CopyFirst(message);
  }
  // Before Start, because an answer of the node can name the buffer as free.
  connection.Update([&] {
    member.BeginGroupCall();
    if (!copy.has_value()) return;
    connection.group_buffers().Use(
        *std::move(buffer), call->request,
        copy->more() ? internal::Filling::kUnderWay : internal::Filling::kOver);
  });
  connection.Start(call, call->request, 1, until, message);
  if (copy.has_value() && copy->more()) copy->CopyRest(connection, *call);
  if (fatal.has_value() && copy.has_value()) member.DieInCall();
  return Future<Done>(std::move(call));
}

Future<Done> Group::AllReduce(DType dtype, void* inout, uint64_t bytes, ReduceOp op) const {
  return Call({.verb = "AllReduce",
               .spec = {.kind = CallKind::kAllReduce, .op = op, .dtype = dtype, .bytes = bytes},
               .input = inout,
               .output = inout,
               .input_bytes = bytes,
               .output_bytes = bytes});
}

Future<Done> Group::Reduce(int root, DType dtype, void* inout, uint64_t bytes, ReduceOp op) const {
  return Call({.verb = "Reduce",
               .spec = {.kind = CallKind::kReduce,
                        .op = op,
                        .dtype = dtype,
                        .bytes = bytes,
                        .root = static_cast<uint32_t>(root)},
               .input = inout,
               .output = inout,
               .input_bytes = bytes,
               .output_bytes = bytes});
}

Future<Done> Group::Broadcast(int root, void* inout, uint64_t bytes) const {
  return Call(
      {.verb = "Broadcast",
       .spec = {.kind = CallKind::kBroadcast, .bytes = bytes, .root = static_cast<uint32_t>(root)},
       .input = inout,
       .output = inout,
       .input_bytes = bytes,
       .output_bytes = bytes});
}

// `whole` has a part for each member.
Future<Done> Group::CallWithParts(GroupArguments arguments, uint64_t whole, uint64_t part) const {
  const auto world = static_cast<uint64_t>(state_->member->world());
  if (part > jobs::kMaxGroupBytes || whole != part * world) {
    arguments.refused = absl::InvalidArgumentError(
        absl::StrCat(arguments.verb, ": an input of ", arguments.input_bytes,
                     " bytes and an output of ", arguments.output_bytes, " in a group of ", world));
    return Call(arguments);
  }
  arguments.spec.bytes = part;
  return Call(arguments);
}

Future<Done> Group::ReduceScatter(DType dtype, const void* input, uint64_t input_bytes,
                                  void* output, uint64_t output_bytes, ReduceOp op) const {
  return CallWithParts({"ReduceScatter",
                        {.kind = CallKind::kReduceScatter, .op = op, .dtype = dtype},
                        input,
                        output,
                        input_bytes,
                        output_bytes},
                       input_bytes, output_bytes);
}

Future<Done> Group::AllGather(const void* input, uint64_t input_bytes, void* output,
                              uint64_t output_bytes) const {
  return CallWithParts(
      {"AllGather", {.kind = CallKind::kAllGather}, input, output, input_bytes, output_bytes},
      output_bytes, input_bytes);
}

Future<Done> Group::AllToAll(const void* input, uint64_t input_bytes, void* output,
                             uint64_t output_bytes) const {
  const auto world = static_cast<uint64_t>(state_->member->world());
  // Inputs and outputs of different sizes have no parts that fit.
  const uint64_t whole = input_bytes == output_bytes ? input_bytes : input_bytes + 1;
  return CallWithParts(
      {"AllToAll", {.kind = CallKind::kAllToAll}, input, output, input_bytes, output_bytes}, whole,
      input_bytes / world);
}

Future<Done> Group::Barrier() const {
  return Call({"Barrier", {.kind = CallKind::kBarrier}, nullptr, nullptr, 0, 0});
}

Future<Done> Group::Result(uint64_t call, void* output, uint64_t bytes) const {
  internal::Connection& connection = *state_->connection;
  if (const absl::Status process = connection.CheckProcess(); !process.ok()) {
    return internal::Refused<Done>(state_->connection, "Result", ObjectId(), process);
  }
  auto result = std::make_shared<internal::KeptResultCall>(state_, "Result", output, bytes);
  result->number = call;
  const uint64_t request = connection.NewRequests(1);
  connection.Start(result, request, 1, MonotonicNow() + state_->options.timeout,
                   object_store::local::GroupResult{request, state_->member->request(), call,
                                                    state_->options.timeout});
  return Future<Done>(std::move(result));
}

void Group::Keep(const GroupKeep& keep) const {
  state_->keep = {keep.boot, keep.released, keep.mark};
}

Future<GroupProgress> Group::Progress() const {
  internal::Connection& connection = *state_->connection;
  if (const absl::Status process = connection.CheckProcess(); !process.ok()) {
    return internal::Refused<GroupProgress>(state_->connection, "Progress", ObjectId(), process);
  }
  // No call has ended before the first life's first one.
  if (state_->member->life() == 0) {
    return Future<GroupProgress>(internal::FutureState<GroupProgress>::Ended(
        state_->connection, "Progress", ObjectId(), GroupProgress{}));
  }
  auto call = std::make_shared<internal::GroupProgressCall>(state_);
  const absl::Duration timeout = state_->options.timeout;
  return internal::StartOne<GroupProgress>(
      std::move(call), MonotonicNow() + timeout, [this, timeout](uint64_t request) {
        return object_store::local::AskGroupProgress{request, state_->member->request(), timeout};
      });
}

uint64_t Group::calls() const {
  uint64_t calls = 0;
  if (state_->connection->forked()) return calls;
  state_->connection->Update([&] { calls = state_->calls; });
  return calls;
}

int Group::members_of_last_call() const {
  int members = 0;
  if (state_->connection->forked()) return members;
  state_->connection->Update([&] { members = state_->members; });
  return members;
}

}  // namespace phalanx
