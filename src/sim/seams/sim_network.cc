#include "src/sim/seams/sim_network.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"
#include "src/net/stream/address.h"
#include "src/sim/seams/byte_queue.h"

namespace phalanx::sim {
namespace {

constexpr uint16_t kFirstEphemeralPort = 40000;
constexpr uint64_t kLongestTrickle = 300;

size_t TotalSize(absl::Span<const iovec> buffers) {
  size_t total = 0;
  for (const iovec& buffer : buffers) total += buffer.iov_len;
  return total;
}

Instant Later(Instant a, Instant b) { return std::max(a, b); }

absl::Duration TransferTime(size_t size, double bytes_per_second) {
  if (bytes_per_second <= 0) return absl::ZeroDuration();
  return absl::Seconds(static_cast<double>(size) / bytes_per_second);
}

}  // namespace

struct SimFabric::Connection {
  // One direction, from the end with the same index to the other end.
  struct Pipe {
    ByteQueue unsent;
    size_t unsent_limit;
    // Segments that were sent and not delivered yet, in order.
    std::deque<std::string> in_flight;
    // A segment is on its way out of the host.
    bool departing = false;
    // The number of segments that arrived during a partition. They are delivered when it heals.
    int held_back = 0;
    ByteQueue arrived;
    // Bytes sent and not known to be read, bounded by the receive buffer.
    size_t outstanding = 0;
    // Bytes read whose acknowledgement could not pass.
    size_t unacknowledged = 0;
    // The end of file is requested, sent (as an empty segment), and has arrived.
    bool closing = false;
    bool end_sent = false;
    bool end_arrived = false;
    // Half-open: this direction carries nothing any more.
    bool frozen = false;
  };
  struct End {
    std::string host;
    // Null after the process has ended.
    SimNetwork* network = nullptr;
    // Null until the connection is accepted, and after the close.
    Executor* executor = nullptr;
    bool open = true;
    bool read_broken = false;
    bool write_broken = false;
    Task callback[2];  // [0] writable, [1] readable
    bool notified[2] = {false, false};
    std::string peer;
  };

  bool ReadReady(int side) const {
    const Pipe& pipe = pipes[1 - side];
    return !pipe.arrived.empty() || pipe.end_arrived || ends[side].read_broken;
  }
  bool WriteReady(int side) const {
    const Pipe& pipe = pipes[side];
    return ends[side].write_broken || pipe.unsent.size() < pipe.unsent_limit;
  }
  const std::string& from(int side) const { return ends[side].host; }
  const std::string& to(int side) const { return ends[1 - side].host; }

  uint64_t id = 0;
  Pipe pipes[2];
  End ends[2];
};

struct SimFabric::ListenState {
  SimNetwork* network;
  Executor* executor;
  absl::AnyInvocable<Executor&()> pick;
  net::Network::Accepted accepted;
  bool open = true;
};

struct SimFabric::Dial {
  SimNetwork* network;
  Executor* executor;
  net::HostPort to;
  net::Network::DialDone done;
  TimerId deadline = 0;
  bool over = false;

  void Finish(absl::StatusOr<std::unique_ptr<net::ByteStream>> result) {
    over = true;
    executor->Post([done = std::move(done), result = std::move(result)]() mutable {
      done(std::move(result));
    });
  }
};

class SimByteStream final : public net::ByteStream {
 public:
  SimByteStream(SimFabric& fabric, SimFabric::ConnectionPtr connection, int side)
      : fabric_(fabric), connection_(std::move(connection)), side_(side) {}
  ~SimByteStream() override { Close(); }

  absl::StatusOr<size_t> Read(absl::Span<const iovec> into) override {
    CheckThread();
    auto& pipe = connection_->pipes[1 - side_];
    // The errors come before the bytes, as a kernel drops received bytes after a reset.
    if (!open()) return Broken("is closed");
    if (end().read_broken) return Broken("was reset");
    if (pipe.arrived.empty() && pipe.end_arrived) {
      return absl::OutOfRangeError(absl::StrCat("end of file from ", peer()));
    }
    const size_t size =
        fabric_.Shorten(std::min(TotalSize(into), pipe.arrived.size()), trickle_[1]);
    const std::string bytes = pipe.arrived.Take(size);
    size_t copied = 0;
    for (const iovec& buffer : into) {
      const size_t part = std::min(buffer.iov_len, size - copied);
      if (part > 0) std::memcpy(buffer.iov_base, bytes.data() + copied, part);
      copied += part;
    }
    fabric_.Credit(connection_, 1 - side_, size);
    return size;
  }

  absl::StatusOr<size_t> Write(absl::Span<const iovec> from) override {
    CheckThread();
    auto& pipe = connection_->pipes[side_];
    if (!open()) return Broken("is closed");
    if (end().write_broken) return Broken("was reset");
    // A short write still makes the sender wait for OnWritable.
    if (pipe.unsent.size() >= pipe.unsent_limit) return 0;
    const size_t room = pipe.unsent_limit - pipe.unsent.size();
    const size_t size = fabric_.Shorten(std::min(TotalSize(from), room), trickle_[0]);
    size_t left = size;
    for (const iovec& buffer : from) {
      const size_t part = std::min(buffer.iov_len, left);
      const absl::string_view bytes(static_cast<const char*>(buffer.iov_base), part);
      if (part >= SimFabric::kCorruptible && !fabric_.corruption_.empty()) {
        pipe.unsent.Append(fabric_.Corrupted(*connection_, side_, bytes));
      } else {
        pipe.unsent.Append(bytes);
      }
      left -= part;
    }
    fabric_.Pump(connection_, side_);
    return size;
  }

  void OnReadable(Task ready) override { Arm(1, std::move(ready)); }
  void OnWritable(Task ready) override { Arm(0, std::move(ready)); }

  void SetUnsentLimit(size_t bytes) override {
    CheckThread();
    if (!open()) return;
    connection_->pipes[side_].unsent_limit =
        std::clamp<size_t>(bytes, 1, fabric_.options_.send_buffer_bytes);
  }

  absl::Duration RoundTrip() const override {
    const std::string& here = connection_->from(side_);
    const std::string& there = connection_->to(side_);
    return fabric_.GetLink(here, there).latency + fabric_.GetLink(there, here).latency;
  }

  std::string peer() const override { return end().peer; }

  void Close() override {
    if (!open()) return;
    CheckThread();
    fabric_.CloseEnd(connection_, side_);
  }

  std::unique_ptr<net::DetachedStream> Detach() override;

 private:
  bool open() const { return end().open && !detached_; }
  SimFabric::Connection::End& end() const { return connection_->ends[side_]; }

  absl::Status Broken(absl::string_view what) const {
    return absl::UnavailableError(absl::StrCat("connection with ", peer(), " ", what));
  }

  // Between tasks the test itself can act for a process.
  void CheckThread() const {
    PHALANX_CHECK(fabric_.scheduler_.running() == nullptr || detached_ ||
                      end().executor == nullptr || end().executor->InLoop(),
                  "a stream is used on its own executor");
  }

  void Arm(int readable, Task ready) {
    CheckThread();
    if (!open()) return;
    // The old callback is destroyed last: it can own the stream.
    std::swap(end().callback[readable], ready);
    fabric_.Notify(connection_, side_, readable != 0);
  }

  SimFabric& fabric_;
  const SimFabric::ConnectionPtr connection_;
  const int side_;
  bool detached_ = false;
  int trickle_[2] = {0, 0};  // [0] writing, [1] reading
};

class DetachedSimStream final : public net::DetachedStream {
 public:
  DetachedSimStream(SimFabric& fabric, SimFabric::ConnectionPtr connection, int side)
      : fabric_(fabric), connection_(std::move(connection)), side_(side) {}
  ~DetachedSimStream() override {
    if (connection_ != nullptr) fabric_.CloseEnd(connection_, side_);
  }

  absl::StatusOr<std::unique_ptr<net::ByteStream>> Attach(Executor& executor) override {
    SimFabric::Connection::End& end = connection_->ends[side_];
    if (!end.open) return absl::UnavailableError("the process of the stream has ended");
    end.executor = &executor;
    return std::make_unique<SimByteStream>(fabric_, std::exchange(connection_, nullptr), side_);
  }

 private:
  SimFabric& fabric_;
  SimFabric::ConnectionPtr connection_;
  const int side_;
};

std::unique_ptr<net::DetachedStream> SimByteStream::Detach() {
  CheckThread();
  Arm(0, nullptr);
  Arm(1, nullptr);
  detached_ = true;
  end().executor = nullptr;
  return std::make_unique<DetachedSimStream>(fabric_, connection_, side_);
}

class SimListener final : public net::Listener {
 public:
  SimListener(SimFabric& fabric, std::shared_ptr<SimFabric::ListenState> state, std::string host,
              uint16_t port)
      : fabric_(fabric), state_(std::move(state)), host_(std::move(host)), port_(port) {}

  ~SimListener() override {
    state_->open = false;
    const auto it = fabric_.listeners_.find({host_, port_});
    if (it != fabric_.listeners_.end() && it->second == state_) fabric_.listeners_.erase(it);
  }

  net::Address address() const override { return absl::StrCat(host_, ":", port_); }

 private:
  SimFabric& fabric_;
  const std::shared_ptr<SimFabric::ListenState> state_;
  const std::string host_;
  const uint16_t port_;
};

SimFabric::SimFabric(SimScheduler& scheduler, const Options& options)
    : scheduler_(scheduler), options_(options), random_(options.seed) {}

SimFabric::~SimFabric() = default;

std::unique_ptr<SimNetwork> SimFabric::Join(SimProcess& process, absl::string_view host,
                                            absl::string_view label) {
  labels_[std::string(host)] = std::string(label);
  return std::make_unique<SimNetwork>(*this, process, std::string(host));
}

void SimFabric::SetLink(absl::string_view from, absl::string_view to, const Link& link) {
  links_[{std::string(from), std::string(to)}] = link;
}

void SimFabric::SetLabelLink(absl::string_view from, absl::string_view to, const Link& link) {
  label_links_[{std::string(from), std::string(to)}] = link;
}

Link SimFabric::GetLink(const std::string& from, const std::string& to) const {
  if (const auto it = links_.find({from, to}); it != links_.end()) return it->second;
  // Before labels: a host is never in another zone than itself.
  if (from == to) return options_.loopback;
  const auto label_from = labels_.find(from);
  const auto label_to = labels_.find(to);
  if (label_from != labels_.end() && label_to != labels_.end()) {
    const auto it = label_links_.find({label_from->second, label_to->second});
    if (it != label_links_.end()) return it->second;
  }
  return options_.link;
}

void SimFabric::SetInterface(absl::string_view host, double bytes_per_second) {
  interfaces_[std::string(host)] = bytes_per_second;
}

void SimFabric::Reset(absl::string_view a, absl::string_view b) {
  // A copy, because callbacks can close connections while this iterates.
  const std::map<uint64_t, ConnectionPtr> connections = connections_;
  for (const auto& [id, connection] : connections) {
    if ((connection->from(0) != a || connection->to(0) != b) &&
        (connection->from(0) != b || connection->to(0) != a)) {
      continue;
    }
    for (const int side : {0, 1}) BreakEnd(connection, side, /*drop_arrived=*/true);
    ForgetIfOver(connection);
  }
}

void SimFabric::HalfOpen(absl::string_view from, absl::string_view to) {
  const std::map<uint64_t, ConnectionPtr> connections = connections_;
  for (const auto& [id, connection] : connections) {
    for (const int side : {0, 1}) {
      if (connection->from(side) == from && connection->to(side) == to) {
        connection->pipes[side].frozen = true;
      }
    }
    ForgetIfOver(connection);
  }
}

void SimFabric::Sever(absl::string_view from, absl::string_view to, absl::Duration late) {
  const std::map<uint64_t, ConnectionPtr> connections = connections_;
  for (const auto& [id, connection] : connections) {
    for (const int side : {0, 1}) {
      if (connection->from(side) != from || connection->to(side) != to) continue;
      Connection::Pipe& pipe = connection->pipes[side];
      // A direction that is half-open delivers nothing, even if it is severed later.
      if (pipe.frozen || connection->ends[side].write_broken) continue;
      std::string sent;
      for (const std::string& segment : std::exchange(pipe.in_flight, {})) sent += segment;
      sent += pipe.unsent.Take(pipe.unsent.size());
      BreakEnd(connection, side, /*drop_arrived=*/true);
      scheduler_.After(late, [this, connection = connection, side, sent] {
        Connection::Pipe& pipe = connection->pipes[side];
        const Connection::End& receiver = connection->ends[1 - side];
        // The receiver can have closed or broken its end before the bytes arrive.
        if (receiver.open && !receiver.read_broken) pipe.arrived.Append(sent);
        pipe.end_arrived = true;
        // The other end learns of the break when the late bytes arrive, not earlier.
        connection->ends[1 - side].write_broken = true;
        Notify(connection, 1 - side, /*readable=*/true);
        Notify(connection, 1 - side, /*readable=*/false);
        ForgetIfOver(connection);
      });
      break;
    }
  }
}

void SimFabric::Partition(absl::string_view from, absl::string_view to) {
  partitions_.insert({std::string(from), std::string(to)});
}

void SimFabric::PartitionBothWays(absl::string_view a, absl::string_view b) {
  Partition(a, b);
  Partition(b, a);
}

void SimFabric::Refuse(absl::string_view from, absl::string_view to) {
  refusals_.insert({std::string(from), std::string(to)});
}

void SimFabric::Heal(absl::string_view from, absl::string_view to) {
  refusals_.erase({std::string(from), std::string(to)});
  partitions_.erase({std::string(from), std::string(to)});
  const std::map<uint64_t, ConnectionPtr> connections = connections_;
  for (const auto& [id, connection] : connections) {
    for (const int side : {0, 1}) {
      Connection::Pipe& pipe = connection->pipes[side];
      // After a partition the sender's TCP repeats the lost segments, so they arrive with a new
      // delay.
      const absl::Duration delay = Delay(connection->from(side), connection->to(side));
      for (; pipe.held_back > 0; --pipe.held_back) {
        // One event for each segment that was held back, because Deliver takes one.
        scheduler_.After(delay,
                         [this, connection = connection, side] { Deliver(connection, side); });
      }
      // The acknowledgements that the partition blocked pass now.
      Credit(connection, side, std::exchange(pipe.unacknowledged, 0));
      Pump(connection, side);
    }
  }
  for (const DialPtr& dial : std::exchange(waiting_dials_, {})) SendSyn(dial);
}

void SimFabric::HealAll() {
  refusals_.clear();
  while (!partitions_.empty()) {
    const HostPair pair = *partitions_.begin();
    Heal(pair.first, pair.second);
  }
}

void SimFabric::SetShortIo(double chance, bool one_byte_at_a_time, double trickle) {
  options_.short_io = chance;
  options_.one_byte_at_a_time = one_byte_at_a_time;
  options_.trickle = trickle;
}

uint64_t SimFabric::BytesCarried(absl::string_view from, absl::string_view to) const {
  const auto it = bytes_carried_.find({std::string(from), std::string(to)});
  return it == bytes_carried_.end() ? 0 : it->second;
}

void SimFabric::SetCorruption(absl::string_view from, absl::string_view to, double chance) {
  const HostPair pair(from, to);
  corruption_.erase(pair);
  if (chance > 0) corruption_[pair] = chance;
}

std::string SimFabric::Corrupted(const Connection& connection, int side, absl::string_view bytes) {
  std::string out(bytes.data(), bytes.size());
  const auto chance = corruption_.find({connection.from(side), connection.to(side)});
  if (chance == corruption_.end() || !random_.Chance(chance->second)) return out;
  // One bit only: every checksum must detect it.
  const uint64_t bit = random_.Below(out.size() * 8);
  out[bit / 8] = static_cast<char>(out[bit / 8] ^ (1 << (bit % 8)));
  return out;
}

std::string SimFabric::DescribeConnections() const {
  std::string text;
  for (const auto& [id, connection] : connections_) {
    absl::StrAppend(&text, "connection ", id, ":");
    for (const int side : {0, 1}) {
      const Connection::End& end = connection->ends[side];
      const Connection::Pipe& pipe = connection->pipes[side];
      absl::StrAppend(&text, side == 0 ? " " : " -> ", end.host, end.open ? " open" : " closed",
                      end.read_broken || end.write_broken ? " broken" : "", " unsent ",
                      pipe.unsent.size(), " in flight ", pipe.in_flight.size(), " arrived ",
                      pipe.arrived.size(), pipe.end_sent ? " end sent" : "",
                      pipe.end_arrived ? " end arrived" : "", pipe.frozen ? " frozen" : "");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

absl::Duration SimFabric::Delay(const std::string& from, const std::string& to) {
  const Link link = GetLink(from, to);
  // Without jitter nothing is drawn, so such links do not change the other draws.
  if (link.jitter <= absl::ZeroDuration()) return link.latency;
  return link.latency + link.jitter * random_.Unit();
}

double SimFabric::InterfaceRate(const std::string& host) const {
  const auto it = interfaces_.find(host);
  return it == interfaces_.end() ? options_.interface_bytes_per_second : it->second;
}

Instant SimFabric::Departure(const std::string& from, const std::string& to, size_t size) {
  Instant& link_free = link_free_[{from, to}];
  Instant departed = Later(scheduler_.now(), link_free);
  if (from != to) departed = Later(departed, egress_free_[from]);
  const absl::Duration on_link = TransferTime(size, GetLink(from, to).bytes_per_second);
  if (from == to) return link_free = departed + on_link;
  const absl::Duration on_interface = TransferTime(size, InterfaceRate(from));
  // A slow link does not occupy the interface: other links can use it at the same time.
  egress_free_[from] = departed + on_interface;
  link_free = departed + std::max(on_link, on_interface);
  return link_free;
}

size_t SimFabric::Shorten(size_t size, int& trickle) {
  // Cannot be shorter; zero means that nothing is possible.
  if (size <= 1) return size;
  if (options_.one_byte_at_a_time) return 1;
  if (trickle == 0 && random_.Chance(options_.trickle)) {
    trickle = static_cast<int>(random_.Below(kLongestTrickle));
  }
  if (trickle > 0) {
    --trickle;
    return 1;
  }
  return random_.Chance(options_.short_io) ? 1 + random_.Below(size) : size;
}

void SimFabric::Pump(const ConnectionPtr& connection, int side) {
  Connection::Pipe& pipe = connection->pipes[side];
  const std::string& from = connection->from(side);
  const std::string& to = connection->to(side);
  // One segment departs at a time, and none after the end of file.
  if (pipe.departing || pipe.frozen || pipe.end_sent || connection->ends[side].write_broken ||
      !Passable(from, to)) {
    return;
  }
  const size_t window = options_.receive_buffer_bytes - pipe.outstanding;
  const size_t size = std::min({pipe.unsent.size(), window, options_.segment_bytes});
  // Like a kernel, waits until the window has room for a whole segment, to avoid tiny segments.
  if (size < std::min(pipe.unsent.size(), options_.segment_bytes) && pipe.outstanding > 0) return;
  if (size == 0) {
    if (!pipe.unsent.empty() || !pipe.closing) return;
    // The end of file travels as an empty segment, behind all bytes.
    pipe.end_sent = true;
  }
  pipe.departing = true;
  // Counted when it leaves, so the window includes bytes in flight.
  pipe.outstanding += size;
  pipe.in_flight.push_back(pipe.unsent.Take(size));
  bytes_carried_[{from, to}] += size;
  scheduler_.At(Departure(from, to, size), [this, connection, side, size] {
    connection->pipes[side].departing = false;
    scheduler_.After(Delay(connection->from(side), connection->to(side)),
                     [this, connection, side, size] { Arrive(connection, side, size); });
    Notify(connection, side, /*readable=*/false);
    Pump(connection, side);
  });
}

void SimFabric::Arrive(const ConnectionPtr& connection, int side, size_t size) {
  const std::string& to = connection->to(side);
  // A host's interface does not limit its own loopback.
  const double rate = connection->from(side) == to ? 0 : InterfaceRate(to);
  if (rate <= 0) return Deliver(connection, side);
  Instant& free = ingress_free_[to];
  // Senders share the interface of the receiver, in the order of arrival.
  free = Later(free, scheduler_.now()) + TransferTime(size, rate);
  scheduler_.At(free, [this, connection, side] { Deliver(connection, side); });
}

void SimFabric::Deliver(const ConnectionPtr& connection, int side) {
  Connection::Pipe& pipe = connection->pipes[side];
  // A break can have cleared the segments that this event was for.
  if (pipe.frozen || pipe.in_flight.empty()) return;
  if (!Passable(connection->from(side), connection->to(side))) {
    ++pipe.held_back;
    return;
  }
  const std::string segment = std::move(pipe.in_flight.front());
  pipe.in_flight.pop_front();
  const Connection::End& receiver = connection->ends[1 - side];
  if (segment.empty()) {
    pipe.end_arrived = true;
  } else if (!receiver.open) {
    // The receiver has closed. The sender gets the reset after all data that was sent to it.
    pipe.outstanding -= segment.size();
    if (connection->pipes[1 - side].end_arrived) {
      BreakEnd(connection, side, /*drop_arrived=*/false);
    } else {
      Pump(connection, side);
    }
    // A broken end reads nothing any more.
  } else if (!receiver.read_broken) {
    pipe.arrived.Append(segment);
  }
  Notify(connection, 1 - side, /*readable=*/true);
  ForgetIfOver(connection);
}

// The reader has taken `size` bytes of a pipe, so the sender can send as many more once it knows.
void SimFabric::Credit(const ConnectionPtr& connection, int side, size_t size) {
  Connection::Pipe& pipe = connection->pipes[side];
  if (!Passable(connection->to(side), connection->from(side)) ||
      connection->pipes[1 - side].frozen) {
    pipe.unacknowledged += size;
    return;
  }
  // Late bytes of a severed connection are read without having been counted.
  pipe.outstanding -= std::min(size, pipe.outstanding);
  if (size > 0) Pump(connection, side);
}

void SimFabric::CloseEnd(const ConnectionPtr& connection, int side) {
  Connection::End& end = connection->ends[side];
  if (!end.open) return;
  end.open = false;
  end.executor = nullptr;
  end.network = nullptr;
  // Destroyed last, because a callback can own the owner of the stream.
  const Task writable = std::exchange(end.callback[0], nullptr);
  const Task readable = std::exchange(end.callback[1], nullptr);
  Connection::Pipe& incoming = connection->pipes[1 - side];
  // Unread bytes free the sender's window; otherwise it could never send its end of file.
  const size_t unread = incoming.arrived.size();
  incoming.arrived.Clear();
  connection->pipes[side].closing = true;
  Credit(connection, 1 - side, unread);
  Pump(connection, side);
  ForgetIfOver(connection);
}

void SimFabric::BreakEnd(const ConnectionPtr& connection, int side, bool drop_arrived) {
  Connection::End& end = connection->ends[side];
  Connection::Pipe& incoming = connection->pipes[1 - side];
  end.write_broken = true;
  if (drop_arrived) incoming.arrived.Clear();
  // An orderly end of file that has arrived stays readable after the break.
  if (drop_arrived || !incoming.end_arrived) end.read_broken = true;
  connection->pipes[side].unsent.Clear();
  connection->pipes[side].in_flight.clear();
  Notify(connection, side, /*readable=*/true);
  Notify(connection, side, /*readable=*/false);
}

void SimFabric::ForgetIfOver(const ConnectionPtr& connection) {
  // A half-open connection never gets its last acknowledgements, so it is not waited for.
  const bool half_open = connection->pipes[0].frozen || connection->pipes[1].frozen;
  for (const int side : {0, 1}) {
    const Connection::End& end = connection->ends[side];
    if (end.open) return;
    if (!end.write_broken && !connection->pipes[side].end_arrived && !half_open) return;
  }
  connections_.erase(connection->id);
}

void SimFabric::Notify(const ConnectionPtr& connection, int side, bool readable) {
  Connection::End& end = connection->ends[side];
  const auto ready = [readable](const Connection& c, int s) {
    return readable ? c.ReadReady(s) : c.WriteReady(s);
  };
  if (end.executor == nullptr || end.callback[readable] == nullptr || end.notified[readable] ||
      !ready(*connection, side)) {
    return;
  }
  // One notification at a time, and readiness is checked again when the task runs.
  end.notified[readable] = true;
  end.executor->Post([this, connection, side, readable, ready, executor = end.executor] {
    Connection::End& end = connection->ends[side];
    end.notified[readable] = false;
    // The stream has moved to another executor meanwhile.
    if (end.executor != executor) return Notify(connection, side, readable);
    if (end.callback[readable] == nullptr || !ready(*connection, side)) return;
    // The callback can arm itself again, so it is taken out before the call.
    const auto callback = std::make_unique<Task>(std::exchange(end.callback[readable], nullptr));
    (*callback)();
  });
}

void SimFabric::SendSyn(const DialPtr& dial) {
  // The deadline can have ended the dial in the meantime.
  if (dial->over) return;
  const std::string& from = dial->network->host();
  // A lost request is repeated, so the dial waits until both directions are open.
  if (!Passable(from, dial->to.host) || !Passable(dial->to.host, from)) {
    waiting_dials_.push_back(dial);
    return;
  }
  scheduler_.After(Delay(from, dial->to.host), [this, dial] { ReceiveSyn(dial); });
}

// The port is checked when the request arrives: the listener can start during the delay.
void SimFabric::ReceiveSyn(const DialPtr& dial) {
  if (dial->over) return;
  const auto listener = listeners_.find({dial->to.host, dial->to.port});
  const bool refused = refusals_.contains({dial->network->host(), dial->to.host});
  if (listener != listeners_.end() && !refused) return Establish(dial, listener->second);
  scheduler_.After(Delay(dial->to.host, dial->network->host()), [dial] {
    if (dial->over) return;
    dial->network->Finished(
        dial, absl::UnavailableError(absl::StrCat("connection refused by ", dial->to.ToString())));
  });
}

void SimFabric::Establish(const DialPtr& dial, const std::shared_ptr<ListenState>& listener) {
  const auto connection = std::make_shared<Connection>();
  connection->id = ++last_id_;
  connections_[connection->id] = connection;
  const std::string& host = dial->network->host();
  connection->ends[0].host = host;
  connection->ends[0].network = dial->network;
  connection->ends[0].peer = dial->to.ToString();
  connection->ends[1].host = dial->to.host;
  connection->ends[1].network = listener->network;
  connection->ends[1].peer = absl::StrCat(host, ":", kFirstEphemeralPort + last_id_ % 20000);
  for (Connection::Pipe& pipe : connection->pipes) pipe.unsent_limit = options_.send_buffer_bytes;

  listener->executor->Post([this, listener, connection] {
    // The listener can close between the handshake and the accept.
    if (!listener->open) return CloseEnd(connection, 1);
    Executor& owner = listener->pick();
    owner.Post([this, listener, connection, &owner] {
      connection->ends[1].executor = &owner;
      auto stream = std::make_unique<SimByteStream>(*this, connection, 1);
      if (listener->open) listener->accepted(owner, std::move(stream));
    });
  });
  scheduler_.After(Delay(dial->to.host, host), [this, dial, connection] {
    // The dialer gave up during the handshake; the accepted end must not stay open.
    if (dial->over) return CloseEnd(connection, 0);
    connection->ends[0].executor = dial->executor;
    dial->network->Finished(dial, std::make_unique<SimByteStream>(*this, connection, 0));
  });
}

void SimFabric::Leave(SimNetwork* network) {
  const std::map<uint64_t, ConnectionPtr> connections = connections_;
  for (const auto& [id, connection] : connections) {
    for (const int side : {0, 1}) {
      if (connection->ends[side].network == network) CloseEnd(connection, side);
    }
  }
  std::erase_if(listeners_, [network](auto& entry) {
    if (entry.second->network != network) return false;
    entry.second->open = false;
    return true;
  });
}

SimNetwork::SimNetwork(SimFabric& fabric, SimProcess& process, std::string host)
    : fabric_(fabric),
      process_(process),
      host_(std::move(host)),
      self_(std::make_shared<SimNetwork*>(this)) {
  process_.OnDeath([self = self_] {
    if (*self != nullptr) (*self)->Die();
  });
}

SimNetwork::~SimNetwork() {
  *self_ = nullptr;
  Die();
}

void SimNetwork::Die() {
  fabric_.Leave(this);
  for (const SimFabric::DialPtr& dial : std::exchange(dials_, {})) {
    dial->over = true;
    if (process_.alive()) dial->executor->Cancel(dial->deadline);
    // Destroyed without a call, because the owner of this network is gone.
    const DialDone done = std::exchange(dial->done, nullptr);
  }
}

bool SimNetwork::Mine(const std::string& host) const {
  return host == host_ || host == "localhost" || host == "127.0.0.1";
}

void SimNetwork::Dial(Executor& executor, const net::Address& to, Instant deadline, DialDone done) {
  auto dial = std::make_shared<SimFabric::Dial>();
  dial->network = this;
  dial->executor = &executor;
  dial->done = std::move(done);
  if (!process_.alive()) return;
  absl::StatusOr<net::HostPort> address = net::ParseHostPort(to);
  if (!address.ok()) return dial->Finish(address.status());
  const absl::Status late = absl::DeadlineExceededError(absl::StrCat("connecting to ", to));
  if (deadline <= executor.Now()) return dial->Finish(late);
  dial->to = *std::move(address);
  // Aliases of the host get the loopback link.
  if (Mine(dial->to.host)) dial->to.host = host_;
  dials_.insert(dial);
  dial->deadline = executor.RunAt(deadline, [this, dial, late] {
    if (!dial->over) Finished(dial, late);
  });
  fabric_.SendSyn(dial);
}

void SimNetwork::Finished(const SimFabric::DialPtr& dial,
                          absl::StatusOr<std::unique_ptr<net::ByteStream>> result) {
  dials_.erase(dial);
  dial->executor->Cancel(dial->deadline);
  dial->Finish(std::move(result));
}

absl::StatusOr<std::unique_ptr<net::Listener>> SimNetwork::Listen(
    Executor& executor, const net::Address& on, absl::AnyInvocable<Executor&()> pick,
    Accepted accepted) {
  PHALANX_ASSIGN_OR_RETURN(net::HostPort address, net::ParseHostPort(on));
  if (!Mine(address.host) && address.host != "0.0.0.0") {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", on, " of another host"));
  }
  // Ports are not reused soon, so a dial to an earlier life does not reach a new one.
  while (address.port == 0) {
    uint16_t& last = fabric_.last_port_.try_emplace(host_, kFirstEphemeralPort).first->second;
    last = last == 65535 ? kFirstEphemeralPort : last + 1;
    if (!fabric_.listeners_.contains({host_, last})) address.port = last;
  }
  auto state = std::make_shared<SimFabric::ListenState>(
      SimFabric::ListenState{this, &executor, std::move(pick), std::move(accepted)});
  if (!fabric_.listeners_.try_emplace({host_, address.port}, state).second) {
    return absl::AlreadyExistsError(absl::StrCat("port in use: ", on));
  }
  return std::make_unique<SimListener>(fabric_, std::move(state), host_, address.port);
}

}  // namespace phalanx::sim
