#include "tensor/meta.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

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

// Memory for the block that torch hangs on a tensor with a BackendMeta: used again, as that of the tensor is.
struct ExtraBlock : Pooled<ExtraBlock> {
  alignas(c10::ExtraMeta) char memory[sizeof(c10::ExtraMeta)];  // NOLINT: only its size counts
};

// An ordinary TensorImpl but for where its memory comes from and how it gets its sizes.
class DTensorImpl final : public c10::TensorImpl, public Pooled<DTensorImpl> {
 public:
  using TensorImpl::TensorImpl;
  ~DTensorImpl() override {
    if (!extra_meta_) return;
    c10::ExtraMeta* extra = extra_meta_.release();
    extra->~ExtraMeta();
    ExtraBlock::operator delete(extra, sizeof(ExtraBlock));
  }
  DTensorImpl(const DTensorImpl&) = delete;
  DTensorImpl& operator=(const DTensorImpl&) = delete;

  void take_meta(c10::intrusive_ptr<TensorMeta> meta) {
    extra_meta_.reset(new (ExtraBlock::operator new(sizeof(ExtraBlock))) c10::ExtraMeta());
    extra_meta_->backend_meta_ = std::move(meta);
  }

  // Sizes, strides, and what follows from them.
  void take_form(const DTensorImpl& form) {
    sizes_and_strides_ = form.sizes_and_strides_;
    numel_ = form.numel_;
    is_contiguous_ = form.is_contiguous_;
    is_channels_last_ = form.is_channels_last_;
    is_channels_last_contiguous_ = form.is_channels_last_contiguous_;
    is_channels_last_3d_ = form.is_channels_last_3d_;
    is_channels_last_3d_contiguous_ = form.is_channels_last_3d_contiguous_;
    is_non_overlapping_and_dense_ = form.is_non_overlapping_and_dense_;
  }
};

// Forms of the specs that a thread made tensors of last: to find out again what follows from sizes and strides takes
// longer than to copy it.
struct Forms {
  struct Form {
    SpecPtr spec;
    c10::intrusive_ptr<DTensorImpl> impl;
  };
  static constexpr size_t kBits = 8;
  std::array<Form, size_t{1} << kBits> known;

  Forms() = default;
  Forms(const Forms&) = delete;
  Forms& operator=(const Forms&) = delete;
  ~Forms();
};
[[gnu::tls_model("initial-exec")]] thread_local Forms* forms = nullptr;

Forms::~Forms() { forms = nullptr; }

[[gnu::noinline]] const DTensorImpl& make_form(const SpecPtr& spec, size_t slot) {
  // On the heap: little room is left for a thread's own data where a running program loads the library.
  thread_local const auto all = std::make_unique<Forms>();
  forms = all.get();
  auto impl = c10::make_intrusive<DTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::CPU),
                                               caffe2::TypeMeta::Make<uint8_t>(), c10::Device(c10::kMeta));
  impl->set_sizes_and_strides(spec->sizes, spec->strides);
  all->known[slot] = {spec, std::move(impl)};
  return *all->known[slot].impl;
}

const DTensorImpl& form_of(const SpecPtr& spec) {
  const uint64_t address = reinterpret_cast<uint64_t>(spec.get());
  const size_t slot = (address * 0x9E3779B97F4A7C15ULL) >> (64 - Forms::kBits);
  if (forms != nullptr && forms->known[slot].spec == spec) return *forms->known[slot].impl;
  return make_form(spec, slot);
}

// All keys of an ordinary tensor of ours; torch would put those of autograd together for each anew.
c10::DispatchKeySet keys_for(c10::Device device) {
  return c10::DispatchKeySet(kKey) | c10::DispatchKeySet(dense_key(device)) |
         c10::DispatchKeySet(autocast_key(device)) |
         c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::PrivateUse2Bit);
}
const c10::DispatchKeySet kCpuKeys = keys_for(c10::kCPU);
const c10::DispatchKeySet kCudaKeys = keys_for(c10::kCUDA);

c10::intrusive_ptr<DTensorImpl> make_impl(caffe2::TypeMeta dtype, c10::Device device, bool is_inference) {
  c10::DispatchKeySet keys = device.is_cuda() ? kCudaKeys : kCpuKeys;
  if (is_inference) keys = keys - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  // The constructor for views takes the keys as they are.
  return c10::make_intrusive<DTensorImpl>(c10::TensorImpl::VIEW, c10::Storage(storage_for(device)), keys, dtype);
}

}  // namespace

void wrote_locals(c10::ArrayRef<DTensorMeta*> metas) {
  const auto is_copy = [](const DTensorMeta* meta) { return meta->origin != nullptr; };
  if (metas.size() < 2 || std::none_of(metas.begin(), metas.end(), is_copy)) {
    for (DTensorMeta* meta : metas) wrote_local(*meta);
    return;
  }
  std::vector<std::pair<DTensorMeta*, at::Tensor>> copies;
  for (DTensorMeta* meta : metas) {
    if (is_copy(meta)) {
      copies.emplace_back(meta, meta->local.clone());
    } else {
      wrote_local(*meta);
    }
  }
  for (const auto& [meta, value] : copies) {
    refresh(*meta->origin);  // with what the others wrote
    meta->local.copy_(value);
    wrote_local(*meta);
  }
}

at::Tensor wrap(SpecPtr spec, at::Tensor local) {
  // A parameter that rests in the host's memory and is brought to the mesh's device for use is a tensor of that device.
  const bool rests = spec->gathers != 0 && local.is_cpu();
  const c10::Device device = rests ? spec->mesh.device() : local.device();
  // In inference mode a view of an ordinary tensor is an ordinary tensor: as the local one is.
  const bool is_inference = local.is_inference() && c10::InferenceMode::is_enabled();
  auto impl = make_impl(local.dtype(), device, is_inference);
  impl->take_form(form_of(spec));
  impl->take_meta(c10::make_intrusive<DTensorMeta>(std::move(spec), std::move(local)));
  return at::Tensor(std::move(impl));
}

at::Tensor wrap_meta(c10::intrusive_ptr<TensorMeta> meta, at::IntArrayRef sizes, at::IntArrayRef strides,
                     caffe2::TypeMeta dtype, c10::Device device) {
  auto impl = make_impl(dtype, device, c10::InferenceMode::is_enabled());
  impl->set_sizes_and_strides(sizes, strides);
  impl->take_meta(std::move(meta));
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
