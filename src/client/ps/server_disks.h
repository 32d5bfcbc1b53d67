// ServerDisks: the directory of checkpoints of one server: writes its snapshots there as well, and
// begins from there when the store has none (docs/parameter-server.md, On disks).
//
//   ServerCore ──► states ──► PartFiles                    disk_start.h says which states fit
//   DiskAgreement ◄──► MemberSends ◄──► other servers
//
// Files are written in the thread of Run, which serves nothing meanwhile. No file is removed that
// is ahead of a server, but when all servers have begun from disks, and what this one has begun
// with is in the store.
//
// Belongs to a ServerState. The thread of Run, but where it says otherwise.
#ifndef PHALANX_CLIENT_PS_SERVER_DISKS_H_
#define PHALANX_CLIENT_PS_SERVER_DISKS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/job.h"
#include "src/client/ps/disks/disk_agreement.h"
#include "src/client/ps/disks/part_files.h"
#include "src/client/ps/member_sends.h"
#include "src/client/ps/snapshot_store.h"
#include "src/ps/server/server_core.h"

namespace phalanx::ps::internal {

class ServerDisks {
 public:
  ServerDisks(const Client& client, Membership member, std::string directory);

  // ---- lock held: of servers of the job
  void OnMessage(const Message& message);
  void OnMember(const Member& member);
  void Stop() { sends_->Stop(); }

  // A table that has snapshots.
  struct Table {
    uint32_t number = 0;  // in the core
    TableSpec spec;
    SnapshotStore* snapshots = nullptr;
    std::optional<uint64_t> restored;  // the number of the snapshot in the store, if it has one
  };
  // Before the core's Begin: agrees with the other servers, and restores what is to be restored.
  // What a table begins with is in its file and in the store behind it, so a next life finds it.
  // `ended` is asked from time to time: with OK nothing is restored or stored. DeadlineExceeded
  // names servers that have not answered; else the errors of PartFiles and ChooseStart.
  absl::Status Begin(ServerCore& core, std::vector<Table> tables, absl::Duration patience,
                     absl::FunctionRef<std::optional<absl::Status>()> ended);
  // Writes what the core has made. The error names the file.
  absl::Status Write(const ServerCore& core, const ServerCore::Effects& effects);
  // The job has ended. The error names a file that stays, and would count in its next run.
  absl::Status RemoveAll() const;

 private:
  struct Part {
    Table table;
    bool exact;
    PartFiles files;
    std::vector<PartState> had;  // as this life has begun
    uint64_t line = 0;
    uint64_t begun = 0;  // the least clock with which this life has begun
    bool moved = false;  // beyond that
  };
  using Ended = absl::FunctionRef<std::optional<absl::Status>()>;
  // Nothing: it has ended before.
  absl::StatusOr<std::optional<DiskAgreement::Starts>> Agree(absl::Duration patience, Ended ended);
  // Lock held.
  void SendAll();
  absl::Status BeginPart(ServerCore& core, Part& part, const DiskStart& start,
                         absl::Duration patience, Ended ended) const;
  struct Loaded {
    PartState at;
    PartFiles::Numbers numbers;
  };
  // The snapshot that the start names; nothing: the table begins empty.
  absl::StatusOr<std::optional<Loaded>> Load(ServerCore& core, const Part& part,
                                             const DiskStart& start) const;
  // From this number on. False: it has ended before.
  absl::StatusOr<bool> StoreNow(ServerCore& core, const Part& part, uint64_t number,
                                absl::Duration patience, Ended ended) const;
  // What TakeWritten of the part returns; nothing: it has ended before.
  absl::StatusOr<std::optional<absl::Status>> AwaitWritten(const Part& part, Ended ended) const;
  absl::Status WriteState(const Part& part, uint64_t state, uint64_t number,
                          absl::string_view bytes) const;

  const std::shared_ptr<phalanx::internal::Connection> connection_;
  const Membership member_;
  const std::string directory_;
  std::vector<Part> parts_;

  // Under the connection's lock.
  DiskAgreement agreement_;
  std::shared_ptr<MemberSends> sends_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_SERVER_DISKS_H_
