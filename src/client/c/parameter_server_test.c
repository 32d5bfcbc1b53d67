/* Two servers and two workers, threads of one process with a client each, at a private cluster:
 * every function of phalanx/c_ps.h, but those of rows with lengths (lengths_test.c). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "phalanx/c.h"
#include "src/client/c/parameter_server_jobs.h"
#include "src/client/c/test_check.h"

/* ---- calls of every kind */

/* Rows become twice what they were, plus what is pushed: by pointers, or by copies. */
static int Doubles(void* argument, const phx_ps_push* push, phx_ps_rows* rows) {
  *(int*)argument += 1;
  CHECK(push->worker == -1 && push->count > 0);
  const int64_t* const values = push->values;
  for (uint64_t i = 0; i < push->count; ++i) {
    int64_t* const row = phx_ps_row(rows, push->keys[i]);
    CHECK(row != NULL);
    *row = 2 * *row + values[i];
  }
  CHECK(phx_ps_row(rows, 5000) == NULL);
  int64_t* const copies = malloc(push->count * sizeof(int64_t));
  phx_ps_rows_read(rows, copies);
  for (uint64_t i = 0; i < push->count; ++i) {
    CHECK(copies[i] == *(int64_t*)phx_ps_row(rows, push->keys[i]));
    copies[i] += 1;
  }
  phx_ps_rows_write(rows, copies);
  free(copies);
  return 0;
}

/* Answers with the body twice, refuses head 1, and says nothing for head 2. */
static int Answers(void* argument, int worker, int32_t head, const void* body, uint64_t size,
                   phx_ps_reply* reply) {
  CHECK(argument != NULL && worker >= 0 && worker < kWorkers);
  if (head == 1) {
    phx_ps_reply_set(reply, 0, "a bad head", 10);
    return kInvalid;
  }
  if (head == 2) return 0;
  char twice[64];
  CHECK(2 * size <= sizeof(twice));
  memcpy(twice, body, size);
  memcpy(twice + size, body, size);
  phx_ps_reply_set(reply, -head, twice, 2 * size);
  return 0;
}

static int ServesAll(phx_ps_server* server) {
  phx_ps_table_spec dense = SpecOf("dense", PHX_F32);
  dense.keys = kKeys;
  dense.width = kWidth;
  phx_ps_table_spec sparse = SpecOf("sparse", PHX_I64);
  sparse.split = PHX_PS_SPLIT_HASH;
  sparse.sync = PHX_PS_ASP;
  sparse.update = PHX_PS_ASSIGN;
  phx_ps_table_spec own = SpecOf("own", PHX_I64);
  own.keys = kKeys;
  own.update = PHX_PS_OWN;
  int calls = 0;
  CHECK(phx_ps_server_add_table(server, &dense, NULL, NULL) == 0);
  CHECK(phx_ps_server_add_table(server, &dense, NULL, NULL) == kExists);
  CHECK(phx_ps_server_add_table(server, &sparse, NULL, NULL) == 0);
  CHECK(phx_ps_server_add_table(server, &own, NULL, NULL) == kInvalid); /* without a function */
  CHECK(phx_ps_server_add_table(server, &own, Doubles, &calls) == 0);
  phx_ps_table_spec wrong = SpecOf("wrong", PHX_F32);
  CHECK(phx_ps_server_add_table(server, &wrong, Doubles, &calls) == kInvalid); /* not its own */
  wrong.sync = 77;
  CHECK(phx_ps_server_add_table(server, &wrong, NULL, NULL) == kInvalid);
  CHECK(strstr(phx_error(), "wrong") != NULL && strstr(phx_error(), "sync") != NULL);
  phx_ps_server_on_request(server, Answers, &calls);
  CHECK(phx_ps_server_run(server) == 0);
  CHECK(calls == 1);
  char text[8];
  const size_t size = phx_ps_server_describe(server, text, sizeof(text));
  CHECK(size > sizeof(text) && strlen(text) == sizeof(text) - 1);
  CHECK(phx_ps_server_describe(server, NULL, 0) == size);
  CHECK(phx_ps_server_add_table(server, &wrong, NULL, NULL) != 0);
  return 1;
}

// All live until the end.
static void Lists(phx_ps_worker* worker) {
  phx_member_info infos[kServers + kWorkers];
  CHECK(phx_ps_worker_list(worker, "server", infos, 1) == kServers);
  CHECK(phx_ps_worker_list(worker, "server", infos, kServers) == kServers);
  for (int rank = 0; rank < kServers; ++rank) {
    CHECK(infos[rank].rank == rank && infos[rank].state == PHX_LIVE);
  }
  CHECK(phx_ps_worker_list(worker, NULL, infos, kWorkers) == kWorkers);
  CHECK(phx_ps_worker_list(worker, "other", infos, kWorkers) == 0);
}

static void Asks(phx_ps_worker* worker) {
  int32_t head = 0;
  const void* body = NULL;
  uint64_t size = 0;
  for (int server = 0; server < kServers; ++server) {
    phx_call* call = phx_ps_worker_request(worker, server, 9, "abc", 3);
    CHECK(call != NULL && phx_wait(call, kPatience) == 0);
    CHECK(phx_result_reply(call, &head, &body, &size) == 0);
    CHECK(head == -9 && size == 6 && memcmp(body, "abcabc", 6) == 0);
    int64_t number = 0;
    CHECK(phx_result_number(call, &number) == kInvalid);
    phx_call_free(call);
    call = phx_ps_worker_request(worker, server, 2, NULL, 0);
    CHECK(call != NULL && phx_wait(call, kPatience) == 0);
    CHECK(phx_result_reply(call, &head, &body, &size) == 0 && head == 0 && size == 0);
    phx_call_free(call);
    CHECK(Ended(phx_ps_worker_request(worker, server, 1, "", 0)) == kInvalid);
    CHECK(strstr(phx_error(), "a bad head") != NULL);
  }
  CHECK(Ended(phx_ps_worker_request(worker, kServers, 1, "", 0)) == kInvalid);
}

static void Refusals(phx_ps_worker* worker, phx_ps_table* dense) {
  float values[2 * kWidth] = {0};
  const uint64_t unsorted[2] = {4, 3};
  const uint64_t twice[2] = {4, 4};
  const uint64_t beyond[2] = {4, kKeys};
  CHECK(Ended(phx_ps_push_rows(dense, unsorted, 2, values, sizeof(values))) == kInvalid);
  CHECK(strstr(phx_error(), "dense") != NULL && strstr(phx_error(), "3") != NULL);
  CHECK(Ended(phx_ps_pull_rows(dense, twice, 2, values, sizeof(values))) == kInvalid);
  CHECK(Ended(phx_ps_push_pull_rows(dense, beyond, 2, values, values, sizeof(values))) == kInvalid);
  CHECK(Ended(phx_ps_push_rows(dense, unsorted, 1, values, 4)) == kInvalid);
  CHECK(Ended(phx_ps_pull_dense(dense, values, sizeof(values))) == kInvalid);
  /* The first push that was refused, once. */
  CHECK(phx_ps_clock(dense) == kInvalid && strstr(phx_error(), "key 3 after key 4") != NULL);
  CHECK(phx_ps_table_skip_pushed(dense) == 0);
  CHECK(phx_ps_worker_open(worker, "none") == NULL && phx_error_code() == kNotFound);
  CHECK(strstr(phx_error(), "sparse") != NULL);
}

static void UsesDense(phx_ps_worker* worker, phx_ps_table* dense) {
  phx_ps_table_spec spec;
  phx_ps_table_spec_of(dense, &spec);
  CHECK(strcmp(spec.name, "dense") == 0 && spec.keys == kKeys && spec.width == kWidth);
  CHECK(spec.dtype == PHX_F32 && spec.wire == PHX_F32 && spec.split == PHX_PS_SPLIT_RANGE);
  const int rank = phx_ps_worker_rank(worker);
  float values[kKeys * kWidth];
  float out[kKeys * kWidth];
  for (int i = 0; i < kKeys * kWidth; ++i) values[i] = (float)(i + rank);
  CHECK(Ended(phx_ps_push_dense_within(dense, values, sizeof(values), kPatience)) == 0);
  CHECK(phx_ps_table_await_room(dense, kPatience) == 0);
  const uint64_t keys[2] = {0, kKeys - 1};
  const uint64_t bytes = 2 * kWidth * sizeof(float);
  /* Before the clock turns nothing is seen, not even one's own. */
  CHECK(Ended(phx_ps_push_pull_rows(dense, keys, 2, values, out, bytes)) == 0);
  for (int i = 0; i < 2 * kWidth; ++i) CHECK(out[i] == 0);
  CHECK(phx_ps_clock(dense) == 0);
  CHECK(Ended(phx_ps_pull_dense(dense, out, sizeof(out))) == 0);
  for (int i = 0; i < kKeys * kWidth; ++i) {
    float expected = (float)(2 * i + 1);
    if (i < kWidth) expected += (float)(2 * i + 1);
    if (i >= (kKeys - 1) * kWidth) expected += (float)(2 * (i - (kKeys - 2) * kWidth) + 1);
    CHECK(out[i] == expected);
  }
  uint64_t own = 0;
  uint64_t least = 0;
  phx_ps_table_clocks(dense, &own, &least);
  CHECK(own == 1 && least == 1);
}

static int CallsAll(phx_ps_worker* worker) {
  const int rank = phx_ps_worker_rank(worker);
  phx_ps_table* dense = phx_ps_worker_open(worker, "dense");
  phx_ps_table* sparse = phx_ps_worker_open(worker, "sparse");
  phx_ps_table* own = phx_ps_worker_open(worker, "own");
  CHECK(dense != NULL && sparse != NULL && own != NULL);
  CHECK(phx_ps_worker_status(worker) == 0);
  Refusals(worker, dense);
  UsesDense(worker, dense);
  Lists(worker);
  Asks(worker);
  const uint64_t keys[2] = {(uint64_t)rank, UINT64_MAX - (uint64_t)rank};
  const int64_t values[2] = {10 + rank, 20 + rank};
  CHECK(Ended(phx_ps_push_rows(sparse, keys, 2, values, sizeof(values))) == 0);
  CHECK(Ended(phx_ps_worker_barrier(worker, PHX_PS_WORKERS, NULL)) == 0);
  const uint64_t all[4] = {0, 1, UINT64_MAX - 1, UINT64_MAX};
  int64_t out[4];
  CHECK(Ended(phx_ps_pull_rows(sparse, all, 4, out, sizeof(out))) == 0);
  CHECK(out[0] == 10 && out[1] == 11 && out[2] == 21 && out[3] == 20);
  int64_t rows[kKeys];
  for (int i = 0; i < kKeys; ++i) rows[i] = i;
  CHECK(Ended(phx_ps_push_dense(own, rows, sizeof(rows))) == 0);
  CHECK(phx_ps_clock(own) == 0);
  CHECK(Ended(phx_ps_pull_dense(own, rows, sizeof(rows))) == 0);
  for (int i = 0; i < kKeys; ++i) CHECK(rows[i] == 2 * i + 1);
  CHECK(phx_ps_worker_leave(worker) == 0);
  CHECK(Ended(phx_ps_pull_rows(sparse, all, 4, out, sizeof(out))) != 0);
  phx_ps_table_free(dense);
  phx_ps_table_free(sparse);
  phx_ps_table_free(own);
  return 1;
}

/* ---- deaths */

static int StopsFirstLife(void* argument, int worker, int32_t head, const void* body, uint64_t size,
                          phx_ps_reply* reply) {
  phx_ps_server* const server = argument;
  CHECK(worker == 0 && head == 0 && size == 0 && (body != NULL || size == 0));
  if (phx_ps_server_life(server) == 0) phx_ps_server_stop(server);
  phx_ps_reply_set(reply, (int32_t)phx_ps_server_life(server), NULL, 0);
  return 0;
}

static int ServesTwice(phx_ps_server* server) {
  phx_ps_table_spec spec = SpecOf("w", PHX_I64);
  spec.keys = kKeys;
  spec.snapshot_every = 2;
  CHECK(phx_ps_server_add_table(server, &spec, NULL, NULL) == 0);
  phx_ps_server_on_request(server, StopsFirstLife, server);
  const int code = phx_ps_server_run(server);
  const int dies = phx_ps_server_rank(server) == 1 && phx_ps_server_life(server) == 0;
  CHECK(code == (dies ? kCancelled : 0));
  return !dies;
}

/* Worker 1 dies in clock 3, and server 1 in clock 5. Each clock adds 3 to each row. */
static int WorksTwice(phx_ps_worker* worker) {
  const int rank = phx_ps_worker_rank(worker);
  phx_ps_table* table = phx_ps_worker_open(worker, "w");
  CHECK(table != NULL);
  uint64_t own = 0;
  uint64_t least = 0;
  int64_t rows[kKeys];
  for (phx_ps_table_clocks(table, &own, &least); own < kClocks; ++own) {
    CHECK(Ended(phx_ps_pull_dense(table, rows, sizeof(rows))) == 0);
    for (int i = 0; i < kKeys; ++i) CHECK(rows[i] == 3 * (int64_t)own);
    for (int i = 0; i < kKeys; ++i) rows[i] = 1 + rank;
    phx_call* pushed = phx_ps_push_dense(table, rows, sizeof(rows));
    CHECK(pushed != NULL);
    phx_call_free(pushed); /* the push goes on */
    if (rank == 1 && own == 3 && phx_ps_worker_life(worker) == 0) {
      CHECK(phx_ps_worker_fail(worker) == 0);
      CHECK(phx_ps_worker_status(worker) != 0);
      phx_ps_table_free(table);
      return 0;
    }
    if (rank == 0 && own == 5) {
      /* It waits for the next life, if the first one has not answered before its end. */
      CHECK(Ended(phx_ps_worker_request(worker, 1, 0, NULL, 0)) == 0);
    }
    CHECK(phx_ps_clock(table) == 0);
  }
  CHECK(Ended(phx_ps_pull_dense(table, rows, sizeof(rows))) == 0);
  for (int i = 0; i < kKeys; ++i) CHECK(rows[i] == 3 * kClocks);
  CHECK(phx_ps_worker_leave(worker) == 0);
  phx_ps_table_free(table);
  return 1;
}

/* ---- errors of functions of the program */

static int Fails(void* argument, const phx_ps_push* push, phx_ps_rows* rows) {
  CHECK(argument == NULL && push->count > 0);
  phx_ps_rows_error(rows, "too steep", 9);
  return kInternal;
}

static int ServesBadly(phx_ps_server* server) {
  phx_ps_table_spec spec = SpecOf("steep", PHX_F64);
  spec.keys = kKeys;
  spec.update = PHX_PS_OWN;
  CHECK(phx_ps_server_add_table(server, &spec, Fails, NULL) == 0);
  CHECK(phx_ps_server_run(server) == 0);
  return 1;
}

static int SeesErrors(phx_ps_worker* worker) {
  phx_ps_table* table = phx_ps_worker_open(worker, "steep");
  CHECK(table != NULL);
  double rows[kKeys] = {0};
  CHECK(Ended(phx_ps_push_dense(table, rows, sizeof(rows))) == 0);
  CHECK(phx_ps_clock(table) == 0);
  for (int i = 0; i < 2; ++i) {
    CHECK(Ended(phx_ps_pull_dense(table, rows, sizeof(rows))) == kInternal);
    CHECK(strstr(phx_error(), "too steep") != NULL && strstr(phx_error(), "steep\"") != NULL);
  }
  CHECK(phx_ps_clock(table) == kInternal);
  CHECK(Ended(phx_ps_worker_request(worker, 0, 0, NULL, 0)) == kUnimplemented);
  CHECK(phx_ps_worker_leave(worker) == 0);
  phx_ps_table_free(table);
  return 1;
}

/* ---- slicers and barriers */

/* The argument is the fault that it makes. Keys below 100 are on server 1. */
static int Slices(void* argument, const uint64_t* keys, size_t n, int32_t* servers) {
  const int fault = *(const int*)argument;
  for (size_t i = 0; i < n; ++i) {
    CHECK(servers[i] == -1);
    if (fault != 1) servers[i] = fault == 2 ? kServers : (keys[i] < 100 ? 1 : 0);
  }
  return fault == 3 ? kNotFound : 0;
}

/* The argument is the server's rank. */
static int SeesKeys(void* argument, const phx_ps_push* push, phx_ps_rows* rows) {
  const int rank = *(const int*)argument;
  for (uint64_t i = 0; i < push->count; ++i) {
    CHECK((push->keys[i] < 100) == (rank == 1));
    *(int64_t*)phx_ps_row(rows, push->keys[i]) = ((const int64_t*)push->values)[i];
  }
  return 0;
}

static int ServesSliced(phx_ps_server* server) {
  int rank = phx_ps_server_rank(server);
  phx_ps_table_spec spec = SpecOf("sliced", PHX_I64);
  spec.split = PHX_PS_SPLIT_OWN;
  spec.sync = PHX_PS_ASP;
  spec.update = PHX_PS_OWN;
  spec.keys = kKeys;
  CHECK(phx_ps_server_add_table(server, &spec, SeesKeys, &rank) == kInvalid);
  CHECK(strstr(phx_error(), "only sparse") != NULL);
  spec.keys = 0;
  CHECK(phx_ps_server_add_table(server, &spec, SeesKeys, &rank) == 0);
  CHECK(Ended(phx_ps_server_barrier(server, PHX_PS_SERVERS, NULL)) == 0);
  CHECK(Ended(phx_ps_server_barrier(server, PHX_PS_WORKERS, NULL)) == kInvalid);
  CHECK(Ended(phx_ps_server_barrier(server, 77, NULL)) == kInvalid);
  CHECK(phx_ps_server_run(server) == 0);
  return 1;
}

static void WrongSlices(phx_ps_table* table, int* fault) {
  const uint64_t keys[2] = {5, 200};
  int64_t values[2] = {1, 2};
  const char* const texts[] = {"its slicer drops key 5", "its slicer names server 2 for key 5",
                               "from 5 to 200 its slicer failed: NOT_FOUND"};
  for (*fault = 1; *fault <= 3; ++*fault) {
    CHECK(Ended(phx_ps_push_rows(table, keys, 2, values, sizeof(values))) == kInvalid);
    CHECK(strstr(phx_error(), texts[*fault - 1]) != NULL);
    CHECK(strstr(phx_error(), "table \"sliced\" of worker") != NULL);
    CHECK(Ended(phx_ps_pull_rows(table, keys, 2, values, sizeof(values))) == kInvalid);
    CHECK(phx_ps_clock(table) == kInvalid);
  }
  *fault = 0;
}

static int WorksSliced(phx_ps_worker* worker) {
  int fault = 0;
  CHECK(phx_ps_worker_open(worker, "sliced") == NULL && phx_error_code() == kInvalid);
  CHECK(phx_ps_worker_open_sliced(worker, "sliced", NULL, NULL) == NULL);
  phx_ps_table* table = phx_ps_worker_open_sliced(worker, "sliced", Slices, &fault);
  CHECK(table != NULL);
  WrongSlices(table, &fault);
  const int rank = phx_ps_worker_rank(worker);
  const uint64_t keys[3] = {(uint64_t)rank, 200 + (uint64_t)rank, UINT64_MAX - (uint64_t)rank};
  const int64_t values[3] = {7, 8, 9 + rank};
  int64_t out[3] = {0};
  CHECK(Ended(phx_ps_push_rows(table, keys, 3, values, sizeof(values))) == 0);
  phx_ps_barrier_options options = {1, 41, kPatience};
  CHECK(Ended(phx_ps_worker_barrier(worker, PHX_PS_WORKERS, &options)) == 0);
  const uint64_t other = 1 - (uint64_t)rank;
  const uint64_t others[3] = {other, 200 + other, UINT64_MAX - other};
  CHECK(Ended(phx_ps_pull_rows(table, others, 3, out, sizeof(out))) == 0);
  CHECK(out[0] == 7 && out[1] == 8 && out[2] == 10 - rank);
  /* Those before have ended, too. */
  options.epoch = 3;
  CHECK(Ended(phx_ps_worker_barrier(worker, PHX_PS_WORKERS, &options)) == 0);
  CHECK(Ended(phx_ps_worker_barrier(worker, PHX_PS_SERVERS, NULL)) == kInvalid);
  options.epoch = UINT64_MAX;
  CHECK(Ended(phx_ps_worker_barrier(worker, PHX_PS_WORKERS, &options)) == kInvalid);
  /* The servers do not come to this one. */
  options.has_epoch = 0;
  options.timeout = 1000000;
  CHECK(Ended(phx_ps_worker_barrier(worker, PHX_PS_ALL, &options)) == kDeadline);
  CHECK(strstr(phx_error(), "barrier 0 of all") != NULL);
  CHECK(phx_ps_worker_leave(worker) == 0);
  phx_ps_table_free(table);
  return 1;
}

/* ---- alone */

static void WrongOptions(phx_client* client) {
  unsetenv("PHALANX_JOB");
  CHECK(phx_ps_server_join(client, NULL) == NULL && phx_error_code() == kInvalid);
  CHECK(phx_ps_worker_join(client, NULL) == NULL && phx_error_code() == kInvalid);
  phx_ps_options options;
  memset(&options, 0, sizeof(options));
  options.job = "wrong";
  options.task = "task0";
  options.world = -1;
  CHECK(phx_ps_server_join(client, &options) == NULL && phx_error_code() == kInvalid);
  options.world = 1;
  options.server_role = "none";
  options.worker_role = "some";
  options.peer_timeout = 100000000;
  CHECK(phx_ps_worker_join(client, &options) == NULL && phx_error_code() == kDeadline);
  CHECK(strstr(phx_error(), "role none") != NULL);
}

/* In a child of fork calls end with FailedPrecondition. */
static void Forked(phx_client* client) {
  phx_ps_options options;
  memset(&options, 0, sizeof(options));
  options.job = "forked";
  options.task = "server0";
  options.world = 1;
  phx_ps_server* server = phx_ps_server_join(client, &options);
  CHECK(server != NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(phx_ps_server_run(server) == kOver ? 0 : 1);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  phx_ps_server_stop(server);
  CHECK(phx_ps_server_run(server) == kCancelled);
  phx_ps_server_free(server);
}

/* ---- workers that do not come */

static void* Runs(void* argument) {
  static int code;
  code = phx_ps_server_run(argument);
  return &code;
}

/* Two workers can join. `joins`: one does, pushes, and quits. */
static void Finishes(phx_client* client, const char* job, int joins) {
  phx_ps_options options;
  memset(&options, 0, sizeof(options));
  options.job = job;
  options.task = "server0";
  options.world = 1;
  options.peer_timeout = -1;
  phx_ps_server* const server = phx_ps_server_join(client, &options);
  CHECK(server != NULL);
  phx_ps_table_spec spec = SpecOf("w", PHX_I64);
  spec.sync = PHX_PS_ASP;
  CHECK(phx_ps_server_add_table(server, &spec, NULL, NULL) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, Runs, server) == 0);
  if (joins) {
    options.task = "worker0";
    options.world = 2;
    phx_ps_worker* const worker = phx_ps_worker_join(client, &options);
    CHECK(worker != NULL);
    phx_ps_table* const table = phx_ps_worker_open(worker, "w");
    const uint64_t key = 5;
    const int64_t value = 7;
    phx_call* const call = phx_ps_push_rows(table, &key, 1, &value, sizeof(value));
    CHECK(phx_wait(call, -1) == 0);
    phx_call_free(call);
    CHECK(phx_ps_worker_quit(worker) == 0);
    phx_ps_table_free(table);
    phx_ps_worker_free(worker);
  }
  phx_ps_server_finish(server);
  void* code = NULL;
  CHECK(pthread_join(thread, &code) == 0);
  CHECK(*(int*)code == 0);
  phx_ps_server_free(server);
}

static phx_ps_server* BeginServer(phx_client* client, const char* job, pthread_t* thread) {
  phx_ps_options options;
  memset(&options, 0, sizeof(options));
  options.job = job;
  options.task = "server0";
  options.world = 1;
  phx_ps_server* const server = phx_ps_server_join(client, &options);
  CHECK(server != NULL);
  phx_ps_table_spec spec = SpecOf("w", PHX_I64);
  spec.sync = PHX_PS_ASP;
  CHECK(phx_ps_server_add_table(server, &spec, NULL, NULL) == 0);
  CHECK(pthread_create(thread, NULL, Runs, server) == 0);
  return server;
}

/* Worker `rank` of two adds to key 5, and leaves. Returns what it has pulled then. */
static int64_t Adds(phx_client* client, const char* job, int rank, int64_t value) {
  phx_ps_options options;
  memset(&options, 0, sizeof(options));
  options.job = job;
  options.task = rank == 0 ? "worker0" : "worker1";
  options.world = 2;
  phx_ps_worker* const worker = phx_ps_worker_join(client, &options);
  CHECK(worker != NULL);
  phx_ps_table* const table = phx_ps_worker_open(worker, "w");
  const uint64_t key = 5;
  int64_t pulled = 0;
  phx_call* const call = phx_ps_push_pull_rows(table, &key, 1, &value, &pulled, sizeof(value));
  CHECK(phx_wait(call, -1) == 0);
  phx_call_free(call);
  CHECK(phx_ps_worker_leave(worker) == 0);
  phx_ps_table_free(table);
  phx_ps_worker_free(worker);
  return pulled;
}

/* A next life goes on from the snapshot of one that was stopped, and not of one that was dropped.
 */
static void Drops(phx_client* client, const char* job, int drops) {
  pthread_t thread;
  phx_ps_server* server = BeginServer(client, job, &thread);
  CHECK(Adds(client, job, 0, 7) == 7);
  if (drops) {
    phx_ps_server_drop(server);
  } else {
    phx_ps_server_stop(server);
  }
  void* code = NULL;
  CHECK(pthread_join(thread, &code) == 0);
  CHECK(*(int*)code == 1);
  phx_ps_server_free(server);
  server = BeginServer(client, job, &thread);
  CHECK(Adds(client, job, 1, 1) == (drops ? 1 : 8));
  CHECK(pthread_join(thread, &code) == 0);
  CHECK(*(int*)code == 0);
  phx_ps_server_free(server);
}

int main(void) {
  phx_client* client = Connect(NULL);
  const char* const address = phx_client_address(client);
  RunJob(address, "calls", ServesAll, CallsAll);
  RunJob(address, "survives", ServesTwice, WorksTwice);
  RunJob(address, "errors", ServesBadly, SeesErrors);
  RunJob(address, "sliced", ServesSliced, WorksSliced);
  WrongOptions(client);
  Forked(client);
  Finishes(client, "finishes-early", 0);
  Finishes(client, "finishes", 1);
  Drops(client, "stops", 0);
  Drops(client, "drops", 1);
  phx_client_free(client);
  return 0;
}
