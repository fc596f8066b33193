"""The GPUs are there, and say of themselves what CUDA's client says."""

import jax

devices = jax.devices()
assert len(devices) == 8, devices
first = devices[0]
assert repr(first) == "CudaDevice(id=0)", repr(first)
assert jax.default_backend() == "gpu"
assert (first.platform, first.device_kind) == ("gpu", "NVIDIA H100 80GB HBM3"), first.device_kind
assert first.compute_capability == "9.0", first.compute_capability
kinds = [memory.kind for memory in first.addressable_memories()]
assert kinds == ["device", "pinned_host"], kinds
assert first.default_memory().kind == "device"
assert jax.local_device_count() == jax.device_count() == 8
