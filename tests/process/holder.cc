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
//
// Prints "OK", "OK TOKEN", or the status.
#include <iostream>
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
    std::string verb, hex;
    words >> verb >> hex;
    const auto id = ObjectId::FromHex(hex);
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
