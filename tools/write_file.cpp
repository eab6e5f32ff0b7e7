#include "write_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <span>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd::tools {

void refuse_existing(const std::string& verb, const Location& target, const std::string& given, bool force) {
  if (force || !target.storage->exists(target.path)) return;
  throw std::invalid_argument(
      ErrorText(verb, "the target exists").fact("target", given).help("another name, or --force"));
}

void write_file(const Location& target, std::string_view bytes) {
  const auto draft = target.storage->draft(target.path, fmt::format("write-{}", ::getpid()));
  try {
    const auto writer = draft->create(Draft::kItself, static_cast<int64_t>(bytes.size()));
    writer->write(0, std::as_bytes(std::span(bytes)));
    writer->finish();
    draft->commit(Draft::kItself);
  } catch (...) {
    draft->discard();
    throw;
  }
}

}  // namespace sherd::tools
