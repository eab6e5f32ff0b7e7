// Does one thing with a file, for the tests that compare with Python: a verb and its arguments a line on standard
// input, "ok" or the error's text in one line on standard output.

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "format/pickle.h"

namespace {

using namespace sherd;
using namespace sherd::format;
using Arguments = std::vector<std::string>;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("no file " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// pickle IN OUT: reads a pickle and writes it again.
std::string repickle(const Arguments& arguments) {
  const std::string bytes = read_file(arguments.at(0));
  const Value value = unpickle(bytes_of(bytes));
  const std::string written = pickle(value);
  if (!(unpickle(bytes_of(written)) == value)) throw std::logic_error("what was written reads differently");
  write_file(arguments.at(1), written);
  return to_string(value);
}

const std::map<std::string, std::function<std::string(const Arguments&)>> kVerbs = {
    {"pickle", repickle},
};

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    const Arguments arguments(std::istream_iterator<std::string>(words), {});
    std::string answer;
    try {
      answer = "ok " + kVerbs.at(verb)(arguments);
    } catch (const std::exception& error) {
      answer = std::string("error ") + error.what();
    }
    for (char& c : answer) {
      if (c == '\n') c = '|';
    }
    std::cout << answer << std::endl;
  }
}
