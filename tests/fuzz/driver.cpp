// Runs a fuzz target (LLVMFuzzerTestOneInput) under any compiler: mutates the lines of a seeds file, or the files of a
// seeds folder, for SHERD_FUZZ_SECONDS, two by default. The sequence is the same in every run. Where the target
// crashes, the input is printed; put it into a unit test.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::string current;  // the input that is being tried

void print_input(int number) {
  std::fprintf(stderr, "\nfuzz: signal %d with the input \"", number);
  for (const char c : current)
    std::fprintf(stderr, c < ' ' || c > '~' || c == '"' || c == '\\' ? "\\x%02x" : "%c", static_cast<unsigned char>(c));
  std::fprintf(stderr, "\"\n");
  ::_exit(1);
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& seeds) : seeds_(seeds) {
    for (const auto& seed : seeds) alphabet_ += seed;
  }

  std::string next() {
    std::string text = any(seeds_);
    for (size_t i = below(5); i > 0; --i) mutate(text);
    return text;
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }
  const std::string& any(const std::vector<std::string>& from) { return from[below(from.size())]; }

  void mutate(std::string& text) {
    const size_t at = below(text.size() + 1);
    const size_t length = below(std::min<size_t>(text.size() - at, 8) + 1);
    switch (below(9)) {
      case 0:
        text.insert(at, 1, alphabet_[below(alphabet_.size())]);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text = text.substr(0, at) + any(seeds_).substr(0);
        break;
      case 4:
        text.insert(at, 1, static_cast<char>(below(256)));
        break;
      case 5:
        text.insert(at, std::to_string(random_()));
        break;
      case 6:  // one bit
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ 1 << below(8));
        break;
      case 7:  // a number, at an end of what it can be
        for (size_t i = 0; i < length; ++i) text[at + i] = i + 1 == length && below(2) == 0 ? '\x7f' : '\xff';
        break;
      case 8:
        text.resize(at);
        break;
    }
  }

  const std::vector<std::string>& seeds_;
  std::string alphabet_;
  std::mt19937_64 random_;  // the default seed, so that a crash comes back
};

std::vector<std::string> read_seeds(const std::filesystem::path& path) {
  std::vector<std::string> seeds;
  if (!std::filesystem::is_directory(path)) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) seeds.push_back(line);
    return seeds;
  }
  std::vector<std::filesystem::path> files(std::filesystem::directory_iterator(path), {});
  std::sort(files.begin(), files.end());
  for (const auto& name : files) {
    std::ifstream file(name, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

}  // namespace

int main() {
  const std::vector<std::string> seeds = read_seeds(SHERD_FUZZ_SEEDS);
  if (seeds.empty()) return std::cerr << "fuzz: no seeds in " << SHERD_FUZZ_SEEDS << "\n", 1;

  for (const int number : {SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGBUS}) ::signal(number, print_input);
  const char* const seconds = std::getenv("SHERD_FUZZ_SECONDS");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds == nullptr ? 2 : std::atoi(seconds));
  Mutator mutator(seeds);
  int64_t count = 0;
  for (; count % 256 != 0 || std::chrono::steady_clock::now() < end; ++count) {
    current = count < static_cast<int64_t>(seeds.size()) ? seeds[static_cast<size_t>(count)] : mutator.next();
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
  }
  std::cout << "fuzz: " << count << " inputs\n";
}
