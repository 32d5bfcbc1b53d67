/* Groups of two members in one process, at a private cluster: every call of phalanx/c.h about
 * groups. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "phalanx/c.h"
#include "src/client/c/test_check.h"

enum { kMembers = 2, kSmall = 8, kLarge = 300000 };
static const int64_t kPatience = (int64_t)60 * 1000000000;

static phx_member* members[kMembers];
static phx_group* groups[kMembers];

/* Waits for a call of each member, and frees them. Returns the code of both. */
static int Ended(phx_call* const* calls) {
  int codes[kMembers];
  for (int rank = 0; rank < kMembers; ++rank) {
    CHECK(calls[rank] != NULL);
    codes[rank] = phx_wait(calls[rank], kPatience);
    phx_call_free(calls[rank]);
  }
  CHECK(codes[0] == codes[1]);
  return codes[0];
}

static void JoinAs(phx_client* client, const char* job, int rank, int on_loss, int retain) {
  const char* const tasks[kMembers] = {"worker0", "worker1"};
  phx_join_options join;
  memset(&join, 0, sizeof(join));
  join.world = kMembers;
  join.rank = -1;
  join.timeout = kPatience;
  const phx_group_options options = {on_loss, kPatience, retain, 0};
  members[rank] = phx_join(client, job, tasks[rank], &join);
  CHECK(members[rank] != NULL && phx_member_rank(members[rank]) == rank);
  groups[rank] = phx_group_of(members[rank], &options);
  CHECK(groups[rank] != NULL && phx_group_calls(groups[rank]) == 0);
}

static void Join(phx_client* client, const char* job, int on_loss) {
  for (int rank = 0; rank < kMembers; ++rank) JoinAs(client, job, rank, on_loss, 10);
}

static void Leave(void) {
  for (int rank = 0; rank < kMembers; ++rank) {
    phx_group_free(groups[rank]);
    CHECK(phx_member_leave(members[rank], 0) == 0);
    phx_member_free(members[rank]);
  }
}

/* Vectors of `count` floats: rank r has r + i in the first call, and i sums up over the calls. */
static void Elements(size_t count) {
  float* vectors[kMembers];
  phx_call* calls[kMembers];
  const uint64_t bytes = count * sizeof(float);
  for (int rank = 0; rank < kMembers; ++rank) {
    vectors[rank] = malloc(bytes);
    for (size_t i = 0; i < count; ++i) vectors[rank][i] = (float)(i % 100) + (float)rank;
    calls[rank] = phx_group_all_reduce(groups[rank], PHX_F32, vectors[rank], bytes, PHX_SUM);
  }
  CHECK(Ended(calls) == 0);
  for (int rank = 0; rank < kMembers; ++rank) {
    for (size_t i = 0; i < count; ++i) CHECK(vectors[rank][i] == (float)(i % 100 * 2 + 1));
    calls[rank] = phx_group_reduce(groups[rank], 1, PHX_F32, vectors[rank], bytes, PHX_MAX);
  }
  CHECK(Ended(calls) == 0);
  memset(vectors[1], 0, bytes);
  for (int rank = 0; rank < kMembers; ++rank) {
    calls[rank] = phx_group_broadcast(groups[rank], 0, vectors[rank], bytes);
  }
  CHECK(Ended(calls) == 0);
  for (size_t i = 0; i < count; ++i) CHECK(vectors[1][i] == (float)(i % 100 * 2 + 1));
  for (int rank = 0; rank < kMembers; ++rank) free(vectors[rank]);
}

/* Rank r gives the parts 10r and 10r + 1, of `count` elements each. */
static void Parts(size_t count) {
  int32_t* in[kMembers];
  int32_t* out[kMembers];
  phx_call* calls[kMembers];
  const uint64_t part = count * sizeof(int32_t);
  for (int rank = 0; rank < kMembers; ++rank) {
    in[rank] = malloc(kMembers * part);
    out[rank] = malloc(kMembers * part);
    for (size_t i = 0; i < kMembers * count; ++i) in[rank][i] = 10 * rank + (int32_t)(i / count);
    calls[rank] =
        phx_group_all_to_all(groups[rank], in[rank], kMembers * part, out[rank], kMembers * part);
  }
  CHECK(Ended(calls) == 0);
  for (int rank = 0; rank < kMembers; ++rank) {
    for (size_t i = 0; i < kMembers * count; ++i) {
      CHECK(out[rank][i] == 10 * (int32_t)(i / count) + rank);
    }
    calls[rank] = phx_group_reduce_scatter(groups[rank], PHX_I32, in[rank], kMembers * part,
                                           out[rank], part, PHX_SUM);
  }
  CHECK(Ended(calls) == 0);
  for (int rank = 0; rank < kMembers; ++rank) {
    for (size_t i = 0; i < count; ++i) CHECK(out[rank][i] == 10 + 2 * rank);
    calls[rank] = phx_group_all_gather(groups[rank], out[rank], part, in[rank], kMembers * part);
  }
  CHECK(Ended(calls) == 0);
  for (int rank = 0; rank < kMembers; ++rank) {
    for (size_t i = 0; i < kMembers * count; ++i) {
      CHECK(in[rank][i] == 10 + 2 * (int32_t)(i / count));
    }
  }
  for (int rank = 0; rank < kMembers; ++rank) {
    free(in[rank]);
    free(out[rank]);
  }
}

static void Refusals(void) {
  float vector[kMembers] = {1, 2};
  phx_call* calls[kMembers];
  phx_group_options options = {7, kPatience, 0, 0};
  CHECK(phx_group_of(members[0], &options) == NULL && phx_error_code() == 3);
  CHECK(phx_group_all_reduce(groups[0], 99, vector, 8, PHX_SUM) == NULL && phx_error_code() == 3);
  CHECK(phx_group_all_reduce(groups[0], PHX_F32, vector, 8, -1) == NULL && phx_error_code() == 3);
  for (int rank = 0; rank < kMembers; ++rank) {
    calls[rank] = phx_group_all_reduce(groups[rank], PHX_F32, vector, 4 + 4 * rank, PHX_SUM);
  }
  CHECK(Ended(calls) == 3 && strstr(phx_error(), "8 bytes") != NULL);
  for (int rank = 0; rank < kMembers; ++rank) {
    calls[rank] = phx_group_all_reduce(groups[rank], PHX_F32, vector, 0, PHX_SUM);
  }
  CHECK(Ended(calls) == 3);
  for (int rank = 0; rank < kMembers; ++rank) {
    calls[rank] = phx_group_broadcast(groups[rank], kMembers, vector, sizeof(vector));
  }
  CHECK(Ended(calls) == 3 && strstr(phx_error(), "root 2") != NULL);
}

/* A cancelled call leaves its memory alone, and the group goes on. */
static void Cancelled(void) {
  float left[kMembers] = {1, 2};
  phx_call* const first = phx_group_all_reduce(groups[0], PHX_F32, left, sizeof(left), PHX_SUM);
  CHECK(first != NULL);
  phx_cancel(first);
  CHECK(phx_wait(first, kPatience) == 1 && left[0] == 1 && left[1] == 2);
  phx_call_free(first);
  float right[kMembers] = {10, 20};
  phx_call* const second = phx_group_all_reduce(groups[1], PHX_F32, right, sizeof(right), PHX_SUM);
  CHECK(second != NULL && phx_wait(second, kPatience) == 0);
  phx_call_free(second);
  CHECK(right[0] == 11 && right[1] == 22 && left[0] == 1);
  phx_call* calls[kMembers];
  for (int rank = 0; rank < kMembers; ++rank) calls[rank] = phx_group_barrier(groups[rank]);
  CHECK(Ended(calls) == 0);
}

/* The result of a call that has ended is kept: for each member, from its number alone. */
static void Kept(void) {
  float vectors[kMembers][2] = {{1, 2}, {10, 20}};
  phx_call* calls[kMembers];
  for (int rank = 0; rank < kMembers; ++rank) {
    calls[rank] = phx_group_all_reduce(groups[rank], PHX_F32, vectors[rank], 8, PHX_SUM);
  }
  CHECK(Ended(calls) == 0);
  const uint64_t number = phx_group_calls(groups[0]);
  float kept[kMembers][2] = {{0, 0}, {0, 0}};
  for (int rank = 0; rank < kMembers; ++rank) {
    calls[rank] = phx_group_result(groups[rank], number, kept[rank], 8);
  }
  CHECK(Ended(calls) == 0 && kept[0][0] == 11 && kept[1][1] == 22);
  for (int rank = 0; rank < kMembers; ++rank) {
    calls[rank] = phx_group_result(groups[rank], number + 1, kept[rank], 8);
  }
  CHECK(Ended(calls) == 11 && phx_group_calls(groups[0]) == number);
}

static void CheckProgress(int rank, uint64_t ended, phx_group_keep keep) {
  phx_call* const call = phx_group_progress_of(groups[rank]);
  phx_group_progress progress;
  CHECK(call != NULL && phx_wait(call, kPatience) == 0);
  CHECK(phx_result_group_progress(call, &progress) == 0 && progress.ended == ended);
  CHECK(progress.keep.boot == keep.boot && progress.keep.released == keep.released &&
        progress.keep.mark == keep.mark);
  phx_call_free(call);
}

/* Four calls; the last one releases the second. The next life of a member gets the others. */
static void Released(phx_client* client) {
  const phx_group_keep keeps[] = {{0, 0, 0}, {1, 1, 0}, {1, 1, 0}, {1, 2, 7}};
  for (int rank = 0; rank < kMembers; ++rank) {
    JoinAs(client, "released", rank, PHX_ON_LOSS_WAIT, PHX_UNTIL_RELEASED);
  }
  CheckProgress(0, 0, keeps[0]);
  for (int call = 1; call <= 4; ++call) {
    float values[kMembers] = {(float)call, (float)(10 * call)};
    phx_call* calls[kMembers];
    for (int rank = 0; rank < kMembers; ++rank) {
      phx_group_set_keep(groups[rank], &keeps[call - 1]);
      calls[rank] = phx_group_all_reduce(groups[rank], PHX_F32, &values[rank], 4, PHX_SUM);
    }
    CHECK(Ended(calls) == 0);
  }
  phx_group_free(groups[1]);
  CHECK(phx_member_leave(members[1], 1) == 0);
  phx_member_free(members[1]);
  JoinAs(client, "released", 1, PHX_ON_LOSS_WAIT, PHX_UNTIL_RELEASED);
  CheckProgress(1, 4, keeps[3]);
  CHECK(phx_group_calls(groups[1]) == 4);
  for (int number = 1; number <= 4; ++number) {
    float value = 0;
    phx_call* const call = phx_group_result(groups[1], (uint64_t)number, &value, 4);
    CHECK(call != NULL && phx_wait(call, kPatience) == (number == 2 ? 5 : 0));
    CHECK(value == (number == 2 ? 0 : 11 * (float)number));
    phx_call_free(call);
  }
  Leave();
}

/* Without a launch a member prints on the standard output of its process. */
static void Printed(void) {
  int ends[2];
  char text[16] = {0};
  const int out = dup(STDOUT_FILENO);
  CHECK(out >= 0 && pipe(ends) == 0 && dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
  CHECK(phx_member_print(members[0], "one\ntwoX", 7) == 0);
  CHECK(phx_member_print(members[1], "", 0) == 0);
  CHECK(phx_member_print(members[1], "three\n", 6) == 0);
  CHECK(dup2(out, STDOUT_FILENO) == STDOUT_FILENO && close(out) == 0 && close(ends[1]) == 0);
  CHECK(read(ends[0], text, sizeof(text)) == 14 && strcmp(text, "one\ntwo\nthree\n") == 0);
  CHECK(close(ends[0]) == 0);
}

/* In a child of fork calls end with FailedPrecondition. */
static void Forked(void) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    phx_call* const call = phx_group_barrier(groups[0]);
    const int printed = phx_member_print(members[0], "child", 5);
    _exit(call != NULL && phx_wait(call, kPatience) == 9 && phx_group_calls(groups[0]) == 0 &&
                  printed == 9
              ? 0
              : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void WithoutAMember(phx_client* client) {
  Join(client, "shrinking", PHX_ON_LOSS_EXCLUDE);
  double mean[kMembers] = {5, 7};
  phx_call* const call = phx_group_all_reduce(groups[0], PHX_F64, mean, sizeof(mean), PHX_MEAN);
  CHECK(call != NULL && phx_member_leave(members[1], 1) == 0);
  CHECK(phx_wait(call, kPatience) == 0 && mean[0] == 5 && mean[1] == 7);
  CHECK(phx_group_members_of_last_call(groups[0]) == 1);
  phx_call_free(call);
  for (int rank = 0; rank < kMembers; ++rank) {
    phx_group_free(groups[rank]);
    phx_member_free(members[rank]);
  }
}

int main(void) {
  phx_connect_options options;
  memset(&options, 0, sizeof(options));
  options.executable = getenv("PHALANX_EXECUTABLE");
  options.connect_timeout = kPatience;
  phx_client* client = phx_connect(&options);
  CHECK(client != NULL);
  Join(client, "train", PHX_ON_LOSS_FAIL);
  Elements(kSmall);
  Elements(kLarge);
  Parts(kSmall);
  Parts(kLarge);
  CHECK(phx_group_calls(groups[0]) == 12 && phx_group_members_of_last_call(groups[1]) == kMembers);
  Kept();
  Printed();
  Forked();
  Refusals();
  Cancelled();
  Leave();
  Released(client);
  WithoutAMember(client);
  phx_close(client);
  phx_client_free(client);
  return 0;
}
