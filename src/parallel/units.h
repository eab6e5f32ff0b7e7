#pragma once
// The parameters of a fully sharded module, gathered for use: unit by unit, the next one ahead of its time.
//
// An operator that uses a parameter takes it whole, once; it is not kept. The first one that asks for a parameter of a
// unit brings all of the unit together, and starts the unit that came next when these two followed each other before.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sherd/redistribute.h"
#include "tensor/gathering.h"

namespace sherd::detail {

class Units : public std::enable_shared_from_this<Units> {
 public:
  struct Options {
    std::optional<c10::ScalarType> dtype = {};  // in which parameters are gathered and used
    bool keep_until_backward = false;
    bool prefetch = true;
  };
  explicit Units(Options options) : options_(options) {}

  /// Parameters that are gathered together. They live on one mesh, their specs say along which axes they are gathered.
  void add_unit(const std::vector<at::Tensor>& parameters);

  /// Forgets what is gathered.
  void release();

 private:
  struct Parameter;
  struct Unit;
  enum class Keep : uint8_t;

  at::Tensor take(size_t unit, size_t index, const DTensorMeta& use, const InputPlan& how);
  static uint64_t versions_of(const Unit& unit);
  void open(size_t unit);
  void follow(size_t unit);
  std::optional<size_t> expected() const;
  void start_next();
  void start(Unit& unit);
  at::Tensor for_use(const at::Tensor& local, const DeviceMesh& mesh) const;

  Options options_;
  std::vector<std::shared_ptr<Unit>> units_;
  std::optional<size_t> open_;
  std::optional<size_t> before_;  // the one that was open before
  std::set<size_t> seen_;         // units that this pass opened: what comes after a pass is not gathered ahead of it
  std::map<std::pair<size_t, size_t>, size_t> next_;  // after two units in a row
};

}  // namespace sherd::detail
