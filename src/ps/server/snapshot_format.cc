#include "src/ps/server/snapshot_format.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/io/wire.h"
#include "src/common/status_macros.h"
#include "src/ps/ps_wire.h"

namespace phalanx::ps::internal {
namespace {

// An object of another program under this name is refused by its first bytes.
constexpr absl::string_view kMagic = "PHPS";

// Keys are written in full: the lists of a channel do not outlive it.
void WriteKept(ByteWriter& out, const Snapshot::KeptPush& kept) {
  out.U32(static_cast<uint32_t>(kept.worker));
  WritePosition(out, kept.at);
  out.U32(static_cast<uint32_t>(kept.keys->size()));
  out.Raw({reinterpret_cast<const char*>(kept.keys->data()), kept.keys->size() * sizeof(Key)});
  out.Bytes(kept.values);
}

// Views into the snapshot where that is possible; keys are copied, because they can be unaligned.
Snapshot::KeptPush ReadKept(ByteReader& in) {
  Snapshot::KeptPush kept;
  const uint32_t worker = in.U32();
  if (worker > static_cast<uint32_t>(std::numeric_limits<int>::max())) in.Fail("worker");
  kept.worker = static_cast<int>(worker);
  kept.at = ReadPosition(in);
  // In 64 bits, which do not wrap; Raw fails if there are not so many bytes, before any memory is
  // taken.
  const absl::string_view raw = in.Raw(uint64_t{in.U32()} * sizeof(Key));
  std::vector<Key> keys(raw.size() / sizeof(Key));
  if (!raw.empty()) std::memcpy(keys.data(), raw.data(), raw.size());
  if (std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<Key>()) != keys.end()) {
    in.Fail("keys that do not increase");
  }
  kept.keys = std::make_shared<const std::vector<Key>>(std::move(keys));
  kept.values = in.Bytes(std::numeric_limits<uint32_t>::max());
  return kept;
}

// A version is looked at before all that it says how to read.
void ReadHead(ByteReader& in, Snapshot& snapshot) {
  if (in.Raw(kMagic.size()) != kMagic) in.Fail("no snapshot of a part of a table");
  const uint8_t version = in.U8();
  if (in.ok() && version != kSnapshotVersion) {
    in.Fail(absl::StrCat("version ", static_cast<int>(version), ", expected ",
                         static_cast<int>(kSnapshotVersion)));
  }
  snapshot.number = in.U64();
  const uint32_t rank = in.U32();
  const uint32_t servers = in.U32();
  if (servers > static_cast<uint32_t>(kMaxServers) || rank >= servers) {
    in.Fail(absl::StrCat("rank ", rank, " of ", servers, " servers"));
  }
  snapshot.rank = static_cast<int>(rank);
  snapshot.servers = static_cast<int>(servers);
  if (in.ok()) snapshot.spec = ReadSpec(in);
}

}  // namespace

// The rows come last, behind everything by which the snapshot can be refused.
std::string Encode(const Snapshot& snapshot) {
  PHALANX_CHECK(snapshot.positions.size() == snapshot.clocks.size(), "a position of each worker");
  std::string bytes;
  ByteWriter out(bytes);
  out.Raw(kMagic);
  out.U8(kSnapshotVersion);
  out.U64(snapshot.number);
  out.U32(static_cast<uint32_t>(snapshot.rank));
  out.U32(static_cast<uint32_t>(snapshot.servers));
  WriteSpec(out, snapshot.spec);
  out.U64(snapshot.min);
  out.U32(static_cast<uint32_t>(snapshot.clocks.size()));
  for (size_t i = 0; i < snapshot.clocks.size(); ++i) {
    out.U64(snapshot.clocks[i].clock);
    out.U8(snapshot.clocks[i].counted ? 1 : 0);
    WritePosition(out, snapshot.positions[i]);
  }
  out.U64(snapshot.kept.size());
  for (const Snapshot::KeptPush& kept : snapshot.kept) WriteKept(out, kept);
  // The only field that can be greater than 4 GiB.
  out.U64(snapshot.part.size());
  out.Raw(snapshot.part);
  return bytes;
}

// Checks the form alone. Whether the clocks and pushes fit each other is checked by those that load
// them.
absl::StatusOr<Snapshot> DecodeSnapshot(absl::string_view bytes) {
  ByteReader in(bytes);
  Snapshot snapshot;
  ReadHead(in, snapshot);
  snapshot.min = in.U64();
  const uint32_t workers = in.U32();
  for (uint32_t i = 0; i < workers && in.ok(); ++i) {
    Clocks::Worker worker;
    worker.clock = in.U64();
    const uint8_t counted = in.U8();
    if (counted > 1) in.Fail("whether a worker is counted");
    worker.counted = counted == 1;
    snapshot.clocks.push_back(worker);
    snapshot.positions.push_back(ReadPosition(in));
  }
  // Counts are not trusted: the loop ends with the bytes.
  const uint64_t kept = in.U64();
  for (uint64_t i = 0; i < kept && in.ok(); ++i) snapshot.kept.push_back(ReadKept(in));
  snapshot.part = in.Raw(in.U64());
  PHALANX_RETURN_IF_ERROR(in.Finish());
  return snapshot;
}

}  // namespace phalanx::ps::internal
