#pragma once
// Colours that tell shards apart: Paul Tol's "light" scheme, made for dark text on them and for readers who see few
// colours (https://personal.sron.nl/~pault/). They stand on white paper and on black. There are eight: further shards
// take them again, and every cell says its ranks.

#include <array>
#include <cstddef>

namespace sherd::detail {

struct Color {
  const char* hex;
  const char* shade;  // of a face that lies in shadow
  int terminal;       // the nearest of the 256-colour palette
};

constexpr std::array<Color, 8> kPalette = {{{"#77aadd", "#5f88b1", 110},
                                            {"#ee8866", "#be6d52", 209},
                                            {"#eedd88", "#beb16d", 222},
                                            {"#ffaabb", "#cc8896", 217},
                                            {"#44bb99", "#36967a", 72},
                                            {"#bbcc33", "#96a329", 149},
                                            {"#99ddff", "#7ab1cc", 117},
                                            {"#aaaa00", "#888800", 142}}};

constexpr const Color& color_of(size_t index) { return kPalette[index % kPalette.size()]; }

}  // namespace sherd::detail
