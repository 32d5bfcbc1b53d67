#include "src/collectives/reducer/source_watches.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/common/ids/shard_of.h"
#include "src/directory/core/validate.h"

namespace phalanx::collectives {

SourceWatches::SourceWatches(std::string name, int num_shards, Send send, size_t max_watches)
    : name_(std::move(name)),
      num_shards_(num_shards),
      max_watches_(max_watches),
      send_(std::move(send)) {}

void SourceWatches::Tell(const ObjectId& target, const std::set<ObjectId>& sources, bool end) {
  // Ordered, so that the messages are the same in every run of a simulation.
  std::map<int, v1::NodeMessage> by_shard;
  for (const ObjectId& source : sources) {
    v1::WatchSource* watch = by_shard[ShardOf(source, num_shards_)].mutable_watch_source();
    directory::ToProto(source, watch->add_source_ids());
  }
  for (auto& [shard, message] : by_shard) {
    v1::WatchSource* watch = message.mutable_watch_source();
    directory::ToProto(target, watch->mutable_target_id());
    watch->set_end(end);
    send_(shard, std::move(message));
  }
}

void SourceWatches::End(const ObjectId& target, const std::set<ObjectId>& sources) {
  const auto it = watches_.find(target);
  if (it == watches_.end()) return;
  // Only what was watched is ended: the source's shard has no other watch.
  std::set<ObjectId> ended;
  for (const ObjectId& source : sources) {
    if (it->second.erase(source) > 0) ended.insert(source);
  }
  size_ -= ended.size();
  if (it->second.empty()) watches_.erase(it);
  Tell(target, ended, /*end=*/true);
}

void SourceWatches::OnWatch(const v1::WatchSource& watch) {
  const absl::StatusOr<ObjectId> target = directory::ParseObjectId(watch.target_id());
  if (!target.ok()) return;
  std::set<ObjectId> sources;
  for (const std::string& bytes : watch.source_ids()) {
    const absl::StatusOr<ObjectId> source = directory::ParseObjectId(bytes);
    if (source.ok()) sources.insert(*source);
  }
  if (watch.end()) {
    // An end without sources ends all watches of the target.
    const auto it = watches_.find(*target);
    if (watch.source_ids().empty() && it != watches_.end()) sources = it->second;
    return End(*target, sources);
  }
  if (sources.empty()) return;
  const auto known = watches_.find(*target);
  // A repeated watch must not count twice.
  size_t added = sources.size();
  for (const ObjectId& source : sources) {
    if (known != watches_.end() && known->second.contains(source)) --added;
  }
  // Refused aloud: the reduction would otherwise wait for these sources for ever.
  if (size_ + added > max_watches_) return Refuse(*target, sources);
  watches_[*target].insert(sources.begin(), sources.end());
  size_ += added;
  Tell(*target, sources, /*end=*/false);
}

void SourceWatches::Refuse(const ObjectId& target, const std::set<ObjectId>& sources) {
  for (const ObjectId& source : sources) {
    v1::NodeMessage message;
    v1::SourceState* state = message.mutable_source_state();
    directory::ToProto(target, state->mutable_target_id());
    directory::ToProto(source, state->mutable_source_id());
    state->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    state->set_message(
        absl::StrCat("node ", name_, " already watches ", size_, " sources of other shards"));
    send_(ShardOf(target, num_shards_), std::move(message));
  }
}

void SourceWatches::OnState(const v1::SourceState& state) {
  const absl::StatusOr<ObjectId> target = directory::ParseObjectId(state.target_id());
  const absl::StatusOr<ObjectId> source = directory::ParseObjectId(state.source_id());
  if (!target.ok() || !source.ok()) return;
  // The end of the watch and a state of the source can cross.
  const auto it = watches_.find(*target);
  if (it == watches_.end() || !it->second.contains(*source)) return;
  v1::NodeMessage message;
  // Unchanged: only the two shards interpret states.
  *message.mutable_source_state() = state;
  send_(ShardOf(*target, num_shards_), std::move(message));
}

void SourceWatches::OnSession(int shard) {
  // The shard begins its watches anew in this session, so the old ones must not stay.
  std::vector<ObjectId> over;
  for (const auto& [target, sources] : watches_) {
    if (ShardOf(target, num_shards_) == shard) over.push_back(target);
  }
  // A copy: End erases from the set.
  for (const ObjectId& target : over) End(target, std::set<ObjectId>(watches_.at(target)));
  for (const auto& [target, sources] : watches_) {
    std::set<ObjectId> again;
    for (const ObjectId& source : sources) {
      if (ShardOf(source, num_shards_) == shard) again.insert(source);
    }
    Tell(target, again, /*end=*/false);
  }
}

}  // namespace phalanx::collectives
