// test_kv_app of ps-lite. With an argument the server is made before Start.
#include "src/ps_lite/testing/kv_app.h"

int main(int argc, char**) {
  const bool before = argc > 1;
  if (before) StartServer();
  ps::Start(0);
  if (!before) StartServer();
  if (ps::IsWorker()) RunWorker(0, ps::MyRank());
  ps::Finalize(0, true);
  return 0;
}
