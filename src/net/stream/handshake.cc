#include "src/net/stream/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/common/check.h"
#include "src/common/io/wire.h"
#include "src/common/status_macros.h"

namespace phalanx::net {
namespace {

constexpr absl::string_view kMagic = "PHLX";
constexpr absl::string_view kLabel = "phalanx data plane 1";
// Offsets of the fields. Magic and version have the same place in every version, so that peers of
// different versions can name both.
constexpr size_t kVersionEnd = 8;
constexpr size_t kLengthEnd = 10;
constexpr size_t kIdentityBytes = 16;

std::string Hello(const HandshakeConfig& config, Handshake::Role role, absl::string_view nonce) {
  PHALANX_CHECK(nonce.size() == kNonceBytes, "a nonce has 32 bytes");
  const absl::string_view cluster_id =
      absl::string_view(config.cluster_id).substr(0, kMaxClusterIdBytes);
  std::string hello;
  ByteWriter out(hello);
  out.Raw(kMagic);
  out.U32(config.protocol_version);
  out.U8(static_cast<uint8_t>(role));
  out.U8(static_cast<uint8_t>(cluster_id.size()));
  out.Raw(cluster_id);
  out.U64(config.self.node);
  out.U64(config.self.incarnation);
  out.Raw(nonce);
  return hello;
}

Handshake::Role Other(Handshake::Role role) {
  return role == Handshake::Role::kDialer ? Handshake::Role::kAcceptor : Handshake::Role::kDialer;
}

}  // namespace

std::string ProveSecret(absl::string_view secret, absl::string_view label,
                        absl::Span<const absl::string_view> transcript) {
  std::string message;
  ByteWriter out(message);
  out.Bytes(label);
  // Length-prefixed, so that two transcripts cannot have the same bytes by another cut.
  for (const absl::string_view part : transcript) out.Bytes(part);
  std::string proof(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  // OpenSSL interprets a null key as "the previous key".
  const char* const key = secret.empty() ? "" : secret.data();
  const unsigned char* const done =
      HMAC(EVP_sha256(), key, static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(proof.data()), &size);
  PHALANX_CHECK(done != nullptr && size == kProofBytes, "HMAC-SHA-256 is available");
  proof.resize(size);
  return proof;
}

bool ProofMatches(absl::string_view expected, absl::string_view given) {
  // Constant time, so that an attacker cannot find a proof byte by byte.
  return expected.size() == given.size() &&
         CRYPTO_memcmp(expected.data(), given.data(), expected.size()) == 0;
}

Handshake::Handshake(HandshakeConfig config, Role role, absl::string_view nonce)
    : config_(std::move(config)),
      role_(role),
      own_hello_(Hello(config_, role, nonce)),
      output_(own_hello_) {}

std::string Handshake::TakeOutput() { return std::exchange(output_, std::string()); }

absl::StatusOr<size_t> Handshake::Consume(absl::string_view bytes) {
  size_t used = 0;
  while (state_ == State::kHello || state_ == State::kProof) {
    const absl::StatusOr<bool> forward = state_ == State::kHello ? TakeHello() : TakeProof();
    if (!forward.ok()) {
      state_ = State::kFailed;
      return forward.status();
    }
    if (*forward) continue;
    if (used == bytes.size()) break;
    // One byte at a time, so that no byte of the protocol that follows is consumed. A handshake has
    // only one or two hundred bytes.
    input_.push_back(bytes[used++]);
  }
  if (state_ == State::kFailed) {
    return absl::FailedPreconditionError("bytes after a failed handshake");
  }
  return used;
}

absl::StatusOr<bool> Handshake::TakeHello() {
  // Checked from the first byte on: a peer of another protocol can wait for an answer without
  // sending a whole hello.
  PHALANX_RETURN_IF_ERROR(CheckHelloStart());
  if (input_.size() < kLengthEnd) return false;
  ByteReader in(input_);
  in.Raw(kVersionEnd);
  const uint8_t role = in.U8();
  const size_t id_bytes = in.U8();
  if (id_bytes > kMaxClusterIdBytes) {
    return absl::FailedPreconditionError(absl::StrCat("the peer's cluster id has ", id_bytes,
                                                      " bytes, more than ", kMaxClusterIdBytes));
  }
  if (input_.size() < kLengthEnd + id_bytes + kIdentityBytes + kNonceBytes) return false;
  PHALANX_RETURN_IF_ERROR(CheckHello(in.Raw(id_bytes), role));
  peer_.node = in.U64();
  peer_.incarnation = in.U64();
  // Whole, as it was received: both proofs cover the bytes of both hellos.
  peer_hello_ = std::exchange(input_, std::string());
  output_ += Proof(role_);
  state_ = State::kProof;
  return true;
}

absl::Status Handshake::CheckHelloStart() const {
  const size_t magic_bytes = std::min(input_.size(), kMagic.size());
  if (absl::string_view(input_).substr(0, magic_bytes) != kMagic.substr(0, magic_bytes)) {
    return absl::FailedPreconditionError(
        "the peer does not speak this protocol: its first bytes are not PHLX");
  }
  if (input_.size() < kVersionEnd) return absl::OkStatus();
  ByteReader in(input_);
  in.Raw(kMagic.size());
  // Before the cluster id, whose place can differ in another version.
  const uint32_t version = in.U32();
  if (version == config_.protocol_version) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("the peer speaks protocol version %d, this node (%s) version %d", version,
                      config_.self.ToString(), config_.protocol_version));
}

absl::Status Handshake::CheckHello(absl::string_view cluster_id, uint8_t role) const {
  const absl::string_view own = absl::string_view(config_.cluster_id).substr(0, kMaxClusterIdBytes);
  // The id of the peer is escaped, since the text goes to logs.
  if (cluster_id != own) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the peer belongs to cluster \"%s\", this node (%s) to \"%s\"",
                        absl::CHexEscape(cluster_id), config_.self.ToString(), own));
  }
  // Equal roles would let an attacker return our own proof to us.
  if (role != static_cast<uint8_t>(Other(role_))) {
    return absl::FailedPreconditionError(
        absl::StrCat("the peer's role is ", role, ", ours ", static_cast<int>(role_)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Handshake::TakeProof() {
  if (input_.size() < kProofBytes) return false;
  if (!ProofMatches(Proof(Other(role_)), input_)) {
    return absl::PermissionDeniedError(
        absl::StrFormat("node %s did not prove that it knows the secret of cluster \"%s\"",
                        peer_.ToString(), config_.cluster_id));
  }
  input_.clear();
  state_ = State::kDone;
  return true;
}

std::string Handshake::Proof(Role prover) const {
  const absl::string_view role = prover == Role::kDialer ? "dialer" : "acceptor";
  const bool dialer = role_ == Role::kDialer;
  // Always the hello of the dialer first, so that both sides hash the same text.
  return ProveSecret(config_.secret, kLabel,
                     {role, dialer ? own_hello_ : peer_hello_, dialer ? peer_hello_ : own_hello_});
}

}  // namespace phalanx::net
