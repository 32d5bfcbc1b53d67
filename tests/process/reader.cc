// A client that puts numbers under names, deletes them and reads them many times, by the commands
// on its standard input, one per line:
//
//   reader ADDRESS
//   put NAME NUMBER BYTES       an object of so many bytes, at least 8, that begins with the number
//   delete NAME MILLISECONDS
//   read NAME TIMES MILLISECONDS
//                               one Get after the other, each with this timeout; prints "OK", and
//                               how often each number was read: "17:96 -:4"; "-": by so many none
//
// Prints "OK ...", or the status.
#include <cstdint>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "phalanx/client.h"

namespace {

class Reader {
 public:
  explicit Reader(phalanx::Client& client) : client_(client) {}

  std::string Do(std::istream& words) {
    std::string verb, name;
    words >> verb >> name;
    const phalanx::ObjectId id = client_.Id(name);
    if (verb == "put") return Put(id, words);
    if (verb == "delete") return Delete(id, words);
    if (verb == "read") return Read(id, words);
    return "no such verb";
  }

 private:
  static std::string Text(const absl::Status& status) {
    return status.ok() ? "OK" : status.ToString();
  }

  std::string Put(const phalanx::ObjectId& id, std::istream& words) {
    uint64_t number = 0;
    size_t size = 0;
    words >> number >> size;
    std::string bytes(size, 'x');
    std::memcpy(bytes.data(), &number, sizeof(number));
    phalanx::PutOptions options;
    options.wait_for_adoption = true;
    return Text(client_.Put(id, bytes, options).Wait().status());
  }

  std::string Delete(const phalanx::ObjectId& id, std::istream& words) {
    int64_t milliseconds = 0;
    words >> milliseconds;
    return Text(client_.Delete(id, absl::Milliseconds(milliseconds)).Wait().status());
  }

  std::string Read(const phalanx::ObjectId& id, std::istream& words) {
    int times = 0;
    int64_t milliseconds = 0;
    words >> times >> milliseconds;
    phalanx::GetOptions options;
    options.timeout = absl::Milliseconds(milliseconds);
    std::map<std::string, int> read;
    for (int i = 0; i < times; ++i) {
      const auto got = client_.Get(id, options).Wait();
      uint64_t number = 0;
      if (got.ok()) std::memcpy(&number, got->data(), sizeof(number));
      ++read[got.ok() ? std::to_string(number) : "-"];
    }
    std::string text = "OK";
    for (const auto& [number, count] : read) text += " " + number + ":" + std::to_string(count);
    return text;
  }

  phalanx::Client& client_;
};

}  // namespace

int main(int argc, char** argv) {
  phalanx::ClientOptions options;
  options.address = argc == 2 ? argv[1] : "";
  const auto client = phalanx::Client::Connect(options);
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 1;
  }
  Reader reader(**client);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::cout << reader.Do(words) << std::endl;
  }
  return 0;
}
