#pragma once
// Random bits as numbers of a distribution. Additions, multiplications, divisions, square roots and fused multiply-adds
// alone, each rounded as IEEE 754 says, and fused where it is written here and nowhere else (-ffp-contract=off,
// --fmad=false): the same bits give the same numbers on every CPU and GPU.
//
// As in philox.h, everything stands in an unnamed namespace.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "random/philox.h"

namespace sherd::detail {
namespace {

template <class To, class From>
SHERD_ANYWHERE To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// x * y + z, rounded once.
SHERD_ANYWHERE float fused(float x, float y, float z) { return fmaf(x, y, z); }
SHERD_ANYWHERE double fused(double x, double y, double z) { return fma(x, y, z); }

SHERD_ANYWHERE uint64_t join(uint32_t high, uint32_t low) { return (uint64_t{high} << 32) | low; }

// [0, 1), a multiple of 2^-bits.
SHERD_ANYWHERE float unit(uint32_t word, int bits) {
  const auto number = static_cast<float>(static_cast<int32_t>(word >> (32 - bits)));
  return number * same_bits<float>(static_cast<uint32_t>(127 - bits) << 23);
}
SHERD_ANYWHERE double unit(uint64_t word) { return static_cast<double>(static_cast<int64_t>(word >> 11)) * 0x1p-53; }

// (0, 1], for logarithms.
SHERD_ANYWHERE float above_zero(uint32_t word) {
  return (static_cast<float>(static_cast<int32_t>(word >> 1)) + 0.5F) * 0x1p-31F;
}
SHERD_ANYWHERE double above_zero(uint64_t word) {
  return (static_cast<double>(static_cast<int64_t>(word >> 12)) + 0.5) * 0x1p-52;
}

// The logarithm of a positive number that is not subnormal. Polynomials of Cephes (float) and fdlibm (double).
SHERD_ANYWHERE float logarithm(float x) {
  const auto bits = same_bits<int32_t>(x);
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;  // what is left is in [sqrt(1/2), sqrt(2))
  const float f = same_bits<float>(bits - exponent * (1 << 23)) - 1.0F;
  const auto e = static_cast<float>(exponent);
  const float z = f * f;
  float p = 7.0376836292E-2F;
  p = fused(p, f, -1.1514610310E-1F);
  p = fused(p, f, 1.1676998740E-1F);
  p = fused(p, f, -1.2420140846E-1F);
  p = fused(p, f, 1.4249322787E-1F);
  p = fused(p, f, -1.6668057665E-1F);
  p = fused(p, f, 2.0000714765E-1F);
  p = fused(p, f, -2.4999993993E-1F);
  p = fused(p, f, 3.3333331174E-1F);
  float y = fused(-2.12194440E-4F, e, f * z * p);
  y = fused(-0.5F, z, y);
  return fused(0.693359375F, e, f + y);
}

SHERD_ANYWHERE double logarithm(double x) {
  const auto bits = same_bits<int64_t>(x);
  const int64_t exponent = (bits - 0x3fe6a09e667f3bcd) >> 52;
  const double f = same_bits<double>(bits - exponent * (int64_t{1} << 52)) - 1.0;
  const auto e = static_cast<double>(static_cast<int32_t>(exponent));
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double w = z * z;
  const double even =
      w * fused(w, fused(w, 1.531383769920937332e-01, 2.222219843214978396e-01), 3.999999999940941908e-01);
  double p = fused(w, 1.479819860511658591e-01, 1.818357216161805012e-01);
  p = fused(w, p, 2.857142874366239149e-01);
  const double odd = z * fused(w, p, 6.666666666666735130e-01);
  const double half_square = 0.5 * f * f;
  const double tail = fused(s, half_square + (even + odd), e * 1.90821492927058770002e-10);
  return fused(e, 6.93147180369123816490e-01, -((half_square - tail) - f));
}

// log(1 + x) for x > -1.
SHERD_ANYWHERE double logarithm_of_one_plus(double x) {
  const double sum = 1.0 + x;
  return sum == 1.0 ? x : logarithm(sum) * (x / (sum - 1.0));
}

SHERD_ANYWHERE double exponential_of(double x) {
  if (!(x < 709.782712893384)) return x != x ? x : double{INFINITY};
  if (x < -745.2) return 0;
  const double scaled = x * 1.44269504088896338700 + (x < 0 ? -0.5 : 0.5);
  const auto k = static_cast<int32_t>(scaled);  // towards zero
  const double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
  const double t = r * r;
  const double c =
      r -
      t * (1.66666666666666019037e-01 +
           t * (-2.77777777770155933842e-03 +
                t * (6.61375632143793436117e-05 + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))));
  const double y = 1.0 + (r * c / (2.0 - c) + r);
  const int32_t half = k / 2;  // 2^k may not be a number of its own
  return y * same_bits<double>(static_cast<int64_t>(1023 + half) << 52) *
         same_bits<double>(static_cast<int64_t>(1023 + k - half) << 52);
}

template <class T>
struct Pair {
  T first;
  T second;
};

// The cosine and the sine of `turn` full turns, in [0, 1).
SHERD_ANYWHERE Pair<float> on_circle(float turn) {
  const float quarters = turn * 4.0F;
  const auto quarter = static_cast<int32_t>(quarters + 0.5F);  // NOLINT(bugprone-incorrect-roundings): any will do
  const float x = (quarters - static_cast<float>(quarter)) * 1.57079632679489661923F;
  const float z = x * x;
  const float s = fused(fused(-1.9515295891E-4F, z, 8.3321608736E-3F), z, -1.6666654611E-1F);
  const float sine = fused(s * z, x, x);
  const float c = fused(fused(2.443315711809948E-5F, z, -1.388731625493765E-3F), z, 4.166664568298827E-2F);
  const float cosine = fused(c * z, z, fused(-0.5F, z, 1.0F));
  const float a = (quarter & 1) != 0 ? sine : cosine;
  const float b = (quarter & 1) != 0 ? cosine : sine;
  const auto negative_a = static_cast<uint32_t>((quarter + 1) & 2) << 30;
  const auto negative_b = static_cast<uint32_t>(quarter & 2) << 30;
  return {same_bits<float>(same_bits<uint32_t>(a) ^ negative_a), same_bits<float>(same_bits<uint32_t>(b) ^ negative_b)};
}

SHERD_ANYWHERE Pair<double> on_circle(double turn) {
  const double quarters = turn * 4.0;
  const auto quarter = static_cast<int32_t>(quarters + 0.5);  // NOLINT(bugprone-incorrect-roundings)
  const double x = (quarters - quarter) * 1.57079632679489661923;
  const double z = x * x;
  double s = 1.58969099521155010221e-10;
  s = fused(s, z, -2.50507602534068634195e-08);
  s = fused(s, z, 2.75573137070700676789e-06);
  s = fused(s, z, -1.98412698298579493134e-04);
  s = fused(s, z, 8.33333333332248946124e-03);
  s = fused(s, z, -1.66666666666666324348e-01);
  const double sine = fused(z * x, s, x);
  double c = -1.13596475577881948265e-11;
  c = fused(c, z, 2.08757232129817482790e-09);
  c = fused(c, z, -2.75573143513906633035e-07);
  c = fused(c, z, 2.48015872894767294178e-05);
  c = fused(c, z, -1.38888888888741095749e-03);
  c = fused(c, z, 4.16666666666666019037e-02);
  const double cosine = 1.0 - fused(-z * z, c, 0.5 * z);
  const double a = (quarter & 1) != 0 ? sine : cosine;
  const double b = (quarter & 1) != 0 ? cosine : sine;
  return {((quarter + 1) & 2) != 0 ? -a : a, (quarter & 2) != 0 ? -b : b};
}

// Two independent normal numbers (Box and Muller).
SHERD_ANYWHERE Pair<float> two_normals(uint32_t first, uint32_t second) {
  const float radius = sqrtf(-2.0F * logarithm(above_zero(first)));
  const Pair<float> p = on_circle(unit(second, 24));
  return {radius * p.first, radius * p.second};
}
SHERD_ANYWHERE Pair<double> two_normals(uint64_t first, uint64_t second) {
  const double radius = sqrt(-2.0 * logarithm(above_zero(first)));
  const Pair<double> p = on_circle(unit(second));
  return {radius * p.first, radius * p.second};
}

// [0, range), where 0 stands for 2^64: the high half of word * range.
SHERD_ANYWHERE uint64_t below(uint64_t word, uint64_t range) {
  if (range == 0) return word;
#if defined(__CUDA_ARCH__)
  return __umul64hi(word, range);
#else
  const uint64_t a = word >> 32;
  const uint64_t b = word & 0xffffffff;
  const uint64_t c = range >> 32;
  const uint64_t d = range & 0xffffffff;
  const uint64_t middle = a * d + ((b * d) >> 32);
  return a * c + (middle >> 32) + ((b * c + (middle & 0xffffffff)) >> 32);
#endif
}

// All ones where the word is not above `last`, otherwise 0. As numbers with a sign, which vector instructions compare.
SHERD_ANYWHERE uint32_t mask_up_to(uint32_t last, uint32_t word) {
  const auto a = static_cast<int32_t>(word ^ 0x80000000U);
  const auto b = static_cast<int32_t>(last ^ 0x80000000U);
  return a > b ? 0U : 0xffffffffU;
}

// A word is below this with probability p. 2^32 for 1: every word.
SHERD_ANYWHERE uint64_t threshold(double p) { return static_cast<uint64_t>(p * 0x1p32); }

}  // namespace
}  // namespace sherd::detail
