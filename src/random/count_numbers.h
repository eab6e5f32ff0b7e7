#pragma once
// Numbers that take as many random bits as they need: counts. An element's k-th pair of numbers comes from the block
// with counter (place + k * 2^48, offset).
//
// As in philox.h, everything stands in an unnamed namespace.

#include "random/numbers.h"

namespace sherd::detail {
namespace {

class Uniforms {
 public:
  SHERD_ANYWHERE Uniforms(uint64_t seed, uint64_t offset, uint64_t place)
      : seed_(seed), offset_(offset), place_(place) {}
  // (0, 1).
  SHERD_ANYWHERE double next() {
    if (second_) {
      second_ = false;
      return above_zero(join(block_.words[2], block_.words[3]));
    }
    block_ = philox(seed_, offset_, place_);
    place_ += uint64_t{1} << 48;
    second_ = true;
    return above_zero(join(block_.words[0], block_.words[1]));
  }

 private:
  uint64_t seed_, offset_, place_;
  PhiloxBlock block_ = {};
  bool second_ = false;
};

// log(k!) minus the first terms of Stirling's series, (k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2.
SHERD_ANYWHERE double stirling_rest(double k) {
  // Below 10 the series is too short: the numbers themselves.
  if (k < 10) {
    constexpr double kRest[10] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                                  0.0166446911898211,  0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
                                  0.00925546218271273, 0.00833056343336287};
    return kRest[static_cast<int>(k)];
  }
  const double n = k + 1;
  const double square = n * n;
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / n;
}

SHERD_ANYWHERE double log_factorial(double k) {
  return (k + 0.5) * logarithm(k + 1) - (k + 1) + 0.91893853320467274178 + stirling_rest(k);
}

// Small rates: uniform numbers are multiplied until they fall below exp(-rate). Large ones: the transformed rejection
// of Hoermann (1993).
SHERD_ANYWHERE double poisson_count(double rate, Uniforms numbers) {
  if (!(rate > 0)) return 0;
  if (rate < 10) {
    const double end = exponential_of(-rate);
    double product = numbers.next();
    double count = 0;
    while (product > end) {
      product = product * numbers.next();
      count = count + 1;
    }
    return count;
  }
  const double log_rate = logarithm(rate);
  const double b = 0.931 + 2.53 * sqrt(rate);
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const double certain = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = numbers.next() - 0.5;
    const double v = numbers.next();
    const double from_edge = 0.5 - fabs(u);
    const double k = floor((2 * a / from_edge + b) * u + rate + 0.43);
    if (from_edge >= 0.07 && v <= certain) return k;
    if (k < 0 || (from_edge < 0.013 && v > from_edge)) continue;
    const double height = logarithm(v) + logarithm(inverse_alpha) - logarithm(a / (from_edge * from_edge) + b);
    if (height <= k * log_rate - rate - log_factorial(k)) return k;
  }
}

// Few successes: the trials between them are counted. Many: the rejection of Hoermann (1993).
SHERD_ANYWHERE double rarer_count(double trials, double p, Uniforms numbers) {
  if (trials * p < 10) {
    const double log_of_failure = logarithm_of_one_plus(-p);
    double seen = 0;
    double successes = 0;
    while (true) {
      seen = seen + ceil(logarithm(numbers.next()) / log_of_failure);
      if (seen > trials) return successes;
      successes = successes + 1;
    }
  }
  const double deviation = sqrt(trials * p * (1 - p));
  const double b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p;
  const double c = trials * p + 0.5;
  const double certain = 0.92 - 4.2 / b;
  const double odds = p / (1 - p);
  const double alpha = (2.83 + 5.1 / b) * deviation;
  const double mode = floor((trials + 1) * p);
  while (true) {
    const double u = numbers.next() - 0.5;
    const double v = numbers.next();
    const double from_edge = 0.5 - fabs(u);
    const double k = floor((2 * a / from_edge + b) * u + c);
    if (k < 0 || k > trials) continue;
    if (from_edge >= 0.07 && v <= certain) return k;
    const double height = logarithm(v * alpha / (a / (from_edge * from_edge) + b));
    const double bound = (mode + 0.5) * logarithm((mode + 1) / (odds * (trials - mode + 1))) +
                         (trials + 1) * logarithm((trials - mode + 1) / (trials - k + 1)) +
                         (k + 0.5) * logarithm(odds * (trials - k + 1) / (k + 1)) + stirling_rest(mode) +
                         stirling_rest(trials - mode) - stirling_rest(k) - stirling_rest(trials - k);
    if (height <= bound) return k;
  }
}

SHERD_ANYWHERE double binomial_count(double trials, double p, Uniforms numbers) {
  if (!(trials > 0) || !(p > 0)) return 0;
  if (p >= 1) return trials;
  return p <= 0.5 ? rarer_count(trials, p, numbers) : trials - rarer_count(trials, 1 - p, numbers);
}

}  // namespace
}  // namespace sherd::detail
