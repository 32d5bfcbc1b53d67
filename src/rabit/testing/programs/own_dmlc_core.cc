// A program that brings its own dmlc-core, whose streams return what they have written. Prints
// "ok".
#include <dmlc/io.h>
#include <rabit/rabit.h>

#include <cstdio>

struct Model : public rabit::Serializable {
  std::string text;

  void Load(rabit::Stream* from) override {
    text.resize(3);
    from->Read(&text[0], text.size());
  }
  void Save(rabit::Stream* to) const override {
    if (to->Write(text.data(), text.size()) != text.size()) std::abort();
  }
};

int main(int argc, char* argv[]) {
  static_assert(dmlc::kOwn, "another dmlc/io.h");
  rabit::Init(argc, argv);
  Model model;
  model.text = "abc";
  std::string bytes;
  rabit::utils::MemoryBufferStream out(&bytes);
  model.Save(&out);
  rabit::utils::MemoryFixSizeBuffer in(&bytes[0], bytes.size());
  Model copy;
  copy.Load(&in);
  rabit::CheckPoint(&model);
  rabit::TrackerPrint(copy.text == "abc" ? "ok\n" : "another text\n");
  rabit::Finalize();
  return 0;
}
