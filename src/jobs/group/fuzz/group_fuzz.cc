// Bytes from other nodes of a group. The first byte chooses a decoder, whose result is encoded
// again and must decode to the same; or a core, in a call with two other nodes, that receives
// messages: the coordinator, or a node whose only member is new to the group; or the kept results
// of a node, whose member has asked for two of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/jobs/group/group_core.h"
#include "src/jobs/group/group_wire.h"
#include "src/jobs/group/results/group_results.h"
#include "src/jobs/group/testing/group_parts.h"

namespace {

using namespace phalanx::jobs;  // NOLINT(google-build-using-namespace)
using phalanx::Instant;
using phalanx::NodeKey;

constexpr uint32_t kNodes = 3;

template <typename Decode, typename Encode>
void Check(absl::string_view bytes, Decode decode, Encode encode) {
  const auto message = decode(bytes);
  if (!message.ok()) return;
  const std::string once = encode(*message);
  const auto again = decode(once);
  if (!again.ok() || encode(*again) != once) std::abort();
}

// Each message: the sender, the kind, the call, an index, the size of the payload, the payload.
void Feed(absl::string_view bytes, bool fresh) {
  const int rank = fresh ? 1 : 0;
  const uint64_t life = fresh ? 1 : 0;
  GroupView view = LiveView(kNodes);
  view.members[static_cast<size_t>(rank)].life = life;
  const NodeKey self = view.members[static_cast<size_t>(rank)].node;
  const GroupList list = MakeGroupList(view, self);
  GroupCore core(self, 7, "job/role");
  core.AddMember(rank, life);
  (void)core.OnView(view, Instant());
  CallSpec spec{.kind = CallKind::kAllReduce, .bytes = 1024};
  const std::string input(1024, 'x');
  (void)core.Call(rank, life, {.id = 1, .spec = spec, .input = input}, Instant());
  (void)core.TakeEffects();
  while (bytes.size() >= 5) {
    GroupHeader header;
    header.kind = static_cast<GroupMessage>(static_cast<uint8_t>(bytes[1]) % kGroupMessages);
    header.group = 7;
    header.list = bytes[0] & 4 ? list.digest : 1;
    header.epoch = {1, static_cast<uint64_t>(bytes[0] & 3)};
    header.round = static_cast<uint8_t>(bytes[0]) >> 4 & 1;
    header.call = static_cast<uint8_t>(bytes[2]) % 4;
    header.index = static_cast<uint8_t>(bytes[3]) % 4;
    if (!(bytes[0] & 8)) header.spec = spec;
    const bool third = bytes[0] & 1;
    const NodeKey from{third ? 3u : fresh ? 1u : 2u, 1};
    const size_t size =
        static_cast<uint8_t>(bytes[4]) * (header.kind == GroupMessage::kData ? 4 : 1);
    bytes.remove_prefix(5);
    const std::string payload(bytes.substr(0, size));
    bytes.remove_prefix(payload.size());
    (void)core.PlaceFor(from, header, payload.size());
    core.OnMessage(from, header, payload, Instant());
    (void)core.TakeEffects();
  }
  core.Tick(Instant::Infinite());
}

// A little memory is granted, so that large results in answers take nothing.
void Grant(GroupResults& results, const GroupAllocate& asked) {
  constexpr uint64_t kMost = 3 * kResultPieceBytes;
  if (asked.work_bytes > kMost) {
    return results.OnMemory(asked.ticket, absl::ResourceExhaustedError("no room"));
  }
  results.OnMemory(asked.ticket, NewMemory(asked.work_bytes));
}

// Each message: the sender, the kind, the call, an index, the size of the payload, the payload. The
// memory that is asked for comes after it, or after the next one.
void FeedResults(absl::string_view bytes) {
  GroupResults results({1, 1}, 7, "job/role", std::make_shared<KeptBytes>());
  results.OnList(ListOf(LiveView(kNodes), {1, 1}));
  results.OnEntered({0, 0, 4});
  const std::string result(3 * kResultPieceBytes, 'x');
  const CallSpec spec{
      .kind = CallKind::kBroadcast, .bytes = result.size(), .retain = 4, .copies = 2};
  const auto keep = std::make_shared<int>();
  results.OnEnded({.number = 3, .spec = spec, .holds = true, .result = result, .input = keep});
  for (const uint64_t call : {1, 2}) (void)results.Ask({call, 0, 0, call});
  const GroupStatus status{.next = 4, .ended = 3, .running = true};
  results.Advance(status);
  std::vector<GroupAllocate> asked;
  while (bytes.size() >= 5) {
    const bool late = bytes[0] & 8;
    constexpr auto kFirst = static_cast<uint8_t>(GroupMessage::kAskResult);
    constexpr auto kLast = static_cast<uint8_t>(GroupMessage::kResultBytes);
    const auto kind = kFirst + static_cast<uint8_t>(bytes[1]) % (kLast - kFirst + 1);
    const GroupHeader header{.kind = static_cast<GroupMessage>(kind),
                             .group = 7,
                             .epoch = {1, static_cast<uint64_t>(bytes[0] & 3)},
                             .call = static_cast<uint8_t>(bytes[2]) % uint64_t{5},
                             .index = static_cast<uint8_t>(bytes[3]) % uint32_t{5}};
    const NodeKey from{bytes[0] & 4 ? 3u : 2u, 1};
    const bool piece = header.kind == GroupMessage::kResultBytes;
    const size_t size = static_cast<uint8_t>(bytes[4]) * size_t{piece ? 1024u : 1u};
    bytes.remove_prefix(5);
    std::string payload(bytes.substr(0, size));
    bytes.remove_prefix(payload.size());
    if (piece) payload.resize(std::min<size_t>(size, kResultPieceBytes));
    (void)results.PlaceFor(from, header, payload.size());
    results.OnMessage(from, header, payload);
    results.Advance(status);
    for (const GroupEffect& effect : results.TakeEffects()) {
      const auto* allocate = std::get_if<GroupAllocate>(&effect);
      if (allocate != nullptr) asked.push_back(*allocate);
    }
    if (late) continue;
    for (const GroupAllocate& each : std::exchange(asked, {})) Grant(results, each);
    results.Advance(status);
    (void)results.TakeEffects();
  }
  results.Tick(Instant::Infinite());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  absl::Status why;
  switch (data[0] % 9) {
    case 0:
      Check(bytes, DecodeHeader, EncodeHeader);
      break;
    case 1:
      Check(bytes, DecodeReport, EncodeReport);
      break;
    case 2:
      Check(
          bytes, [](absl::string_view each) { return DecodeOrder(each, kNodes); }, EncodeOrder);
      break;
    case 3:
      Check(bytes, DecodeMissing, EncodeMissing);
      break;
    case 4:
      if (DecodeError(bytes, why).ok() && why.ok()) std::abort();
      break;
    case 5:
      Feed(bytes, /*fresh=*/false);
      break;
    case 6:
      Feed(bytes, /*fresh=*/true);
      break;
    case 7:
      Check(bytes, DecodeAnswer, EncodeAnswer);
      break;
    default:
      FeedResults(bytes);
  }
  return 0;
}
