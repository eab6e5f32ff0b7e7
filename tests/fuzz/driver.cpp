// Runs a fuzz target (LLVMFuzzerTestOneInput) under any compiler: mutates the lines of a seeds file for
// SHERD_FUZZ_SECONDS, two by default. The sequence is the same in every run. Where the target crashes, the input is
// printed; put it into a unit test.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
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
    switch (below(6)) {
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
    }
  }

  const std::vector<std::string>& seeds_;
  std::string alphabet_;
  std::mt19937_64 random_;  // the default seed, so that a crash comes back
};

}  // namespace

int main() {
  std::vector<std::string> seeds;
  std::ifstream file(SHERD_FUZZ_SEEDS);
  for (std::string line; std::getline(file, line);) seeds.push_back(line);
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
