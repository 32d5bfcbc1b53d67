// Code that the client's verbs share: a check, one request, and a call that takes the answer.
//
// Any thread, without the connection's lock.
#ifndef PHALANX_CLIENT_VERB_H_
#define PHALANX_CLIENT_VERB_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "phalanx/client.h"
#include "src/client/connection/call.h"
#include "src/client/connection/connection.h"
#include "src/common/status_macros.h"

namespace phalanx::internal {

inline Done ValueOf(uint32_t, Done*) { return {}; }
inline int ValueOf(uint32_t count, int*) { return static_cast<int>(count); }

// A call whose answer is Counted.
template <typename T>
struct CountCall final : public FutureState<T> {
  using FutureState<T>::FutureState;
  void OnAnswer(uint64_t, const local::Answer& answer) override {
    const auto counted = this->template Expect<local::Counted>(answer);
    if (!counted.ok()) return this->Set(counted.status());
    this->Set(ValueOf((*counted)->count, static_cast<T*>(nullptr)));
  }
};

template <typename T>
Future<T> Refused(const std::shared_ptr<Connection>& connection, const char* verb,
                  const ObjectId& id, absl::Status why) {
  return Future<T>(FutureState<T>::Ended(connection, verb, id, std::move(why)));
}

// Returns OK if a call for `id` can be made.
inline absl::Status CheckId(const Connection& connection, const ObjectId& id) {
  PHALANX_RETURN_IF_ERROR(connection.CheckProcess());
  if (!id.nil()) return absl::OkStatus();
  return absl::InvalidArgumentError("the nil id names no object");
}

// Starts one request. `make` gets the request's number and returns the message.
template <typename T, typename CallType, typename Make>
Future<T> StartOne(std::shared_ptr<CallType> call, Instant deadline, Make make) {
  Connection& connection = call->connection();
  const uint64_t request = connection.NewRequests(1);
  connection.Start(call, request, 1, deadline, make(request));
  return Future<T>(std::move(call));
}

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_VERB_H_
