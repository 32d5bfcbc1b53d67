/* Checks that phalanx/c.h is C, and what the tests of other languages do not cover. Each step runs
 * against a real node. */
#include "phalanx/c.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/client/c/test_check.h"

enum { kMinute = 60 };
static const int64_t kPatience = (int64_t)kMinute * 1000000000;
static const size_t kLarge = (size_t)3 << 20;

static phx_put_options PutOptions(void) {
  phx_put_options options;
  memset(&options, 0, sizeof(options));
  options.timeout = kPatience;
  return options;
}

static phx_view GetOne(phx_client* client, const char* id) {
  phx_view view;
  phx_call* get = phx_get(client, id, 1, 0, UINT64_MAX, 0, kPatience);
  CHECK(get != NULL && phx_wait(get, kPatience) == 0);
  CHECK(phx_result_count(get) == 1 && phx_result_views(get, 0, 1, &view) == 0);
  CHECK(phx_result_views(get, 0, 2, &view) != 0);
  phx_call_free(get);
  return view;
}

static void SmallObject(phx_client* client) {
  char id[20];
  phx_put_options options = PutOptions();
  options.metadata = "what it is";
  options.metadata_size = strlen(options.metadata);
  phx_id_random(id);
  phx_call* put = phx_put(client, id, "hello", 5, &options);
  CHECK(put != NULL && phx_wait(put, kPatience) == 0);
  int64_t existed = -1;
  CHECK(phx_result_number(put, &existed) == 0 && existed == 0);
  CHECK(phx_result_writer(put) == NULL);
  phx_call_free(put);

  const phx_view view = GetOne(client, id);
  CHECK(view.size == 5 && memcmp(view.data, "hello", 5) == 0);
  CHECK(view.metadata_size == 10 && memcmp(view.metadata, "what it is", 10) == 0);
  CHECK(phx_private_pages(view.buffer) == NULL);
  phx_buffer_free(view.buffer);
}

static void Copies(phx_client* client) {
  char ids[3][20];
  const char* const texts[3] = {"one", "", "three, which is longer"};
  phx_put_options options = PutOptions();
  options.metadata = "m";
  options.metadata_size = 1;
  for (int i = 0; i < 3; ++i) {
    phx_id_random(ids[i]);
    phx_call* put = phx_put(client, ids[i], texts[i], strlen(texts[i]), &options);
    CHECK(put != NULL && phx_wait(put, kPatience) == 0);
    phx_call_free(put);
  }
  phx_call* get = phx_get(client, ids[0], 3, 0, UINT64_MAX, 0, kPatience);
  CHECK(get != NULL && phx_wait(get, kPatience) == 0);
  char bytes[64];
  uint64_t sizes[6];
  CHECK(phx_result_copies(get, 0, 3, 64, bytes, sizeof(bytes), sizes) == 3);
  CHECK(memcmp(bytes, "monemmthree, which is longer", 28) == 0);
  CHECK(sizes[0] == 1 && sizes[1] == 3 && sizes[3] == 0 && sizes[4] == 1 && sizes[5] == 22);
  CHECK(phx_result_copies(get, 0, 3, 10, bytes, sizeof(bytes), sizes) == 2);
  CHECK(phx_result_copies(get, 2, 3, 10, bytes, sizeof(bytes), sizes) == 0);
  CHECK(phx_result_copies(get, 0, 3, 64, bytes, 4, sizes) == 1);
  CHECK(phx_result_copies(get, 0, 3, 64, bytes, 3, sizes) == 0);
  CHECK(phx_result_copies(get, 3, 3, 64, bytes, sizeof(bytes), sizes) == 0);
  CHECK(phx_result_copies(get, 2, 4, 64, bytes, sizeof(bytes), sizes) == -1);
  phx_call_free(get);
}

/* A writer that ends while its memory is still in use. */
static void KeptMemory(phx_client* client, size_t size) {
  char id[20];
  const phx_put_options options = PutOptions();
  phx_id_random(id);
  for (int attempt = 0; attempt < 2; ++attempt) {
    phx_call* create = phx_create(client, id, size, &options);
    CHECK(create != NULL && phx_wait(create, kPatience) == 0);
    phx_writer* writer = phx_result_writer(create);
    CHECK(writer != NULL && phx_result_writer(create) == NULL);
    phx_call_free(create);
    char* data = phx_writer_data(writer);
    memset(data, 'a', size);
    if (attempt == 0) {
      CHECK(phx_writer_abort(writer, 1) == 0);
    } else {
      phx_call* seal = phx_writer_seal(writer, 1);
      CHECK(seal != NULL && phx_wait(seal, kPatience) == 0);
      phx_call_free(seal);
    }
    CHECK(data[0] == 'a' && data[size - 1] == 'a');
    data[0] = 'b';
    if (attempt == 1) {
      const phx_view view = GetOne(client, id);
      CHECK(view.size == size && view.data[0] == 'a' && view.data[size - 1] == 'a');
      phx_buffer_free(view.buffer);
    }
    phx_writer_free(writer);
  }
}

static void PrivatePages(phx_client* client) {
  char id[20];
  const phx_put_options options = PutOptions();
  phx_id_random(id);
  char* bytes = malloc(kLarge);
  memset(bytes, 'x', kLarge);
  phx_call* put = phx_put(client, id, bytes, kLarge, &options);
  CHECK(put != NULL && phx_wait(put, kPatience) == 0);
  phx_call_free(put);
  const phx_view view = GetOne(client, id);
  char* pages = phx_private_pages(view.buffer);
  CHECK(pages != NULL && memcmp(pages, bytes, kLarge) == 0);
  memset(pages, 'y', kLarge);
  CHECK(memcmp(view.data, bytes, kLarge) == 0);
  phx_private_free(pages, kLarge);
  phx_buffer_free(view.buffer);
  phx_copy(bytes + 1, bytes, 1);
  free(bytes);
}

static void Queue(phx_client* client) {
  char id[20];
  const phx_put_options options = PutOptions();
  phx_id_random(id);
  phx_queue* queue = phx_queue_new();
  phx_call* get = phx_get(client, id, 1, 0, UINT64_MAX, 0, kPatience);
  CHECK(get != NULL && phx_wait(get, 0) == -1 && !phx_call_ended(get));
  phx_call_notify(get, queue, 7);
  phx_call* put = phx_put(client, id, "x", 1, &options);
  phx_call* calls[2] = {get, put};
  CHECK(phx_wait_some(calls, 2, 2, kPatience) == 2);
  phx_poll(client, 0);
  struct pollfd ready = {phx_queue_fd(queue), POLLIN, 0};
  CHECK(poll(&ready, 1, kMinute * 1000) == 1);
  uint64_t tag = 0;
  CHECK(phx_queue_take(queue, &tag, 1) == 1 && tag == 7 && phx_queue_take(queue, &tag, 1) == 0);
  CHECK(poll(&ready, 1, 0) == 0);
  phx_queue_free(queue);
  phx_call_free(get);
  phx_call_free(put);
}

static void Lifetime(phx_client* client) {
  char id[20];
  char token[24];
  phx_put_options options = PutOptions();
  options.owned = 1;
  phx_id_random(id);
  phx_call* put = phx_put(client, id, "x", 1, &options);
  CHECK(put != NULL && phx_wait(put, kPatience) == 0);
  phx_call_free(put);
  CHECK(phx_transit(client, id, token) == 0 && phx_claim(client, id, token, sizeof(token)) == 0);
  CHECK(phx_claim(client, id, token, 3) == 3);
  CHECK(phx_hold(client, id, 1) == 0);
  for (int i = 0; i < 3; ++i) phx_ref_free(phx_ref_of(client, id));
  phx_call_forget(NULL);
}

static void Errors(phx_client* client) {
  const char nil[20] = {0};
  phx_call* get = phx_get(client, nil, 1, 0, UINT64_MAX, 0, kPatience);
  CHECK(get != NULL && phx_wait(get, kPatience) == 3 && phx_error_code() == 3);
  CHECK(strstr(phx_error(), "nil id") != NULL);
  CHECK(phx_result_count(get) == 0);
  phx_call_free(get);
}

static void Names(phx_client* client) {
  char id[20];
  char same[20];
  const phx_put_options options = PutOptions();
  phx_client_id(client, "batch", 5, "job/7", 5, id);
  phx_id_from_name("batch", 5, "job/7", 5, same);
  CHECK(memcmp(id, same, sizeof(id)) == 0);
  phx_call* put = phx_put(client, id, "x", 1, &options);
  CHECK(put != NULL && phx_wait(put, kPatience) == 0);
  phx_call_free(put);
  phx_call* stat = phx_stat(client, id, kPatience);
  phx_object_status status;
  CHECK(stat != NULL && phx_wait(stat, kPatience) == 0 && phx_result_status(stat, &status) == 0);
  CHECK(status.name_size == 5 && memcmp(status.name, "job/7", 5) == 0);
  CHECK(status.name_space_size == 5 && memcmp(status.name_space, "batch", 5) == 0);
  phx_call_free(stat);
  phx_client_id(client, "batch", 5, "never put", 9, id);
  phx_call* get = phx_get(client, id, 1, 0, UINT64_MAX, 0, 0);
  CHECK(get != NULL && phx_wait(get, kPatience) == 4);
  CHECK(strstr(phx_error(), "\"batch:never put\" (") != NULL);
  phx_call_free(get);
}

static int Known(phx_client* client, const char* id) {
  phx_object_status status;
  phx_call* stat = phx_stat(client, id, kPatience);
  CHECK(stat != NULL && phx_wait(stat, kPatience) == 0 && phx_result_status(stat, &status) == 0);
  phx_call_free(stat);
  return status.known && !status.deleted;
}

static void Batches(phx_client* client) {
  char ids[2][20];
  const phx_put_options options = PutOptions();
  for (int i = 0; i < 2; ++i) {
    phx_id_random(ids[i]);
    phx_call* put = phx_put(client, ids[i], "x", 1, &options);
    CHECK(put != NULL && phx_wait(put, kPatience) == 0);
    phx_call_free(put);
  }
  phx_connect_options to;
  memset(&to, 0, sizeof(to));
  to.address = phx_client_address(client);
  to.connect_timeout = kPatience;
  phx_client* other = phx_connect(&to);
  CHECK(other != NULL);
  phx_batch_begin(client);
  phx_batch_begin(client);
  phx_call* calls[2] = {phx_delete(client, ids[0], kPatience),
                        phx_delete(client, ids[1], kPatience)};
  CHECK(Known(other, ids[0]) && Known(other, ids[1]));
  phx_batch_end(client);
  CHECK(Known(other, ids[0]));
  phx_batch_end(client);
  CHECK(phx_wait_some(calls, 2, 2, kPatience) == 2);
  CHECK(!Known(other, ids[0]) && !Known(other, ids[1]));
  for (int i = 0; i < 2; ++i) phx_call_free(calls[i]);
  /* A wait within a batch sends its requests. */
  phx_batch_begin(client);
  CHECK(!Known(client, ids[0]));
  phx_batch_end(client);
  phx_client_free(other);
}

/* NULL as options: the defaults, which wait. */
static void Defaults(phx_client* client) {
  char ids[2][20];
  phx_id_random(ids[0]);
  phx_id_random(ids[1]);
  phx_call* create = phx_create(client, ids[0], kLarge, NULL);
  CHECK(create != NULL && phx_wait(create, kPatience) == 0);
  phx_call_free(create);
  phx_call* put = phx_put(client, ids[1], "hello", 5, NULL);
  CHECK(put != NULL && phx_wait(put, kPatience) == 0);
  phx_call_free(put);
  const phx_view view = GetOne(client, ids[1]);
  CHECK(view.size == 5 && view.metadata_size == 0);
  phx_buffer_free(view.buffer);
}

static void Broadcasting(phx_client* client) {
  char id[20];
  int64_t nodes = 0;
  phx_broadcast_progress progress;
  const phx_put_options options = PutOptions();
  phx_id_random(id);
  phx_call* call = phx_broadcast(client, id, "*", 1, 0, kPatience);
  CHECK(call != NULL && phx_wait(call, kPatience) == 5);
  phx_call_free(call);
  call = phx_put(client, id, "x", 1, &options);
  CHECK(call != NULL && phx_wait(call, kPatience) == 0);
  phx_call_free(call);
  call = phx_broadcast(client, id, "*", 1, 1, kPatience);
  CHECK(call != NULL && phx_wait(call, kPatience) == 0);
  CHECK(phx_result_number(call, &nodes) == 0 && nodes == 1);
  phx_call_free(call);
  call = phx_broadcast_progress_of(client, id, "*", 1, kPatience);
  CHECK(call != NULL && phx_wait(call, kPatience) == 0);
  CHECK(phx_result_progress(call, &progress) == 0 && progress.nodes == 2 && progress.complete == 1);
  CHECK(progress.without_room == 1 && progress.sticky);
  CHECK(progress.bytes == 1 && progress.total_bytes == 2);
  phx_call_free(call);
  call = phx_broadcast_stop(client, id, kPatience);
  CHECK(call != NULL && phx_wait(call, kPatience) == 0);
  phx_call_free(call);
}

static void CopiesAndScopes(phx_client* client) {
  char id[20];
  int64_t hosts = 0;
  phx_object_status status;
  phx_put_options options = PutOptions();
  options.copies = 2;
  options.wait_for_copies = 1;
  options.scope = "c";
  options.scope_number = 3;
  phx_id_random(id);
  phx_call* call = phx_put(client, id, "x", 1, &options);
  CHECK(call != NULL && phx_wait(call, kPatience) == 0);
  phx_call_free(call);
  call = phx_replicate(client, id, 3, kPatience);
  CHECK(call != NULL && phx_wait(call, kPatience) == 0);
  CHECK(phx_result_number(call, &hosts) == 0 && hosts == 1);
  phx_call_free(call);
  call = phx_stat(client, id, kPatience);
  CHECK(call != NULL && phx_wait(call, kPatience) == 0);
  CHECK(phx_result_status(call, &status) == 0 && status.copies_wanted == 3);
  phx_call_free(call);
  call = phx_end_scope(client, "c", 3, kPatience);
  CHECK(call != NULL && phx_wait(call, kPatience) == 0);
  phx_call_free(call);
  call = phx_put(client, id, "x", 1, &options);
  CHECK(call != NULL && phx_wait(call, kPatience) == 5);
  phx_call_free(call);
}

static void Jobs(phx_client* client) {
  phx_join_options options;
  memset(&options, 0, sizeof(options));
  options.world = 2;
  options.rank = -1;
  options.timeout = kPatience;
  phx_member* one = phx_join(client, "train", "worker1", &options);
  CHECK(one != NULL && phx_member_rank(one) == 1 && phx_member_life(one) == 0);
  CHECK(phx_member_world(one) == 2 && strcmp(phx_member_role(one), "worker") == 0);
  CHECK(strcmp(phx_member_job(one), "train") == 0);
  CHECK(phx_member_wait_world(one, 0) == 4);
  phx_member_info infos[2];
  CHECK(phx_member_list(one, NULL, infos, 2) == 2);
  CHECK(infos[0].state == PHX_ABSENT && infos[1].state == PHX_LIVE && infos[1].change > 0);
  CHECK(strcmp(infos[1].task, "worker1") == 0 && infos[1].host[0] != 0);
  CHECK(phx_member_list(one, "ps", infos, 2) == 0);

  uint64_t change = 0;
  phx_member* zero = phx_join(client, "train", "worker0", &options);
  CHECK(zero != NULL && phx_member_wait_world(one, kPatience) == 0);
  CHECK(phx_member_wait_change(one, infos[1].change, kPatience, &change) == 0);
  CHECK(change > infos[1].change && phx_member_status(one) == 0);
  phx_member* again = phx_join(client, "train", "worker0", &options);
  CHECK(again != NULL && phx_member_life(again) == 1);
  CHECK(phx_member_wait_world(zero, kPatience) == 10 && phx_member_status(zero) == 10);
  CHECK(phx_member_leave(again, 0) == 0 && phx_member_status(again) == 9);
  options.world = 3;
  CHECK(phx_join(client, "train", "worker2", &options) == NULL && phx_error_code() == 3);
  CHECK(phx_join(client, NULL, "worker2", &options) == NULL && phx_error_code() == 3);
  phx_member_free(again);
  phx_member_free(zero);
  phx_member_free(one);
}

int main(void) {
  phx_connect_options options;
  memset(&options, 0, sizeof(options));
  options.address = "unix:/nobody/is/here.sock";
  options.connect_timeout = kPatience;
  CHECK(phx_connect(&options) == NULL && phx_error_code() == 14);

  options.address = NULL;
  options.executable = getenv("PHALANX_TEST_NODE");
  phx_client* client = phx_connect(&options);
  CHECK(client != NULL && !phx_client_forked(client));
  SmallObject(client);
  Copies(client);
  KeptMemory(client, 1000);
  KeptMemory(client, kLarge);
  PrivatePages(client);
  Queue(client);
  Defaults(client);
  Lifetime(client);
  Broadcasting(client);
  CopiesAndScopes(client);
  Errors(client);
  Names(client);
  Batches(client);
  Jobs(client);
  phx_close(client);
  phx_client_free(client);
  return 0;
}
