#include "src/cli/views/holdups.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/cli/units.h"
#include "src/cli/views/text_table.h"
#include "src/cli/views/tree_drawing.h"
#include "src/common/ids/ids.h"

namespace phalanx::runtime {
namespace {

using Copies = std::map<NodeKey, const v1::CopyDescription*>;

NodeKey KeyOf(const v1::NodeKey& key) { return NodeKey{key.node(), key.incarnation()}; }

const v1::CopyDescription* SenderOf(const v1::CopyDescription& copy, const Copies& copies) {
  const auto found = copies.find(KeyOf(copy.sender()));
  return found == copies.end() ? nullptr : found->second;
}

// Returns the first sender above `copy` that is not starved itself. Returns null if the senders
// form a cycle or the sender is missing from the record.
const v1::CopyDescription* WhoHoldsUp(const v1::CopyDescription& copy, const Copies& copies) {
  const v1::CopyDescription* above = SenderOf(copy, copies);
  // The number of steps is bounded, because a damaged record can contain a cycle.
  for (size_t steps = 0; above != nullptr && steps < copies.size(); ++steps) {
    if (CopyState(*above) != "starved") return above;
    above = SenderOf(*above, copies);
  }
  return nullptr;
}

}  // namespace

std::vector<Holdup> FindHoldups(const v1::DescribeObjectResponse& object) {
  Copies copies;
  for (const v1::CopyDescription& copy : object.copies()) copies.emplace(KeyOf(copy.node()), &copy);
  std::map<NodeKey, Holdup> found;
  for (const auto& [key, copy] : copies) {
    if (CopyState(*copy) != "starved") continue;
    const v1::CopyDescription* slow = WhoHoldsUp(*copy, copies);
    // A complete copy does not hold up any node.
    if (slow == nullptr || slow->complete()) continue;
    Holdup& holdup = found[KeyOf(slow->node())];
    holdup.slow = slow;
    holdup.waiting.push_back(copy);
  }
  std::vector<Holdup> holdups;
  for (auto& [key, holdup] : found) {
    std::stable_sort(
        holdup.waiting.begin(), holdup.waiting.end(),
        [](const auto* a, const auto* b) { return CompareNaturally(a->name(), b->name()) < 0; });
    holdups.push_back(std::move(holdup));
  }
  // The largest hold-up first; `top` shows only that one.
  std::stable_sort(holdups.begin(), holdups.end(), [](const Holdup& a, const Holdup& b) {
    return a.waiting.size() > b.waiting.size();
  });
  return holdups;
}

std::string HoldupText(const Holdup& holdup) {
  const v1::CopyDescription& slow = *holdup.slow;
  const std::string name = Printable(slow.name());
  if (!slow.connected()) return absl::StrCat(name, ", which is not connected");
  if (slow.pulling()) {
    return absl::StrCat(Printable(slow.sender_name()), " -> ", name,
                        slow.bytes_per_second() > 0
                            ? absl::StrCat(" at ", HumanRate(slow.bytes_per_second()))
                            : "");
  }
  return slow.primary() ? absl::StrCat("the writer at ", name)
                        : absl::StrCat(name, ", which has no sender");
}

}  // namespace phalanx::runtime
