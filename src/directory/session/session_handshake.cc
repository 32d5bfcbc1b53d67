#include "src/directory/session/session_handshake.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/io/wire.h"
#include "src/common/status_macros.h"
#include "src/net/stream/handshake.h"

namespace phalanx::directory {
namespace {

// The cluster id and the node's name come from an unproven peer: a log line must not grow with
// them.
constexpr size_t kMaxQuotedBytes = 80;

// Escapes text from the peer for a message.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CEscape(text.substr(0, kMaxQuotedBytes)), "\"");
}

// The hello as bytes that do not depend on a map's order or on unknown fields. Both ends compute
// the proof over these bytes, so every field that the shard believes is in them.
std::string CanonicalHello(const v1::Hello& hello) {
  std::string bytes;
  ByteWriter out(bytes);
  out.U32(hello.protocol_version());
  out.Bytes(hello.cluster_id());
  out.U32(hello.shard_index());
  out.U32(hello.num_shards());
  const v1::NodeInfo& node = hello.node();
  out.U64(node.key().node());
  out.U64(node.key().incarnation());
  out.Bytes(node.name());
  out.Bytes(node.address());
  // Sorted: the order of a proto's map differs between processes.
  const std::map<std::string, std::string> labels(node.labels().begin(), node.labels().end());
  out.U32(static_cast<uint32_t>(labels.size()));
  for (const auto& [name, value] : labels) {
    out.Bytes(name);
    out.Bytes(value);
  }
  out.U64(node.capacity_bytes());
  out.U64(node.used_bytes());
  out.U64(node.process_id());
  out.U64(hello.session_id());
  out.U64(hello.shard_incarnation());
  out.U64(hello.last_received());
  return bytes;
}

template <typename T>
absl::Status CheckSame(absl::string_view what, const T& shards, const T& nodes) {
  if (shards == nodes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the shard's ", what, " is ", shards, ", the node's is ", nodes));
}

absl::Status CheckBytes(absl::string_view what, size_t bytes, size_t limit) {
  if (bytes <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the node's ", what, " has ", bytes, " bytes, the limit is ", limit));
}

absl::Status CheckNode(const v1::NodeInfo& node) {
  // Sessions are keyed by node, and incarnations order the lives of a node: 0 means unset in both.
  if (node.key().node() == 0 || node.key().incarnation() == 0) {
    return absl::InvalidArgumentError("the node's key is missing");
  }
  if (node.name().empty()) return absl::InvalidArgumentError("the node has no name");
  PHALANX_RETURN_IF_ERROR(CheckBytes("name", node.name().size(), kMaxNodeNameBytes));
  PHALANX_RETURN_IF_ERROR(CheckBytes("address", node.address().size(), kMaxNodeAddressBytes));
  if (node.labels().size() > kMaxNodeLabels) {
    return absl::InvalidArgumentError(absl::StrCat("the node has ", node.labels().size(),
                                                   " labels, the limit is ", kMaxNodeLabels));
  }
  for (const auto& [key, value] : node.labels()) {
    PHALANX_RETURN_IF_ERROR(CheckBytes("label", key.size() + value.size(), kMaxNodeLabelBytes));
  }
  return absl::OkStatus();
}

}  // namespace

std::string NewNonce(const SessionConfig& config) {
  std::string nonce(net::kNonceBytes, '\0');
  config.nonce_bytes(nonce.data(), nonce.size());
  return nonce;
}

std::string SessionProof(absl::string_view secret, SessionEnd end, const v1::Hello& hello,
                         absl::string_view shard_nonce) {
  // Without a label for each end, the shard's proof would also be a valid proof of the node.
  const absl::string_view label =
      end == SessionEnd::kNode ? "phalanx session node" : "phalanx session shard";
  return net::ProveSecret(secret, label, {CanonicalHello(hello), hello.nonce(), shard_nonce});
}

absl::Status CheckHello(const SessionConfig& config, const v1::Hello& hello) {
  // First, because the meaning of the other fields depends on the version.
  PHALANX_RETURN_IF_ERROR(
      CheckSame("protocol version", config.protocol_version, hello.protocol_version()));
  PHALANX_RETURN_IF_ERROR(
      CheckSame("cluster id", Quoted(config.cluster_id), Quoted(hello.cluster_id())));
  // Before the rest: the limit also counts unknown fields.
  if (const size_t bytes = hello.ByteSizeLong(); bytes > kMaxHelloBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a hello of ", bytes, " bytes, the limit is ", kMaxHelloBytes));
  }
  PHALANX_RETURN_IF_ERROR(CheckSame("number of shards", config.num_shards, hello.num_shards()));
  PHALANX_RETURN_IF_ERROR(CheckSame("index", config.shard_index, hello.shard_index()));
  if (hello.nonce().size() != net::kNonceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a nonce of ", hello.nonce().size(),
                                                   " bytes, expected were ", net::kNonceBytes));
  }
  return CheckNode(hello.node());
}

v1::ShardFrame RefusedFrame(const absl::Status& why) {
  v1::ShardFrame frame;
  frame.mutable_refused()->set_code(static_cast<int>(why.code()));
  // A proto's string must be UTF-8, and not every status text is valid UTF-8.
  std::string text(why.message().substr(0, kMaxRefusalBytes));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  frame.mutable_refused()->set_message(std::move(text));
  return frame;
}

absl::Status RefusedStatus(const v1::Refused& refused) {
  // OK is excluded: a refusal must never look like success.
  absl::StatusCode code = absl::StatusCode::kUnknown;
  if (refused.code() >= static_cast<int>(absl::StatusCode::kCancelled) &&
      refused.code() <= static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    code = static_cast<absl::StatusCode>(refused.code());
  }
  return absl::Status(code, refused.message());
}

ShardHandshake::ShardHandshake(const SessionConfig& config, std::string nonce)
    : config_(config), nonce_(std::move(nonce)) {}

absl::StatusOr<std::optional<v1::ShardFrame>> ShardHandshake::OnFrame(const v1::NodeFrame& frame) {
  if (!hello_.has_value()) {
    if (!frame.has_hello()) {
      return absl::InvalidArgumentError("the first frame of a stream must be a hello");
    }
    return OnHello(frame.hello());
  }
  if (!frame.has_proof()) {
    return absl::InvalidArgumentError("the second frame of a stream must be a proof");
  }
  // The proof must cover the hello that CheckHello accepted.
  const std::string expected = SessionProof(config_.secret, SessionEnd::kNode, *hello_, nonce_);
  // Compares in constant time, so that the time of a refusal does not disclose the proof.
  if (!net::ProofMatches(expected, frame.proof().proof())) {
    return absl::PermissionDeniedError(absl::StrCat("node ", Quoted(hello_->node().name()),
                                                    " has not shown the secret of cluster ",
                                                    Quoted(config_.cluster_id)));
  }
  proven_ = true;
  return std::optional<v1::ShardFrame>();
}

absl::StatusOr<std::optional<v1::ShardFrame>> ShardHandshake::OnHello(const v1::Hello& hello) {
  PHALANX_RETURN_IF_ERROR(CheckHello(config_, hello));
  hello_ = hello;
  // The shard keeps the hello until the proof; unknown fields would only hold memory.
  hello_->DiscardUnknownFields();
  v1::ShardFrame frame;
  frame.mutable_challenge()->set_nonce(nonce_);
  frame.mutable_challenge()->set_proof(
      SessionProof(config_.secret, SessionEnd::kShard, hello, nonce_));
  return std::optional<v1::ShardFrame>(std::move(frame));
}

}  // namespace phalanx::directory
