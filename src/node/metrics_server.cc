#include "src/node/metrics_server.h"

#include <sys/uio.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/common/io/log.h"
#include "src/common/status_macros.h"
#include "src/net/stream/require_loopback.h"

namespace phalanx::runtime {
namespace {

// HTTP/1.1 needs a length or a close; this sends both, which every client understands.
std::string Response(absl::string_view status, absl::string_view type, absl::string_view body) {
  return absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
                      "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
}

// Returns "/metrics" for "GET /metrics?x HTTP/1.1"; "" if it is not a GET.
absl::string_view PathOf(absl::string_view request) {
  const absl::string_view line = request.substr(0, request.find("\r\n"));
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || words[0] != "GET" || !absl::StartsWith(words[2], "HTTP/1.")) return "";
  return words[1].substr(0, words[1].find('?'));
}

}  // namespace

absl::Status CheckMetricsAddress(absl::string_view address, bool open) {
  // The check of listeners with an empty secret: metrics never have one.
  const absl::Status status = net::RequireLoopbackWithoutSecret(address, "");
  if (!absl::IsFailedPrecondition(status)) return status;
  if (open) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--metrics-listen ", address,
                   " is reachable from other hosts, and metrics need no secret: set --metrics-open "
                   "to allow that, or listen on 127.0.0.1"));
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    Executor& loop, net::Network& network, const net::Address& listen,
    std::function<std::string()> collect) {
  auto server = std::unique_ptr<MetricsServer>(new MetricsServer(loop, std::move(collect)));
  MetricsServer* const self = server.get();
  PHALANX_ASSIGN_OR_RETURN(server->listener_,
                           network.Listen(
                               loop, listen, [self]() -> Executor& { return self->loop_; },
                               [self](Executor&, std::unique_ptr<net::ByteStream> stream) {
                                 self->Accept(std::move(stream));
                               }));
  return server;
}

MetricsServer::~MetricsServer() {
  for (auto& [id, connection] : connections_) loop_.Cancel(connection.deadline);
}

void MetricsServer::Accept(std::unique_ptr<net::ByteStream> stream) {
  if (connections_.size() >= kMaxConnections) {
    // The stream is closed by its destructor.
    PHALANX_LOG_EVERY(WARNING, absl::Minutes(1))
        << "too many readers of metrics at once" << LogField("peer", stream->peer());
    return;
  }
  const ConnectionId id = next_id_++;
  Connection& connection = connections_[id];
  connection.stream = std::move(stream);
  // One deadline for request and answer, so that a slow client cannot hold a connection for long.
  connection.deadline = loop_.RunAt(loop_.Now() + kDeadline, [this, id] { End(id); });
  connection.stream->OnReadable([this, id] { Read(id); });
}

void MetricsServer::Read(ConnectionId id) {
  Connection& connection = connections_.at(id);
  char bytes[2048];
  const iovec into{bytes, sizeof(bytes)};
  const absl::StatusOr<size_t> size = connection.stream->Read({&into, 1});
  if (!size.ok()) return End(id);
  connection.request.append(bytes, *size);
  if (absl::StrContains(connection.request, "\r\n\r\n")) return Answer(id);
  if (connection.request.size() > kMaxRequestBytes) return End(id);
  // The stream calls back once per registration.
  connection.stream->OnReadable([this, id] { Read(id); });
}

void MetricsServer::Answer(ConnectionId id) {
  Connection& connection = connections_.at(id);
  const absl::string_view path = PathOf(connection.request);
  if (path == "/metrics") {
    connection.answer = Response("200 OK", "text/plain; version=0.0.4; charset=utf-8", collect_());
  } else if (path == "/healthz") {
    // A health check of the process, without the cost of collecting.
    connection.answer = Response("200 OK", "text/plain", "ok\n");
  } else if (path.empty()) {
    connection.answer = Response("405 Method Not Allowed", "text/plain", "GET only\n");
  } else {
    connection.answer = Response("404 Not Found", "text/plain", "see /metrics\n");
  }
  Write(id);
}

void MetricsServer::Write(ConnectionId id) {
  Connection& connection = connections_.at(id);
  const iovec from{connection.answer.data() + connection.written,
                   connection.answer.size() - connection.written};
  const absl::StatusOr<size_t> size = connection.stream->Write({&from, 1});
  if (!size.ok()) return End(id);
  // A write can take a part only, if the client reads slowly.
  connection.written += *size;
  if (connection.written == connection.answer.size()) return End(id);
  connection.stream->OnWritable([this, id] { Write(id); });
}

void MetricsServer::End(ConnectionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  loop_.Cancel(found->second.deadline);
  // A readiness event before the stream is closed would look up the erased connection.
  found->second.stream->OnReadable(nullptr);
  found->second.stream->OnWritable(nullptr);
  // Closed in a later turn, because this one can still be inside a callback of the stream.
  loop_.Post([stream = std::move(found->second.stream)] { stream->Close(); });
  connections_.erase(found);
}

}  // namespace phalanx::runtime
