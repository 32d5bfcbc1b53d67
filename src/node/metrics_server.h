// Answers GET /metrics over HTTP/1.1 on the control loop, one request per connection. It does no
// work between requests. Every client that reaches the address can read the metrics, so it stays on
// loopback unless the operator opens it.
//
// Created, used and destroyed on the loop; owned by the daemon.
#ifndef PHALANX_NODE_METRICS_SERVER_H_
#define PHALANX_NODE_METRICS_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/common/time/executor.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::runtime {

// Metrics need no secret, so this returns FailedPrecondition, with the remedy, for an address
// beyond loopback unless `open` is true; InvalidArgument for an address that does not parse.
absl::Status CheckMetricsAddress(absl::string_view address, bool open);

class MetricsServer {
 public:
  // Connections beyond this number, longer requests and slower clients are closed.
  static constexpr size_t kMaxConnections = 32;
  static constexpr size_t kMaxRequestBytes = 8192;
  static constexpr absl::Duration kDeadline = absl::Seconds(10);

  // `collect` returns the text of each answer. Errors as Network::Listen.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(Executor& loop, net::Network& network,
                                                              const net::Address& listen,
                                                              std::function<std::string()> collect);
  ~MetricsServer();

  net::Address address() const { return listener_->address(); }

 private:
  struct Connection {
    std::unique_ptr<net::ByteStream> stream;
    TimerId deadline = 0;
    std::string request;
    std::string answer;
    size_t written = 0;
  };
  using ConnectionId = uint64_t;

  MetricsServer(Executor& loop, std::function<std::string()> collect)
      : loop_(loop), collect_(std::move(collect)) {}

  void Accept(std::unique_ptr<net::ByteStream> stream);
  void Read(ConnectionId id);
  void Answer(ConnectionId id);
  void Write(ConnectionId id);
  void End(ConnectionId id);

  Executor& loop_;
  const std::function<std::string()> collect_;
  std::unique_ptr<net::Listener> listener_;
  std::map<ConnectionId, Connection> connections_;
  ConnectionId next_id_ = 1;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_NODE_METRICS_SERVER_H_
