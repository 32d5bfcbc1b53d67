#include "src/rabit/mock_engine.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/rabit/local_engine.h"

namespace phalanx::rabit {
namespace {

using ::testing::ElementsAre;

constexpr library::Where kHere = {"file.cc", 7, "Train"};

// The only rank, which notes its deaths and lives on. Calls fail while `error` has a text.
class FailingEngine : public LocalEngine {
 public:
  FailingEngine(const Error* error, std::vector<std::string>* deaths)
      : LocalEngine(0), error_(error), deaths_(deaths) {}

  Error Broadcast(void* inout, size_t size, int root, const library::Where& where) override {
    return error_->empty() ? LocalEngine::Broadcast(inout, size, root, where) : *error_;
  }
  Error Load(const library::Loaded& global, const library::Loaded& local, int* version) override {
    return error_->empty() ? LocalEngine::Load(global, local, version) : *error_;
  }
  Error CheckPoint(const library::Saved& global, const library::Saved& local) override {
    return error_->empty() ? LocalEngine::CheckPoint(global, local) : *error_;
  }
  void Die(const std::string& death) override { deaths_->push_back(death); }

 private:
  const Error* const error_;
  std::vector<std::string>* const deaths_;
};

// Declares the deaths of its life 0 in the calls `calls` of version 0.
class MockEngineTest : public ::testing::Test {
 protected:
  MockEngine Declare(const std::vector<int>& calls) {
    Parameters parameters;
    for (const int call : calls) parameters.deaths.push_back({0, 0, call, 0});
    return MockEngine(std::make_unique<FailingEngine>(&error_, &deaths_), parameters);
  }
  Error Call(MockEngine& engine) { return engine.Broadcast(nullptr, 0, 0, kHere); }
  Error Fail(MockEngine& engine) {
    error_ = "refused";
    Error error = Call(engine);
    error_.clear();
    return error;
  }

  Error error_;
  std::vector<std::string> deaths_;
};

TEST_F(MockEngineTest, CountsNoCallThatReturnsAnError) {
  MockEngine engine = Declare({1});
  EXPECT_EQ(Fail(engine), "refused");
  EXPECT_EQ(Call(engine), "");  // call 0
  EXPECT_THAT(deaths_, ElementsAre());
  EXPECT_EQ(Call(engine), "");
  EXPECT_THAT(deaths_, ElementsAre("mock=0,0,1,0"));
}

TEST_F(MockEngineTest, CountsOnAfterACheckpointAndALoadThatFail) {
  MockEngine engine = Declare({2});
  EXPECT_EQ(Call(engine), "");
  EXPECT_EQ(Call(engine), "");
  int version = 0;
  error_ = "no room";
  EXPECT_EQ(engine.Load({}, {}, &version), "no room");
  EXPECT_THAT(deaths_, ElementsAre());
  EXPECT_EQ(engine.CheckPoint({}, {}), "no room");
  EXPECT_THAT(deaths_, ElementsAre("mock=0,0,2,0"));
  error_.clear();
  EXPECT_EQ(Call(engine), "");
  EXPECT_THAT(deaths_, ElementsAre("mock=0,0,2,0", "mock=0,0,2,0"));
  EXPECT_EQ(engine.CheckPoint({}, {}), "");
  EXPECT_EQ(engine.version(), 1);
}

}  // namespace
}  // namespace phalanx::rabit
