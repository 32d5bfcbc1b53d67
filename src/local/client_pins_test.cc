#include "src/local/client_pins.h"

#include "gtest/gtest.h"

namespace phalanx::object_store {
namespace {

using Pins = std::vector<PinId>;

TEST(ClientPinsTest, ALeavingClientKeepsThePinsItNames) {
  ClientPins pins;
  for (const PinId pin : {4, 1, 3, 2}) pins.Add(pin);
  pins.KeepAtLeave({1});
  pins.KeepAtLeave({3, 99});
  EXPECT_EQ(pins.TakeNotKept(), (Pins{2, 4}));
  for (const PinId pin : {2, 4}) pins.Remove(pin);
  EXPECT_TRUE(pins.Contains(1));
  EXPECT_FALSE(pins.Contains(99));
  for (const PinId pin : {1, 3}) pins.Remove(pin);
  EXPECT_TRUE(pins.empty());
}

}  // namespace
}  // namespace phalanx::object_store
