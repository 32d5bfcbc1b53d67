/* Tables whose rows have lengths of their own: two servers and two workers at a private cluster. */
#include <string.h>

#include "phalanx/c.h"
#include "src/client/c/parameter_server_jobs.h"
#include "src/client/c/test_check.h"

enum { kMost = 5 };

/* Appends what is pushed to the rows, and adds 100 to all of their elements. */
static int Appends(void* argument, const phx_ps_push* push, phx_ps_rows* rows) {
  CHECK(argument == NULL && push->count == 1 && push->lengths != NULL);
  const uint64_t key = push->keys[0];
  const uint32_t before = phx_ps_row_length(rows, key);
  int64_t* const row = phx_ps_row_resize(rows, key, before + push->lengths[0]);
  CHECK(row != NULL && row == phx_ps_row(rows, key));
  for (uint32_t i = 0; i < push->lengths[0]; ++i) {
    CHECK(row[before + i] == 0);
    row[before + i] = ((const int64_t*)push->values)[i];
  }
  uint32_t length = 0;
  int64_t elements[kMost];
  phx_ps_rows_lengths(rows, &length);
  CHECK(length == before + push->lengths[0] && length == phx_ps_row_length(rows, key));
  phx_ps_rows_read(rows, elements);
  for (uint32_t i = 0; i < length; ++i) elements[i] += 100;
  phx_ps_rows_write(rows, elements);
  CHECK(phx_ps_row_resize(rows, key, kMost + 1) == NULL);
  const uint64_t of_the_other_server = key ^ ((uint64_t)1 << 63);
  CHECK(phx_ps_row_resize(rows, of_the_other_server, 1) == NULL);
  CHECK(phx_ps_row_length(rows, of_the_other_server) == 0);
  return 0;
}

static int ServesLengths(phx_ps_server* server) {
  phx_ps_table_spec spec = SpecOf("lists", PHX_I64);
  CHECK(spec.lengths == 0);
  spec.lengths = 1;
  spec.width = kMost;
  spec.split = PHX_PS_SPLIT_HASH;
  spec.sync = PHX_PS_ASP;
  spec.update = PHX_PS_ASSIGN;
  CHECK(phx_ps_server_add_table(server, &spec, NULL, NULL) == 0);
  spec.name = "sums";
  spec.sync = PHX_PS_BSP;
  spec.update = PHX_PS_SUM;
  CHECK(phx_ps_server_add_table(server, &spec, NULL, NULL) == 0);
  spec.name = "own";
  spec.split = PHX_PS_SPLIT_RANGE;
  spec.update = PHX_PS_OWN;
  CHECK(phx_ps_server_add_table(server, &spec, Appends, NULL) == 0);
  spec.keys = kKeys;
  CHECK(phx_ps_server_add_table(server, &spec, Appends, NULL) == kInvalid);
  CHECK(strstr(phx_error(), "lengths") != NULL);
  phx_ps_table_spec plain = SpecOf("plain", PHX_I64);
  CHECK(phx_ps_server_add_table(server, &plain, NULL, NULL) == 0);
  CHECK(phx_ps_server_run(server) == 0);
  return 1;
}

/* Waits for a pull; its rows have these lengths and elements. */
static void CheckPulled(phx_call* call, const uint32_t* lengths, size_t n,
                        const int64_t* elements) {
  CHECK(call != NULL && phx_wait(call, kPatience) == 0);
  uint32_t* pulled_lengths = NULL;
  void* values = NULL;
  size_t rows = 0;
  uint64_t bytes = 0;
  CHECK(phx_ps_pulled(call, &pulled_lengths, &rows, &values, &bytes) == 0);
  CHECK(rows == n);
  uint64_t all = 0;
  for (size_t i = 0; i < n; ++i) {
    CHECK(pulled_lengths[i] == lengths[i]);
    all += lengths[i];
  }
  CHECK(bytes == all * sizeof(int64_t));
  CHECK(all == 0 || memcmp(values, elements, bytes) == 0);
  int64_t number = 0;
  CHECK(phx_result_number(call, &number) == kInvalid);
  phx_call_free(call);
}

static void WrongLengths(phx_ps_table* lists, phx_ps_table* plain) {
  const uint64_t keys[2] = {3, 8};
  const int64_t values[kMost + 2] = {0};
  const uint32_t right[2] = {1, 2};
  const uint32_t too_long[2] = {1, kMost + 1};
  CHECK(Ended(phx_ps_push_lengths(lists, keys, 2, values, sizeof(values), too_long)) == kInvalid);
  CHECK(strstr(phx_error(), "lists") != NULL && strstr(phx_error(), "key 8") != NULL);
  CHECK(Ended(phx_ps_push_pull_lengths(lists, keys, 2, values, 16, right)) == kInvalid);
  CHECK(strstr(phx_error(), "do not add up") != NULL);
  CHECK(Ended(phx_ps_push_rows(lists, keys, 1, values, kMost * sizeof(int64_t))) == kInvalid);
  CHECK(Ended(phx_ps_push_lengths(plain, keys, 2, values, 24, right)) == kInvalid);
  CHECK(Ended(phx_ps_pull_lengths(plain, keys, 2)) == kInvalid);
  phx_call* call = phx_ps_push_lengths(lists, keys, 0, NULL, 0, NULL);
  CHECK(call != NULL && phx_wait(call, kPatience) == 0);
  uint32_t* lengths = NULL;
  void* pulled = NULL;
  size_t n = 0;
  uint64_t bytes = 0;
  CHECK(phx_ps_pulled(call, &lengths, &n, &pulled, &bytes) == kInvalid);
  phx_call_free(call);
  CHECK(phx_ps_clock(lists) == kInvalid && strstr(phx_error(), "key 8") != NULL);
  CHECK(phx_ps_clock(plain) == kInvalid);
}

/* Both workers push to one row in two clocks: {1, 2} and {10, 20, 30, 40}, then {5} and nothing. */
static void PushesClocks(phx_ps_table* table, int rank, const int64_t* first, uint32_t first_length,
                         const int64_t* second, uint32_t second_length) {
  const uint64_t key = 7;
  const int64_t values[2][4] = {{1, 2}, {10, 20, 30, 40}};
  const uint32_t lengths[2] = {2, 4};
  const uint32_t none = 0;
  CheckPulled(
      phx_ps_push_pull_lengths(table, &key, 1, values[rank], 8 * lengths[rank], &lengths[rank]),
      &none, 1, NULL);
  CHECK(phx_ps_clock(table) == 0);
  CheckPulled(phx_ps_pull_lengths(table, &key, 1), &first_length, 1, first);
  const int64_t more = 5;
  const uint32_t one = 1;
  if (rank == 0) CHECK(Ended(phx_ps_push_lengths(table, &key, 1, &more, 8, &one)) == 0);
  CHECK(phx_ps_clock(table) == 0);
  CheckPulled(phx_ps_pull_lengths(table, &key, 1), &second_length, 1, second);
}

static int WorksLengths(phx_ps_worker* worker) {
  const int rank = phx_ps_worker_rank(worker);
  phx_ps_table* const lists = phx_ps_worker_open(worker, "lists");
  phx_ps_table* const sums = phx_ps_worker_open(worker, "sums");
  phx_ps_table* const own = phx_ps_worker_open(worker, "own");
  phx_ps_table* const plain = phx_ps_worker_open(worker, "plain");
  CHECK(lists != NULL && sums != NULL && own != NULL && plain != NULL);
  phx_ps_table_spec spec;
  phx_ps_table_spec_of(lists, &spec);
  CHECK(spec.lengths == 1 && spec.width == kMost);
  WrongLengths(lists, plain);
  const uint64_t keys[2] = {(uint64_t)rank, 10 + (uint64_t)rank};
  const uint32_t lengths[2] = {1 + (uint32_t)rank, 2};
  const int64_t values[4] = {4 + rank, 6 + rank, 8 + rank, 10 + rank};
  CHECK(Ended(phx_ps_push_lengths(lists, keys, 2, values, 8 * (3 + (uint64_t)rank), lengths)) == 0);
  CHECK(Ended(phx_ps_worker_barrier(worker, PHX_PS_WORKERS, NULL)) == 0);
  const uint64_t all[5] = {0, 1, 2, 10, 11};
  const uint32_t all_lengths[5] = {1, 2, 0, 2, 2};
  const int64_t elements[7] = {4, 5, 7, 6, 8, 9, 11};
  CheckPulled(phx_ps_pull_lengths(lists, all, 5), all_lengths, 5, elements);
  CHECK(Ended(phx_ps_worker_barrier(worker, PHX_PS_WORKERS, NULL)) == 0);
  const uint32_t none = 0;
  CheckPulled(phx_ps_push_pull_lengths(lists, keys, 1, NULL, 0, &none), &none, 1, NULL);
  const int64_t sum[4] = {11, 22, 30, 40};
  const int64_t next_sum[4] = {16, 22, 30, 40};
  PushesClocks(sums, rank, sum, 4, next_sum, 4);
  const int64_t appended[4] = {111, 122, 130, 140};
  const int64_t next_appended[5] = {211, 222, 230, 240, 105};
  PushesClocks(own, rank, appended, 4, next_appended, 5);
  CHECK(phx_ps_worker_leave(worker) == 0);
  phx_ps_table_free(lists);
  phx_ps_table_free(sums);
  phx_ps_table_free(own);
  phx_ps_table_free(plain);
  return 1;
}

int main(void) {
  phx_client* client = Connect(NULL);
  RunJob(phx_client_address(client), "lengths", ServesLengths, WorksLengths);
  phx_client_free(client);
  return 0;
}
