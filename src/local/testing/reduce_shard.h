// A shard's side of the calls about reductions, played: requests of a Reducer wait in a queue until
// the test answers them. Testonly; the node's loop only.
#ifndef PHALANX_LOCAL_TESTING_REDUCE_SHARD_H_
#define PHALANX_LOCAL_TESTING_REDUCE_SHARD_H_

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/check.h"
#include "src/common/reduce_spec.h"
#include "src/directory/core/reduce_messages.h"
#include "src/directory/core/validate.h"

namespace phalanx::object_store::testing {

class ReduceShard {
 public:
  struct Call {
    v1::NodeMessage message;
    ReduceTarget target;              // its id alone, but of a ReduceRequest
    ReduceSpec spec;                  // of a ReduceRequest
    std::vector<ObjectId> sources{};  // of an ExtendRequest
    absl::Status why{};               // of a FailRequest
  };

  // Takes messages from the node to the shard.
  void Receive(v1::NodeMessage message) {
    Call call{std::move(message), {}, {}};
    if (call.message.has_reduce_request()) {
      const v1::ReduceRequest& request = call.message.reduce_request();
      const v1::Reduction& reduction = request.reduction();
      call.target = {Id(request.object_id()), reduction.has_root(), reduction.everybody(),
                     request.owned()};
      call.spec = directory::ParseReduction(reduction).value();
    } else if (call.message.has_extend_request()) {
      call.target.id = Id(call.message.extend_request().object_id());
      call.sources = directory::ParseSources(call.message.extend_request().source_ids()).value();
    } else if (call.message.has_fail_request()) {
      const v1::FailRequest& request = call.message.fail_request();
      call.target.id = Id(request.object_id());
      call.why = absl::Status(static_cast<absl::StatusCode>(request.code()), request.message());
    } else {
      return;
    }
    calls.push_back(std::move(call));
  }

  // Answers the oldest call through `reply`. REQUIRES: there is one.
  void Answer(absl::Status status = absl::OkStatus()) {
    PHALANX_CHECK(!calls.empty(), "a call waits");
    const v1::NodeMessage request = std::move(calls.front().message);
    calls.pop_front();
    v1::ShardMessage message;
    const auto fill = [&status](uint64_t id, auto* out) {
      out->set_request_id(id);
      out->set_code(static_cast<int>(status.code()));
      out->set_message(std::string(status.message()));
    };
    if (request.has_reduce_request()) {
      fill(request.reduce_request().request_id(), message.mutable_reduce_reply());
    } else if (request.has_extend_request()) {
      fill(request.extend_request().request_id(), message.mutable_extend_reply());
    } else {
      fill(request.fail_request().request_id(), message.mutable_fail_reply());
    }
    reply(message);
  }

  std::deque<Call> calls;
  std::function<void(const v1::ShardMessage&)> reply;

 private:
  static ObjectId Id(const std::string& bytes) { return directory::ParseObjectId(bytes).value(); }
};

}  // namespace phalanx::object_store::testing

#endif  // PHALANX_LOCAL_TESTING_REDUCE_SHARD_H_
