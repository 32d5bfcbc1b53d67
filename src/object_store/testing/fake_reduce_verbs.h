// What reduces, played: calls wait in a queue, with the callbacks that answer them, until a test
// answers. Testonly; loop thread only.
#ifndef PHALANX_OBJECT_STORE_TESTING_FAKE_REDUCE_VERBS_H_
#define PHALANX_OBJECT_STORE_TESTING_FAKE_REDUCE_VERBS_H_

#include <deque>
#include <utility>
#include <vector>

#include "src/object_store/reduce_verbs.h"

namespace phalanx::object_store::testing {

class FakeReduceVerbs final : public ReduceVerbs {
 public:
  struct Call {
    enum class Kind { kReduce, kExtend, kFail };
    Kind kind = Kind::kReduce;
    ClientId client = 0;
    RequestId request = 0;  // of a Reduce
    ReduceCall reduce;      // target and sources of an Extend as well; the target of a Fail
    bool close = false;
    absl::Status why;
    ReduceDone done;
  };

  RequestId Reduce(ClientId client, ReduceCall call, ReduceDone done) override {
    calls.push_back({Call::Kind::kReduce, client, ++last_request_, std::move(call), false,
                     absl::OkStatus(), std::move(done)});
    return last_request_;
  }
  void Extend(ClientId client, const ObjectId& target, std::vector<ObjectId> sources, bool close,
              Instant deadline, ReduceDone done) override {
    ReduceCall call;
    call.target = target;
    call.sources = std::move(sources);
    call.deadline = deadline;
    calls.push_back({Call::Kind::kExtend, client, 0, std::move(call), close, absl::OkStatus(),
                     std::move(done)});
  }
  void Fail(ClientId client, const ObjectId& id, absl::Status why, Instant deadline,
            ReduceDone done) override {
    ReduceCall call;
    call.target = id;
    call.deadline = deadline;
    calls.push_back(
        {Call::Kind::kFail, client, 0, std::move(call), false, std::move(why), std::move(done)});
  }
  void Cancel(ClientId, RequestId request) override {
    ++cancelled;
    std::erase_if(calls, [request](const Call& call) { return call.request == request; });
  }
  void ClientClosed(ClientId client) override {
    ++closed;
    std::erase_if(calls, [client](const Call& call) { return call.client == client; });
  }

  // Answers the oldest call. REQUIRES: there is one.
  void Answer(absl::Status status = absl::OkStatus()) {
    Call call = std::move(calls.front());
    calls.pop_front();
    call.done(std::move(status));
  }

  std::deque<Call> calls;
  int cancelled = 0;
  int closed = 0;

 private:
  RequestId last_request_ = 0;
};

}  // namespace phalanx::object_store::testing

#endif  // PHALANX_OBJECT_STORE_TESTING_FAKE_REDUCE_VERBS_H_
