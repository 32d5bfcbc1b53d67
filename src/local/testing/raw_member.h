// RawMember: a member of "train" whose client says itself how much of its input is there, and does
// nothing that it is not asked to do. Its inputs are zeros. Testonly; one thread.
#ifndef PHALANX_LOCAL_TESTING_RAW_MEMBER_H_
#define PHALANX_LOCAL_TESTING_RAW_MEMBER_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "src/common/check.h"
#include "src/jobs/group/group_call.h"
#include "src/local/local_protocol.h"
#include "src/local/testing/local_node.h"
#include "src/local/testing/raw_client.h"

namespace phalanx::object_store::testing {

class RawMember {
 public:
  static constexpr uint64_t kCall = 3;  // the request of each call
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  RawMember(const LocalNode& node, const std::string& task, uint32_t world) : client_(node) {
    client_.Send(local::Join{1, "train", "worker", task, world, false, 0, kPatience});
    Await<local::Joined>();
  }
  // Returns a buffer of the node, which has handled everything before.
  uint64_t NewBuffer(uint64_t bytes) {
    client_.Send(local::GroupBuffer{2, bytes, kPatience});
    return Await<local::Granted>().writer;
  }
  // Makes a call; the first `filled` bytes of the input are there.
  void Call(const jobs::CallSpec& spec, uint64_t input_bytes, uint64_t filled,
            absl::Duration timeout = kPatience) {
    const uint64_t buffer = NewBuffer(input_bytes);
    client_.Send(local::GroupCall{
        kCall, 1, spec, timeout, buffer, input_bytes, {}, /*filled_from=*/0, filled});
  }
  void Fill(uint64_t from, uint64_t bytes) { Fill(kCall, from, bytes); }
  void Fill(uint64_t request, uint64_t from, uint64_t bytes) {
    client_.Send(local::GroupFilled{request, from, bytes});
  }
  void Release(uint64_t pin) { client_.Send(local::Release{pin}); }
  void Leave() { client_.Send(local::LeaveJob{1, false}); }
  // Returns the next answer of this kind; those before it are dropped. Its texts are valid until
  // the next call.
  template <typename Kind>
  Kind Await() {
    while (const auto answer = client_.Receive()) {
      if (const auto* wanted = std::get_if<Kind>(&*answer)) return *wanted;
      const auto* failed = std::get_if<local::Failed>(&*answer);
      PHALANX_CHECK(failed == nullptr, std::string(failed->message));
    }
    PHALANX_CHECK(false, "the node has closed the connection");
    return {};
  }
  RawClient& client() { return client_; }

 private:
  RawClient client_;
};

}  // namespace phalanx::object_store::testing

#endif  // PHALANX_LOCAL_TESTING_RAW_MEMBER_H_
