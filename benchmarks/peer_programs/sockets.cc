// Bare warm sockets without a store, as a peer: the best that the hosts allow. A chain of relays
// for broadcast and reduce (towards rank 0); every rank sends to rank 0 for gather; rank 0 sends to
// rank 1 for pair.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "benchmarks/peer_programs/trial.h"

namespace phalanx::benchmarks {
namespace {

constexpr int kPort = 9100;
constexpr size_t kChunk = 64 << 10;
constexpr int kDialAttempts = 1000;

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(2);
}

sockaddr_in Address(const std::string& host) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

void SendAll(int to, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(to, data, size, MSG_NOSIGNAL);
    if (sent <= 0) Fail("send");
    data += sent;
    size -= sent;
  }
}

size_t ReceiveSome(int from, char* data, size_t size) {
  const ssize_t received = recv(from, data, std::min(size, kChunk), 0);
  if (received <= 0) Fail("recv");
  return received;
}

int Listen(const std::string& host) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const sockaddr_in address = Address(host);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener, static_cast<int>(kMaxWorld)) != 0) {
    Fail("listen");
  }
  return listener;
}

// Connects, and sends this rank's number in four bytes.
int Dial(const std::string& host, int rank) {
  const sockaddr_in address = Address(host);
  for (int attempt = 0; attempt < kDialAttempts; ++attempt) {
    const int link = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (connect(link, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      SendAll(link, reinterpret_cast<const char*>(&rank), sizeof rank);
      return link;
    }
    close(link);
    poll(nullptr, 0, 20);  // the other rank does not listen yet
  }
  Fail("connect");
}

class Sockets : public Peer {
 public:
  // A link between neighbours, used both ways, and one from every rank to rank 0.
  explicit Sockets(const TrialOptions& options)
      : rank_(options.rank), world_(options.world), links_(options.world, -1) {
    const int listener = Listen(options.hosts[rank_]);
    if (rank_ > 0) up_ = Dial(options.hosts[rank_ - 1], rank_);
    root_ = rank_ > 1 ? Dial(options.hosts[0], rank_) : up_;
    const int callers = rank_ == 0 ? world_ - 1 : rank_ + 1 < world_ ? 1 : 0;
    for (int i = 0; i < callers; ++i) {
      const int link = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), one = 1;
      int caller = 0;
      if (link < 0 || recv(link, &caller, sizeof caller, MSG_WAITALL) != sizeof caller) {
        Fail("accept");
      }
      setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      links_.at(caller) = link;
    }
    down_ = rank_ + 1 < world_ ? links_[rank_ + 1] : -1;
    close(listener);
  }

  void Prepare(const Step& step, const float* in, float* out) override {
    op_ = step.op, in_ = in, out_ = out, count_ = step.size / sizeof(float);
  }

  void Perform() override {
    char* out = reinterpret_cast<char*>(out_);
    if (op_ == "broadcast") Relay(out, down_);
    if (op_ == "pair" && rank_ < 2) Relay(out, rank_ == 0 ? down_ : -1);
    if (op_ == "reduce") Fold();
    if (op_ == "gather") Gather();
  }

 private:
  void Relay(char* data, int to) {
    const size_t size = count_ * sizeof(float);
    if (rank_ == 0) return SendAll(to, data, size);
    for (size_t done = 0; done < size;) {
      const size_t received = ReceiveSome(up_, data + done, size - done);
      if (to >= 0) SendAll(to, data + done, received);
      done += received;
    }
  }

  // Adds its own floats to those from the rank after it, and sends the sums on, whole floats only.
  void Fold() {
    const size_t size = count_ * sizeof(float);
    if (down_ < 0) return SendAll(up_, reinterpret_cast<const char*>(in_), size);
    char* data = reinterpret_cast<char*>(out_);
    for (size_t received = 0, folded = 0; folded < count_;) {
      received += ReceiveSome(down_, data + received, size - received);
      const size_t whole = received / sizeof(float);
      for (size_t i = folded; i < whole; ++i) out_[i] += in_[i];
      if (up_ >= 0) SendAll(up_, data + folded * sizeof(float), (whole - folded) * sizeof(float));
      folded = whole;
    }
  }

  void Gather() {
    const size_t size = count_ * sizeof(float);
    if (rank_ > 0) return SendAll(root_, reinterpret_cast<const char*>(in_), size);
    std::memcpy(out_, in_, size);
    std::vector<size_t> received(world_, 0);
    std::vector<pollfd> waiting;
    for (const int link : links_) waiting.push_back({link, POLLIN, 0});
    for (int open = world_ - 1; open > 0;) {
      if (poll(waiting.data(), waiting.size(), -1) < 0) Fail("poll");
      for (int rank = 1; rank < world_; ++rank) {
        if (waiting[rank].revents == 0) continue;
        char* to = reinterpret_cast<char*>(out_ + rank * count_) + received[rank];
        received[rank] += ReceiveSome(links_[rank], to, size - received[rank]);
        if (received[rank] < size) continue;
        waiting[rank].fd = -1;  // poll ignores it
        --open;
      }
    }
  }

  const int rank_;
  const int world_;
  std::vector<int> links_;  // accepted connections, by rank
  int up_ = -1;             // to the rank before this one
  int down_ = -1;           // from the rank after it
  int root_ = -1;           // to rank 0
  std::string op_;
  const float* in_ = nullptr;
  float* out_ = nullptr;
  size_t count_ = 0;
};

}  // namespace
}  // namespace phalanx::benchmarks

int main(int argc, char** argv) {
  const auto options = phalanx::benchmarks::ParseTrialOptions(argc, argv);
  phalanx::benchmarks::Sockets peer(options);
  return phalanx::benchmarks::RunTrial(options, peer);
}
