#pragma once
// Drawing the same random numbers twice: what a rank's DTensors draw from, kept as it is now, and put back for a scope.

#include <ATen/core/Generator.h>

#include <map>
#include <memory>
#include <string>

namespace sherd::detail {

class WorldState;

/// Every generator that an operator of this thread would draw from without being given one.
class Draws {
 public:
  static Draws now();

 private:
  friend class DrawAgain;
  std::shared_ptr<WorldState> world_;  // none: nothing but torch's own generators
  at::Generator scoped_;               // of a GeneratorScope
  at::Generator default_;
  std::map<std::string, at::Generator> of_meshes_;  // those with one of their own, by the world's name for them
};

/// While it lives, operators of this thread draw what they drew after `draws` was made; afterwards they go on from
/// where they were. Ranks that have compared their generators before do not compare them anew.
class DrawAgain {
 public:
  explicit DrawAgain(const Draws& draws);
  ~DrawAgain();
  DrawAgain(const DrawAgain&) = delete;
  DrawAgain& operator=(const DrawAgain&) = delete;

 private:
  std::shared_ptr<WorldState> world_;
  at::Generator scoped_;
  at::Generator default_;
  std::map<std::string, at::Generator> of_meshes_;
};

}  // namespace sherd::detail
