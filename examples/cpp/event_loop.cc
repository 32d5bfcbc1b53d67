// A program with its own event loop: no thread waits for Phalanx, since the loop watches one
// descriptor.
#include <sys/epoll.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "phalanx/client.h"

namespace {

constexpr int kObjects = 10;

struct Program {
  std::shared_ptr<phalanx::Client> client;
  int finished = 0;
  bool failed = false;

  void Start(int i) {
    const phalanx::ObjectId id = client->Id(absl::StrCat("object-", i));
    client->Put(id, std::string(100000, static_cast<char>('a' + i)))
        .OnReady([this, id](const absl::StatusOr<phalanx::PutResult>& put) {
          if (!put.ok()) return Finish(put.status());
          // A callback can call the client.
          client->Get(id).OnReady(
              [this](const absl::StatusOr<phalanx::Buffer>& buffer) { Finish(buffer.status()); });
        });
  }

  void Finish(const absl::Status& status) {
    failed = failed || !status.ok();
    ++finished;
  }
};

}  // namespace

int main() {
  auto client = phalanx::Client::Connect();
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }
  Program program{*client};
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  epoll_event watch{};
  watch.events = EPOLLIN;
  epoll_ctl(loop, EPOLL_CTL_ADD, program.client->fd(), &watch);

  for (int i = 0; i < kObjects; ++i) program.Start(i);
  while (program.finished < kObjects) {
    epoll_event event{};
    epoll_wait(loop, &event, 1, -1);
    program.client->Poll();  // handles answers, runs callbacks, does not block
  }
  close(loop);
  std::printf("%d objects put and got\n", program.finished);
  return program.failed ? 1 : 0;
}
