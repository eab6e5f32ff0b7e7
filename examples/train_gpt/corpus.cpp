#include "corpus.h"

#include <torch/torch.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <vector>

namespace {

// splitmix64: so short that the same numbers are had anywhere. Not torch's generator: rank threads share that one, and
// would draw in any order.
class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }

 private:
  uint64_t state_;
};

}  // namespace

Corpus::Corpus(std::string_view text) {
  const std::set<char> letters(text.begin(), text.end());
  std::vector<int64_t> numbers(256);
  for (char letter : letters) numbers[static_cast<unsigned char>(letter)] = vocabulary_++;
  characters_ = torch::empty(static_cast<int64_t>(text.size()), torch::kLong);
  std::transform(text.begin(), text.end(), characters_.data_ptr<int64_t>(),
                 [&](char letter) { return numbers[static_cast<unsigned char>(letter)]; });
}

Batch Corpus::batch(int64_t step, int64_t rows, int64_t length, uint64_t seed) const {
  const int64_t places = characters_.numel() - length;
  if (places < 1) throw std::invalid_argument("corpus: the text is shorter than one sequence");
  Draws draws(Draws(seed).next() + static_cast<uint64_t>(step));
  std::vector<at::Tensor> inputs, targets;
  for (int64_t row = 0; row < rows; ++row) {
    const auto place = static_cast<int64_t>(draws.next() % static_cast<uint64_t>(places));
    inputs.push_back(characters_.narrow(0, place, length));
    targets.push_back(characters_.narrow(0, place + 1, length));
  }
  return {torch::stack(inputs), torch::stack(targets)};
}
