// Runs a fuzz target (LLVMFuzzerTestOneInput) under any compiler: takes the files of its seeds folder, then mutates
// them for a second. The sequence is the same in every run. Where the target crashes, the input is printed; put it
// into a unit test, or into the folder. With arguments it takes these files alone: what libFuzzer found elsewhere.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
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

std::vector<std::string> read_files(std::vector<std::filesystem::path> paths) {
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> contents;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return contents;
}

void try_input(std::string input) {
  current = std::move(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
}

}  // namespace

int main(int argc, char** argv) {
  for (const int number : {SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGBUS}) ::signal(number, print_input);
  if (argc > 1) {
    for (const std::string& input : read_files({argv + 1, argv + argc})) try_input(input);
    return 0;
  }
  const std::vector<std::string> seeds = read_files({std::filesystem::directory_iterator(SHERD_FUZZ_SEEDS), {}});
  if (seeds.empty()) return std::cerr << "fuzz: no seeds in " << SHERD_FUZZ_SEEDS << "\n", 1;

  for (const std::string& seed : seeds) try_input(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  Mutator mutator(seeds);
  int64_t count = 0;
  for (; count % 256 != 0 || std::chrono::steady_clock::now() < end; ++count) try_input(mutator.next());
  std::cout << "fuzz: " << seeds.size() << " seeds, " << count << " inputs made of them\n";
}
