#pragma once
// The distributions: what makes a group of numbers of the words that are theirs. The same code on the CPU and on CUDA.
//
// As in philox.h, everything stands in an unnamed namespace.

#include <type_traits>

#include "random/draw.h"
#include "random/numbers.h"

namespace sherd::detail {
namespace {

struct OfOneWord {
  static constexpr int kWords = 1;  // for a number
  static constexpr int kGroup = 1;  // numbers that are made together
};

struct OfTwoWords {
  static constexpr int kWords = 2;
  static constexpr int kGroup = 1;
};

SHERD_ANYWHERE uint64_t long_word(const uint32_t* words) { return join(words[0], words[1]); }

struct UniformFloats : OfOneWord {
  using Number = float;
  float from, range, limit;
  int bits;
  SHERD_ANYWHERE void operator()(const uint32_t* words, float* out) const {
    const float x = fused(unit(words[0], bits), range, from);
    out[0] = x < limit ? x : limit;
  }
};

struct UniformDoubles : OfTwoWords {
  using Number = double;
  double from, range, limit;
  SHERD_ANYWHERE void operator()(const uint32_t* words, double* out) const {
    const double x = fused(unit(long_word(words)), range, from);
    out[0] = x < limit ? x : limit;
  }
};

struct NormalFloats {
  using Number = float;
  static constexpr int kWords = 1;
  static constexpr int kGroup = 2;
  float mean, deviation;
  SHERD_ANYWHERE void operator()(const uint32_t* words, float* out) const {
    const Pair<float> p = two_normals(words[0], words[1]);
    out[0] = fused(p.first, deviation, mean);
    out[1] = fused(p.second, deviation, mean);
  }
};

template <bool OfLogarithm>
struct NormalDoubles {
  using Number = double;
  static constexpr int kWords = 2;
  static constexpr int kGroup = 2;
  double mean, deviation;
  SHERD_ANYWHERE void operator()(const uint32_t* words, double* out) const {
    const Pair<double> p = two_normals(long_word(words), long_word(words + 2));
    out[0] = fused(p.first, deviation, mean);
    out[1] = fused(p.second, deviation, mean);
    if constexpr (OfLogarithm) {
      out[0] = exponential_of(out[0]);
      out[1] = exponential_of(out[1]);
    }
  }
};

struct ExponentialFloats : OfOneWord {
  using Number = float;
  float rate;
  SHERD_ANYWHERE void operator()(const uint32_t* words, float* out) const {
    const float x = -logarithm(above_zero(words[0]));
    out[0] = (x > 0 ? x : 0x1p-26F) / rate;  // 1 stands for what is nearer to it than to the number below
  }
};

struct Exponentials : OfTwoWords {
  using Number = double;
  double rate;
  SHERD_ANYWHERE void operator()(const uint32_t* words, double* out) const {
    out[0] = -logarithm(above_zero(long_word(words))) / rate;
  }
};

struct Cauchys : OfTwoWords {
  using Number = double;
  double median, scale;
  SHERD_ANYWHERE void operator()(const uint32_t* words, double* out) const {
    const double u = above_zero(long_word(words));  // the tangent of half a turn times u - 1/2
    const Pair<double> p = on_circle(u < 0.5 ? 0.5 * u + 0.75 : 0.5 * u - 0.25);
    out[0] = fused(scale, p.second / p.first, median);
  }
};

struct Geometrics : OfTwoWords {
  using Number = double;
  double log_of_failure;
  SHERD_ANYWHERE void operator()(const uint32_t* words, double* out) const {
    const double trials = ceil(logarithm(above_zero(long_word(words))) / log_of_failure);
    out[0] = trials < 1 ? 1 : trials;
  }
};

struct Integers : OfTwoWords {
  using Number = int64_t;
  int64_t low;
  uint64_t range;
  SHERD_ANYWHERE void operator()(const uint32_t* words, int64_t* out) const {
    out[0] = static_cast<int64_t>(static_cast<uint64_t>(low) + below(long_word(words), range));
  }
};

struct Bernoullis : OfOneWord {
  using Number = float;
  uint32_t last;  // of the words that count
  float one;      // 0 where none does
  SHERD_ANYWHERE void operator()(const uint32_t* words, float* out) const {
    out[0] = same_bits<float>(mask_up_to(last, words[0]) & same_bits<uint32_t>(one));
  }
};

// f(maker). Real is the type of the numbers that are made for the tensor, of `bits` bits where it is float; void for
// tensors of whole numbers, which are not asked for real ones.
template <class Real, class F>
void with_maker(const Draw& draw, int bits, F f) {
  const auto a = static_cast<float>(draw.a);
  switch (draw.distribution) {
    case Distribution::uniform:  // NOLINT(bugprone-branch-clone): of whole numbers nothing is left
      if constexpr (std::is_same_v<Real, double>) f(UniformDoubles{{}, draw.a, draw.b - draw.a, draw.limit});
      if constexpr (std::is_same_v<Real, float>) {
        f(UniformFloats{{}, a, static_cast<float>(draw.b - draw.a), static_cast<float>(draw.limit), bits});
      }
      return;
    case Distribution::normal:
      if constexpr (std::is_same_v<Real, double>) f(NormalDoubles<false>{draw.a, draw.b});
      if constexpr (std::is_same_v<Real, float>) f(NormalFloats{a, static_cast<float>(draw.b)});
      return;
    case Distribution::log_normal:
      f(NormalDoubles<true>{draw.a, draw.b});
      return;
    case Distribution::exponential:
      if constexpr (std::is_same_v<Real, float>) f(ExponentialFloats{{}, a});
      if constexpr (!std::is_same_v<Real, float>) f(Exponentials{{}, draw.a});
      return;
    case Distribution::cauchy:
      f(Cauchys{{}, draw.a, draw.b});
      return;
    case Distribution::geometric:
      f(Geometrics{{}, logarithm_of_one_plus(-draw.a)});
      return;
    case Distribution::integers:
      f(Integers{{}, draw.low, draw.range});
      return;
    case Distribution::bernoulli: {
      const uint64_t limit = threshold(draw.a);
      f(Bernoullis{{}, static_cast<uint32_t>(limit - 1), limit == 0 ? 0.0F : 1.0F});
      return;
    }
  }
}

}  // namespace
}  // namespace sherd::detail
