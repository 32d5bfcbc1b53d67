// The messages between workers and servers, as they travel in messages of the job (phalanx/job.h):
// in order, once, from one life to another, unless a link between nodes is lost.
//
//   worker                                     server
//     │── Hello(channel) ────────────────────────►│   a life of a worker and a life of a server
//     │◄── Welcome(channel, tables, positions) ───│   have met, or the link was lost
//     │── Batch: Push, Push, Clock, Pull, ... ───►│
//     │◄── Batch: Done, Values, ... ──────────────│
//     │◄── Reset ─────────────────────────────────│   messages to the worker were lost: it says
//     │                                           │   Hello again, with the next channel
//
// Numbers are little-endian. Decoding trusts no input: it returns InvalidArgument with the cause,
// and allocates no more than a fixed multiple (kDecodedPerByte) of the message's bytes. Views point
// into the message.
//
// Values and pure functions; any thread.
#ifndef PHALANX_PS_PS_WIRE_H_
#define PHALANX_PS_PS_WIRE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/ps_table.h"
#include "src/common/io/wire.h"
#include "src/ps/key_lists.h"
#include "src/ps/sync_core.h"

namespace phalanx::ps::internal {

inline constexpr uint8_t kWireVersion = 2;
// A batch is sent when it has so many bytes. The values of a push, and of the answer of a pull, are
// cut at rows so that they have at most so many bytes, or are one row. An entry with one is then
// not greater than kMaxEntryBytes, and a batch with one more entry not greater than a message.
inline constexpr size_t kBatchBytes = size_t{128} << 10;
inline constexpr size_t kMaxEntryBytes = (size_t{512} << 10) + 1024;
// Of a request or a response: an entry with one fits into a message behind a batch, too.
inline constexpr size_t kMaxBodyBytes = size_t{480} << 10;
// Of a server.
inline constexpr uint32_t kMaxTables = 1024;
// The text of an error that travels; the rest of a longer one is left out.
inline constexpr size_t kMaxErrorBytes = 1024;
// A message of n bytes has at most so many times n bytes when it is decoded.
inline constexpr size_t kDecodedPerByte = 96;
// The name of an object (a handle).
inline constexpr size_t kMaxHandleBytes = 255;

// Keys of an entry: as they are, as a run of consecutive ones, or a list of this channel.
struct WireKeys {
  enum class Form : uint8_t { kList = 0, kRun = 1, kHash = 2 };
  Form form = Form::kList;
  std::vector<Key> keys = {};  // kList, strictly increasing
  Key begin = 0;               // kRun
  uint64_t count = 0;          // kRun
  KeyHash hash = {};           // kHash; with kList, the receiver computes it itself
  friend bool operator==(const WireKeys&, const WireKeys&) = default;
};

// ---- worker to server
struct Push {
  uint64_t ticket = 0;  // 0: nothing waits for it; several pieces of a push can have the same one
  uint32_t table = 0;
  // Pushes of a clock have numbers from 1, so that {clock, 0, 0} is before all of them. A mark has
  // the number kAllPushes, no key and no value.
  Position at = {};
  WireKeys keys = {};
  // Rows of the table's wire type; with TableSpec::lengths as src/ps/rows/length_values.h says.
  absl::string_view values = {};
  // Not empty: the object of this name has the values of all keys of the receiver's part, in their
  // order. There are neither `keys` nor `values` then. At most kMaxHandleBytes.
  absl::string_view object = {};
  friend bool operator==(const Push&, const Push&) = default;
};
struct ClockEnd {
  uint32_t table = 0;
  uint64_t clock = 0;
  friend bool operator==(const ClockEnd&, const ClockEnd&) = default;
};
struct Pull {
  uint64_t ticket = 0;
  uint32_t piece = 0;  // the worker's number of this part of the pull
  uint32_t table = 0;
  uint64_t clock = 0;
  WireKeys keys = {};
  // All keys of the receiver's part, without `keys`: the answer names an object.
  bool object = false;
  friend bool operator==(const Pull&, const Pull&) = default;
};
struct Request {
  uint64_t ticket = 0;
  int32_t head = 0;
  absl::string_view body;
  friend bool operator==(const Request&, const Request&) = default;
};
// The worker keeps more than it may: a snapshot is to be made out of turn.
struct AskSnapshot {
  uint32_t table = 0;
  friend bool operator==(const AskSnapshot&, const AskSnapshot&) = default;
};
// The worker has read, or given up, the object with which this pull was answered: the server may
// free it. Not counted by Done.
struct Read {
  uint32_t table = 0;
  uint64_t ticket = 0;
  uint32_t piece = 0;
  // The object was not there: the server makes another one for the next pull.
  bool lost = false;
  friend bool operator==(const Read&, const Read&) = default;
};
using WorkerEntry = std::variant<Push, ClockEnd, Pull, Request, AskSnapshot, Read>;

struct Hello {
  uint64_t channel = 0;
  // By table: the last push that the worker keeps and that this server, or an earlier life of it,
  // has had; {} if there is none, or the worker sends nothing of the table again. Tables behind the
  // last one have none.
  std::vector<Position> had = {};
  friend bool operator==(const Hello&, const Hello&) = default;
};
struct WorkerBatch {
  uint64_t channel = 0;
  // Of the batches of the channel, from 0. One that is not the next one shows the server that
  // messages were lost, before the worker sees it: the server answers with Reset, and ignores the
  // channel from then on.
  uint64_t number = 0;
  // None: a question whether anything was lost, which the server answers with Done.
  std::vector<WorkerEntry> entries = {};
  friend bool operator==(const WorkerBatch&, const WorkerBatch&) = default;
};
using WorkerMessage = std::variant<Hello, WorkerBatch>;

// ---- server to worker
// The server has taken so many of the pushes and clock ends that were sent on this channel: the
// first ones, of all tables, in the order in which they were sent. Refused ones count, too; Refused
// of a push comes before the Done that counts it.
struct Done {
  uint64_t count = 0;
  friend bool operator==(const Done&, const Done&) = default;
};
// With TableSpec::lengths a pull can be answered by several of these on its channel, each with the
// next rows in the order of its keys.
struct Values {
  uint64_t ticket = 0;
  uint32_t piece = 0;
  uint64_t min_clock = 0;
  absl::string_view values = {};  // as Push::values
  // Of a pull by object: the name of the object that has the values of all keys of the part, in
  // their order, without `values`. It is there until the worker says Read. At most kMaxHandleBytes.
  absl::string_view object = {};
  friend bool operator==(const Values&, const Values&) = default;
};
// Of one push, pull or request. A push without a ticket is refused with TableFailed.
struct Refused {
  uint64_t ticket = 0;
  absl::Status why;
  friend bool operator==(const Refused&, const Refused&) = default;
};
struct Response {
  uint64_t ticket = 0;
  int32_t head = 0;
  absl::string_view body;
  friend bool operator==(const Response&, const Response&) = default;
};
// Pushes of this worker up to this position, and the ends of clocks before upto.clock, are in a
// snapshot that has its copies.
struct Durable {
  uint32_t table = 0;
  Position upto = {};
  // With snapshot_bytes 0: how many bytes of pushes the worker may keep for this server.
  uint64_t keep = 0;
  friend bool operator==(const Durable&, const Durable&) = default;
};
struct MinClock {
  uint32_t table = 0;
  uint64_t clock = 0;
  friend bool operator==(const MinClock&, const MinClock&) = default;
};
// All calls for the table end with this.
struct TableFailed {
  uint32_t table = 0;
  absl::Status why;
  friend bool operator==(const TableFailed&, const TableFailed&) = default;
};
using ServerEntry = std::variant<Done, Values, Refused, Response, Durable, MinClock, TableFailed>;

struct Welcome {
  uint64_t channel = 0;
  struct Table {
    TableSpec spec = {};
    // SyncCore::PositionOf this worker.
    Position at = {};
    // As Durable says; {0, 0, 0} without a snapshot.
    Position durable = {};
    uint64_t min_clock = 0;
    // The worker's clock in the table.
    uint64_t clock = 0;
    // The server has objects of the worker behind `at` that it has not summed: the next life is to
    // make these pushes, and all behind them, again.
    bool repeats = false;
    friend bool operator==(const Table&, const Table&) = default;
  };
  std::vector<Table> tables = {};  // their numbers are their places here
  friend bool operator==(const Welcome&, const Welcome&) = default;
};
struct ServerBatch {
  uint64_t channel = 0;
  std::vector<ServerEntry> entries = {};
  friend bool operator==(const ServerBatch&, const ServerBatch&) = default;
};
struct Reset {
  friend bool operator==(const Reset&, const Reset&) = default;
};
using ServerMessage = std::variant<Welcome, ServerBatch, Reset>;

// A spec within another message, or a file. ReadSpec fails the reader unless Check(spec) is OK.
void WriteSpec(ByteWriter& out, const TableSpec& spec);
TableSpec ReadSpec(ByteReader& in);
void WritePosition(ByteWriter& out, const Position& at);
Position ReadPosition(ByteReader& in);

std::string Encode(const WorkerMessage& message);
std::string Encode(const ServerMessage& message);
absl::StatusOr<WorkerMessage> DecodeWorkerMessage(absl::string_view bytes);
absl::StatusOr<ServerMessage> DecodeServerMessage(absl::string_view bytes);

// Builds a batch entry by entry, without a copy of the entry in between: the same bytes as Encode
// makes of the whole batch.
class BatchWriter {
 public:
  void Add(const WorkerEntry& entry);
  void Add(const ServerEntry& entry);
  bool empty() const { return bytes_.empty(); }
  // Of the message so far.
  size_t size() const { return bytes_.size(); }
  // The message, for this channel. The writer is empty again.
  std::string TakeWorkerBatch(uint64_t channel, uint64_t number);
  // REQUIRES: not empty().
  std::string TakeServerBatch(uint64_t channel);

 private:
  void Begin(size_t head_bytes);
  std::string Take(const std::string& head);

  std::string bytes_;
};

// The wire form of keys at the sender: a run if they are consecutive, else a hash if the channel's
// lists have them, else the list itself, which is added to the lists if it is long enough. The
// entry is sent, behind all those of earlier calls: the receiver's lists follow these.
// REQUIRES: keys are strictly increasing.
WireKeys ToWire(uint32_t table, absl::Span<const Key> keys, KeyLists& lists);
// The keys at the receiver, which calls this for each entry that has keys, in their order, also for
// one that it refuses for another reason. InvalidArgument: keys that do not increase, a run beyond
// kMaxKey, more keys than `most`, or a hash that is not there.
absl::StatusOr<KeyList> FromWire(uint32_t table, WireKeys keys, uint64_t most, KeyLists& lists);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_PS_WIRE_H_
