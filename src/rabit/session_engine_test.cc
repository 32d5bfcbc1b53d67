#include "src/rabit/session_engine.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

// A handle is the world of one test.
struct phx_session {
  std::vector<std::string> calls;
  std::string error;
  int world = 3;
  uint64_t version = 0;
  std::string checkpoint;  // that a load finds
  std::string saved;
  phx_save lazy = nullptr;
  void* lazy_argument = nullptr;
};

namespace phalanx::rabit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kCancelled = 1;
constexpr library::Where kHere = {"file.cc", 7, "Train"};

phx_session* g_session = nullptr;

void Note(const char* verb, const char* name) {
  g_session->calls.push_back(std::string(verb) + " " + (name == nullptr ? "-" : name));
}

// Functions of the client that do what a single rank's do: prepare, and fold the input with itself.
ClientFunctions Fake() {
  ClientFunctions fake;
  fake.error = [] { return "the store says no"; };
  fake.connect = [](const phx_connect_options*) { return reinterpret_cast<phx_client*>(1); };
  fake.client_free = [](phx_client*) {};
  fake.session_join = [](phx_client*, const phx_session_options*) { return g_session; };
  fake.session_rank = [](const phx_session*) { return 1; };
  fake.session_world = [](const phx_session* session) { return session->world; };
  fake.session_life = [](const phx_session*) { return uint64_t{0}; };
  fake.session_version = [](const phx_session* session) { return session->version; };
  fake.session_allreduce = [](phx_session*, int, void*, uint64_t, int, phx_prepare prepare,
                              void* argument, const char* name) {
    Note("allreduce", name);
    return prepare != nullptr && prepare(argument) != 0 ? kCancelled : 0;
  };
  fake.session_allreduce_by = [](phx_session*, void* inout, uint64_t bytes, uint64_t element,
                                 phx_fold fold, void* fold_argument, phx_prepare prepare,
                                 void* argument, const char* name) {
    Note("allreduce_by", name);
    if (prepare != nullptr && prepare(argument) != 0) return kCancelled;
    const std::string other(static_cast<char*>(inout), bytes);
    return fold(fold_argument, inout, other.data(), bytes / element);
  };
  fake.session_broadcast = [](phx_session*, void*, uint64_t, int, const char* name) {
    Note("broadcast", name);
    return 0;
  };
  // Every rank gives what this one gives.
  fake.session_allgather = [](phx_session* session, const void* input, uint64_t bytes, uint64_t,
                              phx_place place, void* argument, uint64_t* offsets,
                              const char* name) {
    Note("allgather", name);
    const auto world = static_cast<uint64_t>(session->world);
    auto* const to = static_cast<char*>(place(argument, bytes * world));
    if (to == nullptr) return 8;
    for (uint64_t r = 0; r < world; ++r) std::memcpy(to + r * bytes, input, bytes);
    for (uint64_t r = 0; r <= world; ++r) offsets[r] = r * bytes;
    return 0;
  };
  fake.session_load = [](phx_session* session, int, phx_take_both take, void* argument,
                         uint64_t* version) {
    Note("load", nullptr);
    *version = session->checkpoint.empty() ? 0 : 4;
    session->version = *version;
    if (session->checkpoint.empty()) return 0;
    return take(argument, session->checkpoint.data(), session->checkpoint.size(), nullptr, 0);
  };
  fake.session_checkpoint = [](phx_session* session, const void* bytes, uint64_t size, const void*,
                               uint64_t) {
    Note("checkpoint", nullptr);
    session->saved.assign(static_cast<const char*>(bytes), size);
    ++session->version;
    return 0;
  };
  fake.session_lazy_checkpoint = [](phx_session* session, phx_save save, void* argument) {
    Note("lazy_checkpoint", nullptr);
    session->lazy = save;
    session->lazy_argument = argument;
    ++session->version;
    return 0;
  };
  fake.session_print = [](phx_session*, const char*, size_t) { return 0; };
  fake.session_leave = [](phx_session*) { return 4; };
  fake.session_free = [](phx_session*) { Note("free", nullptr); };
  fake.session_die = [](const phx_session*, const char* death) { Note(death, nullptr); };
  return fake;
}

void SaveText(const void* model, library::Put* put, void* to) {
  const auto& text = *static_cast<const std::string*>(model);
  put(to, text.data(), text.size());
}

void LoadText(void* model, const void* bytes, size_t size) {
  static_cast<std::string*>(model)->assign(static_cast<const char*>(bytes), size);
}

class SessionEngineTest : public ::testing::Test {
 protected:
  SessionEngineTest() { g_session = &session_; }

  std::unique_ptr<SessionEngine> Join(const Parameters& parameters = {}) {
    Error wrong;
    return SessionEngine::Join(client_, parameters, &wrong);
  }

  phx_session session_;
  const ClientFunctions client_ = Fake();
};

TEST_F(SessionEngineTest, ThrowsWhatAFunctionOfTheProgramHasThrownWhenTheCallHasEnded) {
  const auto engine = Join();
  const Preparation throws{[](void*) { throw std::runtime_error("no input"); }, nullptr};
  int value = 1;
  EXPECT_THROW(engine->Allreduce(&value, 1, 2, 2, throws, kHere), std::runtime_error);
  EXPECT_THROW(
      engine->AllreduceBy(
          &value, sizeof(value), 1,
          [](const void*, void*, int, const MPI::Datatype&) { throw std::logic_error("no fold"); },
          {}, kHere),
      std::logic_error);
  EXPECT_EQ(engine->Allreduce(&value, 1, 2, 2, {}, kHere), "");
}

TEST_F(SessionEngineTest, FoldsElementsOfTheProgramsSize) {
  const auto engine = Join();
  std::vector<int> values = {1, 2, 3, 4};
  const auto add = [](const void* from, void* into, int count, const MPI::Datatype& type) {
    EXPECT_EQ(type.size, 2 * sizeof(int));
    for (int i = 0; i < 2 * count; ++i) {
      static_cast<int*>(into)[i] += static_cast<const int*>(from)[i];
    }
  };
  EXPECT_EQ(engine->AllreduceBy(values.data(), 2 * sizeof(int), 2, add, {}, kHere), "");
  EXPECT_THAT(values, ElementsAre(2, 4, 6, 8));
}

TEST_F(SessionEngineTest, NamesCallsBeforeLoadByTheirPlaceOnRequest) {
  Parameters parameters;
  parameters.boot_by_caller = true;
  const auto engine = Join(parameters);
  int value = 1;
  EXPECT_EQ(engine->Broadcast(&value, 4, 0, kHere), "");
  EXPECT_EQ(engine->Broadcast(&value, 4, 0, kHere), "");
  EXPECT_EQ(engine->Broadcast(&value, 4, 0, {"file.cc", 8, "Train"}), "");
  std::string model;
  int version = 0;
  EXPECT_EQ(engine->Load({&model, LoadText}, {}, &version), "");
  EXPECT_EQ(engine->Broadcast(&value, 4, 0, kHere), "");
  EXPECT_THAT(session_.calls,
              ElementsAre("broadcast file.cc:7:Train#1", "broadcast file.cc:7:Train#2",
                          "broadcast file.cc:8:Train#1", "load -", "broadcast -"));
}

TEST_F(SessionEngineTest, NamesACallThatWasNotMadeAgain) {
  Parameters parameters;
  parameters.boot_by_caller = true;
  const auto engine = Join(parameters);
  const Preparation throws{[](void*) { throw std::runtime_error("no input"); }, nullptr};
  int value = 1;
  EXPECT_THROW(engine->Allreduce(&value, 1, 2, 2, throws, kHere), std::runtime_error);
  EXPECT_EQ(engine->Allreduce(&value, 1, 2, 2, {}, kHere), "");
  EXPECT_EQ(engine->Allreduce(&value, 1, 2, 2, {}, kHere), "");
  EXPECT_THAT(session_.calls,
              ElementsAre("allreduce file.cc:7:Train#1", "allreduce file.cc:7:Train#1",
                          "allreduce file.cc:7:Train#2"));
}

TEST_F(SessionEngineTest, NamesNoCallsOtherwise) {
  Parameters parameters;
  int value = 1;
  EXPECT_EQ(Join(parameters)->Broadcast(&value, 4, 0, kHere), "");
  parameters.boot_by_caller = true;
  // From C.
  EXPECT_EQ(Join(parameters)->Broadcast(&value, 4, 0, {"c_api", 0, ""}), "");
  EXPECT_THAT(session_.calls, ElementsAre("broadcast -", "free -", "broadcast -", "free -"));
}

TEST_F(SessionEngineTest, GathersPartsInPlace) {
  const auto engine = Join();
  std::string all = "..ab..";
  EXPECT_EQ(engine->Allgather(all.data(), 6, 2, 2, kHere), "");
  EXPECT_EQ(all, "ababab");
  EXPECT_THAT(engine->Allgather(all.data(), 6, 3, 2, kHere), HasSubstr("begins at byte 3"));
  EXPECT_THAT(engine->Allgather(all.data(), 6, 2, 1, kHere), HasSubstr("have 3 bytes together"));
  EXPECT_THAT(engine->Allgather(all.data(), 6, 5, 2, kHere), HasSubstr("not within the whole"));
}

TEST_F(SessionEngineTest, LoadsOnceAndBeforeCheckpoints) {
  session_.checkpoint = "model";
  const auto engine = Join();
  std::string model;
  int version = 0;
  EXPECT_EQ(engine->Load({&model, LoadText}, {}, &version), "");
  EXPECT_EQ(model, "model");
  EXPECT_EQ(version, 4);
  EXPECT_THAT(engine->Load({&model, LoadText}, {}, &version), HasSubstr("called before"));
}

TEST_F(SessionEngineTest, LoadsBeforeTheFirstCheckpointOfAProgramThatDoesNot) {
  const auto engine = Join();
  const std::string model = "model";
  EXPECT_EQ(engine->CheckPoint({&model, SaveText}, {}), "");
  EXPECT_EQ(session_.saved, "model");
  EXPECT_THAT(session_.calls, ElementsAre("load -", "checkpoint -"));
}

TEST_F(SessionEngineTest, RefusesACheckpointInALifeThatHasOneToLoad) {
  session_.checkpoint = "model";
  const auto engine = Join();
  const std::string model = "model";
  EXPECT_THAT(engine->CheckPoint({&model, SaveText}, {}),
              HasSubstr("has not called LoadCheckPoint"));
}

TEST_F(SessionEngineTest, MixesNoCheckpointsWithAndWithoutLocalModels) {
  const auto engine = Join();
  const std::string model = "model";
  EXPECT_EQ(engine->CheckPoint({&model, SaveText}, {&model, SaveText}), "");
  EXPECT_THAT(engine->CheckPoint({&model, SaveText}, {}), HasSubstr("no local model"));
  EXPECT_THAT(engine->LazyCheckPoint({&model, SaveText}), HasSubstr("no local model"));
}

TEST_F(SessionEngineTest, SavesALazyModelWhenItIsNeeded) {
  const auto engine = Join();
  std::string model = "first";
  EXPECT_EQ(engine->LazyCheckPoint({&model, SaveText}), "");
  model = "second";
  const void* bytes = nullptr;
  uint64_t size = 0;
  EXPECT_EQ(session_.lazy(session_.lazy_argument, &bytes, &size), 0);
  EXPECT_EQ(std::string(static_cast<const char*>(bytes), size), "second");
  const auto throws = [](const void*, library::Put*, void*) {
    throw std::runtime_error("no model");
  };
  EXPECT_EQ(engine->LazyCheckPoint({&model, throws}), "");
  // Within a call of the session.
  EXPECT_NE(session_.lazy(session_.lazy_argument, &bytes, &size), 0);
  int value = 1;
  EXPECT_THROW(engine->Broadcast(&value, 4, 0, kHere), std::runtime_error);
  EXPECT_EQ(engine->Broadcast(&value, 4, 0, kHere), "");
}

TEST_F(SessionEngineTest, DiesAsItIsDeclared) {
  Join()->Die("mock=1,2,3,0");
  EXPECT_THAT(session_.calls, ElementsAre("mock=1,2,3,0 -", "free -"));
}

TEST_F(SessionEngineTest, ReturnsTheErrorOfTheClient) {
  auto engine = Join();
  EXPECT_EQ(engine->Leave(), "the store says no");
  engine.reset();
  EXPECT_THAT(session_.calls, ElementsAre("free -"));
}

}  // namespace
}  // namespace phalanx::rabit
