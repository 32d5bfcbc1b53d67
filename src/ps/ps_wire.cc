#include "src/ps/ps_wire.h"

#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"

namespace phalanx::ps::internal {
namespace {

// The first byte behind the version.
enum class MessageKind : uint8_t {
  // Numbers travel: one that is given up is not used again.
  kHello = 1,
  kWorkerBatch = 2,
  kWelcome = 3,
  kServerBatch = 4,
  kReset = 5,
};

// Version, kind and channel; a worker's batch has a number, too.
constexpr size_t kServerBatchHead = 2 + sizeof(uint64_t);
constexpr size_t kWorkerBatchHead = kServerBatchHead + sizeof(uint64_t);

// The first byte of an entry.
enum class EntryKind : uint8_t {
  kPush = 1,
  kClockEnd = 2,
  kPull = 3,
  kRequest = 4,
  kAskSnapshot = 5,
  kPushObject = 6,
  kPullObject = 7,
  kRead = 8,
  // From 16 on those of servers, so that a message in the wrong direction is seen as such.
  kDone = 16,
  kValues = 17,
  kRefused = 18,
  kResponse = 19,
  kDurable = 20,
  kMinClock = 21,
  kTableFailed = 22,
  kValuesObject = 23,
};

// As bits, so that every number, also a NaN, comes back as it was.
void WriteDouble(ByteWriter& out, double value) { out.U64(std::bit_cast<uint64_t>(value)); }
double ReadDouble(ByteReader& in) { return std::bit_cast<double>(in.U64()); }

// Enums that are numbered from 0.
template <typename Enum>
Enum ReadEnum(ByteReader& in, Enum last, absl::string_view what) {
  const uint8_t number = in.U8();
  if (number > static_cast<uint8_t>(last)) {
    in.Fail(absl::StrCat("unknown ", what, " ", static_cast<int>(number)));
    return Enum{};
  }
  return static_cast<Enum>(number);
}

// As many as there are: the views that are read need no memory.
absl::string_view ReadBytes(ByteReader& in) {
  return in.Bytes(std::numeric_limits<uint32_t>::max());
}

// An entry with the name of an object has a kind of its own: one without a name would be another
// form of an entry without an object.
absl::string_view ReadHandle(ByteReader& in) {
  const absl::string_view handle = in.Bytes(kMaxHandleBytes);
  if (in.ok() && handle.empty()) in.Fail("an object without a name");
  return handle;
}

void WriteHandle(ByteWriter& out, absl::string_view handle) {
  PHALANX_CHECK(handle.size() <= kMaxHandleBytes, "the name of an object");
  out.Bytes(handle);
}

// The form is the first byte; a list is as long as it says, a run and a hash have a fixed size.
void WriteKeys(ByteWriter& out, const WireKeys& keys) {
  out.U8(static_cast<uint8_t>(keys.form));
  switch (keys.form) {
    case WireKeys::Form::kList:
      PHALANX_CHECK(keys.keys.size() <= std::numeric_limits<uint32_t>::max(), "keys of an entry");
      out.U32(static_cast<uint32_t>(keys.keys.size()));
      out.Raw({reinterpret_cast<const char*>(keys.keys.data()), keys.keys.size() * sizeof(Key)});
      return;
    case WireKeys::Form::kRun:
      out.U64(keys.begin);
      out.U64(keys.count);
      return;
    case WireKeys::Form::kHash:
      out.U64(keys.hash.high);
      out.U64(keys.hash.low);
      return;
  }
}

bool ReadBool(ByteReader& in, absl::string_view what) {
  const uint8_t value = in.U8();
  if (in.ok() && value > 1) in.Fail(absl::StrCat(what, " ", static_cast<int>(value)));
  return value == 1;
}

// A run stays two numbers here, however long it is: FromWire expands it, and knows how many keys
// the values have room for.
WireKeys ReadKeys(ByteReader& in) {
  WireKeys keys;
  keys.form = ReadEnum(in, WireKeys::Form::kHash, "form of keys");
  switch (keys.form) {
    case WireKeys::Form::kList: {
      // In 64 bits: the product of a forged count cannot wrap. Raw fails if so many bytes are not
      // there, before any memory is taken.
      const uint64_t bytes = uint64_t{in.U32()} * sizeof(Key);
      const absl::string_view raw = in.Raw(bytes);
      if (raw.empty()) break;
      keys.keys.resize(raw.size() / sizeof(Key));
      std::memcpy(keys.keys.data(), raw.data(), raw.size());
      break;
    }
    case WireKeys::Form::kRun:
      keys.begin = in.U64();
      keys.count = in.U64();
      break;
    case WireKeys::Form::kHash:
      keys.hash.high = in.U64();
      keys.hash.low = in.U64();
      break;
  }
  return keys;
}

// A long text is cut: an error must fit into a batch.
void WriteStatus(ByteWriter& out, const absl::Status& status) {
  PHALANX_CHECK(!status.ok(), "an error");
  out.U8(static_cast<uint8_t>(status.code()));
  // An error of a program's own function can have any length.
  out.Bytes(status.message().substr(0, kMaxErrorBytes));
}

absl::Status ReadStatus(ByteReader& in) {
  const uint8_t code = in.U8();
  // OK is no error either: a refusal with it would end a call as if it had been done.
  if (code < static_cast<uint8_t>(absl::StatusCode::kCancelled) ||
      code > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated)) {
    in.Fail(absl::StrCat("unknown code ", static_cast<int>(code), " of an error"));
  }
  const absl::string_view text = in.Bytes(kMaxErrorBytes);
  // The reader's error is reported by Finish; an OK here is never used.
  if (!in.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(code), text};
}

// ---- entries: one KindOf, Write and Fill for each

EntryKind KindOf(const Push& push) {
  return push.object.empty() ? EntryKind::kPush : EntryKind::kPushObject;
}
void Write(ByteWriter& out, const Push& push) {
  out.U64(push.ticket);
  out.U32(push.table);
  WritePosition(out, push.at);
  if (!push.object.empty()) return WriteHandle(out, push.object);
  WriteKeys(out, push.keys);
  out.Bytes(push.values);
}
void Fill(ByteReader& in, EntryKind kind, Push& push) {
  push.ticket = in.U64();
  push.table = in.U32();
  push.at = ReadPosition(in);
  if (kind == EntryKind::kPushObject) {
    push.object = ReadHandle(in);
    return;
  }
  push.keys = ReadKeys(in);
  push.values = ReadBytes(in);
}

EntryKind KindOf(const ClockEnd&) { return EntryKind::kClockEnd; }
void Write(ByteWriter& out, const ClockEnd& end) {
  out.U32(end.table);
  out.U64(end.clock);
}
void Fill(ByteReader& in, ClockEnd& end) {
  end.table = in.U32();
  end.clock = in.U64();
}

EntryKind KindOf(const Pull& pull) {
  return pull.object ? EntryKind::kPullObject : EntryKind::kPull;
}
void Write(ByteWriter& out, const Pull& pull) {
  out.U64(pull.ticket);
  out.U32(pull.piece);
  out.U32(pull.table);
  out.U64(pull.clock);
  if (!pull.object) WriteKeys(out, pull.keys);
}
void Fill(ByteReader& in, EntryKind kind, Pull& pull) {
  pull.ticket = in.U64();
  pull.piece = in.U32();
  pull.table = in.U32();
  pull.clock = in.U64();
  pull.object = kind == EntryKind::kPullObject;
  if (!pull.object) pull.keys = ReadKeys(in);
}

EntryKind KindOf(const Request&) { return EntryKind::kRequest; }
void Write(ByteWriter& out, const Request& request) {
  out.U64(request.ticket);
  out.U32(static_cast<uint32_t>(request.head));
  out.Bytes(request.body);
}
void Fill(ByteReader& in, Request& request) {
  request.ticket = in.U64();
  request.head = static_cast<int32_t>(in.U32());
  request.body = ReadBytes(in);
}

EntryKind KindOf(const AskSnapshot&) { return EntryKind::kAskSnapshot; }
void Write(ByteWriter& out, const AskSnapshot& ask) { out.U32(ask.table); }
void Fill(ByteReader& in, AskSnapshot& ask) { ask.table = in.U32(); }

EntryKind KindOf(const Read&) { return EntryKind::kRead; }
void Write(ByteWriter& out, const Read& read) {
  out.U32(read.table);
  out.U64(read.ticket);
  out.U32(read.piece);
  out.U8(read.lost ? 1 : 0);
}
void Fill(ByteReader& in, Read& read) {
  read.table = in.U32();
  read.ticket = in.U64();
  read.piece = in.U32();
  read.lost = ReadBool(in, "lost");
}

EntryKind KindOf(const Done&) { return EntryKind::kDone; }
void Write(ByteWriter& out, const Done& done) { out.U64(done.count); }
void Fill(ByteReader& in, Done& done) { done.count = in.U64(); }

EntryKind KindOf(const Values& values) {
  return values.object.empty() ? EntryKind::kValues : EntryKind::kValuesObject;
}
void Write(ByteWriter& out, const Values& values) {
  out.U64(values.ticket);
  out.U32(values.piece);
  out.U64(values.min_clock);
  if (!values.object.empty()) return WriteHandle(out, values.object);
  out.Bytes(values.values);
}
void Fill(ByteReader& in, EntryKind kind, Values& values) {
  values.ticket = in.U64();
  values.piece = in.U32();
  values.min_clock = in.U64();
  if (kind == EntryKind::kValuesObject) {
    values.object = ReadHandle(in);
  } else {
    values.values = ReadBytes(in);
  }
}

EntryKind KindOf(const Refused&) { return EntryKind::kRefused; }
void Write(ByteWriter& out, const Refused& refused) {
  out.U64(refused.ticket);
  WriteStatus(out, refused.why);
}
void Fill(ByteReader& in, Refused& refused) {
  refused.ticket = in.U64();
  refused.why = ReadStatus(in);
}

EntryKind KindOf(const Response&) { return EntryKind::kResponse; }
void Write(ByteWriter& out, const Response& response) {
  out.U64(response.ticket);
  out.U32(static_cast<uint32_t>(response.head));
  out.Bytes(response.body);
}
void Fill(ByteReader& in, Response& response) {
  response.ticket = in.U64();
  response.head = static_cast<int32_t>(in.U32());
  response.body = ReadBytes(in);
}

EntryKind KindOf(const Durable&) { return EntryKind::kDurable; }
void Write(ByteWriter& out, const Durable& durable) {
  out.U32(durable.table);
  WritePosition(out, durable.upto);
  out.U64(durable.keep);
}
void Fill(ByteReader& in, Durable& durable) {
  durable.table = in.U32();
  durable.upto = ReadPosition(in);
  durable.keep = in.U64();
}

EntryKind KindOf(const MinClock&) { return EntryKind::kMinClock; }
void Write(ByteWriter& out, const MinClock& min) {
  out.U32(min.table);
  out.U64(min.clock);
}
void Fill(ByteReader& in, MinClock& min) {
  min.table = in.U32();
  min.clock = in.U64();
}

EntryKind KindOf(const TableFailed&) { return EntryKind::kTableFailed; }
void Write(ByteWriter& out, const TableFailed& failed) {
  out.U32(failed.table);
  WriteStatus(out, failed.why);
}
void Fill(ByteReader& in, TableFailed& failed) {
  failed.table = in.U32();
  failed.why = ReadStatus(in);
}

// Most entries have one kind, some have two, and are filled by it.
template <typename Entry>
bool HasKind(EntryKind kind, const Entry& entry) {
  return kind == KindOf(entry);
}
bool HasKind(EntryKind kind, const Push&) {
  return kind == EntryKind::kPush || kind == EntryKind::kPushObject;
}
bool HasKind(EntryKind kind, const Pull&) {
  return kind == EntryKind::kPull || kind == EntryKind::kPullObject;
}
bool HasKind(EntryKind kind, const Values&) {
  return kind == EntryKind::kValues || kind == EntryKind::kValuesObject;
}
template <typename Entry>
void Fill(ByteReader& in, EntryKind, Entry& entry) {
  Fill(in, entry);
}

// ---- batches

template <typename Variant>
void WriteEntry(ByteWriter& out, const Variant& entry) {
  std::visit(
      [&out](const auto& one) {
        out.U8(static_cast<uint8_t>(KindOf(one)));
        Write(out, one);
      },
      entry);
}

// Reads the alternative of the variant that has this kind.
template <typename Variant, size_t kIndex = 0>
Variant ReadEntry(ByteReader& in, uint8_t kind) {
  if constexpr (kIndex == std::variant_size_v<Variant>) {
    in.Fail(absl::StrCat("unknown kind ", static_cast<int>(kind), " of an entry"));
    return {};
  } else {
    std::variant_alternative_t<kIndex, Variant> entry;
    if (!HasKind(static_cast<EntryKind>(kind), entry)) {
      return ReadEntry<Variant, kIndex + 1>(in, kind);
    }
    Fill(in, static_cast<EntryKind>(kind), entry);
    return entry;
  }
}

// All messages begin so, except Reset, which is of no channel.
void WriteHead(ByteWriter& out, MessageKind kind, uint64_t channel) {
  out.U8(kWireVersion);
  out.U8(static_cast<uint8_t>(kind));
  out.U64(channel);
}

void WriteHeadOf(ByteWriter& out, const WorkerBatch& batch) {
  WriteHead(out, MessageKind::kWorkerBatch, batch.channel);
  out.U64(batch.number);
}
void WriteHeadOf(ByteWriter& out, const ServerBatch& batch) {
  WriteHead(out, MessageKind::kServerBatch, batch.channel);
}

void ReadHeadOf(ByteReader& in, WorkerBatch& batch) {
  batch.channel = in.U64();
  batch.number = in.U64();
}
void ReadHeadOf(ByteReader& in, ServerBatch& batch) { batch.channel = in.U64(); }

template <typename Batch>
std::string EncodeBatch(const Batch& batch) {
  std::string bytes;
  ByteWriter out(bytes);
  WriteHeadOf(out, batch);
  for (const auto& entry : batch.entries) WriteEntry(out, entry);
  return bytes;
}

// Entries have no count in front: a batch is written before it is known how many there are.
template <typename Batch>
Batch ReadBatch(ByteReader& in) {
  using Entry = typename decltype(Batch::entries)::value_type;
  static_assert(3 * sizeof(Entry) / 5 <= kDecodedPerByte,
                "an entry has at least 5 bytes, and a vector that grows needs 3 times its size");
  Batch batch;
  ReadHeadOf(in, batch);
  while (in.ok() && in.remaining() > 0) batch.entries.push_back(ReadEntry<Entry>(in, in.U8()));
  return batch;
}

// The number of tables is bounded before anything is kept.
Welcome ReadWelcome(ByteReader& in) {
  Welcome welcome;
  welcome.channel = in.U64();
  const uint32_t tables = in.U32();
  if (tables > kMaxTables) in.Fail(absl::StrCat(tables, " tables are more than ", kMaxTables));
  for (uint32_t i = 0; i < tables && in.ok(); ++i) {
    Welcome::Table table;
    table.spec = ReadSpec(in);
    table.at = ReadPosition(in);
    table.durable = ReadPosition(in);
    table.min_clock = in.U64();
    table.clock = in.U64();
    table.repeats = ReadBool(in, "repeats");
    welcome.tables.push_back(std::move(table));
  }
  return welcome;
}

Hello ReadHello(ByteReader& in) {
  Hello hello;
  hello.channel = in.U64();
  const uint32_t tables = in.U32();
  if (tables > kMaxTables) in.Fail(absl::StrCat(tables, " tables are more than ", kMaxTables));
  for (uint32_t i = 0; i < tables && in.ok(); ++i) hello.had.push_back(ReadPosition(in));
  return hello;
}

// A kind that is none is refused by the caller, which knows which ones it takes.
MessageKind ReadKind(ByteReader& in) {
  const uint8_t version = in.U8();
  if (in.ok() && version != kWireVersion) {
    in.Fail(absl::StrCat("version ", static_cast<int>(version), ", expected ",
                         static_cast<int>(kWireVersion)));
  }
  return static_cast<MessageKind>(in.U8());
}

void FailKind(ByteReader& in, MessageKind kind) {
  in.Fail(absl::StrCat("unknown kind ", static_cast<int>(kind), " of message"));
}

}  // namespace

// Also in snapshots: their format changes with this.
void WritePosition(ByteWriter& out, const Position& at) {
  out.U64(at.clock);
  out.U32(at.push);
  out.U32(at.piece);
}

Position ReadPosition(ByteReader& in) {
  Position at;
  at.clock = in.U64();
  at.push = in.U32();
  at.piece = in.U32();
  return at;
}

// Snapshots have it as well: a new field needs a new kWireVersion and a new kSnapshotVersion.
void WriteSpec(ByteWriter& out, const TableSpec& spec) {
  out.Bytes(spec.name);
  out.U64(spec.keys);
  out.U32(spec.width);
  out.U8(spec.lengths ? 1 : 0);
  out.U8(static_cast<uint8_t>(spec.dtype));
  out.U8(static_cast<uint8_t>(spec.wire));
  out.U8(static_cast<uint8_t>(spec.sync));
  out.U32(spec.staleness);
  out.U8(static_cast<uint8_t>(spec.split));
  out.U64(spec.block);
  out.U8(static_cast<uint8_t>(spec.update));
  for (const double value :
       {spec.rate, spec.momentum, spec.epsilon, spec.beta, spec.l1, spec.l2, spec.scale}) {
    WriteDouble(out, value);
  }
  out.U8(static_cast<uint8_t>(spec.init));
  out.U64(spec.seed);
  out.U8(static_cast<uint8_t>(spec.on_loss));
  out.U32(spec.snapshot_every);
  out.U32(spec.copies);
  out.U64(spec.snapshot_bytes);
}

// What Check refuses could not have been added to a server, and other code relies on that.
TableSpec ReadSpec(ByteReader& in) {
  TableSpec spec;
  const absl::string_view name = in.Bytes(kMaxTableNameSize);
  spec.name.assign(name.data(), name.size());
  spec.keys = in.U64();
  spec.width = in.U32();
  spec.lengths = ReadBool(in, "lengths");
  spec.dtype = ReadEnum(in, DType::kU64, "dtype");
  spec.wire = ReadEnum(in, DType::kU64, "dtype");
  spec.sync = ReadEnum(in, Sync::kAsp, "consistency");
  spec.staleness = in.U32();
  spec.split = ReadEnum(in, Split::kOwn, "split");
  spec.block = in.U64();
  spec.update = ReadEnum(in, Update::kOwn, "update");
  for (double* value :
       {&spec.rate, &spec.momentum, &spec.epsilon, &spec.beta, &spec.l1, &spec.l2, &spec.scale}) {
    *value = ReadDouble(in);
  }
  spec.init = ReadEnum(in, Init::kNormal, "init");
  spec.seed = in.U64();
  spec.on_loss = ReadEnum(in, OnLoss::kFail, "action on a loss");
  spec.snapshot_every = in.U32();
  spec.copies = in.U32();
  spec.snapshot_bytes = in.U64();
  if (in.ok()) {
    // Code behind this counts on a valid spec: it divides by its sizes.
    const absl::Status valid = Check(spec);
    if (!valid.ok()) in.Fail(valid.message());
  }
  return spec;
}

std::string Encode(const WorkerMessage& message) {
  if (const auto* batch = std::get_if<WorkerBatch>(&message)) {
    return EncodeBatch(*batch);
  }
  std::string bytes;
  ByteWriter out(bytes);
  const auto& hello = std::get<Hello>(message);
  PHALANX_CHECK(hello.had.size() <= kMaxTables, "tables of a server");
  WriteHead(out, MessageKind::kHello, hello.channel);
  out.U32(static_cast<uint32_t>(hello.had.size()));
  for (const Position& at : hello.had) WritePosition(out, at);
  return bytes;
}

std::string Encode(const ServerMessage& message) {
  if (const auto* batch = std::get_if<ServerBatch>(&message)) {
    return EncodeBatch(*batch);
  }
  std::string bytes;
  ByteWriter out(bytes);
  if (std::holds_alternative<Reset>(message)) {
    out.U8(kWireVersion);
    out.U8(static_cast<uint8_t>(MessageKind::kReset));
    return bytes;
  }
  const auto& welcome = std::get<Welcome>(message);
  PHALANX_CHECK(welcome.tables.size() <= kMaxTables, "tables of a server");
  WriteHead(out, MessageKind::kWelcome, welcome.channel);
  out.U32(static_cast<uint32_t>(welcome.tables.size()));
  for (const Welcome::Table& table : welcome.tables) {
    WriteSpec(out, table.spec);
    WritePosition(out, table.at);
    WritePosition(out, table.durable);
    out.U64(table.min_clock);
    out.U64(table.clock);
    out.U8(table.repeats ? 1 : 0);
  }
  return bytes;
}

absl::StatusOr<WorkerMessage> DecodeWorkerMessage(absl::string_view bytes) {
  ByteReader in(bytes);
  const MessageKind kind = ReadKind(in);
  WorkerMessage message;
  if (kind == MessageKind::kHello) {
    message = ReadHello(in);
  } else if (kind == MessageKind::kWorkerBatch) {
    message = ReadBatch<WorkerBatch>(in);
  } else {
    FailKind(in, kind);
  }
  PHALANX_RETURN_IF_ERROR(in.Finish());
  return message;
}

absl::StatusOr<ServerMessage> DecodeServerMessage(absl::string_view bytes) {
  ByteReader in(bytes);
  const MessageKind kind = ReadKind(in);
  ServerMessage message;
  if (kind == MessageKind::kWelcome) {
    message = ReadWelcome(in);
  } else if (kind == MessageKind::kServerBatch) {
    message = ReadBatch<ServerBatch>(in);
  } else if (kind == MessageKind::kReset) {
    message = Reset{};
  } else {
    FailKind(in, kind);
  }
  PHALANX_RETURN_IF_ERROR(in.Finish());
  return message;
}

// Entries are encoded when they are added: the batch's size is known, and their views need not live
// on.
void BatchWriter::Begin(size_t head_bytes) {
  // Room for the head, which Take fills in.
  if (bytes_.empty()) bytes_.resize(head_bytes);
}

void BatchWriter::Add(const WorkerEntry& entry) {
  Begin(kWorkerBatchHead);
  ByteWriter out(bytes_);
  WriteEntry(out, entry);
}

void BatchWriter::Add(const ServerEntry& entry) {
  Begin(kServerBatchHead);
  ByteWriter out(bytes_);
  WriteEntry(out, entry);
}

// Also without entries: that is a question.
std::string BatchWriter::TakeWorkerBatch(uint64_t channel, uint64_t number) {
  Begin(kWorkerBatchHead);
  return Take(Encode(WorkerBatch{.channel = channel, .number = number}));
}

std::string BatchWriter::TakeServerBatch(uint64_t channel) {
  PHALANX_CHECK(!bytes_.empty(), "a batch has entries");
  return Take(Encode(ServerBatch{.channel = channel}));
}

std::string BatchWriter::Take(const std::string& head) {
  // The head was left free, and the entries behind it stay where they are.
  std::memcpy(bytes_.data(), head.data(), head.size());
  return std::exchange(bytes_, std::string());
}

// The shortest of three forms: 16 bytes for a run, or for a list that the receiver has; else all
// keys.
WireKeys ToWire(uint32_t table, absl::Span<const Key> keys, KeyLists& lists) {
  WireKeys wire;
  // Strictly increasing keys are consecutive exactly if their ends are as far apart as that.
  if (!keys.empty() && keys.back() - keys.front() == keys.size() - 1) {
    wire.form = WireKeys::Form::kRun;
    wire.begin = keys.front();
    wire.count = keys.size();
    return wire;
  }
  // A hash of 16 bytes in place of a few keys would not pay for the look-up at both ends.
  if (keys.size() < kMinListedKeys) {
    wire.keys.assign(keys.begin(), keys.end());
    return wire;
  }
  const KeyHash hash = HashOf(table, keys);
  if (lists.Find(hash) != nullptr) {
    wire.form = WireKeys::Form::kHash;
    wire.hash = hash;
    return wire;
  }
  wire.keys.assign(keys.begin(), keys.end());
  lists.Add(hash, std::make_shared<const std::vector<Key>>(wire.keys));
  return wire;
}

namespace {

// Names the first key that is wrong, and its neighbour.
absl::Status CheckIncreasing(absl::Span<const Key> keys) {
  for (size_t i = 1; i < keys.size(); ++i) {
    if (keys[i - 1] < keys[i]) continue;
    return absl::InvalidArgumentError(keys[i - 1] == keys[i]
                                          ? absl::StrCat("key ", keys[i], " is there twice")
                                          : absl::StrCat("key ", keys[i], " stands behind key ",
                                                         keys[i - 1], ": keys have to increase"));
  }
  return absl::OkStatus();
}

// The receiver has bounded the count by then: a run of 2^60 keys takes 17 bytes to send.
absl::StatusOr<KeyList> ExpandRun(Key begin, uint64_t count) {
  if (count == 0) return absl::InvalidArgumentError("a run of no keys");
  if (count - 1 > std::numeric_limits<Key>::max() - begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("a run of ", count, " keys from ", begin, " is beyond the greatest key"));
  }
  std::vector<Key> keys(count);
  for (uint64_t i = 0; i < count; ++i) keys[i] = begin + i;
  return std::make_shared<const std::vector<Key>>(std::move(keys));
}

}  // namespace

// The lists change exactly as those of the sender did, also if the entry is refused afterwards.
absl::StatusOr<KeyList> FromWire(uint32_t table, WireKeys keys, uint64_t most, KeyLists& lists) {
  KeyList list;
  switch (keys.form) {
    case WireKeys::Form::kRun:
      break;
    case WireKeys::Form::kHash:
      list = lists.Find(keys.hash);
      if (list == nullptr) return absl::InvalidArgumentError("a list of keys that is not there");
      break;
    case WireKeys::Form::kList:
      list = std::make_shared<const std::vector<Key>>(std::move(keys.keys));
      // A list that is kept increases: its hash can come without another check.
      PHALANX_RETURN_IF_ERROR(CheckIncreasing(*list));
      // Before the other check, as the sender has added it.
      if (list->size() >= kMinListedKeys) {
        const KeyHash hash = HashOf(table, *list);
        if (lists.Find(hash) == nullptr) lists.Add(hash, list);
      }
      break;
  }
  // Before a run is expanded: its count is any number of the sender's.
  const uint64_t count = list == nullptr ? keys.count : list->size();
  if (count > most) {
    return absl::InvalidArgumentError(absl::StrCat(count, " keys, at most ", most, " expected"));
  }
  if (list == nullptr) return ExpandRun(keys.begin, keys.count);
  return list;
}

}  // namespace phalanx::ps::internal
