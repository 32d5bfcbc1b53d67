#include "src/jobs/group/group_wire.h"

#include <algorithm>

#include "src/common/io/wire.h"
#include "src/common/status_macros.h"

namespace phalanx::jobs {
namespace {

void Write(ByteWriter& out, const KeepSpec& keep) {
  out.U64(keep.boot);
  out.U64(keep.released);
  out.U64(keep.mark);
}

void Write(ByteWriter& out, const NewestKeep& newest) {
  out.U64(newest.call);
  Write(out, newest.keep);
}

void Write(ByteWriter& out, const CallSpec& spec) {
  out.U8(static_cast<uint8_t>(spec.kind));
  out.U8(static_cast<uint8_t>(spec.op));
  out.U8(static_cast<uint8_t>(spec.dtype));
  out.U8(static_cast<uint8_t>(spec.on_loss));
  out.U64(spec.bytes);
  out.U32(spec.root);
  out.U32(spec.retain);
  out.U32(spec.copies);
  Write(out, spec.keep);
}

// Reads an enumerator below `count`.
template <typename Enum>
Enum ReadEnum(ByteReader& in, size_t count) {
  const uint8_t value = in.U8();
  if (value >= count) {
    in.Fail("no such enumerator");
    return Enum{};
  }
  return static_cast<Enum>(value);
}

// Reads the number of a call.
uint64_t ReadCall(ByteReader& in) {
  const uint64_t number = in.U64();
  if (number > kMaxCallNumber) in.Fail("no number of a call");
  return number;
}

KeepSpec ReadKeep(ByteReader& in) {
  KeepSpec keep;
  keep.boot = ReadCall(in);
  keep.released = ReadCall(in);
  keep.mark = in.U64();
  return keep;
}

NewestKeep ReadNewest(ByteReader& in) {
  NewestKeep newest;
  newest.call = ReadCall(in);
  newest.keep = ReadKeep(in);
  return newest;
}

CallSpec ReadSpec(ByteReader& in) {
  CallSpec spec;
  spec.kind = ReadEnum<CallKind>(in, kCallKinds);
  spec.op = ReadEnum<ReduceOp>(in, kAllReduceOps.size());
  spec.dtype = ReadEnum<DType>(in, kAllDTypes.size());
  spec.on_loss = ReadEnum<OnLoss>(in, kOnLosses);
  spec.bytes = in.U64();
  spec.root = in.U32();
  spec.retain = in.U32();
  spec.copies = in.U32();
  spec.keep = ReadKeep(in);
  // Plans multiply the size by numbers of members, which must not overflow.
  if (spec.bytes > kMaxGroupBytes) in.Fail("too many bytes in a call");
  return spec;
}

// Reads the number of entries that follow.
uint32_t ReadCount(ByteReader& in, uint64_t limit) {
  const uint32_t count = in.U32();
  // A correct node sends no more entries, so a greater count is damaged.
  if (count <= limit) return count;
  in.Fail("too many entries");
  return 0;
}

}  // namespace

std::string EncodeHeader(const GroupHeader& header) {
  std::string bytes;
  bytes.reserve(112);
  ByteWriter out(bytes);
  out.U8(static_cast<uint8_t>(header.kind));
  out.U64(header.group);
  out.U64(header.list);
  out.U64(header.epoch.incarnation);
  out.U64(header.epoch.counter);
  out.U32(header.round);
  out.U64(header.call);
  out.U64(header.settled);
  out.U32(header.index);
  Write(out, header.spec);
  return bytes;
}

absl::StatusOr<GroupHeader> DecodeHeader(absl::string_view bytes) {
  ByteReader in(bytes);
  GroupHeader header;
  header.kind = ReadEnum<GroupMessage>(in, kGroupMessages);
  header.group = in.U64();
  header.list = in.U64();
  header.epoch.incarnation = in.U64();
  header.epoch.counter = in.U64();
  header.round = in.U32();
  if (header.round > kMaxRound) in.Fail("no number of a round");
  header.call = ReadCall(in);
  header.settled = ReadCall(in);
  header.index = in.U32();
  header.spec = ReadSpec(in);
  PHALANX_RETURN_IF_ERROR(in.Finish());
  return header;
}

std::string EncodeReport(const NodeReport& report) {
  std::string bytes;
  ByteWriter out(bytes);
  out.U8(report.fresh ? 1 : 0);
  out.U64(report.ended);
  out.U64(report.first);
  out.U32(static_cast<uint32_t>(report.calls.size()));
  for (const NodeReport::Call& call : report.calls) {
    out.U64(call.number);
    out.U8(static_cast<uint8_t>(call.end));
    out.U32(call.members);
    Write(out, call.spec);
  }
  Write(out, report.newest);
  return bytes;
}

absl::StatusOr<NodeReport> DecodeReport(absl::string_view bytes) {
  ByteReader in(bytes);
  NodeReport report;
  report.fresh = in.U8() != 0;
  report.ended = ReadCall(in);
  report.first = ReadCall(in);
  const uint32_t count = ReadCount(in, kMaxKeptCalls);
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    NodeReport::Call call;
    call.number = in.U64();
    call.end = ReadEnum<CallEnd>(in, kCallEnds);
    if (call.end != CallEnd::kResult && call.end != CallEnd::kSent) in.Fail("no end of a call");
    call.members = in.U32();
    call.spec = ReadSpec(in);
    // Ascending numbers, so that no call appears twice.
    if (!report.calls.empty() && call.number <= report.calls.back().number) {
      in.Fail("calls out of order");
    }
    report.calls.push_back(call);
  }
  report.newest = ReadNewest(in);
  PHALANX_RETURN_IF_ERROR(in.Finish());
  return report;
}

std::string EncodeOrder(const ResumeOrder& order) {
  std::string bytes;
  ByteWriter out(bytes);
  out.U64(order.ended);
  out.U64(order.last);
  out.U64(order.base);
  out.U32(static_cast<uint32_t>(order.calls.size()));
  for (const ResumeOrder::Call& call : order.calls) {
    out.U8(static_cast<uint8_t>(call.fate));
    out.U32(call.holder);
    out.U32(static_cast<uint32_t>(call.takers.size()));
    for (const uint32_t taker : call.takers) out.U32(taker);
    Write(out, call.spec);
    out.U32(call.members);
    out.Bytes(absl::string_view(call.why).substr(0, kMaxErrorBytes));
  }
  for (const uint64_t first : order.firsts) out.U64(first);
  Write(out, order.newest);
  return bytes;
}

absl::StatusOr<ResumeOrder> DecodeOrder(absl::string_view bytes, uint32_t nodes) {
  ByteReader in(bytes);
  ResumeOrder order;
  order.ended = ReadCall(in);
  order.last = ReadCall(in);
  if (order.last < order.ended) in.Fail("the last call is before the first");
  order.base = ReadCall(in);
  if (order.base < order.ended || order.base > order.last) in.Fail("no such base");
  const uint32_t count = ReadCount(in, std::min(kMaxKeptCalls, order.last - order.ended));
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    ResumeOrder::Call& call = order.calls.emplace_back();
    call.fate = ReadEnum<Fate>(in, kFates);
    call.holder = in.U32();
    if (call.holder >= nodes) in.Fail("no such node");
    // A taker has 4 bytes, so the bytes that are left bound the count as well.
    const uint32_t takers = ReadCount(in, std::min<uint64_t>(nodes, in.remaining() / 4));
    for (uint32_t t = 0; t < takers && in.ok(); ++t) {
      const uint32_t taker = in.U32();
      // Ascending, as the binary search of BeginAdoption requires.
      if (taker >= nodes || (!call.takers.empty() && taker <= call.takers.back())) {
        in.Fail("no such node");
      }
      call.takers.push_back(taker);
    }
    call.spec = ReadSpec(in);
    call.members = in.U32();
    call.why = std::string(in.Bytes(kMaxErrorBytes));
  }
  for (uint32_t node = 0; node < nodes && in.ok(); ++node) order.firsts.push_back(ReadCall(in));
  order.newest = ReadNewest(in);
  PHALANX_RETURN_IF_ERROR(in.Finish());
  return order;
}

std::string EncodeMissing(const MissingRanks& missing) {
  std::string bytes;
  ByteWriter out(bytes);
  out.U32(missing.count);
  out.U32(static_cast<uint32_t>(missing.ranks.size()));
  for (const uint32_t rank : missing.ranks) out.U32(rank);
  return bytes;
}

absl::StatusOr<MissingRanks> DecodeMissing(absl::string_view bytes) {
  ByteReader in(bytes);
  MissingRanks missing;
  missing.count = in.U32();
  const uint32_t count = ReadCount(in, kMaxNamedRanks);
  for (uint32_t i = 0; i < count && in.ok(); ++i) missing.ranks.push_back(in.U32());
  PHALANX_RETURN_IF_ERROR(in.Finish());
  return missing;
}

std::string EncodeAnswer(const ResultAnswer& answer) {
  std::string bytes;
  ByteWriter out(bytes);
  out.U8(static_cast<uint8_t>(answer.kept));
  out.U32(answer.members);
  Write(out, answer.spec);
  out.U64(answer.first);
  out.U64(answer.last);
  out.Bytes(absl::string_view(answer.why).substr(0, kMaxErrorBytes));
  return bytes;
}

absl::StatusOr<ResultAnswer> DecodeAnswer(absl::string_view bytes) {
  ByteReader in(bytes);
  ResultAnswer answer;
  answer.kept = ReadEnum<Kept>(in, kKepts);
  answer.members = in.U32();
  answer.spec = ReadSpec(in);
  answer.first = ReadCall(in);
  answer.last = ReadCall(in);
  answer.why = std::string(in.Bytes(kMaxErrorBytes));
  PHALANX_RETURN_IF_ERROR(in.Finish());
  return answer;
}

std::string EncodeError(const absl::Status& why) {
  std::string bytes;
  ByteWriter out(bytes);
  out.U8(static_cast<uint8_t>(why.raw_code()));
  out.Bytes(why.message().substr(0, kMaxErrorBytes));
  return bytes;
}

absl::Status DecodeError(absl::string_view bytes, absl::Status& why) {
  ByteReader in(bytes);
  const uint8_t code = in.U8();
  const absl::string_view text = in.Bytes(kMaxErrorBytes);
  // An error with the code of OK would hide the failure of the call.
  if (code == 0 || code > 16) in.Fail("no code of an error");
  PHALANX_RETURN_IF_ERROR(in.Finish());
  why = absl::Status(static_cast<absl::StatusCode>(code), text);
  return absl::OkStatus();
}

}  // namespace phalanx::jobs
