// test_simple_app of ps-lite: the scheduler asks all processes a hundred times.
#include <atomic>
#include <string>
#include <vector>

#include "ps/ps.h"

using namespace ps;  // NOLINT

constexpr int kRequests = 100;

std::atomic<int> handled{0};

void Handle(const SimpleData& request, SimpleApp* app) {
  CHECK_EQ(request.head, 1);
  CHECK_EQ(request.body, "test");
  ++handled;
  app->Response(request);
}

int main() {
  Start(0);
  SimpleApp app(0, 0);
  app.set_request_handle(Handle);
  if (IsScheduler()) {
    std::vector<int> timestamps;
    for (int i = 0; i < kRequests; ++i) {
      timestamps.push_back(app.Request(1, "test", kScheduler + kServerGroup + kWorkerGroup));
    }
    for (int timestamp : timestamps) app.Wait(timestamp);
  }
  Finalize(0, true);
  CHECK_EQ(handled.load(), kRequests);
  return 0;
}
