#include "tensor/meta.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>

#include <deque>

#include "comm/call.h"
#include "comm/errors.h"

namespace sherd::detail {
namespace {

c10::Storage make_storage(c10::Device device) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, device), nullptr, false);
  storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "data_ptr: this tensor is distributed, its data is in pieces on several ranks\n"
      "  help: sherd::to_local(tensor) for this rank's part, sherd::full_tensor(tensor) for all of it");
  return storage;
}

// One empty storage per thread and device: reading its pointer says what to call instead. Rank threads have their own,
// for they would all count the references of one.
struct Storages {
  std::deque<std::pair<c10::Device, c10::Storage>> known;
  const c10::Storage* last = nullptr;  // of the device asked for last
  c10::Device last_device{c10::kMeta};

  Storages() = default;
  Storages(const Storages&) = delete;
  Storages& operator=(const Storages&) = delete;
  ~Storages();
};
[[gnu::tls_model("initial-exec")]] thread_local Storages* storages = nullptr;

Storages::~Storages() { storages = nullptr; }

const c10::Storage& find_storage(c10::Device device) {
  thread_local Storages all;
  storages = &all;
  for (const auto& [where, storage] : all.known) {
    if (where != device) continue;
    all.last = &storage;
    all.last_device = device;
    return storage;
  }
  all.known.emplace_back(device, make_storage(device));
  return find_storage(device);
}

const c10::Storage& storage_for(c10::Device device) {
  if (storages != nullptr && storages->last_device == device) return *storages->last;
  return find_storage(device);
}

c10::DispatchKey dense_key(c10::Device device) {
  return device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
}

c10::DispatchKey autocast_key(c10::Device device) {
  return device.is_cuda() ? c10::DispatchKey::AutocastCUDA : c10::DispatchKey::AutocastCPU;
}

// An ordinary TensorImpl but for where its memory comes from.
class DTensorImpl final : public c10::TensorImpl, public Pooled<DTensorImpl> {
 public:
  using TensorImpl::TensorImpl;
};

}  // namespace

at::Tensor wrap(SpecPtr spec, at::Tensor local) {
  // In inference mode a view of an ordinary tensor is an ordinary tensor: as the local one is.
  std::optional<c10::InferenceMode> ordinary;
  if (c10::InferenceMode::is_enabled() && !local.is_inference()) ordinary.emplace(false);
  const Spec& what = *spec;
  // A parameter that rests in the host's memory and is brought to the mesh's device for use is a tensor of that device.
  const bool rests = what.gathers != 0 && local.is_cpu();
  const c10::Device device = rests ? what.mesh.device() : local.device();
  const caffe2::TypeMeta dtype = local.dtype();
  return wrap_meta(c10::make_intrusive<DTensorMeta>(std::move(spec), std::move(local)), what.sizes, what.strides, dtype,
                   device);
}

at::Tensor wrap_meta(c10::intrusive_ptr<TensorMeta> meta, at::IntArrayRef sizes, at::IntArrayRef strides,
                     caffe2::TypeMeta dtype, c10::Device device) {
  const c10::DispatchKeySet keys =
      c10::DispatchKeySet(kKey) | c10::DispatchKeySet(dense_key(device)) | c10::DispatchKeySet(autocast_key(device));
  auto impl = c10::make_intrusive<DTensorImpl>(c10::Storage(storage_for(device)), keys, dtype);
  impl->set_sizes_and_strides(sizes, strides);
  impl->set_backend_meta(std::move(meta));
  return at::Tensor(std::move(impl));
}

SpecPtr spec_for(const DeviceMesh& mesh, const Placements& placements, const Dims& sizes, const at::Tensor& local) {
  const bool fits = local.dim() == static_cast<int64_t>(sizes.size());
  return intern_spec(mesh, placements, sizes,
                     fits ? strides_like(sizes, local.sizes(), local.strides()) : contiguous_strides(sizes));
}

DTensorMeta& require_dtensor(const char* operation, const at::Tensor& tensor) {
  if (DTensorMeta* meta = meta_of(tensor)) return *meta;
  throw_value_error(ErrorText(operation, "the tensor is not distributed")
                        .fact("tensor", tensor.defined()
                                            ? dtype_name(tensor.scalar_type()) + sherd::to_string(tensor.sizes().vec())
                                            : "undefined")
                        .help("sherd::distribute_tensor(tensor, mesh, {sherd::Shard(0)})"));
}

void require_dense(const char* operation, const at::Tensor& tensor) {
  struct Kind {
    const char* name;
    const char* help;
  };
  const auto kind = [&]() -> Kind {
    if (!tensor.defined()) return {"undefined", "pass a tensor that was made: torch::zeros({4, 6})"};
    if (tensor.is_nested()) return {"nested", "tensor.to_padded_tensor(0)"};
    if (tensor.layout() != c10::kStrided) return {"sparse", "tensor.to_dense()"};
    if (tensor.is_quantized()) return {"quantized", "tensor.dequantize()"};
    return {nullptr, nullptr};
  }();
  if (kind.name == nullptr) return;
  ErrorText text(operation, std::string(kind.name) + " tensors cannot be distributed");
  if (tensor.defined()) text.fact("tensor", c10::str(tensor.dtype().name(), ", layout ", tensor.layout()));
  throw c10::NotImplementedError(text.help(kind.help).str());
}

std::string describe(const Spec& spec, c10::ScalarType dtype) {
  const TensorText text{dtype_name(dtype), spec.sizes, spec.placements};
  return to_string(text, spec.mesh.mesh()) + " on " + to_string(spec.mesh.mesh()) + (spec.boxes ? " in boxes" : "");
}

}  // namespace sherd::detail
