/* Sessions of two ranks, threads of one process with a client each, at a private cluster: every
 * function of phalanx/c.h about sessions. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "phalanx/c.h"
#include "src/client/c/test_check.h"

enum { kRanks = 2, kLarge = 300000, kVersions = 3, kNoMemory = 8, kCancelled = 1, kOver = 9 };
static const int64_t kPatience = (int64_t)60 * 1000000000;

/* What a rank does, in its thread. The body returns whether the session is over; if it is not, the
 * rank dies, and its next life runs the body again. */
typedef struct {
  const char* address;
  const char* job;
  int rank;
  int (*body)(phx_session* session);
} Rank;

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

static phx_session* JoinAs(phx_client* client, const char* job, int rank) {
  const char* const tasks[kRanks] = {"worker0", "worker1"};
  phx_session_options options;
  memset(&options, 0, sizeof(options));
  options.job = job;
  options.task = tasks[rank];
  options.world = kRanks;
  options.peer_timeout = kPatience;
  phx_session* session = phx_session_join(client, &options);
  CHECK(session != NULL);
  CHECK(phx_session_rank(session) == rank && phx_session_world(session) == kRanks);
  return session;
}

static void* RunRank(void* argument) {
  const Rank* const rank = argument;
  phx_client* client = Connect(rank->address);
  int over = 0;
  for (uint64_t life = 0; !over; ++life) {
    phx_session* session = JoinAs(client, rank->job, rank->rank);
    CHECK(phx_session_life(session) == life);
    over = rank->body(session);
    phx_session_free(session);
  }
  phx_client_free(client);
  return NULL;
}

static void RunJob(const char* address, const char* job, int (*body)(phx_session* session)) {
  pthread_t threads[kRanks];
  Rank ranks[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    const Rank made = {address, job, rank, body};
    ranks[rank] = made;
    CHECK(pthread_create(&threads[rank], NULL, RunRank, &ranks[rank]) == 0);
  }
  for (int rank = 0; rank < kRanks; ++rank) CHECK(pthread_join(threads[rank], NULL) == 0);
}

/* ---- functions of the program */

typedef struct {
  int64_t* values;
  int64_t first;
  int calls;
  int refusals; /* the first so many calls fail */
} Input;

static int Fill(void* argument) {
  Input* const input = argument;
  if (input->calls++ < input->refusals) return 1;
  input->values[0] = input->first;
  input->values[1] = 10 * input->first;
  return 0;
}

typedef struct {
  char* bytes;
  uint64_t size;
} Memory;

static void* Allocate(void* argument, uint64_t size) {
  Memory* const memory = argument;
  memory->size = size;
  memory->bytes = malloc(size + 1);
  return memory->bytes;
}

static void* Nothing(void* argument, uint64_t size) {
  (void)argument;
  (void)size;
  return NULL;
}

typedef struct {
  int64_t model;
  int calls;
  int refusals;
} Taken;

static int Take(void* argument, const void* bytes, uint64_t size, const void* local,
                uint64_t local_size) {
  Taken* const taken = argument;
  CHECK(size == sizeof(taken->model) && local == NULL && local_size == 0);
  if (taken->calls++ < taken->refusals) return 1;
  memcpy(&taken->model, bytes, size);
  return 0;
}

typedef struct {
  const int64_t* value;
  int* saved;
} Model;

static int SaveModel(void* argument, const void** bytes, uint64_t* size) {
  const Model* const model = argument;
  ++*model->saved;
  *bytes = model->value;
  *size = sizeof(*model->value);
  return 0;
}

/* Joins strings: the fold of models of any sizes, in the order of ranks. */
typedef struct {
  char text[100];
  int refuses;
} Word;

static int SaveWord(void* argument, const void** bytes, uint64_t* size) {
  Word* const word = argument;
  *bytes = word->text;
  *size = strlen(word->text);
  return word->refuses;
}

static int AddWord(void* argument, const void* bytes, uint64_t size) {
  Word* const word = argument;
  strncat(word->text, bytes, size);
  return 0;
}

static int LoadWord(void* argument, const void* bytes, uint64_t size) {
  Word* const word = argument;
  word->text[0] = 0;
  return AddWord(word, bytes, size);
}

static int RefuseWord(void* argument, const void* bytes, uint64_t size) {
  (void)argument;
  (void)bytes;
  (void)size;
  return 1;
}

/* The fold of functions f(x) = ax + b, each an element (a, b): the order of ranks shows. */
static int Compose(void* argument, void* into, const void* from, uint64_t count) {
  int64_t* const f = into;
  const int64_t* const g = from;
  *(uint64_t*)argument += count;
  for (uint64_t i = 0; i < 2 * count; i += 2) {
    f[i + 1] = f[i] * g[i + 1] + f[i + 1];
    f[i] *= g[i];
  }
  return 0;
}

static int Refuse(void* argument, void* into, const void* from, uint64_t count) {
  (void)into;
  (void)from;
  (void)count;
  *(int*)argument += 1;
  return 1;
}

/* ---- bodies */

/* Rank 1 dies after a lazy checkpoint and a call of its version, so the other one saves the model
 * while it waits, however it does so: in a call, or before it waits elsewhere. */
static int Lazy(phx_session* session, int way) {
  const int rank = phx_session_rank(session);
  const uint64_t life = phx_session_life(session);
  int64_t model = 0;
  int saved = 0;
  Model lazy = {&model, &saved};
  Taken taken = {0, 0, 0};
  uint64_t version = 0;
  CHECK(phx_session_load(session, 0, Take, &taken, &version) == 0 && version == life);
  CHECK(taken.model == 7 * (int64_t)life);
  model = taken.model;
  if (version == 0) {
    CHECK(phx_session_barrier(session, NULL) == 0);
    model = 7;
    CHECK(phx_session_lazy_checkpoint(session, SaveModel, &lazy) == 0);
    CHECK(phx_session_version(session) == 1 && saved == 0);
  }
  CHECK(phx_session_barrier(session, NULL) == 0);
  if (rank == 1 && life == 0) return 0;
  int64_t* const vector = calloc(kLarge, sizeof(int64_t));
  uint64_t folded = 0;
  if (way == 0) CHECK(phx_session_barrier(session, NULL) == 0);
  if (way == 1) {
    phx_call* const call =
        phx_session_allreduce_async(session, PHX_I64, vector, 16, PHX_SUM, NULL, NULL, NULL);
    CHECK(call != NULL && phx_wait(call, kPatience) == 0);
    phx_call_free(call);
  }
  if (way == 2) {
    CHECK(phx_session_allreduce_by(session, vector, kLarge * sizeof(int64_t), 16, Compose, &folded,
                                   NULL, NULL, NULL) == 0);
  }
  free(vector);
  CHECK(saved == (rank == 0));
  CHECK(phx_session_leave(session) == 0);
  return 1;
}

static int LazyBeforeACall(phx_session* session) { return Lazy(session, 0); }
static int LazyBeforeAnAsynchronousCall(phx_session* session) { return Lazy(session, 1); }
static int LazyBeforeAFold(phx_session* session) { return Lazy(session, 2); }

/* Takes a model, and a local one of "rank" and so many letters. */
static int TakeBoth(void* argument, const void* bytes, uint64_t size, const void* local,
                    uint64_t local_size) {
  Taken* const taken = argument;
  CHECK(size == sizeof(taken->model) && local != NULL);
  memcpy(&taken->model, bytes, size);
  taken->calls = (int)local_size;
  return 0;
}

/* Local models, of no bytes on rank 0. Rank 1 dies in version 2. */
static int Local(phx_session* session) {
  const int rank = phx_session_rank(session);
  const uint64_t life = phx_session_life(session);
  Taken taken = {0, 0, 0};
  uint64_t version = 7;
  if (life > 0) {
    CHECK(phx_session_load(session, 0, Take, &taken, &version) == 3); /* it has them */
  }
  CHECK(phx_session_load(session, 1, TakeBoth, &taken, &version) == 0);
  CHECK(version == (life == 0 ? 0 : 2) && taken.model == (int64_t)version);
  CHECK(taken.calls == (life == 0 ? 0 : 4));
  while (phx_session_version(session) < kVersions) {
    CHECK(phx_session_barrier(session, NULL) == 0);
    if (rank == 1 && life == 0 && phx_session_version(session) == 2) return 0;
    ++taken.model;
    CHECK(phx_session_checkpoint(session, &taken.model, sizeof(taken.model), "local",
                                 rank == 0 ? 0 : 4) == 0);
  }
  CHECK(phx_session_checkpoint(session, "model", 5, NULL, 0) == 3); /* so it goes on with them */
  CHECK(phx_session_leave(session) == 0);
  return 1;
}

/* Calls that are under way together. */
static int Together(phx_session* session) {
  enum { kCalls = 20 };
  static int64_t values[kRanks][kCalls][2];
  const int rank = phx_session_rank(session);
  phx_call* calls[kCalls];
  for (int i = 0; i < kCalls; ++i) {
    Input input = {values[rank][i], i + rank, 0, i == 7};
    do {
      calls[i] = phx_session_allreduce_async(session, PHX_I64, values[rank][i],
                                             sizeof(values[0][0]), PHX_SUM, Fill, &input, NULL);
      CHECK(calls[i] != NULL || (i == 7 && phx_error_code() == kCancelled));
    } while (calls[i] == NULL);
  }
  CHECK(phx_session_allreduce_async(session, PHX_I64, values, 8, PHX_SUM + 99, NULL, NULL, NULL) ==
        NULL);
  CHECK(phx_error_code() == 3 && phx_session_seq(session) == kCalls);
  CHECK(phx_session_barrier(session, NULL) == 0);
  for (int i = kCalls - 1; i >= 0; --i) {
    CHECK(phx_wait(calls[i], 0) == 0);
    CHECK(values[rank][i][0] == 2 * i + 1 && values[rank][i][1] == 10 * (2 * i + 1));
    phx_call_free(calls[i]);
  }
  CHECK(phx_session_leave(session) == 0);
  calls[0] = phx_session_allreduce_async(session, PHX_I64, values, 8, PHX_SUM, NULL, NULL, NULL);
  CHECK(calls[0] == NULL && phx_error_code() == kOver);
  return 1;
}

/* Folds of the program, small ones and along a tree. */
static int Folds(phx_session* session) {
  const int rank = phx_session_rank(session);
  for (uint64_t count = 1; count <= kLarge; count *= kLarge) {
    int64_t* const functions = malloc(2 * count * sizeof(int64_t));
    for (uint64_t i = 0; i < 2 * count; i += 2) {
      functions[i] = 2 + rank;
      functions[i + 1] = 5 + rank;
    }
    uint64_t folded = 0;
    CHECK(phx_session_allreduce_by(session, functions, 2 * count * sizeof(int64_t),
                                   2 * sizeof(int64_t), Compose, &folded, NULL, NULL, NULL) == 0);
    for (uint64_t i = 0; i < 2 * count; i += 2) {
      CHECK(functions[i] == 6 && functions[i + 1] == 2 * 6 + 5);
    }
    CHECK(folded == (count == 1 || rank == 0 ? count : 0));
    free(functions);
  }
  Word word = {"", 0};
  strcpy(word.text, rank == 0 ? "to" : "gether");
  CHECK(phx_session_allreduce_model(session, SaveWord, AddWord, LoadWord, &word, NULL, NULL,
                                    NULL) == 0);
  CHECK(strcmp(word.text, "together") == 0);
  /* Without a value there is no call, and it can be made. */
  word.refuses = 1;
  CHECK(phx_session_allreduce_model(session, SaveWord, AddWord, LoadWord, &word, NULL, NULL,
                                    NULL) == kCancelled);
  CHECK(phx_session_seq(session) == 3);
  word.refuses = 0;
  CHECK(phx_session_allreduce_model(session, SaveWord, RefuseWord, LoadWord, &word, NULL, NULL,
                                    NULL) == kCancelled);
  CHECK(phx_session_barrier(session, NULL) == kCancelled);
  return 1;
}

/* A fold that fails ends its rank's session; the others wait for the next life of the rank. */
static int FailingFold(phx_session* session) {
  int64_t* const vector = calloc(kLarge, sizeof(int64_t));
  uint64_t folded = 0;
  int refusals = 0;
  const int fails = phx_session_rank(session) == 0 && phx_session_life(session) == 0;
  const int code = phx_session_allreduce_by(
      session, vector, kLarge * sizeof(int64_t), 2 * sizeof(int64_t), fails ? Refuse : Compose,
      fails ? (void*)&refusals : (void*)&folded, NULL, NULL, NULL);
  free(vector);
  CHECK(code == (fails ? kCancelled : 0) && refusals == fails);
  if (fails) {
    CHECK(phx_session_barrier(session, NULL) != 0);
    return 0;
  }
  CHECK(phx_session_leave(session) == 0);
  return 1;
}

/* Every call, once. */
static int Calls(phx_session* session) {
  const int rank = phx_session_rank(session);
  uint64_t version = 7;
  CHECK(phx_session_load(session, 0, Take, NULL, &version) == 0 && version == 0);
  float* const vector = malloc(kLarge * sizeof(float));
  for (int i = 0; i < kLarge; ++i) vector[i] = (float)(i % 100 + rank);
  CHECK(phx_session_allreduce(session, PHX_F32, vector, kLarge * sizeof(float), PHX_SUM, NULL, NULL,
                              NULL) == 0);
  for (int i = 0; i < kLarge; ++i) CHECK(vector[i] == (float)(i % 100 * 2 + 1));
  free(vector);
  char text[6] = "-----";
  if (rank == 1) memcpy(text, "hello", sizeof(text));
  CHECK(phx_session_broadcast(session, text, sizeof(text), 1, NULL) == 0);
  CHECK(strcmp(text, "hello") == 0);
  Memory sent = {NULL, 0};
  CHECK(phx_session_broadcast_sized(session, rank == 0 ? 0 : 5, 1, 0, Allocate, &sent, NULL) == 0);
  CHECK(sent.size == 0);
  free(sent.bytes);
  const int32_t mine[2] = {rank, 10 + rank};
  uint64_t offsets[kRanks + 1];
  Memory all = {NULL, 0};
  CHECK(phx_session_allgather(session, mine, (uint64_t)(rank + 1) * 4, 4, Allocate, &all, offsets,
                              NULL) == 0);
  const int32_t expected[3] = {0, 1, 11};
  CHECK(all.size == sizeof(expected) && memcmp(all.bytes, expected, sizeof(expected)) == 0);
  CHECK(offsets[0] == 0 && offsets[1] == 4 && offsets[2] == 12);
  free(all.bytes);
  CHECK(phx_session_barrier(session, NULL) == 0);
  CHECK(phx_session_seq(session) == 5 && phx_session_version(session) == 0);
  CHECK(phx_session_checkpoint(session, "model", 5, NULL, 0) == 0);
  CHECK(phx_session_seq(session) == 0 && phx_session_version(session) == 1);
  CHECK(phx_session_print(session, "printed", 7) == 0);
  phx_session_stats stats;
  phx_session_stats_of(session, &stats);
  CHECK(stats.repeated == 0 && stats.made == 7 && stats.prepared == 0);
  CHECK(stats.checkpoint_bytes == 5 && stats.recovery == 0);
  CHECK(phx_session_leave(session) == 0);
  CHECK(phx_session_leave(session) == kOver && strstr(phx_error(), "the rank has left") != NULL);
  return 1;
}

/* Rank 1 dies after the checkpoint of version 1 and a call. Its next life goes on there. */
static int Survives(phx_session* session) {
  const int rank = phx_session_rank(session);
  const uint64_t life = phx_session_life(session);
  /* The first life of rank 1 refuses an input, and its second one a model. */
  Taken taken = {0, 0, 1};
  uint64_t version = 0;
  int code = phx_session_load(session, 0, Take, &taken, &version);
  if (life == 1) {
    CHECK(code == kCancelled);
    code = phx_session_load(session, 0, Take, &taken, &version);
  }
  CHECK(code == 0 && version == life && taken.model == 33 * (int64_t)life);
  int prepared = 0;
  while (phx_session_version(session) < kVersions) {
    int64_t sums[2];
    const int refuses = rank == 1 && life == 0 && phx_session_version(session) == 0;
    Input input = {sums, rank + 1, 0, refuses};
    do {
      code =
          phx_session_allreduce(session, PHX_I64, sums, sizeof(sums), PHX_SUM, Fill, &input, NULL);
    } while (code == kCancelled && refuses);
    CHECK(code == 0 && sums[0] == 3 && sums[1] == 30);
    prepared += input.calls - refuses;
    taken.model += sums[0] + sums[1];
    if (rank == 1 && life == 0 && phx_session_version(session) == 1) return 0;
    CHECK(phx_session_checkpoint(session, &taken.model, sizeof(taken.model), NULL, 0) == 0);
  }
  CHECK(taken.model == 33 * kVersions);
  /* Its call in version 1 has a result, so no input. */
  CHECK(prepared == (life == 0 ? kVersions : kVersions - 2));
  phx_session_stats stats;
  phx_session_stats_of(session, &stats);
  CHECK(stats.prepared == (uint64_t)prepared && (stats.repeated > 0) == (life > 0));
  CHECK((stats.recovery > 0) == (life > 0));
  CHECK(phx_session_leave(session) == 0);
  return 1;
}

/* Arguments that are refused at once do not end a session; a place of nothing does. */
static int Refusals(phx_session* session) {
  float value = 1;
  CHECK(phx_session_allreduce(session, 99, &value, 4, PHX_SUM, NULL, NULL, NULL) == 3);
  CHECK(phx_session_allreduce(session, PHX_F32, &value, 4, -1, NULL, NULL, NULL) == 3);
  CHECK(phx_session_allreduce(session, PHX_F32, &value, 3, PHX_SUM, NULL, NULL, NULL) == 3);
  CHECK(phx_session_allreduce(session, PHX_F32, &value, 4, PHX_BIT_OR, NULL, NULL, NULL) == 3);
  CHECK(phx_session_broadcast(session, &value, 4, kRanks, NULL) == 3);
  CHECK(phx_session_broadcast_sized(session, 4, 4, -1, Nothing, NULL, NULL) == 3);
  CHECK(phx_session_checkpoint(session, &value, 4, NULL, 0) == kOver); /* before Load */
  CHECK(phx_session_barrier(session, NULL) == 0);
  CHECK(phx_session_allgather(session, &value, 4, 4, Nothing, NULL, NULL, NULL) == kNoMemory);
  CHECK(strstr(phx_error(), "no memory for 8 bytes") != NULL);
  CHECK(phx_session_barrier(session, NULL) == kNoMemory);
  return 1;
}

static void WrongOptions(phx_client* client) {
  unsetenv("PHALANX_JOB");
  CHECK(phx_session_join(client, NULL) == NULL && phx_error_code() == 3);
  phx_session_options options;
  memset(&options, 0, sizeof(options));
  options.job = "wrong";
  options.task = "worker0";
  options.world = 1;
  options.peer_timeout = kPatience;
  options.result_copies = 17;
  CHECK(phx_session_join(client, &options) == NULL && phx_error_code() == 3);
  CHECK(strstr(phx_error(), "result_copies is 17") != NULL);
  options.result_copies = 0;
  options.world = -1;
  CHECK(phx_session_join(client, &options) == NULL && phx_error_code() == 3);
}

/* In a child of fork calls end with FailedPrecondition. */
static void Forked(phx_client* client) {
  phx_session_options options;
  memset(&options, 0, sizeof(options));
  options.job = "forked";
  options.task = "worker0";
  options.world = 1;
  options.peer_timeout = kPatience;
  phx_session* session = phx_session_join(client, &options);
  CHECK(session != NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(phx_session_barrier(session, NULL) == kOver ? 0 : 1);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(phx_session_leave(session) == 0);
  phx_session_free(session);
}

int main(void) {
  phx_client* client = Connect(NULL);
  const char* const address = phx_client_address(client);
  RunJob(address, "calls", Calls);
  RunJob(address, "survives", Survives);
  RunJob(address, "lazy", LazyBeforeACall);
  RunJob(address, "lazy2", LazyBeforeAnAsynchronousCall);
  RunJob(address, "lazy3", LazyBeforeAFold);
  RunJob(address, "local", Local);
  RunJob(address, "together", Together);
  RunJob(address, "folds", Folds);
  RunJob(address, "fails", FailingFold);
  RunJob(address, "refused", Refusals);
  WrongOptions(client);
  Forked(client);
  phx_client_free(client);
  return 0;
}
