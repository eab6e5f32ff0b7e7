#include <stdexcept>

#include "sherd/error.h"
#include "storage/http.h"

namespace sherd {

std::shared_ptr<Http> make_http() {
  throw std::runtime_error(ErrorText("s3", "this sherd was built without libcurl")
                               .help("apt-get install libcurl4-openssl-dev, and build again"));
}

}  // namespace sherd
