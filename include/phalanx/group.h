// Groups: collectives of all members of one role of a job. docs/jobs.md explains what a call is,
// and what happens when a member dies in one.
//
//   auto member = client->Join("train", "worker3", {.world = 8}).value();
//   phalanx::Group group(member);
//   std::vector<float> gradients = ...;
//   group.AllReduce(absl::MakeSpan(gradients)).Wait().value();      // the sum of all members'
//   vectors
//
// All members make the same calls in the same order; a member can make a call before its last one
// has ended. With 512 of them under way the next one waits, within its timeout, before it returns
// its future. A call ends when its result is in the member's memory. Results are the same bits on
// all members, whatever the timing. If members differ in a call, or a call's arguments are wrong,
// the call fails with InvalidArgument on all of them, and names both sides.
//
// If a call fails, the vector of an AllReduce or a Reduce is as before. The memory into which
// another result was to come can have parts of it.
//
// A Group is a value that shares its state. One thread at a time makes calls. The memory of a call
// stays valid, and unchanged by others, until its future has a result.
#ifndef PHALANX_GROUP_H_
#define PHALANX_GROUP_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/elements.h"
#include "phalanx/job.h"

namespace phalanx {

namespace internal {
struct GroupState;
struct GroupArguments;
}  // namespace internal

// What a call does if a member ends before the call has a result. The same for all members.
enum class LossPolicy {
  kWait,     // waits for the member's next life, which makes the call again
  kExclude,  // goes on without the member; its part of a gathered result is zero
  kFail,     // fails with Unavailable
};

// GroupOptions::retain: results are kept until a GroupKeep releases them.
inline constexpr int kUntilReleased = -1;

// Which results members in their next lives can ask for, with kUntilReleased: those of the calls 1
// to `boot`, for as long as the group lives, and those of the calls after `released`. A call says
// so when it is made, so `released` is less than its number. All members say the same in one call.
//
// A program that writes a checkpoint after call 57 lets its later calls say {.released = 57}. Then
// a next life reads that checkpoint, asks for the results from call 58 on, and makes the call that
// follows the last one that has ended.
struct GroupKeep {
  uint64_t boot = 0;
  uint64_t released = 0;
  // The program's own, such as the number of the checkpoint after `released`.
  uint64_t mark = 0;

  friend bool operator==(const GroupKeep&, const GroupKeep&) = default;
};

// Where a group was when a member entered it.
struct GroupProgress {
  // The last call that had ended: the member's first call is the next one.
  uint64_t ended = 0;
  // What the newest call has said that had ended for some member. If this is the member's first
  // call, which other members make again, its keep is here, too.
  GroupKeep keep = {};
};

struct GroupOptions {
  LossPolicy on_loss = LossPolicy::kFail;
  // Of each call. When it passes, the call fails with DeadlineExceeded on all members on which it
  // has not ended, and names the missing ranks.
  absl::Duration timeout = absl::InfiniteDuration();
  // The results of the last so many calls are kept, at most 1,024, each on `retain_copies` hosts
  // (1 to 16; on all, if these are fewer). The same for all members. Result returns them. With
  // kUntilReleased those that Group::Keep names are kept, up to 65,536 calls; the oldest go first.
  int retain = 0;
  int retain_copies = 2;
};

template <typename T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<float>() {
  return DType::kF32;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kF64;
}
template <>
constexpr DType DTypeOf<int8_t>() {
  return DType::kI8;
}
template <>
constexpr DType DTypeOf<uint8_t>() {
  return DType::kU8;
}
template <>
constexpr DType DTypeOf<int16_t>() {
  return DType::kI16;
}
template <>
constexpr DType DTypeOf<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType DTypeOf<uint32_t>() {
  return DType::kU32;
}
template <>
constexpr DType DTypeOf<int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType DTypeOf<uint64_t>() {
  return DType::kU64;
}

// Errors of all calls, beside those above: Unavailable (a member has ended, or the root), Aborted
// (this life of the member has ended, or some members have their parts of a result that others
// cannot get any more), ResourceExhausted (a node has no room, or a member too many calls),
// FailedPrecondition (the member has left; a child of fork).
class Group {
 public:
  explicit Group(const Membership& member, GroupOptions options = {});

  // ---- elements
  // Every member's span becomes the fold of all members' spans.
  template <typename T>
  Future<Done> AllReduce(absl::Span<T> inout, ReduceOp op = ReduceOp::kSum) const {
    return AllReduce(DTypeOf<T>(), inout.data(), inout.size() * sizeof(T), op);
  }
  // The same at the root; the spans of the other members stay as they are.
  template <typename T>
  Future<Done> Reduce(int root, absl::Span<T> inout, ReduceOp op = ReduceOp::kSum) const {
    return Reduce(root, DTypeOf<T>(), inout.data(), inout.size() * sizeof(T), op);
  }
  // `input` has a part for each rank; `output` becomes the fold of all members' parts for this
  // rank. REQUIRES: they do not overlap, here and below.
  template <typename T>
  Future<Done> ReduceScatter(absl::Span<const T> input, absl::Span<T> output,
                             ReduceOp op = ReduceOp::kSum) const {
    return ReduceScatter(DTypeOf<T>(), input.data(), input.size() * sizeof(T), output.data(),
                         output.size() * sizeof(T), op);
  }

  // ---- elements of a type that is not known when this is compiled
  Future<Done> AllReduce(DType dtype, void* inout, uint64_t bytes, ReduceOp op) const;
  Future<Done> Reduce(int root, DType dtype, void* inout, uint64_t bytes, ReduceOp op) const;
  Future<Done> ReduceScatter(DType dtype, const void* input, uint64_t input_bytes, void* output,
                             uint64_t output_bytes, ReduceOp op) const;

  // ---- bytes
  // Every member's memory becomes the root's.
  Future<Done> Broadcast(int root, void* inout, uint64_t bytes) const;
  // `output` becomes the inputs of all members in the order of ranks.
  Future<Done> AllGather(const void* input, uint64_t input_bytes, void* output,
                         uint64_t output_bytes) const;
  // Part r of `output` becomes the part of member r's input for this rank.
  Future<Done> AllToAll(const void* input, uint64_t input_bytes, void* output,
                        uint64_t output_bytes) const;
  // Ends when all members have called.
  Future<Done> Barrier() const;

  // ---- kept results
  // The result of the call with this number, which has ended: one of an earlier life of this
  // member, or of its own. Takes no number, and no part of the other members. Of AllReduce,
  // Broadcast, AllGather and Barrier (0 bytes), which have the same result for all members. Errors:
  // OutOfRange (the call has not ended: this life has to make it, or another member has), NotFound
  // (its result is not kept any more; says which are), InvalidArgument (a kind whose results are
  // not kept, or a result of another size), Aborted (the call has failed), DeadlineExceeded,
  // ResourceExhausted (1,024 results are under way).
  Future<Done> Result(uint64_t call, void* output, uint64_t bytes) const;
  template <typename T>
  Future<Done> Result(uint64_t call, absl::Span<T> output) const {
    return Result(call, output.data(), output.size() * sizeof(T));
  }

  // With kUntilReleased: the calls that follow say `keep`, until the next Keep. A node frees
  // results when a call that says so has ended there in which every member has given something: any
  // but Broadcast and Reduce. Then all members have made it. Such a call fails with InvalidArgument
  // on all members if they do not say the same, or if `released` is not below its number or is less
  // than `boot`. Without kUntilReleased it has no effect.
  void Keep(const GroupKeep& keep) const;
  // Where the group was when this life of the member entered it: the same for all lives that
  // entered together. A member in its first life, or with the others of a group without a live
  // member, gets zeros; the first one at once, any other when the nodes have agreed, also before it
  // has made a call. Errors: Aborted (this life of the member has ended), DeadlineExceeded,
  // ResourceExhausted (as for Result).
  Future<GroupProgress> Progress() const;

  // Of the calls of the group that have ended here: the number of the last one, from 1, and the
  // members that took part in it. After Progress, the calls before this life count for the number.
  // A member's next life goes on with the call after the last one that has ended.
  uint64_t calls() const;
  int members_of_last_call() const;

 private:
  Future<Done> Call(const internal::GroupArguments& arguments) const;
  Future<Done> CallWithParts(internal::GroupArguments arguments, uint64_t whole,
                             uint64_t part) const;

  std::shared_ptr<internal::GroupState> state_;
};

}  // namespace phalanx

#endif  // PHALANX_GROUP_H_
