// The functions of rabit/internal/engine.h, each for the engine of its thread.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "src/common/threads/per_thread.h"
#include "src/rabit/client_functions.h"
#include "src/rabit/engine.h"
#include "src/rabit/local_engine.h"
#include "src/rabit/parameters.h"
#include "src/rabit/session_engine.h"
#include "src/rabit/variant.h"

namespace rabit::engine::library {
namespace {

using phalanx::rabit::ClientFunctions;
using phalanx::rabit::Engine;
using phalanx::rabit::Error;
using phalanx::rabit::LocalEngine;
using phalanx::rabit::Parameters;
using phalanx::rabit::Preparation;
using phalanx::rabit::SessionEngine;

// POSIX's limit for the names of hosts.
constexpr size_t kMostHostBytes = 256;

struct Thread {
  std::unique_ptr<Engine> engine;  // from Init on
  // Before Init and after Finalize.
  LocalEngine alone{0};
  bool left = false;
  // A function of the program runs within a call, or has ended the process there.
  bool busy = false;
  std::string text;  // the last one that was returned

  ~Thread() {
    // The call that is under way on this stack uses it.
    if (busy) static_cast<void>(engine.release());
  }
  Engine& current() { return engine != nullptr ? *engine : alone; }
};

Thread& Own() { return phalanx::PerThread<Thread>(); }

const char* Return(Error error) {
  Thread& own = Own();
  own.text = "rabit: " + std::move(error);
  return own.text.c_str();
}

// Calls `body` with the engine of this thread.
template <typename Body>
const char* Call(const char* verb, Body body) {
  // Also if a function of the program throws.
  struct Busy {
    bool& busy;
    explicit Busy(bool& flag) : busy(flag) { busy = true; }
    ~Busy() { busy = false; }
  };
  Thread& own = Own();
  if (own.busy) {
    return Return(std::string(verb) + ": called by a function of the program within another call");
  }
  const Busy busy(own.busy);
  Error error = body(own.current());
  return error.empty() ? nullptr : Return(std::move(error));
}

// In one line, of rank 0 alone.
void WarnOfUnused(const Parameters& parameters) {
  std::string names;
  for (const std::string& name : parameters.unused) {
    names += (names.empty() ? "" : ", ") + name;
  }
  if (!names.empty()) std::fprintf(stderr, "rabit: without effect here: %s\n", names.c_str());
}

// Joins the launch, if there is one.
Error Begin(const Parameters& parameters, std::unique_ptr<Engine>* begun) {
  if (!parameters.launched) {
    *begun = std::make_unique<LocalEngine>(parameters.life.value_or(0));
    return "";
  }
  const ClientFunctions* functions = nullptr;
  Error wrong = phalanx::rabit::LoadClientFunctions(&functions);
  if (wrong.empty()) *begun = SessionEngine::Join(*functions, parameters, &wrong);
  return wrong;
}

}  // namespace

const char* Init(int argc, char** argv) {
  Thread& own = Own();
  if (own.engine != nullptr) return nullptr;
  if (own.left) return Return("Init: this thread has called Finalize");
  Parameters parameters;
  Error wrong = phalanx::rabit::ReadParameters(
      argc, argv, [](const char* name) -> const char* { return std::getenv(name); },
      phalanx::rabit::IsMock(), &parameters);
  if (!wrong.empty()) return Return("Init: " + wrong);
  if (parameters.role != "worker") {
    // As in Rabit: servers of other libraries run the same program.
    std::fprintf(stderr, "rabit: a process of role %s is no worker, and ends\n",
                 parameters.role.c_str());
    std::exit(0);
  }
  std::unique_ptr<Engine> begun;
  wrong = Begin(parameters, &begun);
  if (!wrong.empty()) return Return("Init: " + wrong);
  own.engine = Wrap(std::move(begun), parameters);
  if (own.engine->rank() == 0 && own.engine->life() == 0) WarnOfUnused(parameters);
  return nullptr;
}

const char* Finalize() {
  Thread& own = Own();
  if (own.engine == nullptr) return nullptr;
  const char* const error = Call("Finalize", [](Engine& engine) { return engine.Leave(); });
  if (error != nullptr) return error;
  // Ranks that have left cannot join their job again, but a single process can begin anew.
  own.left = own.engine->distributed();
  own.engine.reset();
  return nullptr;
}

int Rank() { return Own().current().rank(); }
int WorldSize() { return Own().current().world(); }
int IsDistributed() { return Own().current().distributed() ? 1 : 0; }
int Version() { return Own().current().version(); }

const char* Host() {
  char name[kMostHostBytes] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) name[0] = '\0';
  Own().text = name;
  return Own().text.c_str();
}

const char* Print(const char* text) {
  return Call("TrackerPrint", [=](Engine& engine) { return engine.Print(text); });
}

const char* Allreduce(void* inout, size_t count, int type, int op, Prepare* prepare, void* argument,
                      const Where& where) {
  return Call("Allreduce", [=, &where](Engine& engine) {
    const Error wrong = phalanx::rabit::CheckReducible(type, op);
    return wrong.empty()
               ? engine.Allreduce(inout, count, type, op, Preparation{prepare, argument}, where)
               : wrong;
  });
}

const char* AllreduceBy(void* inout, size_t element, size_t count, Reduce* reduce, Prepare* prepare,
                        void* argument, const Where& where) {
  return Call("Allreduce", [=, &where](Engine& engine) {
    return engine.AllreduceBy(inout, element, count, reduce, Preparation{prepare, argument}, where);
  });
}

const char* Broadcast(void* inout, size_t size, int root, const Where& where) {
  return Call("Broadcast",
              [=, &where](Engine& engine) { return engine.Broadcast(inout, size, root, where); });
}

const char* Allgather(void* inout, size_t total, size_t begin, size_t size, const Where& where) {
  return Call("Allgather", [=, &where](Engine& engine) {
    return engine.Allgather(inout, total, begin, size, where);
  });
}

const char* Load(const Loaded& global, const Loaded& local, int* version) {
  // Also after an error, if the program's function for errors returns.
  *version = 0;
  return Call("LoadCheckPoint",
              [&, version](Engine& engine) { return engine.Load(global, local, version); });
}

const char* CheckPoint(const Saved& global, const Saved& local) {
  return Call("CheckPoint", [&](Engine& engine) { return engine.CheckPoint(global, local); });
}

const char* LazyCheckPoint(const Saved& global) {
  return Call("LazyCheckPoint", [&](Engine& engine) { return engine.LazyCheckPoint(global); });
}

size_t TypeSize(const MPI::Datatype& type) { return type.size; }

}  // namespace rabit::engine::library
