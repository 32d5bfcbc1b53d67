// The base of all operations: the client, names, patterns, and short steps over the verbs. One
// thread.
#ifndef PHALANX_CLI_BENCH_OPERATION_BASE_H_
#define PHALANX_CLI_BENCH_OPERATION_BASE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "phalanx/client.h"
#include "phalanx/collectives.h"
#include "src/cli/bench/operation.h"
#include "src/cli/bench/options.h"
#include "src/cli/bench/pattern.h"
#include "src/cli/bench/rendezvous.h"

namespace phalanx::runtime::bench {

inline double SecondsSince(int64_t start_nanos) { return (MonotonicNanos() - start_nanos) * 1e-9; }

class Base : public Operation {
 public:
  Base(const BenchOptions& options, std::shared_ptr<Client> client)
      : options_(options), client_(std::move(client)) {}

 protected:
  ObjectId Id(const Run& run, absl::string_view what, int index = 0) const {
    return ObjectId::FromName(options_.session, absl::StrCat("object/", what, "/", run.size, "/",
                                                             run.number, "/", index));
  }
  std::string Pattern(const Run& run, uint64_t salt = 0) const {
    return PatternOf(run.seed + salt, run.size);
  }
  static std::string PatternOf(uint64_t seed, uint64_t size) {
    std::string bytes(size, '\0');
    FillPattern(seed, absl::MakeSpan(&bytes[0], bytes.size()));
    return bytes;
  }
  // A rank's share of the run's size.
  uint64_t ShareBytes(const Run& run, int rank) const {
    return PartOf(run.size, 1, static_cast<size_t>(options_.world), static_cast<size_t>(rank))
        ->length;
  }
  GetOptions Deadline() const {
    GetOptions options;
    options.timeout = options_.timeout;
    return options;
  }
  absl::Status PutNow(const ObjectId& id, absl::string_view bytes) {
    return client_->Put(id, bytes).Wait(options_.timeout).status();
  }
  // The next run does not wait for the Delete. An object that is already deleted is not an error.
  absl::Status DeleteNow(const ObjectId& id) {
    const absl::Status status = client_->Delete(id).Wait(options_.timeout).status();
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  }

  const BenchOptions options_;
  const std::shared_ptr<Client> client_;
};

// Returns null if `options.op` is not an op of this kind.
std::unique_ptr<Operation> MakeMovingOperation(const BenchOptions& options,
                                               std::shared_ptr<Client> client);
std::unique_ptr<Operation> MakeLocalOperation(const BenchOptions& options,
                                              std::shared_ptr<Client> client);
std::unique_ptr<Operation> MakeGroupOperation(const BenchOptions& options,
                                              std::shared_ptr<Client> client);
std::unique_ptr<Operation> MakeSessionOperation(const BenchOptions& options,
                                                std::shared_ptr<Client> client);
std::unique_ptr<Operation> MakeReducingOperation(const BenchOptions& options,
                                                 std::shared_ptr<Client> client);

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_CLI_BENCH_OPERATION_BASE_H_
