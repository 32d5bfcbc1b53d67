// GroupNode: the group service of one node over given links, with memory from the heap. Testonly.
//
// Used on the node's control loop.
#ifndef PHALANX_JOBS_GROUP_TESTING_GROUP_NODES_H_
#define PHALANX_JOBS_GROUP_TESTING_GROUP_NODES_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/common/check.h"
#include "src/jobs/group/service/group_service.h"
#include "src/jobs/group/testing/group_parts.h"

namespace phalanx::jobs::testing {

// Memory from the heap, granted in a later turn; used again.
class HeapAllocator final : public GroupAllocator {
 public:
  explicit HeapAllocator(Executor& control) : control_(control) {}
  void Allocate(uint64_t work_bytes, uint64_t scratch_bytes, Instant, Allocated done) override {
    control_.Post([this, work_bytes, scratch_bytes, done = std::move(done)]() mutable {
      std::shared_ptr<std::string> bytes;
      for (const auto& each : pool_) {
        if (each.use_count() == 1 && each->size() >= work_bytes + scratch_bytes) bytes = each;
      }
      if (bytes == nullptr) {
        bytes = std::make_shared<std::string>(work_bytes + scratch_bytes, '\0');
        pool_.push_back(bytes);
      }
      auto memory = std::make_shared<GroupMemory>();
      memory->work = absl::MakeSpan(bytes->data(), work_bytes);
      memory->scratch = absl::MakeSpan(bytes->data() + work_bytes, scratch_bytes);
      memory->owner = bytes;
      done(std::move(memory));
    });
  }
  void ShareKept(std::shared_ptr<KeptBytes>) override {}

 private:
  Executor& control_;
  std::vector<std::shared_ptr<std::string>> pool_;
};

class GroupNode {
 public:
  GroupNode(const NodeKey& key, Executor& control, net::NodeLinks& links)
      : allocator_(control), service_(key, control, links, allocator_, /*num_shards=*/1) {}

  // A call of "train"/"worker". `then` may be empty.
  void Call(int rank, CallSpec spec, std::string input, std::function<void()> then,
            uint64_t life = 0) {
    auto keep = std::make_shared<std::string>(std::move(input));
    CallFrom(rank, spec, *keep, keep, std::move(then), life);
  }
  void CallFrom(int rank, CallSpec spec, absl::string_view input, std::shared_ptr<const void> keep,
                std::function<void()> then, uint64_t life = 0) {
    GroupCallRequest request{.spec = spec, .input = input, .keep = std::move(keep)};
    const absl::Status called =
        service_.Call("train", "worker", rank, life, std::move(request),
                      [this, then = std::move(then)](const GroupDone& done) {
                        last_status = done.status;
                        last_result = std::string(done.result);
                        if (then) then();
                      });
    PHALANX_CHECK(called.ok(), "a member");
  }
  GroupService& service() { return service_; }

  absl::Status last_status = absl::UnknownError("no call has ended");
  std::string last_result;

 private:
  HeapAllocator allocator_;
  GroupService service_;
};

// A member on each node.
inline GroupView ViewOf(const std::vector<net::LinkPeer>& peers) {
  GroupView view;
  view.job = "train";
  view.role = "worker";
  view.epoch = {1, 1};
  view.world = static_cast<int>(peers.size());
  for (const net::LinkPeer& peer : peers) {
    const int rank = static_cast<int>(view.members.size());
    Member& member = view.members.emplace_back(LiveMember(rank, peer.key));
    member.role = view.role;
    member.address = peer.address;
  }
  return view;
}

}  // namespace phalanx::jobs::testing

#endif  // PHALANX_JOBS_GROUP_TESTING_GROUP_NODES_H_
