//! Checks, before the program starts, that its Python has what a dry run needs.
//!
//! Where something is missing, JAX usually falls back to the CPU, or fails with an error that does not
//! name the package. Each error here names the one thing to install.

use vramfit_base::{Error, ErrorKind, Result};
use vramfit_model::gpu::Gpu;

use crate::python::{Installed, Interpreter, MIN_PYTHON};

/// Rejects an interpreter in which the program could not use the virtual GPU.
///
/// # Errors
/// `compiler-missing` for what is not installed, `gpu-not-used` when the virtual GPU's modules are not found.
pub fn check(interpreter: &Interpreter, installed: &Installed, gpu: &Gpu) -> Result<()> {
    let python = interpreter.program.display();
    let missing = |message: String| Error::new(ErrorKind::CompilerMissing, message);
    let pip = |packages: &str| format!("`{python} -m pip install {packages}`");

    if installed.python_version < MIN_PYTHON {
        let version = &installed.python;
        return Err(missing(format!(
            "`{python}` is Python {version}; a dry run needs 3.11 or newer"
        ))
        .hint("create an environment with a newer Python and install JAX there"));
    }
    if !installed.reads_pythonpath {
        let options: Vec<_> =
            interpreter.options.iter().map(|text| text.to_string_lossy()).collect();
        return Err(Error::new(
            ErrorKind::GpuNotUsed,
            format!("`{python} {}` does not read `PYTHONPATH`", options.join(" ")),
        )
        .hint("omit `-I` and `-E`: the virtual GPU is found through `PYTHONPATH`"));
    }
    let cuda = recommended_cuda(gpu);
    let Some(jax) = &installed.jax else {
        return Err(missing(format!("`{python}` has no `jax`")).hint(format!(
            "name the Python that has it, or install it: {}",
            pip(&format!("'jax[cuda{cuda}-local]' {}", cuda_tools(cuda)))
        )));
    };
    let Some(jaxlib) = &installed.jaxlib else {
        return Err(missing(format!("`{python}` has `jax` {jax} but no `jaxlib`"))
            .hint(pip(&format!("'jax[cuda13-local]=={jax}'"))));
    };
    // JAX takes the plugin for CUDA 13 where both are installed.
    let Some(plugin) = installed.plugins.iter().find(|plugin| gpu.supports_cuda(plugin.cuda))
    else {
        let need = pip(&format!("'jax-cuda{cuda}-plugin=={jaxlib}' {}", cuda_tools(cuda)));
        return Err(match installed.plugins.first() {
            None => missing(format!("`{python}` has JAX {jax} but no CUDA plugin")).hint(need),
            Some(other) => missing(format!(
                "the compiler of CUDA {} does not support `{}`",
                other.cuda, gpu.name
            ))
            .hint(need),
        });
    };
    let cuda = plugin.cuda;
    if !plugin.library {
        return Err(missing(format!("`jax-cuda{cuda}-plugin` is installed without its compiler"))
            .hint(pip(&format!("'jax-cuda{cuda}-pjrt=={jaxlib}'"))));
    }
    if let Some(version) = plugin.version.as_ref().filter(|version| *version != jaxlib) {
        return Err(missing(format!(
            "`jax-cuda{cuda}-plugin` {version} does not match `jaxlib` {jaxlib}, so JAX will not load it"
        ))
        .hint(pip(&format!("'jax-cuda{cuda}-plugin=={jaxlib}'"))));
    }
    let tool = match (&installed.ptxas, &installed.libdevice) {
        (None, _) => Some("ptxas"),
        (_, None) => Some("libdevice.10.bc"),
        _ => None,
    };
    if let Some(tool) = tool {
        return Err(missing(format!(
            "XLA needs `{tool}` to compile for a GPU, and will not find it"
        ))
        .hint(pip(cuda_tools(cuda))));
    }
    Ok(())
}

/// The major version of CUDA to recommend for a GPU.
fn recommended_cuda(gpu: &Gpu) -> u32 {
    if gpu.supports_cuda(13) { 13 } else { 12 }
}

/// The wheels that hold `ptxas` and `libdevice`.
fn cuda_tools(cuda: u32) -> &'static str {
    if cuda == 12 {
        "nvidia-cuda-nvcc-cu12"
    } else {
        "'nvidia-cuda-nvcc>=13,<14' 'nvidia-nvvm>=13,<14'"
    }
}

#[cfg(test)]
mod tests {
    use vramfit_model::gpu;

    use super::*;
    use crate::python::CudaPlugin;

    fn complete() -> Installed {
        Installed {
            tensorflow: None,
            torch: None,
            python: "3.11.7".into(),
            python_version: (3, 11),
            package: None,
            reads_pythonpath: true,
            jax: Some("0.10.2".into()),
            jaxlib: Some("0.10.2".into()),
            plugins: vec![CudaPlugin { cuda: 13, version: Some("0.10.2".into()), library: true }],
            ptxas: Some("/n/bin/ptxas".into()),
            libdevice: Some("/n/nvvm/libdevice/libdevice.10.bc".into()),
        }
    }

    fn check_error(name: &str, edit: impl FnOnce(&mut Installed)) -> Error {
        let mut installed = complete();
        edit(&mut installed);
        let interpreter = Interpreter { program: "python".into(), options: vec!["-I".into()] };
        check(&interpreter, &installed, &gpu::find(name).expect("known")).unwrap_err()
    }

    #[test]
    fn a_complete_environment_is_accepted() {
        let gpu = gpu::find("h100-80g").expect("known");
        check(&Interpreter::bare("python".into()), &complete(), &gpu).expect("complete");
    }

    #[test]
    fn each_missing_part_is_named_with_the_package_to_install() {
        type Edit = fn(&mut Installed);
        let cases: [(Edit, &str, &str); 7] = [
            (|i| i.jax = None, "has no `jax`", "'jax[cuda13-local]' 'nvidia-cuda-nvcc"),
            (|i| i.jaxlib = None, "no `jaxlib`", "jax[cuda13-local]==0.10.2"),
            (|i| i.plugins.clear(), "no CUDA plugin", "jax-cuda13-plugin==0.10.2"),
            (|i| i.plugins[0].library = false, "without its compiler", "jax-cuda13-pjrt==0.10.2"),
            (
                |i| i.plugins[0].version = Some("0.9.2".into()),
                "0.9.2 does not match `jaxlib` 0.10.2",
                "jax-cuda13-plugin==0.10.2",
            ),
            (|i| i.ptxas = None, "`ptxas`", "nvidia-cuda-nvcc"),
            (|i| i.libdevice = None, "`libdevice.10.bc`", "nvidia-nvvm"),
        ];
        for (edit, message, hint) in cases {
            let error = check_error("h100-80g", edit);
            assert_eq!(error.kind(), ErrorKind::CompilerMissing, "{message}");
            assert!(error.message().contains(message), "{} lacks {message}", error.message());
            let text = error.hint_text().expect("every error has a hint");
            assert!(text.contains(hint), "{text} lacks {hint}");
        }
    }

    #[test]
    fn an_old_python_and_an_isolated_one_are_rejected() {
        let old = check_error("h100-80g", |i| i.python_version = (3, 10));
        assert_eq!(old.kind(), ErrorKind::CompilerMissing);
        let isolated = check_error("h100-80g", |i| i.reads_pythonpath = false);
        assert_eq!(isolated.kind(), ErrorKind::GpuNotUsed);
        assert!(isolated.message().contains("`python -I`"), "{isolated}");
    }

    #[test]
    fn a_gpu_that_cuda_13_has_dropped_needs_the_plugin_for_cuda_12() {
        let error = check_error("v100-16g", |_| {});
        let message = "CUDA 13 does not support `v100-16g`";
        assert!(error.message().contains(message), "{error}");
        let hint = error.hint_text().expect("there is a fix");
        for package in ["jax-cuda12-plugin==0.10.2", "nvcc-cu12"] {
            assert!(hint.contains(package), "{hint}");
        }
    }
}
