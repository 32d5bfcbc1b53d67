#include "src/directory/core/node_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace phalanx::directory {
namespace {

// Unknown and known nodes named in one error, and bytes of each name, so that the error fits into a
// message.
constexpr size_t kMaxNamesListed = 16;
constexpr size_t kMaxNameListedBytes = 256;

// "A, B, and N more".
std::string Listed(const absl::btree_set<absl::string_view>& names) {
  std::vector<std::string> some;
  for (const absl::string_view name : names) {
    if (some.size() == kMaxNamesListed) break;
    const bool long_one = name.size() > kMaxNameListedBytes;
    some.push_back(long_one ? absl::StrCat("one of ", name.size(), " bytes") : std::string(name));
  }
  const size_t more = names.size() - some.size();
  return absl::StrCat(absl::StrJoin(some, ", "),
                      more == 0 ? "" : absl::StrCat(", and ", more, " more"));
}

}  // namespace

NodeTable::Opened NodeTable::Open(const NodeKey& key) {
  auto [at, added] = nodes_.try_emplace(key);
  if (added) {
    at->second = std::make_unique<Node>();
    at->second->key = key;
  }
  return {*at->second, added};
}

Node* NodeTable::BeginRemove(const NodeKey& key) {
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) return nullptr;
  being_removed_ = std::move(found->second);
  nodes_.erase(found);
  return being_removed_.get();
}

void NodeTable::EndRemove() { being_removed_.reset(); }

Node* NodeTable::Find(const NodeKey& key) {
  const auto found = nodes_.find(key);
  return found == nodes_.end() ? nullptr : found->second.get();
}

const Node* NodeTable::Find(const NodeKey& key) const {
  const auto found = nodes_.find(key);
  return found == nodes_.end() ? nullptr : found->second.get();
}

NodeKey NodeTable::OtherLife(const NodeKey& key) const {
  // At most one other incarnation has a session: NodeUp ends it.
  const auto other = nodes_.lower_bound(NodeKey{key.node, 0});
  const bool same_node = other != nodes_.end() && other->first.node == key.node;
  return same_node && other->first != key ? other->first : NodeKey();
}

std::string NodeTable::NameOf(const NodeKey& key) const {
  // The reason of a loss names the node that goes down in this very turn.
  if (being_removed_ != nullptr && being_removed_->key == key) return being_removed_->info.name();
  const Node* node = Find(key);
  return node != nullptr ? node->info.name() : key.ToString();
}

std::vector<Node*> NodeTable::Named(absl::btree_set<absl::string_view>& names) const {
  const bool all_nodes = names.erase("*") != 0;
  std::vector<Node*> named;
  for (const auto& [key, node] : nodes_) {
    // Also with "*": what is left in `names` afterwards are names that no node has.
    const bool found = names.erase(node->info.name()) != 0;
    if (found || all_nodes) named.push_back(node.get());
  }
  return named;
}

std::string NodeTable::UnknownMessage(const ObjectId& id,
                                      const absl::btree_set<absl::string_view>& names) const {
  absl::btree_set<absl::string_view> known;
  for (const auto& [key, node] : nodes_) known.insert(node->info.name());
  return absl::StrCat("object ", id.hex(), ": no node is called ", Listed(names), "; there are ",
                      Listed(known), " (`phalanx status` lists them)");
}

std::vector<ObjectId> Sorted(const absl::flat_hash_set<ObjectId>& ids) {
  std::vector<ObjectId> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace phalanx::directory
