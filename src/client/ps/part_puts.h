// PartPuts: the parts of one push of all rows, on their way into the store: memory for all of them
// first, then the bytes.
//
// One thread, without the connection's lock; other threads drive the connection meanwhile.
#ifndef PHALANX_CLIENT_PS_PART_PUTS_H_
#define PHALANX_CLIENT_PS_PART_PUTS_H_

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "phalanx/client.h"
#include "phalanx/ps_table.h"
#include "src/client/connection/connection.h"
#include "src/client/writer_state.h"
#include "src/common/time/instant.h"
#include "src/ps/split.h"
#include "src/ps/worker_core.h"

namespace phalanx::ps::internal {

class PartPuts {
 public:
  // Both live longer than this. Asks the node for memory, until `until`.
  PartPuts(const std::shared_ptr<phalanx::internal::Connection>& connection,
           const WorkerCore::DensePush& push, Instant until);
  PartPuts(const PartPuts&) = delete;
  PartPuts& operator=(const PartPuts&) = delete;
  // What has not ended is cancelled.
  ~PartPuts();

  // False: not before `until`. True also if `stop`, which is called with the lock held, is true.
  bool AwaitMemory(Instant until, absl::FunctionRef<bool()> stop) const;
  // Copies the rows, which are those of all keys, and waits until the node has the parts. Errors:
  // that of the first part that has one; DeadlineExceeded if the node does not answer in time;
  // Cancelled if `stop` is true. What was put stays, also with an error.
  absl::Status Put(const TableSpec& spec, const Splitter& splitter, const void* values,
                   Instant until, absl::FunctionRef<bool()> stop);

 private:
  using Create = phalanx::internal::CreateCall;
  using Seal = phalanx::internal::FutureState<PutResult>;

  // Waits for the calls, and cancels those that have not ended then.
  template <typename Calls>
  absl::Status Await(const Calls& calls, Instant until, absl::FunctionRef<bool()> stop) const;
  template <typename Calls>
  void Cancel(const Calls& calls) const;

  const std::shared_ptr<phalanx::internal::Connection> connection_;
  const WorkerCore::DensePush& push_;
  std::vector<std::shared_ptr<Create>> creates_;  // one for each part
  std::vector<std::shared_ptr<Seal>> seals_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_PART_PUTS_H_
