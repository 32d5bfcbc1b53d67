// A program for Rabit of 2020: lambdas, Allgather, results of Init and Finalize, and places of
// calls as arguments. It has the functions that report errors itself. Prints "ok".
#define RABIT_CUSTOMIZE_MSG_
#include <rabit/c_api.h>
#include <rabit/internal/timer.h>
#include <rabit/rabit.h>

#include <cstdio>
#include <stdexcept>

namespace rabit {
namespace utils {
void HandleAssertError(const char* message) { throw std::logic_error(message); }
void HandleCheckError(const char* message) { throw std::runtime_error(message); }
void HandlePrint(const char* message) { std::printf("%s", message); }
void HandleLogInfo(const char*, ...) {}
}  // namespace utils
}  // namespace rabit

struct Model : public rabit::Serializable {
  std::vector<std::vector<int>> values;

  void Load(rabit::Stream* from) override { from->Read(&values); }
  void Save(rabit::Stream* to) const override { to->Write(values); }
};

template <typename Body>
static std::string ErrorOf(Body body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "none";
}

int main(int argc, char* argv[]) {
  if (!rabit::Init(argc, argv)) return 1;
  Model model;
  Model local;
  if (rabit::LoadCheckPoint(&model, &local) != 0) return 1;
  int values[3] = {1, 2, 3};
  rabit::Allreduce<rabit::op::Sum>(values, 3, [&]() { values[0] = 4; });
  rabit::Allreduce<rabit::op::Sum>(values, 3, nullptr, nullptr, "file", 1, "caller");
  rabit::Allgather(values, 3, 0, 3, 3);
  rabit::Broadcast(values, sizeof(values), 0, "file", 2, "caller");
  rabit::CheckPoint(&model, &local);
  const std::string root = ErrorOf([&]() { rabit::Broadcast(values, sizeof(values), 1); });
  const std::string floats = ErrorOf([&]() {
    float number = 1;
    rabit::Allreduce<rabit::op::BitOR>(&number, 1);
  });
  const std::string room = ErrorOf([&]() {
    rabit::utils::MemoryFixSizeBuffer stream(values, 2);
    stream.Write(values, 3);
  });
  if (root.find("root 1 is no rank") == std::string::npos) return 2;
  if (floats.find("BitOR") == std::string::npos) return 3;
  if (room.find("do not fit") == std::string::npos) return 4;
  if (values[0] != 4 || rabit::GetRingPrevRank() != 0 || RabitLinkTag() != 0) return 5;
  rabit::TrackerPrint("ok\n");
  return rabit::Finalize() ? 0 : 1;
}
