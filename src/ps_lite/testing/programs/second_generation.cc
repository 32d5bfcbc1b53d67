// A program that uses ps-lite's insides: customers, messages, nodes, the van, variables. What it
// needs of a job is not run. Prints "ok".
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "ps/internal/assign_op.h"
#include "ps/internal/parallel_kv_match.h"
#include "ps/internal/parallel_sort.h"
#include "ps/internal/threadsafe_queue.h"
#include "ps/ps.h"

using namespace ps;  // NOLINT

class Insides {
 public:
  Insides() {}
  void RunJob() {
    StartAsync(0, "program");
    Postoffice* office = Postoffice::Get();
    office->Barrier(0, kScheduler + kServerGroup + kWorkerGroup);
    const std::vector<Range>& ranges = office->GetServerKeyRanges();
    PS_VLOG(1) << "first range " << ranges[0].begin() << " to " << ranges[0].end();
    Customer customer(5, 0, [this](const Message& received) { Handle(received); });
    Message message;
    message.meta.app_id = customer.app_id();
    message.meta.customer_id = customer.customer_id();
    message.meta.timestamp = customer.NewRequest(office->ServerRankToID(0));
    message.meta.recver = office->ServerRankToID(0);
    message.meta.request = true;
    message.AddData(SArray<float>(3, 1.5f));
    Van* van = office->van();
    LOG(INFO) << van->my_node().DebugString() << " sends " << van->Send(message) << " bytes";
    customer.WaitRequest(message.meta.timestamp);
    LL << office->GetDeadNodes(60).size() << " " << office->is_recovery() << " "
       << office->IDtoRank(van->my_node().id) << " " << van->GetTimestamp();
    Finalize(0, false);
  }

 private:
  void Handle(const Message& received) {
    CHECK_GE(received.data.size(), 1u) << received.DebugString();
    const SArray<float> values(received.data[0]);
    DCHECK_EQ(values.size(), 3u);
  }
  DISALLOW_COPY_AND_ASSIGN(Insides);
};

int main(int argc, char**) {
  if (argc > 1) Insides().RunJob();
  Environment::Init({{"DMLC_ROLE", "worker"},
                     {"DMLC_NUM_WORKER", "2"},
                     {"DMLC_NUM_SERVER", "3"},
                     {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                     {"DMLC_PS_ROOT_PORT", "8000"}});
  CHECK(IsWorker() && !IsServer() && !IsScheduler());
  CHECK_EQ(NumServers(), 3);
  const std::vector<Range>& ranges = Postoffice::Get()->GetServerKeyRanges();
  CHECK_EQ(ranges.size(), 3u);
  CHECK_EQ(ranges[2].end(), kMaxKey);
  CHECK_EQ(GetEnv("DMLC_NUM_WORKER", 0), 2);
  SArray<Key> keys({3, 1, 2});
  ParallelSort(&keys);
  CHECK_EQ(keys.front(), 1u);
  SArray<float> values;
  CHECK_EQ(ParallelOrderedMatch(keys, SArray<float>({1, 2, 3}), SArray<Key>({2, 3}), &values), 2u);
  CHECK_EQ(values[1], 3);
  int bits = 6;
  AssignFuncInt(3, AND, &bits);
  CHECK_EQ(bits, 2);
  ThreadsafeQueue<int> queue;
  queue.Push(4);
  int taken = 0;
  queue.WaitAndPop(&taken);
  CHECK_EQ(taken, 4);
  std::printf("ok\n");
  return 0;
}
