// A simulated network: byte streams between simulated processes, with faults.
//
//   SimFabric ── all links and connections of the world; the test breaks and repairs it
//     └─ SimNetwork ── net::Network of one process; ends when the process dies
//          └─ net::ByteStream, net::Listener
//
// The model: latency, jitter and bandwidth of each link; each host's interface as a limit on the
// sum of its links; kernel buffers, so that Write accepts less than it is given and a receiver that
// does not read stops the sender; connections that are reset, or silently stop for ever; partitions
// in one direction, during which nothing is lost but nothing moves until they heal (TCP would send
// again); short reads and writes. A process that dies closes its connections, as its kernel would.
// Bytes of one connection always arrive in order.
//
// Hosts are plain names: "a:7400" is port 7400 on host a; "localhost" is the process's own host.
// Deterministic by seed; on the test's thread. Testonly.
#ifndef PHALANX_SIM_SEAMS_SIM_NETWORK_H_
#define PHALANX_SIM_SEAMS_SIM_NETWORK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/common/random.h"
#include "src/net/stream/byte_stream.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::sim {

// One direction between two hosts.
struct Link {
  absl::Duration latency = absl::Microseconds(50);
  // The longest additional delay of a segment.
  absl::Duration jitter = absl::ZeroDuration();
  // 0: no limit.
  double bytes_per_second = 0;
};

class SimNetwork;

class SimFabric {
 public:
  struct Options {
    uint64_t seed = 1;
    // The link within a host, and between hosts without a link of their own.
    Link link;
    Link loopback = {.latency = absl::Microseconds(5)};
    // The bandwidth of each host's interface, in each direction; 0: no limit.
    double interface_bytes_per_second = 0;
    size_t send_buffer_bytes = 256 << 10;
    size_t receive_buffer_bytes = 256 << 10;
    // The size of one piece on the wire.
    size_t segment_bytes = 16 << 10;
    // The chance that a Read or Write moves only a random part of the possible bytes.
    double short_io = 0;
    // Every Read and Write moves one byte.
    bool one_byte_at_a_time = false;
    // The chance that a Read or Write starts a trickle: it and some hundred more move one byte
    // each.
    double trickle = 0;
  };

  // `scheduler` must outlive the fabric.
  SimFabric(SimScheduler& scheduler, const Options& options);
  // REQUIRES: its networks and streams are destroyed.
  ~SimFabric();

  // Returns the network of `process` on `host`. `label` names a group of hosts, for links between
  // groups (a zone, a rack). The fabric and the process must outlive it.
  std::unique_ptr<SimNetwork> Join(SimProcess& process, absl::string_view host,
                                   absl::string_view label = "");

  // Sets the link from one host to another, or from hosts with one label to hosts with another. A
  // pair of hosts has priority over a pair of labels. Applies to segments that start from now on.
  void SetLink(absl::string_view from, absl::string_view to, const Link& link);
  void SetLabelLink(absl::string_view from, absl::string_view to, const Link& link);
  Link GetLink(const std::string& from, const std::string& to) const;
  // Sets the bandwidth of one host's interface, which replaces the option's.
  void SetInterface(absl::string_view host, double bytes_per_second);

  // Faults. Resets every connection between two hosts: both ends fail at once.
  void Reset(absl::string_view a, absl::string_view b);
  // Every current connection between two hosts stops carrying bytes from `from`, for ever and
  // without an error.
  void HalfOpen(absl::string_view from, absl::string_view to);
  // Every current connection between two hosts fails at once at the end of `from`. The bytes that
  // `from` has sent still arrive, `late`, and only then does the other end fail.
  void Sever(absl::string_view from, absl::string_view to, absl::Duration late);
  // Stops all bytes from `from` to `to` until Heal, including acknowledgements of the other
  // direction and so its window.
  void Partition(absl::string_view from, absl::string_view to);
  void PartitionBothWays(absl::string_view a, absl::string_view b);
  // Refuses every connection that `from` begins to `to` until Heal. Open ones are not affected.
  void Refuse(absl::string_view from, absl::string_view to);
  // Ends the partition and the refusal, if there is one.
  void Heal(absl::string_view from, absl::string_view to);
  void HealAll();
  // Sets Options::short_io, one_byte_at_a_time and trickle from now on.
  void SetShortIo(double chance, bool one_byte_at_a_time, double trickle = 0);

  // The chance that a Write from one host to another flips a bit in one of its pieces of
  // kCorruptible bytes or more. Such pieces are payload; the headers before them stay intact.
  static constexpr size_t kCorruptible = 1024;
  void SetCorruption(absl::string_view from, absl::string_view to, double chance);

  // The bytes that left `from` for `to` since the start, and the number of connections that are not
  // over.
  uint64_t BytesCarried(absl::string_view from, absl::string_view to) const;
  size_t open_connections() const { return connections_.size(); }
  // One line for each open connection, for debugging.
  std::string DescribeConnections() const;

 private:
  friend class SimNetwork;
  friend class SimByteStream;
  friend class DetachedSimStream;
  friend class SimListener;
  using HostPair = std::pair<std::string, std::string>;
  struct Connection;
  struct Dial;
  struct ListenState;
  using ConnectionPtr = std::shared_ptr<Connection>;
  using DialPtr = std::shared_ptr<Dial>;

  bool Passable(const std::string& from, const std::string& to) const {
    return !partitions_.contains({from, to});
  }
  absl::Duration Delay(const std::string& from, const std::string& to);
  // The instant at which `size` bytes leave if they are sent now, within both limits.
  Instant Departure(const std::string& from, const std::string& to, size_t size);
  double InterfaceRate(const std::string& host) const;
  // `trickle`: the number of further bytes that the stream moves one by one in that direction.
  size_t Shorten(size_t size, int& trickle);
  // Returns the bytes as they leave, perhaps with a flipped bit.
  std::string Corrupted(const Connection& connection, int side, absl::string_view bytes);

  // The life of a segment: Pump takes it from the send buffer; it departs, arrives, is delivered.
  void Pump(const ConnectionPtr& connection, int side);
  void Arrive(const ConnectionPtr& connection, int side, size_t size);
  void Deliver(const ConnectionPtr& connection, int side);
  void Credit(const ConnectionPtr& connection, int side, size_t size);
  // Closes one end: its bytes and then the end of file are sent.
  void CloseEnd(const ConnectionPtr& connection, int side);
  void BreakEnd(const ConnectionPtr& connection, int side, bool drop_arrived);
  void ForgetIfOver(const ConnectionPtr& connection);
  void Notify(const ConnectionPtr& connection, int side, bool readable);

  void SendSyn(const DialPtr& dial);
  void ReceiveSyn(const DialPtr& dial);
  void Establish(const DialPtr& dial, const std::shared_ptr<ListenState>& listener);
  void Leave(SimNetwork* network);

  SimScheduler& scheduler_;
  Options options_;
  Random random_;
  std::map<std::string, std::string> labels_;
  std::map<HostPair, Link> links_;
  std::map<HostPair, Link> label_links_;
  std::map<std::string, double> interfaces_;
  std::set<HostPair> partitions_;
  std::set<HostPair> refusals_;
  std::map<HostPair, double> corruption_;
  // The instant from which the link, and the interface in each direction, is free.
  std::map<HostPair, Instant> link_free_;
  std::map<std::string, Instant> egress_free_;
  std::map<std::string, Instant> ingress_free_;
  std::map<HostPair, uint64_t> bytes_carried_;

  uint64_t last_id_ = 0;
  std::map<uint64_t, ConnectionPtr> connections_;
  std::map<std::pair<std::string, uint16_t>, std::shared_ptr<ListenState>> listeners_;
  std::map<std::string, uint16_t> last_port_;
  // Dials that a partition blocks. They continue when it heals.
  std::vector<DialPtr> waiting_dials_;
};

class SimNetwork final : public net::Network {
 public:
  SimNetwork(SimFabric& fabric, SimProcess& process, std::string host);
  ~SimNetwork() override;

  const std::string& host() const { return host_; }

  void Dial(Executor& executor, const net::Address& to, Instant deadline, DialDone done) override;
  absl::StatusOr<std::unique_ptr<net::Listener>> Listen(Executor& executor, const net::Address& on,
                                                        absl::AnyInvocable<Executor&()> pick,
                                                        Accepted accepted) override;

 private:
  friend class SimFabric;
  friend class SimListener;

  // Ends all sockets of this process in the fabric. Idempotent.
  void Die();
  void Finished(const SimFabric::DialPtr& dial,
                absl::StatusOr<std::unique_ptr<net::ByteStream>> result);
  bool Mine(const std::string& host) const;

  SimFabric& fabric_;
  SimProcess& process_;
  const std::string host_;
  // Cleared when this network is destroyed, because the death of the process can follow later.
  const std::shared_ptr<SimNetwork*> self_;
  std::set<SimFabric::DialPtr> dials_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_SEAMS_SIM_NETWORK_H_
