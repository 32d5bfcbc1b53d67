// The messages between a client and the node of its host, and their encoding: frames over a Unix
// stream socket. It uses neither protobuf nor gRPC, because users link the client into their
// processes.
//
//   client                                    node
//    │── ClientHello ──────────────────────────►│
//    │◄────────────────────────── NodeHello ────│   with a refusal, the node then closes
//    │── Put Create Publish Seal Get Reduce ... ►│
//    │◄── File (+ descriptor) ──────────────────│   before the first answer that points into it
//    │◄── PutDone Granted Object Mapped ... ────│   one answer to each request with a number
//    │── Release Forget Leave ─────────────────►│
//    │── Join LeaveJob ────────────────────────►│
//    │◄── MemberUpdate Joined MemberEnded ──────│   updates before Joined and from then on
//    │── SendMessage MessageTaken ─────────────►│
//    │◄── MessageArrived ───────────────────────│
//
// A frame is a u32 length and that many bytes: a u8 kind and the fields, little-endian. The decoder
// checks lengths before it allocates. `request` is a number that the client chooses; the number is
// free again after the answer or a Cancel.
//
// Files. Large bytes do not travel: an answer names a file and an offset. The node sends each
// file's descriptor once, as SCM_RIGHTS on the first byte of its own File frame (one descriptor per
// send, so that a receiver without room for a descriptor loses only that one), and assumes from
// then on that the client has the file mapped. A client that wants to unmap sends Forget, and
// unmaps when Forgotten arrives: an answer that crossed the Forget still finds the mapping.
// Read-only and writable mappings of one file count as two files here; a reader uses either.
//
// Messages are values; views in them point into the frame that they were decoded from. Any thread.
#ifndef PHALANX_LOCAL_LOCAL_PROTOCOL_H_
#define PHALANX_LOCAL_LOCAL_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "phalanx/scope.h"
#include "src/common/elements.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/job_ids.h"
#include "src/common/ids/object_name.h"
#include "src/common/io/wire.h"
#include "src/common/reduce_spec.h"
#include "src/jobs/group/group_call.h"
#include "src/object_store/memory/shared_memory.h"

namespace phalanx::object_store::local {

inline constexpr uint32_t kMagic = 0x43584c50;  // "PLXC"
inline constexpr uint32_t kVersion = 17;
// Answers carry up to this many bytes of an object; larger ones point into a file.
inline constexpr size_t kMaxInlineAnswerBytes = 65536;
// Objects of fewer than kOwnFileBytes are written through the socket.
inline constexpr size_t kMaxFrameBytes = kOwnFileBytes + kMaxReferences * ObjectId::kSize + 8192;
inline constexpr size_t kFrameHeaderBytes = 4;
static_assert(kMaxReduceSources * ObjectId::kSize + 8192 <= kMaxFrameBytes);
static_assert(kMaxReferences <= kMaxReduceSources);
// Bytes of Puts that one client may have unanswered; the node refuses more with ResourceExhausted.
inline constexpr uint64_t kMaxPutBytesInFlight = uint64_t{32} << 20;
// Inputs and results of a group's call up to this size travel in its messages.
inline constexpr size_t kMaxInlineGroupBytes = 65536;
// Buffers of one client for larger inputs.
inline constexpr size_t kMaxGroupBuffers = 64;
inline constexpr size_t kMaxTextBytes = 1024;
inline constexpr size_t kMaxNodeNames = 256;
inline constexpr size_t kMaxNameBytes = 256;
inline constexpr size_t kMaxPinsPerFrame = 8192;
inline constexpr size_t kMaxMembersPerFrame = 512;
inline constexpr size_t kMaxHostBytes = 320;
inline constexpr uint64_t kMessageOverhead = 64;
inline constexpr uint64_t kTakenStep = 32 << 10;
// Of a message between members.
inline constexpr size_t kMaxMessageBytes = size_t{1} << 20;
static_assert(kMaxMessageBytes + kMaxJobNameBytes + 64 <= kMaxFrameBytes);
static_assert(kMaxMembersPerFrame * (kMaxJobNameBytes + 2 * kMaxHostBytes + 64) <= kMaxFrameBytes);

// Limit of a client's unanswered requests; the node refuses each request beyond it.
inline constexpr size_t kMaxRequestsUnderWay = 1 << 16;

// A span that begins when the node reads the request.
using Timeout = absl::Duration;

// ---------------------------------------------------------------------------- client to node

struct ClientHello {
  static constexpr uint8_t kKind = 1;
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
};

// The object that a Put or Create makes.
struct Description {
  ObjectId id;
  bool wait_for_adoption = false;
  uint8_t slices = 1;
  Timeout timeout = absl::InfiniteDuration();
  absl::string_view metadata;
  // The object is freed when its last hold ends. The client has sent a Hold before.
  bool owned = false;
  // At most kMaxReferences.
  std::vector<ObjectId> refers_to = {};
  // The name from which the client derived the id, if it knows one. It takes no bytes if it does
  // not.
  ObjectName name = {};
  // The object is deleted when so much time has passed since its creation. It takes no bytes if it
  // is infinite. The node refuses 0.
  absl::Duration ttl = absl::InfiniteDuration();
  // Primary copies that are wanted, each on another host, at most kMaxCopies; 0: no number is asked
  // for. It takes no bytes then. `wait_for_copies`: the answer waits for them.
  uint32_t copies = 0;
  bool wait_for_copies = false;
  // It takes no bytes if there is none.
  Scope scope = {};
};

// A whole object of fewer than kOwnFileBytes. Answered by PutDone or Failed.
struct Put {
  static constexpr uint8_t kKind = 2;
  uint64_t request = 0;
  Description object;
  absl::string_view bytes;
};

// Answered by Granted or Failed.
struct Create {
  static constexpr uint8_t kKind = 3;
  uint64_t request = 0;
  Description object;
  uint64_t size = 0;
};

// Bytes [0, upto) are final. For an object without a file of its own `bytes` are the last ones
// before `upto`; empty otherwise. Not answered: an error here is the answer to Seal.
struct Publish {
  static constexpr uint8_t kKind = 4;
  uint64_t writer = 0;
  uint64_t upto = 0;
  absl::string_view bytes;
};

// The rest of the bytes, as in Publish; the client cannot write the file any more. Answered by
// PutDone or Failed.
struct Seal {
  static constexpr uint8_t kKind = 5;
  uint64_t request = 0;
  uint64_t writer = 0;
  bool wait_for_adoption = false;
  bool wait_for_copies = false;
  absl::string_view bytes;
};

struct Abort {
  static constexpr uint8_t kKind = 6;
  uint64_t writer = 0;
};

// Answered by Object, Mapped or Failed. If `streaming`, answered as soon as the size is known, then
// by Progress until `final`; after a Void the node answers again.
struct Get {
  static constexpr uint8_t kKind = 7;
  uint64_t request = 0;
  ObjectId id;
  bool streaming = false;
  Timeout timeout = absl::InfiniteDuration();
  uint64_t offset = 0;
  uint64_t length = std::numeric_limits<uint64_t>::max();
  // The node prefers to fetch from the node that made this object; nil: from any.
  ObjectId near = {};
  // Answered by Failed with DataLoss if no copy is left.
  bool fail_when_lost = false;
  ObjectName name = {};  // as in Description
  // Answered by Failed with NotFound when this scope, in which the object is, has ended.
  Scope scope = {};
  // If `streaming`: Progress has the bytes of each slice. Slices of a ring's result arrive all at
  // once.
  bool by_slice = false;
};

// Ends a Get, Create, Broadcast, Replicate or Reduce without an answer, unless the answer was sent
// before. Other requests continue and are answered.
struct Cancel {
  static constexpr uint8_t kKind = 8;
  uint64_t request = 0;
};

// The client does not look at the pinned bytes any more. `recycle` is false if a forked child can.
struct Release {
  static constexpr uint8_t kKind = 9;
  uint64_t pin = 0;
  bool recycle = true;
};

// Answered by Counted (0) or Failed.
struct Delete {
  static constexpr uint8_t kKind = 10;
  uint64_t request = 0;
  ObjectId id;
  Timeout timeout;
};

// Answered by Described or Failed. `only_complete`: the client needs only `complete`, which the
// node can know without the directory. Without `reduced_from` the answer leaves out the sources.
struct Stat {
  static constexpr uint8_t kKind = 11;
  uint64_t request = 0;
  ObjectId id;
  bool only_complete = false;
  bool reduced_from = false;
  Timeout timeout;
  // The answer also counts how far a broadcast to these nodes has come.
  std::vector<absl::string_view> nodes = {};
};

// Answered by Forgotten. Kind 12 was Prefetch, until version 7; it is not used again.
struct Forget {
  static constexpr uint8_t kKind = 13;
  uint64_t file = 0;
  bool writable = false;
};

// The client leaves. Its requests and writers end without an answer. The client keeps these pins
// (and those of the next Leave, if there are `more`), releases them later, and then closes the
// socket. Only Release can follow.
struct Leave {
  static constexpr uint8_t kKind = 14;
  bool more = false;
  std::vector<uint64_t> pins;
};

// At most kMaxReduceSources ids. Answered by Counted (0) when the result is committed, or Failed.
struct Reduce {
  static constexpr uint8_t kKind = 15;
  uint64_t request = 0;
  ReduceTarget target;
  ReduceSpec spec;
  // The deadline of the reduction, too.
  Timeout timeout = absl::InfiniteDuration();
};

// Adds sources to an open reduction; `close`: these are the last. At most kMaxReduceSources ids.
// Answered by Counted (0) or Failed.
struct Extend {
  static constexpr uint8_t kKind = 16;
  uint64_t request = 0;
  ObjectId target;
  bool close = false;
  Timeout timeout = absl::InfiniteDuration();
  std::vector<ObjectId> sources;
};

// The object will not be put, for this reason. Answered by Counted (0) or Failed.
struct Fail {
  static constexpr uint8_t kKind = 17;
  uint64_t request = 0;
  ObjectId id;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  absl::string_view message;
  Timeout timeout = absl::InfiniteDuration();
};

// The client holds these ids until Unhold or its end; holds are counted. At most kMaxReferences
// ids; not answered. The node closes a client that holds more than the node allows.
struct Hold {
  static constexpr uint8_t kKind = 18;
  std::vector<ObjectId> ids;
};

// Ends one hold of each id.
struct Unhold {
  static constexpr uint8_t kKind = 19;
  std::vector<ObjectId> ids;
};

// A reference leaves this node in a message, under a number of the client's choice: 64 random bits.
// Not answered.
struct Transit {
  static constexpr uint8_t kKind = 20;
  ObjectId id;
  uint64_t number = 0;
};

// A Hold of a reference that came from that node under that number. Not answered.
struct Claim {
  static constexpr uint8_t kKind = 21;
  ObjectId id;
  NodeKey node;
  uint64_t number = 0;
};

// The object is not owned any more. Answered by Counted (0) or Failed.
struct Keep {
  static constexpr uint8_t kKind = 22;
  uint64_t request = 0;
  ObjectId id;
  Timeout timeout = absl::InfiniteDuration();
};

// Answered by Counted when each of the nodes has a copy, or by Failed; with `stop`, by Counted (0)
// at once.
struct Broadcast {
  static constexpr uint8_t kKind = 23;
  uint64_t request = 0;
  ObjectId id;
  bool sticky = false;
  bool stop = false;
  Timeout timeout = absl::InfiniteDuration();
  std::vector<absl::string_view> nodes;
};

// Primary copies of the object are wanted on so many different hosts, 1 to kMaxCopies. Answered by
// Counted (the hosts that have one) when they are there, or by Failed. Cancel ends the wait only.
struct Replicate {
  static constexpr uint8_t kKind = 40;
  uint64_t request = 0;
  ObjectId id;
  uint32_t copies = 1;
  Timeout timeout = absl::InfiniteDuration();
};

// All objects of the scope, and of those with its name and a smaller number, are freed. Answered by
// Counted (0) when every node that is in touch has dropped its copies, or by Failed.
struct EndScope {
  static constexpr uint8_t kKind = 41;
  uint64_t request = 0;
  Scope scope;
  Timeout timeout = absl::InfiniteDuration();
};

// A task of this client joins a job. MemberUpdates with all members and Joined answer it, or
// Failed; MemberUpdates follow under its number until LeaveJob or MemberEnded. The number names the
// member in all other requests.
struct Join {
  static constexpr uint8_t kKind = 24;
  uint64_t request = 0;
  absl::string_view job;
  absl::string_view role;
  absl::string_view task;
  uint32_t world = 0;
  bool has_rank = false;
  uint32_t rank = 0;
  Timeout timeout = absl::InfiniteDuration();
};

// The member of the Join with this number leaves its job, or the Join ends. `failed`: the others
// see that it died. Not answered.
struct LeaveJob {
  static constexpr uint8_t kKind = 25;
  uint64_t member = 0;
  bool failed = false;
};

// A message of the member of this Join to another member of its job, in its present life, or in
// `life` alone. At most kMaxMessageBytes. Answered by Counted when the message has left, or Failed.
struct SendMessage {
  static constexpr uint8_t kKind = 26;
  uint64_t request = 0;
  uint64_t member = 0;
  absl::string_view role;
  uint32_t rank = 0;
  bool has_life = false;
  uint64_t life = 0;
  Timeout timeout = absl::InfiniteDuration();
  absl::string_view bytes;
};

// The task has taken messages that arrived with these values and cost so much: the bytes of each
// and kMessageOverhead. The sender may send more. Sent in steps of kTakenStep or more. Not
// answered.
struct MessageTaken {
  static constexpr uint8_t kKind = 27;
  uint64_t member = 0;
  absl::string_view role;
  uint32_t rank = 0;
  uint64_t life = 0;
  uint64_t stream = 0;
  uint64_t cost = 0;
};

// The next call of a member with its group (docs/jobs.md). Answered by GroupDone without members
// and then Failed, if it fails with a number. Otherwise answered by GroupDone, after a Mapped
// with the result if that is larger than kMaxInlineGroupBytes, or by Failed. The input is in
// `input`, or in the buffer, into which the client may still be copying it.
struct GroupCall {
  static constexpr uint8_t kKind = 50;
  uint64_t request = 0;
  uint64_t member = 0;  // the number of its Join
  jobs::CallSpec spec;
  Timeout timeout = absl::InfiniteDuration();
  uint64_t buffer = 0;      // 0: none
  uint64_t input_size = 0;  // in the buffer
  absl::string_view input;
  // The part of the input that is in the buffer; GroupFilled follows for the others.
  uint64_t filled_from = 0;
  uint64_t filled = 0;
};

// Memory of the node into which the client writes inputs of group calls, until it sends Abort with
// this number. Answered by Granted, with a file, or Failed.
struct GroupBuffer {
  static constexpr uint8_t kKind = 51;
  uint64_t request = 0;
  uint64_t bytes = 0;
  Timeout timeout = absl::InfiniteDuration();
};

// These bytes of the input of a GroupCall are in its buffer now. Has no answer. Ignored when no
// node needs the input any more, which can be long after the call's answer.
struct GroupFilled {
  static constexpr uint8_t kKind = 52;
  uint64_t request = 0;
  uint64_t from = 0;
  uint64_t bytes = 0;
};

// The kept result of a call of the member's group that has ended. Answered like a GroupCall,
// without a GroupPart.
struct GroupResult {
  static constexpr uint8_t kKind = 53;
  uint64_t request = 0;
  uint64_t member = 0;  // the number of its Join
  uint64_t call = 0;    // its number in the group
  Timeout timeout = absl::InfiniteDuration();
};

// Where the member's group was when the member entered it. Answered by GroupProgress, or as a
// GroupCall that fails.
struct AskGroupProgress {
  static constexpr uint8_t kKind = 54;
  uint64_t request = 0;
  uint64_t member = 0;  // the number of its Join
  Timeout timeout = absl::InfiniteDuration();
};

using Request =
    std::variant<ClientHello, Put, Create, Publish, Seal, Abort, Get, Cancel, Release, Delete, Stat,
                 Forget, Leave, Reduce, Extend, Fail, Hold, Unhold, Transit, Claim, Keep, Broadcast,
                 Replicate, EndScope, Join, LeaveJob, SendMessage, MessageTaken, GroupCall,
                 GroupBuffer, GroupFilled, GroupResult, AskGroupProgress>;

// ---------------------------------------------------------------------------- node to client

// If `code` is not OK, the node refuses the client and closes the connection.
struct NodeHello {
  static constexpr uint8_t kKind = 65;
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  absl::StatusCode code = absl::StatusCode::kOk;
  absl::string_view message;
  absl::string_view node_name;
  absl::string_view directory;
  NodeKey node = {};
};

// Arrives with one descriptor. `bytes` is the length to map.
struct File {
  static constexpr uint8_t kKind = 66;
  uint64_t file = 0;
  bool writable = false;
  uint64_t bytes = 0;
};

struct Failed {
  static constexpr uint8_t kKind = 67;
  uint64_t request = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  absl::string_view message;
};

struct PutDone {
  static constexpr uint8_t kKind = 68;
  uint64_t request = 0;
  bool already_existed = false;
};

// If `has_file`, the client writes at `offset` of the writable file; otherwise Publish and Seal
// carry the bytes.
struct Granted {
  static constexpr uint8_t kKind = 69;
  uint64_t request = 0;
  uint64_t writer = 0;
  bool has_file = false;
  uint64_t file = 0;
  uint64_t offset = 0;
};

// The requested bytes, complete and final.
struct Object {
  static constexpr uint8_t kKind = 70;
  uint64_t request = 0;
  uint64_t object_size = 0;
  absl::string_view metadata;
  absl::string_view bytes;
};

// The whole object is at `offset` of the file. Its bytes [0, watermark) have arrived; if `final`,
// they will not change. The client owns `pin`.
struct Mapped {
  static constexpr uint8_t kKind = 71;
  uint64_t request = 0;
  uint64_t pin = 0;
  uint64_t file = 0;
  uint64_t offset = 0;
  uint64_t object_size = 0;
  uint64_t watermark = 0;
  bool final = false;
  absl::string_view metadata;
};

struct Progress {
  static constexpr uint8_t kKind = 72;
  uint64_t request = 0;
  uint64_t watermark = 0;
  bool final = false;
  std::vector<uint64_t> slices = {};  // with Get::by_slice: the watermark of each (SliceLayout)
};

// The bytes that the stream has read are void. The client still has to release the pin.
struct Void {
  static constexpr uint8_t kKind = 73;
  uint64_t request = 0;
  absl::string_view reason;
};

struct Described {
  static constexpr uint8_t kKind = 74;
  uint64_t request = 0;
  bool known = false;
  bool deleted = false;
  bool complete = false;
  bool local = false;
  uint64_t size = 0;
  uint32_t complete_copies = 0;
  uint32_t partial_copies = 0;
  uint32_t waiting = 0;
  uint32_t conflicts = 0;
  absl::string_view metadata;
  // The sources of a reduction's result; at most kMaxReduceSources.
  std::vector<ObjectId> reduced_from = {};
  bool owned = false;
  uint32_t holders = 0;
  bool sticky = false;
  ObjectName name = {};  // if the directory knows one
  // What is left of the time to live; infinite if there is no limit.
  absl::Duration ttl = absl::InfiniteDuration();
  // Of the nodes that the request names.
  uint32_t named = 0;
  uint32_t named_complete = 0;
  uint32_t named_without_room = 0;
  uint64_t named_bytes = 0;
  // Primary copies that are wanted, each on another host (0: no client has asked for a number of
  // them), and how many hosts have one.
  uint32_t copies_wanted = 0;
  uint32_t copies_there = 0;
};

struct Counted {
  static constexpr uint8_t kKind = 75;
  uint64_t request = 0;
  uint32_t count = 0;
};

struct Forgotten {
  static constexpr uint8_t kKind = 76;
  uint64_t file = 0;
  bool writable = false;
};

// The node closes the connection, for this reason.
struct Goodbye {
  static constexpr uint8_t kKind = 77;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  absl::string_view message;
};

struct Joined {
  static constexpr uint8_t kKind = 78;
  uint64_t request = 0;
  uint32_t rank = 0;
  uint64_t life = 0;
};

// Members of one role of the job that have changed; before Joined and after a new session of the
// node these can be all. `more`: the next MemberUpdate belongs to the same change.
struct MemberUpdate {
  static constexpr uint8_t kKind = 79;
  struct Member {
    uint32_t rank = 0;
    uint64_t life = 0;
    MemberState state = MemberState::kAbsent;
    absl::string_view task;
    absl::string_view host;
    absl::string_view node;
  };
  uint64_t request = 0;
  absl::string_view role;
  uint32_t world = 0;
  JobEpoch epoch;
  bool more = false;
  std::vector<Member> members = {};  // at most kMaxMembersPerFrame
};

// The member's life has ended although its client is alive: a newer life has joined, or the node
// was out of touch.
struct MemberEnded {
  static constexpr uint8_t kKind = 80;
  uint64_t request = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  absl::string_view message;
};

// A message for the member of this Join, after its Joined. Its sender waits for MessageTaken when
// it has sent more than a window.
struct MessageArrived {
  static constexpr uint8_t kKind = 81;
  uint64_t request = 0;
  absl::string_view role;
  uint32_t rank = 0;
  uint64_t life = 0;
  uint64_t stream = 0;
  absl::string_view bytes;
};

// These bytes of the result of a GroupCall are there, in the Mapped before. Without bytes: the
// nodes take the call again. The Mapped and its parts are void, and the client releases the pin.
struct GroupPart {
  static constexpr uint8_t kKind = 91;
  uint64_t request = 0;
  uint64_t from = 0;
  uint64_t bytes = 0;
};

// A group's call has ended with a result: `bytes`, or those of the last Mapped, or none.
struct GroupDone {
  static constexpr uint8_t kKind = 90;
  uint64_t request = 0;
  uint64_t number = 0;   // of the call in its group
  uint32_t members = 0;  // that took part
  // Buffers whose inputs no node needs any more: the client can write into them again.
  std::vector<uint64_t> free_buffers = {};
  absl::string_view bytes;
};

// Of the calls of the group that had ended when the member entered it: the last one, and what the
// newest has said about results that are kept until they are released.
struct GroupProgress {
  static constexpr uint8_t kKind = 92;
  uint64_t request = 0;
  uint64_t ended = 0;
  jobs::KeepSpec keep;
};

using Answer = std::variant<NodeHello, File, Failed, PutDone, Granted, Object, Mapped, Progress,
                            Void, Described, Counted, Forgotten, Goodbye, Joined, MemberUpdate,
                            MemberEnded, MessageArrived, GroupDone, GroupPart, GroupProgress>;

// ---------------------------------------------------------------------------- encoding

// Appends one frame to `out`. Cuts texts longer than kMaxTextBytes. REQUIRES: the message is within
// the limits above.
void Encode(const Request& request, std::string& out);
void Encode(const Answer& answer, std::string& out);
// Appends the frame of a Put without its last part, the bytes, which the caller sends after it.
void EncodeAllButBytes(const Put& put, std::string& out);
// The same for a message that has arrived.
void EncodeAllButBytes(const MessageArrived& message, std::string& out);

// Decodes the payload of one frame. Fails with InvalidArgument, naming the kind of message and the
// field's place.
absl::StatusOr<Request> DecodeRequest(absl::string_view payload);
absl::StatusOr<Answer> DecodeAnswer(absl::string_view payload);

// Cuts the bytes from a socket into frames. Owned by the reader of the socket; one thread at a
// time.
class FrameBuffer {
 public:
  // What a buffer keeps when it is empty: room for an inline object with its metadata, so that the
  // next one takes one read and no new memory.
  static constexpr size_t kKeptBytes = kMaxInlineAnswerBytes + 8 * 1024;
  // A buffer that grew beyond `kept_bytes` for one large frame shrinks when it is empty again.
  explicit FrameBuffer(size_t kept_bytes = kKeptBytes) : kept_bytes_(kept_bytes) {}

  // Returns where to read the next bytes into: never empty. Invalidates the payloads from Next.
  absl::Span<char> Space();
  // `bytes` bytes were read into Space.
  void Filled(size_t bytes);
  // Returns the payload of the next complete frame, or nothing. Fails with InvalidArgument, for
  // good, if a length is zero or exceeds kMaxFrameBytes.
  absl::StatusOr<std::optional<absl::string_view>> Next();

 private:
  size_t buffered() const { return end_ - begin_; }

  const size_t kept_bytes_;
  std::string bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace phalanx::object_store::local

#endif  // PHALANX_LOCAL_LOCAL_PROTOCOL_H_
