// The messages between a client and the node of its host, and their encoding: frames over a Unix
// stream socket. Neither protobuf nor gRPC: clients are linked into processes of users.
//
//   client                                    node
//    │── ClientHello ──────────────────────────►│
//    │◄────────────────────────── NodeHello ────│   or a refusal in it, and the end
//    │── Put Create Publish Seal Get Reduce ... ►│
//    │◄── File (+ descriptor) ──────────────────│   before the first answer that points into it
//    │◄── PutDone Granted Object Mapped ... ────│   one answer to each request with a number
//    │── Release Forget Leave ─────────────────►│
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
// Messages are values; views in them point into the frame they were decoded from. Any thread.
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
#include "src/common/elements.h"
#include "src/common/ids/ids.h"
#include "src/common/io/wire.h"
#include "src/common/reduce_spec.h"
#include "src/object_store/memory/shared_memory.h"

namespace phalanx::object_store::local {

inline constexpr uint32_t kMagic = 0x43584c50;  // "PLXC"
inline constexpr uint32_t kVersion = 7;
// Answers of at most so many bytes carry them; larger ones point into a file.
inline constexpr size_t kMaxInlineAnswerBytes = 65536;
// Objects of fewer than kOwnFileBytes are written through the socket.
inline constexpr size_t kMaxFrameBytes = kOwnFileBytes + kMaxReferences * ObjectId::kSize + 8192;
inline constexpr size_t kFrameHeaderBytes = 4;
static_assert(kMaxReduceSources * ObjectId::kSize + 8192 <= kMaxFrameBytes);
static_assert(kMaxReferences <= kMaxReduceSources);
// Bytes of Puts that one client may have unanswered; the node refuses more with ResourceExhausted.
inline constexpr uint64_t kMaxPutBytesInFlight = uint64_t{32} << 20;
inline constexpr size_t kMaxTextBytes = 1024;
inline constexpr size_t kMaxNodeNames = 256;
inline constexpr size_t kMaxNameBytes = 256;
inline constexpr size_t kMaxPinsPerFrame = 8192;

// A client has no more requests unanswered; with more it is refused one after the other.
inline constexpr size_t kMaxRequestsUnderWay = 1 << 16;

// How long, from the moment the node reads the request.
using Timeout = absl::Duration;

// ---------------------------------------------------------------------------- client to node

struct ClientHello {
  static constexpr uint8_t kKind = 1;
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
};

// What Put and Create say of the object.
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
// before `upto`; empty otherwise. Not answered: what fails here fails Seal.
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
  absl::string_view bytes;
};

struct Abort {
  static constexpr uint8_t kKind = 6;
  uint64_t writer = 0;
};

// Answered by Object, Mapped or Failed. Streaming: answered as soon as the size is known, then
// Progress until `final`; after a Void the answer comes again.
struct Get {
  static constexpr uint8_t kKind = 7;
  uint64_t request = 0;
  ObjectId id;
  bool streaming = false;
  Timeout timeout = absl::InfiniteDuration();
  uint64_t offset = 0;
  uint64_t length = std::numeric_limits<uint64_t>::max();
  // Best had from the node that made this one; nil: from any.
  ObjectId near = {};
  // Failed, with DataLoss, when no copy is left.
  bool fail_when_lost = false;
};

// Get, Create, Broadcast and Reduce end unanswered, unless the answer is on its way; other requests
// go on and are answered.
struct Cancel {
  static constexpr uint8_t kKind = 8;
  uint64_t request = 0;
};

// The client does not look at the pinned bytes any more. `recycle` false: a forked child may.
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

// Answered by Described or Failed. `only_complete`: the asker wants `complete` alone, which the
// node may know by itself. Without `reduced_from` that is left out of the answer.
struct Stat {
  static constexpr uint8_t kKind = 11;
  uint64_t request = 0;
  ObjectId id;
  bool only_complete = false;
  bool reduced_from = false;
  Timeout timeout;
  // How far a broadcast to these nodes has come is asked, too.
  std::vector<absl::string_view> nodes = {};
};

// Answered by Counted or Failed.
struct Prefetch {
  static constexpr uint8_t kKind = 12;
  uint64_t request = 0;
  ObjectId id;
  Timeout timeout;
  std::vector<absl::string_view> nodes;
};

// Answered by Forgotten.
struct Forget {
  static constexpr uint8_t kKind = 13;
  uint64_t file = 0;
  bool writable = false;
};

// The client goes. All its requests and writers end unanswered; it keeps these pins (and those of
// the next Leave, while there are `more`) and releases them later, after which it closes the
// socket. Nothing but Release may follow.
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
  // Of the reduction as well.
  Timeout timeout = absl::InfiniteDuration();
};

// More sources for an open reduction; `close`: the last ones. At most kMaxReduceSources ids.
// Answered by Counted (0) or Failed.
struct Extend {
  static constexpr uint8_t kKind = 16;
  uint64_t request = 0;
  ObjectId target;
  bool close = false;
  Timeout timeout = absl::InfiniteDuration();
  std::vector<ObjectId> sources;
};

// Who was to put the object cannot, because. Answered by Counted (0) or Failed.
struct Fail {
  static constexpr uint8_t kKind = 17;
  uint64_t request = 0;
  ObjectId id;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  absl::string_view message;
  Timeout timeout = absl::InfiniteDuration();
};

// The client holds these ids, each as often as it says so, until Unhold or its end. At most
// kMaxReferences ids; not answered. Who holds more than a node allows is closed.
struct Hold {
  static constexpr uint8_t kKind = 18;
  std::vector<ObjectId> ids;
};

// Ends one hold of each of them.
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

// Answered by Counted, when each of the nodes has a copy, or Failed; `stop`: at once, 0.
struct Broadcast {
  static constexpr uint8_t kKind = 23;
  uint64_t request = 0;
  ObjectId id;
  bool sticky = false;
  bool stop = false;
  Timeout timeout = absl::InfiniteDuration();
  std::vector<absl::string_view> nodes;
};

using Request = std::variant<ClientHello, Put, Create, Publish, Seal, Abort, Get, Cancel, Release,
                             Delete, Stat, Prefetch, Forget, Leave, Reduce, Extend, Fail, Hold,
                             Unhold, Transit, Claim, Keep, Broadcast>;

// ---------------------------------------------------------------------------- node to client

// `code` other than OK: refused; the node closes.
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

// Comes with one descriptor. `bytes`: the length to map.
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

// `has_file`: write at `offset` of the writable file; otherwise bytes go with Publish and Seal.
struct Granted {
  static constexpr uint8_t kKind = 69;
  uint64_t request = 0;
  uint64_t writer = 0;
  bool has_file = false;
  uint64_t file = 0;
  uint64_t offset = 0;
};

// The bytes asked for, complete and final.
struct Object {
  static constexpr uint8_t kKind = 70;
  uint64_t request = 0;
  uint64_t object_size = 0;
  absl::string_view metadata;
  absl::string_view bytes;
};

// The whole object is at `offset` of the file; bytes [0, watermark) of it are there, and if `final`
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
};

// What the stream has read is to be forgotten; its pin is still to be released.
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
  // The sources that went in, for the result of a reduction; at most kMaxReduceSources.
  std::vector<ObjectId> reduced_from = {};
  bool owned = false;
  uint32_t holders = 0;
  bool sticky = false;
  // Of the nodes that were named.
  uint32_t named = 0;
  uint32_t named_complete = 0;
  uint32_t named_without_room = 0;
  uint64_t named_bytes = 0;
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

// The node closes the connection, because.
struct Goodbye {
  static constexpr uint8_t kKind = 77;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  absl::string_view message;
};

using Answer = std::variant<NodeHello, File, Failed, PutDone, Granted, Object, Mapped, Progress,
                            Void, Described, Counted, Forgotten, Goodbye>;

// ---------------------------------------------------------------------------- encoding

// Append one frame to `out`. Texts longer than kMaxTextBytes are cut. REQUIRES: the message keeps
// within the limits above.
void Encode(const Request& request, std::string& out);
void Encode(const Answer& answer, std::string& out);
// The frame of a Put but for its last part, the bytes themselves, which the caller sends after it.
void EncodeAllButBytes(const Put& put, std::string& out);

// The payload of one frame. InvalidArgument names the kind of message and the field's place.
absl::StatusOr<Request> DecodeRequest(absl::string_view payload);
absl::StatusOr<Answer> DecodeAnswer(absl::string_view payload);

// Cuts the bytes from a socket into frames. Owned by whoever reads the socket; one thread at a
// time.
class FrameBuffer {
 public:
  // Where to read the next bytes into: never empty. Invalidates the payloads handed out.
  absl::Span<char> Space();
  // So many bytes were read into it.
  void Filled(size_t bytes);
  // The next whole frame's payload, or nothing; InvalidArgument, for good, when a length is zero or
  // over kMaxFrameBytes.
  absl::StatusOr<std::optional<absl::string_view>> Next();

 private:
  size_t buffered() const { return end_ - begin_; }

  std::string bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace phalanx::object_store::local

#endif  // PHALANX_LOCAL_LOCAL_PROTOCOL_H_
