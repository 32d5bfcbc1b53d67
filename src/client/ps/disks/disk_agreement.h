// DiskAgreement: how the servers of a job agree with which files they begin. Server 0 decides: each
// server sends it what it has, and gets what follows from the offers of all.
//
//   server 2 ── offer ──► server 0 ── start ──► server 2
//
// A server that does not know yet sends its offer again and again (Tick), so no message is missed.
// Server 0 in its next life asks the others: one that has begun says with what, and that stays. A
// message of an older life than the last one that is known is ignored.
//
// Pure: takes events, returns messages. Belongs to ServerDisks, or a test. One thread at a time.
#ifndef PHALANX_CLIENT_PS_DISKS_DISK_AGREEMENT_H_
#define PHALANX_CLIENT_PS_DISKS_DISK_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/client/ps/disks/disk_start.h"

namespace phalanx::ps::internal {

// The newest ones of a part that an offer has.
inline constexpr size_t kOfferedStates = 16;

class DiskAgreement {
 public:
  struct Send {
    int server;
    uint64_t life;
    std::string bytes;
  };
  // By table.
  using Starts = std::vector<DiskStart>;

  DiskAgreement(int rank, int servers) : rank_(rank), peers_(servers) {}

  // What this life has, by table. `new_line` is drawn by chance, and not 0. Once.
  void Begin(std::vector<DiskTable> tables, std::vector<DiskOffer> own, uint64_t new_line);
  // This server has come further with the table than where it has begun.
  void OnMoved(size_t table);
  void OnServer(int server, bool live, uint64_t life);
  void OnMessage(int server, uint64_t life, absl::string_view bytes);
  // A while later.
  void Tick();

  // Nothing: not yet. An error is that of all servers.
  const std::optional<absl::StatusOr<Starts>>& decided() const { return decided_; }
  // Of which this server waits to hear.
  std::vector<int> missing() const;
  std::vector<Send> TakeSends() { return std::exchange(sends_, {}); }

 private:
  struct Peer {
    std::optional<uint64_t> life = {};
    bool live = false;
    std::optional<std::vector<DiskOffer>> offer = {};
  };
  void NewLife(Peer& peer, uint64_t life);
  bool Hears(int server, uint64_t life);
  void SendTo(int server, std::string bytes);
  void SendOffer();
  // Server 0: from the offers of all.
  absl::StatusOr<Starts> Choose() const;
  void TryDecide();
  void Decide(absl::StatusOr<Starts> starts);
  void NoteStarts(int server, const absl::StatusOr<Starts>& starts);

  const int rank_;
  std::vector<DiskTable> tables_;
  std::vector<Peer> peers_;  // by rank; the own one has the own offer
  uint64_t new_line_ = 0;
  std::optional<absl::StatusOr<Starts>> decided_;
  std::vector<Send> sends_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_DISKS_DISK_AGREEMENT_H_
