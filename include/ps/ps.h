// All of the interface: a job of one scheduler, servers and workers.
//
//   ps::Start(0);
//   if (ps::IsServer()) { ... ps::KVServer<float> ... }
//   if (ps::IsWorker()) { ... ps::KVWorker<float> ... }
//   ps::Finalize(0, true);
#ifndef PS_PS_H_
#define PS_PS_H_

#include "ps/base.h"
#include "ps/kv_app.h"
#include "ps/simple_app.h"

namespace ps {

inline int NumWorkers() { return Postoffice::Get()->num_workers(); }
inline int NumServers() { return Postoffice::Get()->num_servers(); }
inline bool IsWorker() { return Postoffice::Get()->is_worker(); }
inline bool IsServer() { return Postoffice::Get()->is_server(); }
inline bool IsScheduler() { return Postoffice::Get()->is_scheduler(); }
// Among the processes of this role.
inline int MyRank() { return Postoffice::Get()->my_rank(); }

// Both generations: Start(), Start(argv0), Start(customer_id, argv0), and so on.
inline void Start(int customer_id, const char* argv0 = nullptr) {
  Postoffice::Get()->Start(customer_id, argv0, true);
}
inline void Start(const char* argv0 = nullptr) { Start(0, argv0); }
// Without the barrier after all processes have come.
inline void StartAsync(int customer_id, const char* argv0 = nullptr) {
  Postoffice::Get()->Start(customer_id, argv0, false);
}
inline void StartAsync(const char* argv0 = nullptr) { StartAsync(0, argv0); }
inline void Finalize(int customer_id, const bool do_barrier) {
  Postoffice::Get()->Finalize(customer_id, do_barrier);
}
inline void Finalize(int customer_id) { Finalize(customer_id, true); }
inline void Finalize(const bool do_barrier = true) { Finalize(0, do_barrier); }
inline void RegisterExitCallback(const std::function<void()>& callback) {
  Postoffice::Get()->RegisterExitCallback(callback);
}

}  // namespace ps

#endif  // PS_PS_H_
