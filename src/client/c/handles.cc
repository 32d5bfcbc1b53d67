#include "src/client/c/handles.h"

#include "src/common/threads/per_thread.h"

namespace phalanx::c {
namespace {

// Per thread, like errno: a call on another thread must not replace the error before it is read.
struct LastError {
  int code = 0;
  std::string text;
};

template <typename T>
internal::Call* StateOfFuture(const Future<T>& future) {
  return internal::Access::StateOf(future).get();
}
internal::Call* StateOfFuture(const Creating& creating) { return creating.get(); }

template <typename T>
absl::Status OutcomeOfFuture(const Future<T>& future) {
  return internal::Access::StateOf(future)->result->status();
}
absl::Status OutcomeOfFuture(const Creating& creating) { return creating->result->status(); }

}  // namespace

int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  // A success leaves the last error, as errno does.
  LastError& last = PerThread<LastError>();
  last.code = static_cast<int>(status.code());
  last.text = std::string(status.message());
  return last.code;
}

absl::Duration DurationOf(int64_t nanos) {
  return nanos < 0 ? absl::InfiniteDuration() : absl::Nanoseconds(nanos);
}

ObjectId IdOf(const char* id) {
  return *ObjectId::FromBinary(absl::string_view(id, ObjectId::kSize));
}

// Ids are one array of 20 bytes each, so bindings pass them without a copy per id.
std::vector<ObjectId> IdsOf(const char* ids, size_t n) {
  std::vector<ObjectId> result;
  result.reserve(n);
  for (size_t i = 0; i < n; ++i) result.push_back(IdOf(ids + i * ObjectId::kSize));
  return result;
}

std::vector<std::string> NamesOf(const char* names, size_t n) {
  std::vector<std::string> result;
  for (size_t i = 0; i < n; ++i) {
    result.emplace_back(names);
    names += result.back().size() + 1;
  }
  return result;
}

internal::Call* StateOf(const AnyCall& call) {
  // Every alternative of AnyCall is a call, so the functions of this folder share one handle type.
  return std::visit([](const auto& future) { return StateOfFuture(future); }, call);
}

absl::Status OutcomeOf(const AnyCall& call) {
  return std::visit([](const auto& future) { return OutcomeOfFuture(future); }, call);
}

phx_call* Handle(AnyCall call) {
  // The caller passed a writer or future that another call has consumed.
  if (StateOf(call) == nullptr) {
    Report(absl::FailedPreconditionError("the handle has been consumed"));
    return nullptr;
  }
  return new phx_call{std::move(call)};
}

}  // namespace phalanx::c

const char* phx_error(void) { return phalanx::PerThread<phalanx::c::LastError>().text.c_str(); }
int phx_error_code(void) { return phalanx::PerThread<phalanx::c::LastError>().code; }
