#include "src/client/ps/disks/disk_agreement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/io/wire.h"
#include "src/ps/ps_wire.h"

namespace phalanx::ps::internal {
namespace {

constexpr size_t kMaxErrorBytes = 4096;

enum class Kind : uint8_t { kOffer = 1, kAsk = 2, kStart = 3, kError = 4 };

std::string Message(Kind kind) { return std::string(1, static_cast<char>(kind)); }

std::string OfferMessage(const std::vector<DiskOffer>& offers) {
  std::string bytes = Message(Kind::kOffer);
  ByteWriter out(bytes);
  out.U32(static_cast<uint32_t>(offers.size()));
  for (const DiskOffer& offer : offers) {
    out.U8(offer.at.has_value() ? 1 : 0);
    out.U64(offer.at.value_or(0));
    out.U8(offer.moved ? 1 : 0);
    out.U64(offer.line);
    out.U64(offer.from);
    const size_t skipped =
        offer.states.size() - std::min<size_t>(offer.states.size(), kOfferedStates);
    out.U8(static_cast<uint8_t>(offer.states.size() - skipped));
    for (size_t i = skipped; i < offer.states.size(); ++i) {
      out.U64(offer.states[i].line);
      out.U64(offer.states[i].state);
    }
  }
  return bytes;
}

std::optional<std::vector<DiskOffer>> ReadOffer(ByteReader& in) {
  std::vector<DiskOffer> offers;
  const uint32_t count = in.U32();
  for (uint32_t i = 0; i < count && in.ok() && i < kMaxTables; ++i) {
    DiskOffer offer;
    const bool has = in.U8() != 0;
    const uint64_t at = in.U64();
    if (has) offer.at = at;
    offer.moved = in.U8() != 0;
    offer.line = in.U64();
    offer.from = in.U64();
    const uint8_t states = in.U8();
    for (uint8_t s = 0; s < states && in.ok(); ++s) {
      const uint64_t line = in.U64();
      offer.states.push_back({line, in.U64()});
    }
    std::sort(offer.states.begin(), offer.states.end());
    offers.push_back(std::move(offer));
  }
  if (!in.Finish().ok()) return std::nullopt;
  return offers;
}

std::string StartMessage(const absl::StatusOr<DiskAgreement::Starts>& starts) {
  if (!starts.ok()) {
    std::string bytes = Message(Kind::kError);
    ByteWriter out(bytes);
    out.U32(static_cast<uint32_t>(starts.status().code()));
    out.Bytes(absl::string_view(starts.status().message()).substr(0, kMaxErrorBytes));
    return bytes;
  }
  std::string bytes = Message(Kind::kStart);
  ByteWriter out(bytes);
  out.U32(static_cast<uint32_t>(starts->size()));
  for (const DiskStart& start : *starts) {
    out.U8(static_cast<uint8_t>(start.kind));
    out.U64(start.line);
    out.U64(start.from);
    out.U64(start.state);
    out.U8(start.all ? 1 : 0);
  }
  return bytes;
}

// Nothing: the bytes are none.
std::optional<absl::StatusOr<DiskAgreement::Starts>> ReadStart(Kind kind, ByteReader& in) {
  if (kind == Kind::kError) {
    const uint32_t code = in.U32();
    const std::string text(in.Bytes(kMaxErrorBytes));
    if (!in.Finish().ok() || code == 0) return std::nullopt;
    return absl::Status(static_cast<absl::StatusCode>(code), text);
  }
  DiskAgreement::Starts starts;
  const uint32_t count = in.U32();
  for (uint32_t i = 0; i < count && in.ok() && i < kMaxTables; ++i) {
    DiskStart start;
    const uint8_t how = in.U8();
    if (how > static_cast<uint8_t>(DiskStart::Kind::kNewest)) in.Fail("a start");
    start.kind = static_cast<DiskStart::Kind>(how);
    start.line = in.U64();
    start.from = in.U64();
    start.state = in.U64();
    start.all = in.U8() != 0;
    starts.push_back(start);
  }
  if (!in.Finish().ok()) return std::nullopt;
  return starts;
}

}  // namespace

void DiskAgreement::Begin(std::vector<DiskTable> tables, std::vector<DiskOffer> own,
                          uint64_t new_line) {
  tables_ = std::move(tables);
  new_line_ = new_line;
  peers_[rank_].offer = std::move(own);
  TryDecide();
  Tick();
}

// Before Begin there is nothing to move from.
void DiskAgreement::OnMoved(size_t table) {
  std::optional<std::vector<DiskOffer>>& own = peers_[rank_].offer;
  if (own.has_value() && table < own->size()) (*own)[table].moved = true;
}

void DiskAgreement::Tick() {
  if (decided_.has_value() || !peers_[rank_].offer.has_value()) return;
  if (rank_ != 0) return SendOffer();
  for (const int server : missing()) SendTo(server, Message(Kind::kAsk));
}

std::vector<int> DiskAgreement::missing() const {
  if (decided_.has_value()) return {};
  if (rank_ != 0) return {0};
  std::vector<int> missing;
  for (size_t server = 0; server < peers_.size(); ++server) {
    if (!peers_[server].offer.has_value()) missing.push_back(static_cast<int>(server));
  }
  return missing;
}

void DiskAgreement::OnServer(int server, bool live, uint64_t life) {
  if (server < 0 || server >= static_cast<int>(peers_.size()) || server == rank_) return;
  Peer& peer = peers_[server];
  if (peer.life.has_value() && life < *peer.life) return;
  const bool began = live && !(peer.live && peer.life == life);
  if (peer.life != life) NewLife(peer, life);
  peer.live = live;
  if (began) Tick();
}

// Once all have offered, a server that is away stands where it has begun.
void DiskAgreement::NewLife(Peer& peer, uint64_t life) {
  peer.life = life;
  peer.live = false;
  if (!decided_.has_value()) peer.offer.reset();
}

// A message can come before its life is reported.
bool DiskAgreement::Hears(int server, uint64_t life) {
  if (server < 0 || server >= static_cast<int>(peers_.size()) || server == rank_) return false;
  Peer& peer = peers_[server];
  if (peer.life.has_value() && life < *peer.life) return false;
  if (peer.life != life) NewLife(peer, life);
  peer.live = true;
  return true;
}

void DiskAgreement::OnMessage(int server, uint64_t life, absl::string_view bytes) {
  if (!Hears(server, life)) return;
  ByteReader in(bytes);
  const auto kind = static_cast<Kind>(in.U8());
  if (kind == Kind::kAsk && server == 0) return SendOffer();
  if (kind == Kind::kOffer && rank_ == 0) {
    std::optional<std::vector<DiskOffer>> offer = ReadOffer(in);
    if (!offer.has_value()) return;
    peers_[server].offer = *std::move(offer);
    // What a later life gets follows from what it has, and where the others have begun.
    if (!decided_.has_value()) return TryDecide();
    const absl::StatusOr<Starts> starts = Choose();
    NoteStarts(server, starts);
    SendTo(server, StartMessage(starts));
  } else if ((kind == Kind::kStart || kind == Kind::kError) && server == 0) {
    std::optional<absl::StatusOr<Starts>> starts = ReadStart(kind, in);
    if (!starts.has_value() || decided_.has_value() || !peers_[rank_].offer.has_value()) return;
    Decide(*std::move(starts));
  }
}

void DiskAgreement::SendTo(int server, std::string bytes) {
  const Peer& peer = peers_[server];
  if (peer.live) sends_.push_back({server, *peer.life, std::move(bytes)});
}

void DiskAgreement::SendOffer() {
  if (peers_[rank_].offer.has_value()) SendTo(0, OfferMessage(*peers_[rank_].offer));
}

absl::StatusOr<DiskAgreement::Starts> DiskAgreement::Choose() const {
  std::vector<std::vector<DiskOffer>> offers(tables_.size());
  for (size_t server = 0; server < peers_.size(); ++server) {
    const std::vector<DiskOffer>& offer = *peers_[server].offer;
    if (offer.size() != tables_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("server ", server, " has ", offer.size(),
                                                     " tables, and server 0 has ", tables_.size(),
                                                     ": all servers have the same tables"));
    }
    for (size_t table = 0; table < tables_.size(); ++table) offers[table].push_back(offer[table]);
  }
  return ChooseStarts(tables_, offers, new_line_);
}

// The others begin with what is decided here, in this life or in their next one.
void DiskAgreement::TryDecide() {
  if (rank_ != 0 || decided_.has_value() || !missing().empty()) return;
  Decide(Choose());
  for (size_t server = 1; server < peers_.size(); ++server) {
    NoteStarts(static_cast<int>(server), *decided_);
    SendTo(static_cast<int>(server), StartMessage(*decided_));
  }
}

// From now on its offer says with what this life has begun.
void DiskAgreement::NoteStarts(int server, const absl::StatusOr<Starts>& starts) {
  if (!starts.ok()) return;
  for (size_t table = 0; table < starts->size(); ++table) {
    DiskOffer& offer = (*peers_[server].offer)[table];
    if (!offer.at.has_value()) {
      offer.at = (*starts)[table].state;
      offer.from = (*starts)[table].from;
    }
    offer.line = (*starts)[table].line;
  }
}

void DiskAgreement::Decide(absl::StatusOr<Starts> starts) {
  if (starts.ok() && starts->size() != peers_[rank_].offer->size()) {
    starts =
        absl::InvalidArgumentError("server 0 has other tables: all servers have the same ones");
  }
  decided_ = std::move(starts);
  NoteStarts(rank_, *decided_);
}

}  // namespace phalanx::ps::internal
