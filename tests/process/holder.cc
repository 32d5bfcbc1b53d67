// A client that executes the commands on its standard input, one per line, and prints each result:
//
//   holder ADDRESS
//   put ID SIZE [ID-REFERRED-TO]   owned
//   hold ID | release ID | keep ID
//   transit ID                     prints the token, in hexadecimal
//   claim ID TOKEN
//   get ID [fail]                  with "fail": fails if the object is lost
//   reduce TARGET SOURCE SOURCE    owned
//   open TARGET SOURCE...          an open reduction; does not wait for its end
//   add TARGET SOURCE | close TARGET
//   number NAME NUMBER BYTES       puts so many bytes, at least 8, that begin with the number
//   delete NAME MILLISECONDS
//   read NAME TIMES MILLISECONDS   one Get after the other, each with this timeout; prints how
//                                  often each number was read: "17:96 -:4"; "-": by so many none
//
// Prints "OK", "OK" and a result, or the status.
#include <cstdint>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "phalanx/client.h"

namespace {

using phalanx::ObjectId;

class Holder {
 public:
  explicit Holder(phalanx::Client& client) : client_(client) {}

  std::string Do(std::istream& words) {
    std::string verb, object;
    words >> verb >> object;
    const ObjectId named = client_.Id(object);
    if (verb == "number") return PutNumber(named, words);
    if (verb == "delete") return Delete(named, words);
    if (verb == "read") return Read(named, words);
    const auto id = ObjectId::FromHex(object);
    if (!id.ok()) return id.status().ToString();
    if (verb == "put") return Put(*id, words);
    if (verb == "hold") return Text(client_.Hold({&*id, 1}));
    if (verb == "keep") return Text(client_.Keep(*id).Wait().status());
    if (verb == "get") return Get(*id, words);
    if (verb == "reduce") return Reduce(*id, words);
    if (verb == "open") return Open(*id, words);
    if (verb == "add") return Text(client_.AddSources(*id, Ids(words)).Wait().status());
    if (verb == "close") return Text(client_.CloseReduction(*id).Wait().status());
    if (verb == "release") {
      client_.Release({&*id, 1});
      return "OK";
    }
    if (verb == "transit") {
      const auto token = client_.Transit(*id);
      return token.ok() ? "OK " + absl::BytesToHexString(*token) : token.status().ToString();
    }
    if (verb == "claim") {
      std::string token;
      words >> token;
      return Text(client_.Hold(*id, absl::HexStringToBytes(token)));
    }
    return "no such verb";
  }

 private:
  static std::string Text(const absl::Status& status) {
    return status.ok() ? "OK" : status.ToString();
  }

  std::string Put(const ObjectId& id, std::istream& words) {
    size_t size = 0;
    words >> size;
    phalanx::PutOptions options;
    options.owned = true;
    for (std::string other; words >> other;) {
      options.refers_to.push_back(*ObjectId::FromHex(other));
    }
    return Text(client_.Put(id, std::string(size, 'x'), options).Wait().status());
  }

  std::string Get(const ObjectId& id, std::istream& words) {
    phalanx::GetOptions options;
    options.timeout = absl::Seconds(30);
    std::string word;
    if (words >> word) options.on_lost = phalanx::GetOptions::OnLost::kFail;
    return Text(client_.Get(id, options).Wait().status());
  }

  std::string Reduce(const ObjectId& target, std::istream& words) {
    phalanx::ReduceOptions options;
    options.owned = true;
    return Text(client_.Reduce(target, Ids(words), options).Wait().status());
  }

  std::string Open(const ObjectId& target, std::istream& words) {
    phalanx::ReduceOptions options;
    options.dtype = phalanx::DType::kU8;
    options.open = true;
    opened_.push_back(client_.Reduce(target, Ids(words), options));
    return "OK";
  }

  std::string PutNumber(const ObjectId& id, std::istream& words) {
    uint64_t number = 0;
    size_t size = 0;
    words >> number >> size;
    std::string bytes(size, 'x');
    std::memcpy(bytes.data(), &number, sizeof(number));
    phalanx::PutOptions options;
    options.wait_for_adoption = true;
    return Text(client_.Put(id, bytes, options).Wait().status());
  }

  std::string Delete(const ObjectId& id, std::istream& words) {
    int64_t milliseconds = 0;
    words >> milliseconds;
    return Text(client_.Delete(id, absl::Milliseconds(milliseconds)).Wait().status());
  }

  std::string Read(const ObjectId& id, std::istream& words) {
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

  static std::vector<ObjectId> Ids(std::istream& words) {
    std::vector<ObjectId> ids;
    for (std::string id; words >> id;) ids.push_back(*ObjectId::FromHex(id));
    return ids;
  }

  phalanx::Client& client_;
  std::vector<phalanx::Future<phalanx::Done>> opened_;
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
  Holder holder(**client);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::cout << holder.Do(words) << std::endl;
  }
  return 0;
}
