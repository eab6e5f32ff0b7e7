#include <ATen/record_function.h>

#include "debug/tracker.h"
#include "sherd/comm_debug.h"

namespace sherd {
namespace {

thread_local std::string scope_name;

}  // namespace

const std::string& detail::current_scope() { return scope_name; }

NamedScope::NamedScope(const std::string& name)
    : outer_(scope_name.size()), range_(std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE)) {
  scope_name += (scope_name.empty() ? "" : ".") + name;
  if (range_->isActive()) range_->before(name);
}

NamedScope::~NamedScope() { scope_name.resize(outer_); }

}  // namespace sherd
