// The messages between the nodes of a group, over links (src/net/link). Each has a GroupHeader;
// most have a payload. Payloads of kData are elements.
//
//   node a                                              node b
//     │── kReady, before large bytes come ─────────────────►│
//     │◄───────────────────────── kData kData kData ────────│     a call
//     │── kError: the call fails on all nodes ─────────────►│
//
//   node a                                              coordinator (node of the least live rank)
//     │── kReport: the calls that have ended here ─────────►│     a new list of members
//     │◄── kReportRequest, to nodes that have not ──────────│
//     │◄── kResume: which calls end how, which run again ───│
//
//     │── kStuck: ranks that have not called here ─────────►│     a call that takes long
//     │◄── kMissing: the ranks for which all wait ──────────│
//
//   node a, whose members leave                         each other node
//     │── kAskEnded: has this call ended there? ───────────►│
//     │◄── kHasEnded, once it has ──────────────────────────│
//
//   node a, whose member misses a result                each other node
//     │── kAskResult: is the result of this call kept? ────►│
//     │◄── kHasResult, once the call has ended there ───────│
//     │── kFetchResult: piece `index` ─────────────────────►│     a node that keeps it
//     │◄── kResultBytes, empty if it is not kept any more ──│
//
//   node a, which the job's shard does not confirm      each other node
//     │── kAskVouch: this call has ended here. There? ─────►│
//     │◄── kVouch: the calls that have, under this list ────│
//
// All numbers are little-endian. A message names the list of members that its sender knows, by a
// digest, so that bytes of two lists never mix; the epoch orders the lists. When a link is lost,
// its nodes do not know what the other has of their calls. So they begin the next round of the same
// list, with kReport, and bytes of two rounds never mix, either.
//
// Values and pure functions; any thread. The decoders are for untrusted bytes.
#ifndef PHALANX_JOBS_GROUP_GROUP_WIRE_H_
#define PHALANX_JOBS_GROUP_GROUP_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/jobs/group/group_call.h"
#include "src/jobs/members/group_view.h"

namespace phalanx::jobs {

enum class GroupMessage : uint8_t {
  kData,
  kReady,
  kError,
  kReport,
  kReportRequest,
  kResume,
  kStuck,
  kMissing,
  kAskEnded,
  kHasEnded,
  kAskResult,
  kHasResult,
  kFetchResult,
  kResultBytes,
  kAskVouch,
  kVouch,
};
inline constexpr uint8_t kGroupMessages = 16;

// Ranks that a message or an error text names; more are counted.
inline constexpr size_t kMaxNamedRanks = 16;
// Calls of which a node keeps inputs and results: kAcknowledgeEvery bounds how far nodes are apart.
inline constexpr uint64_t kMaxKeptCalls = 64;
inline constexpr size_t kMaxErrorBytes = 1024;
// The greatest number of a call in a message: sums with it do not overflow.
inline constexpr uint64_t kMaxCallNumber = uint64_t{1} << 62;
inline constexpr uint32_t kMaxRound = uint32_t{1} << 31;

struct GroupHeader {
  GroupMessage kind = GroupMessage::kData;
  uint64_t group = 0;  // a hash of the names of the job and the role
  uint64_t list = 0;   // digest of the members
  JobEpoch epoch = {};
  // Of the agreement on this list: a lost link makes the next one necessary.
  uint32_t round = 0;
  uint64_t call = 0;     // the number of the call in the group; 0 if the message is about none
  uint64_t settled = 0;  // the calls up to this one have ended on all nodes
  // kData: the number of the message in its call and pair of nodes. kFetchResult, kResultBytes: of
  // a piece of the result.
  uint32_t index = 0;
  CallSpec spec = {};  // of the call
};

// How a call has ended on a node.
enum class CallEnd : uint8_t {
  kNone,    // it has not
  kResult,  // with the result that it should have here
  kSent,    // without a result, because only others get one
  kError,   // in no report
};
inline constexpr uint8_t kCallEnds = 4;

// What the newest call has said about results that are kept until they are released.
struct NewestKeep {
  uint64_t call = 0;  // 0: none has
  KeepSpec keep;

  void Take(uint64_t number, const CallSpec& spec) {
    if (spec.retain == kUntilReleased && number > call) *this = {number, spec.keep};
  }
};

// What a node says about its calls when the list of members has changed.
struct NodeReport {
  // No member of the node has taken part before, and none is in its first life: such a member takes
  // part from the first call on. The rest is empty then.
  bool fresh = true;
  // The calls up to this one have ended here; those before `first` without this node.
  uint64_t ended = 0;
  uint64_t first = 0;
  struct Call {
    uint64_t number = 0;
    CallEnd end = CallEnd::kNone;
    uint32_t members = 0;  // that took part
    CallSpec spec;
  };
  // Of these, the calls that have not failed and may not be settled, ascending; at most
  // kMaxKeptCalls.
  std::vector<Call> calls;
  // Of those before, and of earlier orders.
  NewestKeep newest;
};

// What becomes of one call after a change of the list.
enum class Fate : uint8_t {
  kRun,    // all nodes take part, also those on which it has ended
  kAdopt,  // `holder` gives its result to the nodes `takers`
  kEnd,    // it ends without a result on the nodes on which it has not ended
  kFail,   // it fails there
};
inline constexpr uint8_t kFates = 4;

struct ResumeOrder {
  // The calls after this one have a fate, or are new.
  uint64_t ended = 0;
  // The last call that has ended on any node. Calls up to it without an entry below fail.
  uint64_t last = 0;
  // The first call of a member that was not in the group before is the one after this.
  uint64_t base = 0;
  struct Call {
    Fate fate = Fate::kRun;
    uint32_t holder = 0;
    std::vector<uint32_t> takers;  // ascending
    CallSpec spec;                 // of kAdopt and kEnd
    uint32_t members = 0;          // that took part
    std::string why;               // of kFail
  };
  // Of the calls from ended + 1 on; at most kMaxKeptCalls.
  std::vector<Call> calls;
  // By node, the first call in which it takes part.
  std::vector<uint64_t> firsts;
  // Of the calls up to base + 1 that have ended on any node.
  NewestKeep newest;
};

// What a node knows of the result of a call that has ended there.
enum class Kept : uint8_t {
  kUnknown,    // the call is too old, or ended before a member of this node took part
  kHere,       // its bytes are here, or it has none
  kElsewhere,  // other nodes keep it
  kParts,      // it was not the same for all members, so it is not kept
  kFailed,     // the call failed
  kDropped,    // it was here, and is not any more for lack of room
};
inline constexpr uint8_t kKepts = 6;

struct ResultAnswer {
  Kept kept = Kept::kUnknown;
  uint32_t members = 0;  // that took part
  CallSpec spec = {};    // of kHere, kElsewhere, kParts and kDropped
  std::string why = {};  // of kFailed
  // The calls of which the node knows more than kUnknown are from one to the other.
  uint64_t first = 0;
  uint64_t last = 0;
};

// Members for which a call waits.
struct MissingRanks {
  std::vector<uint32_t> ranks;  // at most kMaxNamedRanks
  uint32_t count = 0;
};

std::string EncodeHeader(const GroupHeader& header);
std::string EncodeReport(const NodeReport& report);
std::string EncodeOrder(const ResumeOrder& order);
std::string EncodeMissing(const MissingRanks& missing);
std::string EncodeAnswer(const ResultAnswer& answer);
// Cuts the text to kMaxErrorBytes.
std::string EncodeError(const absl::Status& why);

// InvalidArgument with the place of the first bad field.
absl::StatusOr<GroupHeader> DecodeHeader(absl::string_view bytes);
absl::StatusOr<NodeReport> DecodeReport(absl::string_view bytes);
absl::StatusOr<ResumeOrder> DecodeOrder(absl::string_view bytes, uint32_t nodes);
absl::StatusOr<MissingRanks> DecodeMissing(absl::string_view bytes);
absl::StatusOr<ResultAnswer> DecodeAnswer(absl::string_view bytes);
// Returns the error in `why`.
absl::Status DecodeError(absl::string_view bytes, absl::Status& why);

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_GROUP_WIRE_H_
