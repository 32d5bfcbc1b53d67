// The shard of the jobs of one node: a real directory core that is sent the messages about jobs
// only. While it is silenced it takes messages and answers none. Testonly; the node's loop.
#ifndef PHALANX_LOCAL_TESTING_JOB_SHARD_H_
#define PHALANX_LOCAL_TESTING_JOB_SHARD_H_

#include <utility>
#include <vector>

#include "phalanx/v1/directory.pb.h"
#include "src/common/check.h"
#include "src/common/ids/ids.h"
#include "src/common/random.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"

namespace phalanx::object_store::testing {

class JobShard {
 public:
  static constexpr NodeKey kNode{7, 1};
  static constexpr NodeKey kOtherNode{8, 1};

  std::vector<v1::ShardMessage> Answer(const v1::NodeMessage& message, Instant now) {
    if (!message.has_job() || silent_) return {};
    return From(kNode, message, now);
  }
  // A message from another node; the answers are those for the node under test.
  std::vector<v1::ShardMessage> From(const NodeKey& node, const v1::NodeMessage& message,
                                     Instant now) {
    if (core_ == nullptr) Start(now);
    PHALANX_CHECK(core_->OnMessage(node, message, now).ok(), "the shard takes the message");
    return ForNode();
  }
  // The node is fenced.
  std::vector<v1::ShardMessage> Fence(const NodeKey& node, Instant now) {
    core_->NodeDown(node, now);
    return ForNode();
  }
  void Silence() { silent_ = true; }

 private:
  void Start(Instant now) {
    directory::DirectoryOptions options;
    options.first_life = true;
    core_ = std::make_unique<directory::DirectoryCore>(options, now, Random(1));
    for (const NodeKey& key : {kNode, kOtherNode}) {
      v1::NodeInfo info;
      directory::ToProto(key, info.mutable_key());
      info.set_name(key == kNode ? "node-a" : "node-b");
      info.set_address(key == kNode ? "10.0.0.1:7410" : "10.0.0.2:7410");
      core_->NodeUp(info, now);
      v1::NodeMessage end;
      end.mutable_register_end();
      PHALANX_CHECK(core_->OnMessage(key, end, now).ok(), "the node registers");
    }
  }
  std::vector<v1::ShardMessage> ForNode() {
    std::vector<v1::ShardMessage> messages;
    for (directory::Outgoing& out : core_->TakeOutbox()) {
      if (out.to == kNode && out.message.has_job()) messages.push_back(std::move(out.message));
    }
    return messages;
  }

  std::unique_ptr<directory::DirectoryCore> core_;
  bool silent_ = false;
};

}  // namespace phalanx::object_store::testing

#endif  // PHALANX_LOCAL_TESTING_JOB_SHARD_H_
