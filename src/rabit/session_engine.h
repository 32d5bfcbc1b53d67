// SessionEngine: a rank of a session (phalanx/c.h, docs/jobs.md).
//
// A call of the engine is a call of the session, so that both count alike, and errors name the
// version and the number that Rabit would name.
#ifndef PHALANX_RABIT_SESSION_ENGINE_H_
#define PHALANX_RABIT_SESSION_ENGINE_H_

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "src/rabit/client_functions.h"
#include "src/rabit/engine.h"
#include "src/rabit/parameters.h"

namespace phalanx::rabit {

class SessionEngine : public Engine {
 public:
  // Connects to the node, and waits for the other ranks. Returns null, and what was wrong.
  static std::unique_ptr<SessionEngine> Join(const ClientFunctions& client,
                                             const Parameters& parameters, Error* wrong);
  // The other ranks see a death unless Leave has succeeded.
  ~SessionEngine() override;

  int rank() const override { return client_.session_rank(session_); }
  int world() const override { return client_.session_world(session_); }
  bool distributed() const override { return true; }
  int life() const override { return static_cast<int>(client_.session_life(session_)); }
  int version() const override { return static_cast<int>(client_.session_version(session_)); }

  Error Print(const std::string& text) override;
  Error Allreduce(void* inout, size_t count, int type, int op, Preparation preparation,
                  const library::Where& where) override;
  Error AllreduceBy(void* inout, size_t element, size_t count, library::Reduce* reduce,
                    Preparation preparation, const library::Where& where) override;
  Error Broadcast(void* inout, size_t size, int root, const library::Where& where) override;
  Error Allgather(void* inout, size_t total, size_t begin, size_t size,
                  const library::Where& where) override;
  Error Load(const library::Loaded& global, const library::Loaded& local, int* version) override;
  Error CheckPoint(const library::Saved& global, const library::Saved& local) override;
  Error LazyCheckPoint(const library::Saved& global) override;
  Error Leave() override;
  void Die(const std::string& death) override;

 private:
  // Runs functions of the program within calls of the client, which no exception may leave: they
  // are thrown again when the call has ended.
  class Guard {
   public:
    // Returns 0, or 1 if the body has thrown.
    template <typename Body>
    int Run(Body body) noexcept {
      try {
        body();
        return 0;
      } catch (...) {
        thrown_ = std::current_exception();
        return 1;
      }
    }
    void Rethrow() {
      if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
    }

   private:
    std::exception_ptr thrown_;
  };
  // The arguments of functions within one call, on its stack.
  struct PrepareCall;
  struct FoldCall;
  struct TakeCall;
  // A model that the session saves when it is needed, in a later call, and its bytes.
  struct LazyModel {
    library::Saved model = {};
    Guard* guard;
    std::string bytes;

    static int Save(void* self, const void** bytes, uint64_t* size);
  };

  // The name of a call before Load; valid until the next one. NULL: it has none. Made counts it.
  const char* NameOf(const library::Where& where);
  // A program without LoadCheckPoint: its first checkpoint begins with one.
  Error LoadBeforeCheckPoint(bool with_local);
  Error CheckLocal(bool with_local);
  // What an ended call of the session is for the caller. Throws what a function of the program has
  // thrown in it.
  Error Ended(int code);
  // Likewise, for a collective.
  Error Made(int code);

  explicit SessionEngine(const ClientFunctions& client) : client_(client) {}

  const ClientFunctions& client_;
  phx_client* connection_ = nullptr;
  phx_session* session_ = nullptr;
  bool boot_by_caller_ = false;
  bool loaded_ = false;
  bool with_local_ = false;  // once loaded_
  Guard guard_;
  // How many calls each place of the program has made, before Load.
  std::map<std::string, int> calls_;
  std::string place_;  // of the call that is under way, empty if it has no name
  std::string name_;
  // That of the last checkpoint, if it was a LazyCheckPoint.
  std::unique_ptr<LazyModel> lazy_;
};

}  // namespace phalanx::rabit

#endif  // PHALANX_RABIT_SESSION_ENGINE_H_
