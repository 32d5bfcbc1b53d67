/* Jobs of two servers and two workers, threads of one process with a client each, for tests of the
 * C functions of parameter servers.
 */
#ifndef PHALANX_CLIENT_C_PARAMETER_SERVER_JOBS_H_
#define PHALANX_CLIENT_C_PARAMETER_SERVER_JOBS_H_

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "phalanx/c.h"
#include "src/client/c/test_check.h"

enum {
  kServers = 2,
  kWorkers = 2,
  kCancelled = 1,
  kInvalid = 3,
  kDeadline = 4,
  kNotFound = 5,
  kExists = 6
};
enum { kOver = 9, kUnimplemented = 12, kInternal = 13 };
enum { kKeys = 7, kWidth = 3, kClocks = 8 };
static const int64_t kPatience = (int64_t)60 * 1000000000;

/* What a thread does in one life; returns 0 if a next life runs it again. */
typedef struct {
  const char* address;
  const char* job;
  int rank;
  int (*serve)(phx_ps_server* server);
  int (*work)(phx_ps_worker* worker);
} Task;

static phx_client* Connect(const char* address) {
  phx_connect_options options;
  memset(&options, 0, sizeof(options));
  options.address = address;
  options.executable = getenv("PHALANX_EXECUTABLE");
  options.connect_timeout = kPatience;
  phx_client* client = phx_connect(&options);
  CHECK(client != NULL);
  return client;
}

static phx_ps_options OptionsOf(const Task* task, const char* name, int world) {
  phx_ps_options options;
  memset(&options, 0, sizeof(options));
  options.job = task->job;
  options.task = name;
  options.world = world;
  /* One of them has the usual patience. */
  options.peer_timeout = task->rank == 0 ? kPatience : 0;
  return options;
}

static void* Serve(void* argument) {
  const Task* const task = argument;
  const char* const names[kServers] = {"server0", "server1"};
  phx_client* client = Connect(task->address);
  int over = 0;
  for (uint64_t life = 0; !over; ++life) {
    const phx_ps_options options = OptionsOf(task, names[task->rank], kServers);
    phx_ps_server* server = phx_ps_server_join(client, &options);
    CHECK(server != NULL);
    CHECK(phx_ps_server_rank(server) == task->rank && phx_ps_server_servers(server) == kServers);
    CHECK(phx_ps_server_life(server) == life);
    over = task->serve(server);
    phx_ps_server_free(server);
  }
  phx_client_free(client);
  return NULL;
}

static void* Work(void* argument) {
  const Task* const task = argument;
  const char* const names[kWorkers] = {"worker0", "worker1"};
  phx_client* client = Connect(task->address);
  int over = 0;
  for (uint64_t life = 0; !over; ++life) {
    const phx_ps_options options = OptionsOf(task, names[task->rank], kWorkers);
    phx_ps_worker* worker = phx_ps_worker_join(client, &options);
    CHECK(worker != NULL);
    CHECK(phx_ps_worker_rank(worker) == task->rank && phx_ps_worker_life(worker) == life);
    CHECK(phx_ps_worker_workers(worker) == kWorkers && phx_ps_worker_servers(worker) == kServers);
    over = task->work(worker);
    phx_ps_worker_free(worker);
  }
  phx_client_free(client);
  return NULL;
}

static void RunJob(const char* address, const char* job, int (*serve)(phx_ps_server* server),
                   int (*work)(phx_ps_worker* worker)) {
  pthread_t threads[kServers + kWorkers];
  Task tasks[kServers + kWorkers];
  for (int i = 0; i < kServers + kWorkers; ++i) {
    const int is_server = i < kServers;
    const Task task = {address, job, is_server ? i : i - kServers, serve, work};
    tasks[i] = task;
    CHECK(pthread_create(&threads[i], NULL, is_server ? Serve : Work, &tasks[i]) == 0);
  }
  for (int i = 0; i < kServers + kWorkers; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
}

static int Ended(phx_call* call) {
  CHECK(call != NULL);
  const int code = phx_wait(call, kPatience);
  phx_call_free(call);
  return code;
}

static phx_ps_table_spec SpecOf(const char* name, int dtype) {
  phx_ps_table_spec spec;
  phx_ps_table_defaults(&spec);
  CHECK(spec.name == NULL && spec.keys == 0 && spec.width == 1 && spec.snapshot_every > 0);
  CHECK(spec.dtype == PHX_F32 && spec.sync == PHX_PS_BSP && spec.update == PHX_PS_SUM);
  spec.name = name;
  spec.dtype = spec.wire = dtype;
  return spec;
}

#endif /* PHALANX_CLIENT_C_PARAMETER_SERVER_JOBS_H_ */
