#include "corpus.h"

#include <torch/torch.h>

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

Corpus::Corpus(std::string_view text) {
  const std::set<char> letters(text.begin(), text.end());
  std::vector<int64_t> numbers(256);
  for (char letter : letters) numbers[static_cast<unsigned char>(letter)] = vocabulary_++;
  characters_ = torch::empty(static_cast<int64_t>(text.size()), torch::kLong);
  std::transform(text.begin(), text.end(), characters_.data_ptr<int64_t>(),
                 [&](char letter) { return numbers[static_cast<unsigned char>(letter)]; });
}

Batch Corpus::batch(int64_t step, int64_t rows, int64_t length) const {
  const int64_t places = characters_.numel() - length;
  if (places < 1) throw std::invalid_argument("corpus: the text is shorter than one sequence");
  // Not torch's generator: rank threads share that one, and would draw in any order.
  std::mt19937_64 random(static_cast<uint64_t>(step) + 1);
  std::vector<at::Tensor> inputs, targets;
  for (int64_t row = 0; row < rows; ++row) {
    const auto place = static_cast<int64_t>(random() % static_cast<uint64_t>(places));
    inputs.push_back(characters_.narrow(0, place, length));
    targets.push_back(characters_.narrow(0, place + 1, length));
  }
  return {torch::stack(inputs), torch::stack(targets)};
}
