#include "src/rabit/mock_engine.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

namespace phalanx::rabit {
namespace {

// Two models as one: the length of the first one, then both.
struct SavedPair {
  library::Saved global;
  library::Saved local;

  static void Save(const void* self, library::Put* put, void* to) {
    const auto* const pair = static_cast<const SavedPair*>(self);
    const std::string global = BytesOf(pair->global);
    const uint64_t size = global.size();
    put(to, &size, sizeof(size));
    put(to, global.data(), global.size());
    if (pair->local.model == nullptr) return;
    const std::string local = BytesOf(pair->local);
    put(to, local.data(), local.size());
  }
};

struct LoadedPair {
  library::Loaded global;
  library::Loaded local;

  static void Load(void* self, const void* bytes, size_t size) {
    const auto* const pair = static_cast<const LoadedPair*>(self);
    const std::string_view both(static_cast<const char*>(bytes), size);
    uint64_t global = 0;
    std::memcpy(&global, both.data(), sizeof(global));
    const std::string_view rest = both.substr(sizeof(global));
    pair->global.load(pair->global.model, rest.data(), global);
    if (pair->local.model == nullptr) return;
    pair->local.load(pair->local.model, rest.data() + global, rest.size() - global);
  }
};

// With `force_local` the global model is empty.
void SaveNothing(const void*, library::Put*, void*) {}
void LoadNothing(void*, const void*, size_t) {}

}  // namespace

MockEngine::MockEngine(std::unique_ptr<Engine> engine, const Parameters& parameters)
    : engine_(std::move(engine)),
      deaths_(parameters.deaths),
      report_stats_(parameters.report_stats),
      force_local_(parameters.force_local),
      life_(parameters.life.value_or(engine_->life())),
      began_(std::chrono::steady_clock::now()) {}

void MockEngine::DieIfDue() {
  const MockDeath here{rank(), version(), seq_, life_};
  if (std::find(deaths_.begin(), deaths_.end(), here) == deaths_.end()) return;
  // Tests count these lines.
  std::fprintf(stderr, "[%d] dies at version %d, call %d, in life %d\n", here.rank, here.version,
               here.seq, here.life);
  Die("mock=" + std::to_string(here.rank) + "," + std::to_string(here.version) + "," +
      std::to_string(here.seq) + "," + std::to_string(here.life));
}

template <typename Call>
Error MockEngine::Collective(Call call) {
  DieIfDue();
  const Time begin = std::chrono::steady_clock::now();
  Error error = call();
  // One that was refused was not made, as one whose `prepare` has thrown.
  if (!error.empty()) return error;
  // The time includes that of `prepare`, and the wait for other ranks.
  in_calls_ += std::chrono::steady_clock::now() - begin;
  ++seq_;
  return "";
}

template <typename Call>
Error MockEngine::Checkpoint(Call call) {
  DieIfDue();
  const Time begin = std::chrono::steady_clock::now();
  Error error = call();
  // The version, and its calls, are as they were.
  if (!error.empty()) return error;
  const Time end = std::chrono::steady_clock::now();
  if (report_stats_ && rank() == 0) {
    const auto seconds = [](auto duration) {
      return std::chrono::duration<double>(duration).count();
    };
    char line[256];
    std::snprintf(line, sizeof(line),
                  "[v%d] %d calls, %g s in them, %g s since the checkpoint before, %g s in "
                  "this one\n",
                  version(), seq_, in_calls_.count(), seconds(end - began_), seconds(end - begin));
    Print(line);
  }
  BeginVersion(end);
  return "";
}

void MockEngine::BeginVersion(Time now) {
  seq_ = 0;
  in_calls_ = std::chrono::duration<double>(0);
  began_ = now;
}

Error MockEngine::Allreduce(void* inout, size_t count, int type, int op, Preparation preparation,
                            const library::Where& where) {
  return Collective([&] { return engine_->Allreduce(inout, count, type, op, preparation, where); });
}

Error MockEngine::AllreduceBy(void* inout, size_t element, size_t count, library::Reduce* reduce,
                              Preparation preparation, const library::Where& where) {
  return Collective(
      [&] { return engine_->AllreduceBy(inout, element, count, reduce, preparation, where); });
}

Error MockEngine::Broadcast(void* inout, size_t size, int root, const library::Where& where) {
  return Collective([&] { return engine_->Broadcast(inout, size, root, where); });
}

Error MockEngine::Allgather(void* inout, size_t total, size_t begin, size_t size,
                            const library::Where& where) {
  return Collective([&] { return engine_->Allgather(inout, total, begin, size, where); });
}

Error MockEngine::Load(const library::Loaded& global, const library::Loaded& local, int* version) {
  LoadedPair both{global, local};
  int nothing = 0;
  Error error = force_local_
                    ? engine_->Load({&nothing, LoadNothing}, {&both, LoadedPair::Load}, version)
                    : engine_->Load(global, local, version);
  if (error.empty()) BeginVersion(std::chrono::steady_clock::now());
  return error;
}

Error MockEngine::CheckPoint(const library::Saved& global, const library::Saved& local) {
  const SavedPair both{global, local};
  const int nothing = 0;
  return Checkpoint([&] {
    return force_local_ ? engine_->CheckPoint({&nothing, SaveNothing}, {&both, SavedPair::Save})
                        : engine_->CheckPoint(global, local);
  });
}

Error MockEngine::LazyCheckPoint(const library::Saved& global) {
  // There are no lazy local models.
  if (force_local_) return CheckPoint(global, {});
  return Checkpoint([&] { return engine_->LazyCheckPoint(global); });
}

}  // namespace phalanx::rabit
