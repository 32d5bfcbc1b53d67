// A program for ps-lite before it had customers: no ids in Start, Finalize and the constructors.
// What it needs of a job is not run. Prints "ok".
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "ps/internal/postoffice.h"
#include "ps/kv_app.h"
#include "ps/ps.h"

struct Handle {
  void operator()(const ps::KVMeta& meta, const ps::KVPairs<double>& data,
                  ps::KVServer<double>* server) {
    ps::KVPairs<double> response;
    if (!meta.push) {
      response.keys = data.keys;
      response.vals.resize(data.keys.size());
    }
    server->Response(meta, response);
  }
};

static void RunJob(const char* program) {
  ps::Start(program);
  if (ps::IsServer()) {
    ps::KVServer<double>* server = new ps::KVServer<double>(0);
    server->set_request_handle(Handle());
    ps::RegisterExitCallback([server]() { delete server; });
  }
  if (ps::IsWorker()) {
    ps::KVWorker<double> kv(0);
    std::vector<ps::Key> keys = {1, 3};
    std::vector<double> vals = {1.1, 3.1};
    kv.Wait(kv.Push(keys, vals));
    int timestamp = kv.Pull(keys, &vals, nullptr, 0, [] {});
    kv.Wait(timestamp);
  }
  ps::SimpleApp app(1);
  app.set_request_handle([](const ps::SimpleData& received, ps::SimpleApp* own) {
    own->Response(received, "answer");
  });
  app.Wait(app.Request(0, "question", ps::kServerGroup));
  ps::Finalize();
}

int main(int argc, char** argv) {
  if (argc > 1) RunJob(argv[0]);
  const ps::SArray<int> numbers({1, 2, 3});
  CHECK_EQ(numbers.segment(1, 3).size(), 2u) << "a segment";
  CHECK_NOTNULL(&numbers);
  try {
    CHECK_LT(numbers.size(), 3u) << "as it should be";
    return 1;
  } catch (const dmlc::Error& error) {
    if (std::string(error.what()).find("as it should be") == std::string::npos) return 1;
  }
  std::printf("ok\n");
  return 0;
}
