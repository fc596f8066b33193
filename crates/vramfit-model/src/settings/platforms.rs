//! Which backends JAX may make, and the one recommendation about it.
//!
//! Every command that sets, checks or explains `JAX_PLATFORMS` and `JAX_PLATFORM_NAME` asks here, so that
//! no two of them say different things.

/// The list of backends that JAX may make.
pub const PLATFORMS: &str = "JAX_PLATFORMS";

/// The deprecated name of the default backend.
pub const PLATFORM_NAME: &str = "JAX_PLATFORM_NAME";

/// Both variables with the values that make a GPU that cannot be had an error.
///
/// [`PLATFORMS`] alone is not enough: since 0.4.32 JAX skips `cuda` in a list such as `cuda,cpu` without a
/// word where no device file of NVIDIA's is visible, as in a container that was started without GPUs.
/// `cuda` alone would be an error then, but leave no CPU device to programs that need one. The
/// deprecated [`PLATFORM_NAME`] is still read, and closes the gap. Alone it hides why a GPU cannot be
/// had; the list says why.
pub const GPU_REQUIRED: [(&str, &str); 2] = [(PLATFORMS, "cuda,cpu"), (PLATFORM_NAME, "cuda")];

/// Returns `true` if the first backend of a list is an NVIDIA GPU, so that JAX computes there by default. JAX
/// knows backends in lower case only, but lowers [`PLATFORM_NAME`] itself.
pub fn prefers_gpu(list: &str) -> bool {
    list.split(',').next().is_some_and(is_gpu)
}

/// Returns `true` if a list has an NVIDIA GPU at any place.
pub fn allows_gpu(list: &str) -> bool {
    list.split(',').any(is_gpu)
}

/// Returns `true` if a backend's name is that of an NVIDIA GPU.
fn is_gpu(name: &str) -> bool {
    matches!(name.trim(), "cuda" | "gpu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_found_by_either_of_its_names() {
        for (list, prefers, allows) in [
            ("cuda,cpu", true, true),
            ("gpu", true, true),
            (" cuda , cpu", true, true),
            ("cpu,cuda", false, true),
            ("cpu", false, false),
            ("", false, false),
            ("rocm,cpu", false, false),
            ("CUDA", false, false),
        ] {
            assert_eq!((prefers_gpu(list), allows_gpu(list)), (prefers, allows), "{list}");
        }
        for (name, value) in GPU_REQUIRED {
            assert!(prefers_gpu(value), "{name}={value}");
        }
    }
}
