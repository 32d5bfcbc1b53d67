#include "src/rabit/engine.h"

namespace phalanx::rabit {

namespace mpi = ::rabit::engine::mpi;

std::string BytesOf(const library::Saved& saved) {
  std::string bytes;
  saved.save(
      saved.model,
      [](void* to, const void* part, size_t size) {
        static_cast<std::string*>(to)->append(static_cast<const char*>(part), size);
      },
      &bytes);
  return bytes;
}

size_t SizeOf(int type) {
  switch (type) {
    case mpi::kChar:
    case mpi::kUChar:
      return sizeof(char);
    case mpi::kInt:
    case mpi::kUInt:
      return sizeof(int);
    case mpi::kLong:
    case mpi::kULong:
      return sizeof(long);  // NOLINT
    case mpi::kFloat:
      return sizeof(float);
    case mpi::kDouble:
      return sizeof(double);
    case mpi::kLongLong:
    case mpi::kULongLong:
      return sizeof(long long);  // NOLINT
    default:
      return 0;
  }
}

Error CheckReducible(int type, int op) {
  if (SizeOf(type) == 0) return "Allreduce: " + std::to_string(type) + " is no type";
  if (op < mpi::kMax || op > mpi::kBitwiseOR) {
    return "Allreduce: " + std::to_string(op) + " is no operation";
  }
  if (op == mpi::kBitwiseOR && (type == mpi::kFloat || type == mpi::kDouble)) {
    return "Allreduce: BitOR is for integers, not for float and double";
  }
  return "";
}

}  // namespace phalanx::rabit
