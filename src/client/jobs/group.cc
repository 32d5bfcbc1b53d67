#include "phalanx/group.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/client/access.h"
#include "src/client/connection/call.h"
#include "src/client/jobs/member_call.h"
#include "src/client/verb.h"
#include "src/jobs/group/group_call.h"
#include "src/local/jobs/refused_call.h"

namespace phalanx {
namespace internal {

using jobs::CallKind;
using jobs::CallSpec;

// Memory of the node into which this client writes inputs.
struct GroupBuffer {
  uint64_t number = 0;
  std::shared_ptr<FileMapping> mapping;
  char* data = nullptr;
  uint64_t bytes = 0;
  bool ended = false;      // its call has had an answer
  bool forgotten = false;  // to be dropped when its call ends
};

struct GroupState {
  ~GroupState();
  // Lock held. The node does not use the pages again, whether this works or not.
  void Drop(GroupBuffer buffer);
  // Lock held. A call has ended without its answer, which can name any of the buffers in use as
  // free. No later answer names them again, so they are given up when their calls end.
  void ForgetUsed();
  // Returns a buffer of at least so many bytes; waits for the node if there is no free one.
  absl::StatusOr<GroupBuffer> TakeBuffer(uint64_t bytes, Instant until);

  std::shared_ptr<Connection> connection;
  // Keeps the member in its job.
  std::shared_ptr<MembershipState> membership;
  std::shared_ptr<MemberCall> member;
  GroupOptions options;

  // Guarded by the connection's lock.
  std::vector<GroupBuffer> free;
  std::vector<GroupBuffer> used;
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

struct GroupCallState final : public FutureState<Done> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t, const local::Answer& answer) override {
    if (const auto* mapped = std::get_if<local::Mapped>(&answer)) {
      absl::StatusOr<MappedObject> taken = connection().Take(*mapped);
      if (!taken.ok()) return End(Explain(taken.status()));
      // GroupDone follows, and ends the call.
      result = *std::move(taken);
      return;
    }
    const auto done = Expect<local::GroupDone>(answer);
    if (done.ok()) group->member->PlaceGroupCall(made, (*done)->number);
    group->calls = std::max(group->calls, group->member->NumberOfGroupCall(made));
    if (!done.ok()) return End(done.status());
    for (const uint64_t number : (*done)->free_buffers) {
      if (std::optional<GroupBuffer> free = TakeUsed(number)) {
        free->ended = free->forgotten = false;
        group->free.push_back(*std::move(free));
      }
    }
    if (std::optional<GroupBuffer> used = TakeUsed(buffer)) {
      used->ended = true;
      if (used->forgotten) {
        group->Drop(*std::move(used));
      } else {
        group->used.push_back(*std::move(used));
      }
    }
    const absl::string_view bytes = result.bytes.empty() ? (*done)->bytes : result.bytes;
    if (!bytes.empty() && bytes.size() != output_bytes) return End(Unexpected());
    if (!bytes.empty()) std::memcpy(output, bytes.data(), bytes.size());
    connection().Trash(std::make_shared<MappedObject>(std::move(result)));
    group->members = static_cast<int>((*done)->members);
    Set(Done{});
  }
  void OnFailure(const absl::Status& why) override {
    group->ForgetUsed();
    End(Explain(why));
  }
  // The node names buffers that are free in the answers of calls that work. So the buffer of a call
  // that fails is given up.
  void End(const absl::Status& why) {
    if (std::optional<GroupBuffer> used = TakeUsed(buffer)) group->Drop(*std::move(used));
    Set(why);
  }
  std::optional<GroupBuffer> TakeUsed(uint64_t number) {
    const auto found = std::find_if(group->used.begin(), group->used.end(),
                                    [&](const GroupBuffer& each) { return each.number == number; });
    if (found == group->used.end()) return std::nullopt;
    GroupBuffer used = std::move(*found);
    group->used.erase(found);
    return used;
  }

  std::shared_ptr<GroupState> group;
  void* output = nullptr;
  uint64_t output_bytes = 0;
  uint64_t buffer = 0;  // of the input; 0: none
  uint64_t made = 0;    // the member's calls up to this one
  MappedObject result;
};

}  // namespace

GroupState::~GroupState() {
  if (connection->forked()) return;
  connection->Update([this] {
    for (std::vector<GroupBuffer>* buffers : {&free, &used}) {
      for (GroupBuffer& buffer : *buffers) {
        Drop(std::move(buffer));
      }
    }
  });
}

void GroupState::ForgetUsed() {
  for (GroupBuffer& buffer : std::exchange(used, {})) {
    if (buffer.ended) {
      Drop(std::move(buffer));
    } else {
      buffer.forgotten = true;
      used.push_back(std::move(buffer));
    }
  }
}

void GroupState::Drop(GroupBuffer buffer) {
  buffer.mapping->EndWriting().IgnoreError();
  if (connection->status().ok()) connection->Send(local::Abort{buffer.number});
  connection->PutBackWriter(std::move(buffer.mapping));
}

// In a row of calls two buffers alternate: the end of a call frees that of the call before.
absl::StatusOr<GroupBuffer> GroupState::TakeBuffer(uint64_t bytes, Instant until) {
  GroupBuffer buffer;
  connection->Update([&] {
    const auto fits = std::find_if(
        free.begin(), free.end(), [bytes](const GroupBuffer& each) { return each.bytes >= bytes; });
    if (fits == free.end()) return;
    buffer = std::move(*fits);
    free.erase(fits);
  });
  if (buffer.mapping != nullptr) return buffer;
  auto call = std::make_shared<BufferCall>(connection, "GroupBuffer", ObjectId());
  // The node gives no smaller buffer, and later inputs can use all of it.
  call->bytes = std::max(bytes, object_store::kOwnFileBytes);
  const uint64_t request = connection->NewRequests(1);
  connection->Start(call, request, 1, until,
                    local::GroupBuffer{request, call->bytes, until - MonotonicNow()});
  if (!connection->WaitFor(*call, until + kDeadlineGrace)) {
    connection->Cancel(*call);
    return absl::DeadlineExceededError("the node has given no memory for the input in time");
  }
  return *call->result;
}

}  // namespace internal

using internal::CallKind;
using internal::GroupArguments;

Group::Group(const Membership& member, GroupOptions options)
    : state_(std::make_shared<internal::GroupState>()) {
  state_->membership = internal::Access::StateOf(member);
  state_->member = state_->membership->call;
  state_->connection = state_->member->shared_connection();
  state_->options = options;
}

// Small inputs travel in the message. A large one is copied into memory that the node shares with
// this process, before the call begins: the caller can change its own memory only after the end.
Future<Done> Group::Call(const GroupArguments& arguments) const {
  internal::Connection& connection = *state_->connection;
  internal::MemberCall& member = *state_->member;
  if (const absl::Status process = connection.CheckProcess(); !process.ok()) {
    return internal::Refused<Done>(state_->connection, arguments.verb, ObjectId(), process);
  }
  jobs::CallSpec spec = arguments.spec;
  spec.on_loss = static_cast<jobs::OnLoss>(state_->options.on_loss);
  const int world = member.world();
  const uint64_t input = jobs::InputBytes(spec, world, member.rank());
  const Instant until = MonotonicNow() + state_->options.timeout;
  auto call =
      std::make_shared<internal::GroupCallState>(state_->connection, arguments.verb, ObjectId());
  call->group = state_;
  call->output = arguments.output;
  call->output_bytes = jobs::ResultBytes(spec, world, member.rank());
  const uint64_t request = connection.NewRequests(1);
  object_store::local::GroupCall message{
      request, member.request(), spec, state_->options.timeout, 0, input, {}};
  absl::Status refused = arguments.refused;
  // A call that the group will refuse needs no memory, but the others must hear of it.
  const bool takes_input = refused.ok() && jobs::CheckCall(spec, world).ok();
  absl::StatusOr<internal::GroupBuffer> buffer = internal::GroupBuffer();
  if (takes_input && input > object_store::local::kMaxInlineGroupBytes) {
    buffer = state_->TakeBuffer(input, until);
    refused = buffer.status();
  } else if (takes_input) {
    message.input = {static_cast<const char*>(arguments.input), input};
  }
  if (!refused.ok()) object_store::local::Refuse(message, refused);
  if (buffer.ok() && buffer->mapping != nullptr) {
    std::memcpy(buffer->data, arguments.input, input);
    message.buffer = call->buffer = buffer->number;
  }
  // Before Start, because an answer of the node can name the buffer as free.
  connection.Update([&] {
    call->made = member.CountGroupCall();
    if (call->buffer != 0) state_->used.push_back(*std::move(buffer));
  });
  connection.Start(call, request, 1, until, message);
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
