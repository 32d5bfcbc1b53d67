#include "src/client/ps/barriers/barrier_wire.h"

#include "src/common/io/wire.h"

namespace phalanx::ps::internal {
namespace {

// Messages of tables begin with kWireVersion, those of disks with a small number.
constexpr uint8_t kBarrierByte = 0xB0;

// The second byte.
enum class Kind : uint8_t { kArrival = 1, kVerdict = 2 };

std::string Begin(Kind kind, BarrierGroup group) {
  std::string bytes;
  ByteWriter out(bytes);
  out.U8(kBarrierByte);
  out.U8(static_cast<uint8_t>(kind));
  out.U8(static_cast<uint8_t>(group));
  return bytes;
}

// Fails the reader unless the message is of this kind.
BarrierGroup ReadHead(ByteReader& in, Kind kind) {
  if (in.U8() != kBarrierByte) in.Fail("no message of barriers");
  if (in.U8() != static_cast<uint8_t>(kind)) in.Fail("another kind of message");
  const uint8_t group = in.U8();
  if (group >= kBarrierGroups) in.Fail("no such group");
  return in.ok() ? static_cast<BarrierGroup>(group) : BarrierGroup::kWorkers;
}

}  // namespace

bool IsBarrierMessage(absl::string_view bytes) {
  return !bytes.empty() && static_cast<uint8_t>(bytes[0]) == kBarrierByte;
}

std::string Encode(const Arrival& arrival) {
  std::string bytes = Begin(Kind::kArrival, arrival.group);
  ByteWriter out(bytes);
  out.U64(arrival.arrived);
  out.U64(arrival.ended);
  out.U32(arrival.world);
  return bytes;
}

// One text: an error names the task that is its cause, else it names those for which the task
// waits.
std::string Encode(const Verdict& verdict) {
  std::string bytes = Begin(Kind::kVerdict, verdict.group);
  ByteWriter out(bytes);
  out.U64(verdict.ended);
  out.U8(static_cast<uint8_t>(verdict.why.code()));
  const absl::string_view text = verdict.why.ok() ? verdict.missing : verdict.why.message();
  out.Bytes(text.substr(0, kMaxBarrierText));
  return bytes;
}

// Any stage is right, also one that is less than an earlier one: messages of a channel that was
// lost can be missing, so the keeper takes the greatest that it has heard of.
std::optional<Arrival> DecodeArrival(absl::string_view bytes) {
  ByteReader in(bytes);
  Arrival arrival;
  arrival.group = ReadHead(in, Kind::kArrival);
  arrival.arrived = in.U64();
  arrival.ended = in.U64();
  arrival.world = in.U32();
  if (!in.Finish().ok()) return std::nullopt;
  return arrival;
}

// A code that this library does not know would be one that no caller can distinguish from others.
std::optional<Verdict> DecodeVerdict(absl::string_view bytes) {
  ByteReader in(bytes);
  Verdict verdict;
  verdict.group = ReadHead(in, Kind::kVerdict);
  verdict.ended = in.U64();
  const uint8_t code = in.U8();
  if (code > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated)) in.Fail("no such code");
  const absl::string_view text = in.Bytes(kMaxBarrierText);
  if (!in.Finish().ok()) return std::nullopt;
  if (code == 0) {
    verdict.missing = std::string(text);
  } else {
    verdict.why = absl::Status(static_cast<absl::StatusCode>(code), text);
  }
  return verdict;
}

}  // namespace phalanx::ps::internal
