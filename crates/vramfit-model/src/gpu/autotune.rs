//! Autotuning results that were recorded on a GPU, made to apply to the catalog's GPU.
//!
//! XLA looks a result up by a description of the GPU that holds its clock, its bandwidth and the
//! version of cuDNN. One digit apart, the result is passed over without a word, so the description
//! is replaced where compute capability and cores say that the GPU is of the same kind. From JAX 0.11
//! on there is a digest of the description in its place, which is kept: that of a recorded H100 is
//! the one that the compiler computes for the catalog's. What the results say about kernels is XLA's
//! business and not read here.

use super::Gpu;
use super::target::CUDNN_VERSION;
use crate::error::{Error, Result};

/// Returns autotuning results in XLA's text form with those of this kind of GPU described as
/// `gpu` is to the compiler. Results of other GPUs stay as they are; the compiler passes them over.
///
/// # Errors
/// [`crate::ErrorKind::InvalidFile`] when the text is none of XLA's, or when all of it is for other GPUs.
pub fn fit_autotune_results(text: &str, gpu: &Gpu) -> Result<String> {
    if !text.contains("version:") {
        return Err(invalid_results_error());
    }
    let mut fitted = String::with_capacity(text.len());
    let mut is_fitted = false;
    let mut other = None;
    let mut rest = text;
    while let Some(at) = rest.find('"') {
        let (before, quoted) = rest.split_at(at);
        let end = closing_quote(quoted).ok_or_else(invalid_results_error)?;
        let value = &quoted[1..end];
        let field = before.trim_end().trim_end_matches(':').trim_end();
        fitted.push_str(before);
        fitted.push('"');
        if !field.ends_with("device") {
            fitted.push_str(value);
        } else if is_digest(value) {
            is_fitted = true;
            fitted.push_str(value);
        } else if let Some(description) = describe(value, gpu) {
            is_fitted = true;
            fitted.push_str(&description);
        } else {
            other.get_or_insert(value);
            fitted.push_str(value);
        }
        fitted.push('"');
        rest = &quoted[end + 1..];
    }
    fitted.push_str(rest);
    match other {
        Some(other) if !is_fitted => Err(Error::invalid_file(format!(
            "the autotuning results are for another GPU than `{}`: {other}",
            gpu.name
        ))
        .hint("record them on a GPU of the same kind")),
        _ => Ok(fitted),
    }
}

fn invalid_results_error() -> Error {
    Error::invalid_file("the file contains no autotuning results in XLA's text format")
    .hint("record them on the GPU with `XLA_FLAGS=--xla_gpu_dump_autotune_results_to=FILE.txt`; the name must end in `.txt`")
}

/// Returns the index of the quote that ends the string which `text` begins with.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().enumerate().skip(1).find_map(|(at, byte)| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends.then_some(at)
    })
}

fn is_digest(description: &str) -> bool {
    description.len() == 16 && description.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Describes the catalog's GPU in the words of a recorded description, which differ between
/// releases; `None` when that is of another kind of GPU.
fn describe(recorded: &str, gpu: &Gpu) -> Option<String> {
    let (major, minor) = gpu.compute_capability;
    let (dnn_major, dnn_minor, dnn_patch) = CUDNN_VERSION;
    let mut is_same = [false; 2];
    let fields = recorded.split(", ").map(|field| {
        let Some((name, value)) = field.split_once(": ") else {
            return field.to_owned();
        };
        let ours = match name {
            "CUDA" => {
                let ours = format!("{major}.{minor}");
                is_same[0] = value == ours;
                ours
            }
            "Cores" => {
                let ours = gpu.core_count.to_string();
                is_same[1] = value == ours;
                ours
            }
            "GPU clock" => format!("{} GHz", six_digits(gpu.clock_ghz)),
            "Memory bandwidth" => {
                let gigabytes = (gpu.bandwidth_bytes_per_s as f64 / 1e9).round();
                format!("{} GB/s", six_digits(gigabytes))
            }
            "L2 cache" => {
                let mebibytes = gpu.l2_bytes as f64 / f64::from(1 << 20);
                format!("{} MB", six_digits(mebibytes))
            }
            "DNN version" => format!("{dnn_major}.{dnn_minor}.{dnn_patch}"),
            _ => value.to_owned(),
        };
        format!("{name}: {ours}")
    });
    let description = fields.collect::<Vec<_>>().join(", ");
    (is_same == [true; 2]).then_some(description)
}

/// Writes a number as XLA does: six digits, without zeros at the end. Those of GPUs are neither
/// so large nor so small that it would take an exponent.
fn six_digits(value: f64) -> String {
    let rounded = format!("{value:.5e}").parse().unwrap_or(value);
    format!("{rounded}")
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;
    use crate::error::ErrorKind;

    /// As the plugin of JAX 0.10.2 looks an H100 up that is described by this crate.
    const OURS: &str = "CUDA: 9.0, Cores: 132, GPU clock: 1.98 GHz, Memory bandwidth: 3352 GB/s, \
                        L2 cache: 50 MB, DNN version: 9.10.0";

    fn results(device: &str) -> String {
        format!(
            "version: 3\nresults {{\n  device: \"{device}\"\n  hlo: \"say \\\"device: \\\\\"\n}}\n"
        )
    }

    #[test]
    fn results_of_the_same_kind_of_gpu_are_made_to_apply() {
        let gpu = find("h100-80g").expect("in the catalog");
        let recorded =
            OURS.replace("1.98", "1.755").replace("3352", "3350").replace("9.10.0", "9.19.0");
        let fitted = fit_autotune_results(&results(&recorded), &gpu).expect("the same kind");
        assert_eq!(fitted, results(OURS));
        let older = "CUDA: 9.0, Cores: 132, GPU clock: 1.7 GHz";
        let fitted = fit_autotune_results(&results(older), &gpu).expect("the same kind");
        assert_eq!(fitted, results("CUDA: 9.0, Cores: 132, GPU clock: 1.98 GHz"));
    }

    #[test]
    fn results_of_other_gpus_alone_are_refused() {
        let gpu = find("h100-80g").expect("in the catalog");
        for other in [
            OURS.replace("Cores: 132", "Cores: 114"),
            OURS.replace("CUDA: 9.0", "CUDA: 8.0"),
            "ROCM: gfx942".to_owned(),
        ] {
            let error = fit_autotune_results(&results(&other), &gpu).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidFile);
            let both = results(&other) + &results(OURS);
            assert_eq!(fit_autotune_results(&both, &gpu).expect("one applies"), both);
        }
    }

    #[test]
    fn results_that_name_the_gpu_by_a_digest_are_kept() {
        let gpu = find("h100-80g").expect("in the catalog");
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/gpu/h100-80g-jax-0.11.2/autotune-results.txtpb"
        );
        let recorded = std::fs::read_to_string(path).expect("recorded");
        assert_eq!(fit_autotune_results(&recorded, &gpu).expect("kept"), recorded);
    }

    #[test]
    fn what_holds_no_results_is_refused() {
        let gpu = find("h100-80g").expect("in the catalog");
        for text in ["", "hello", "version: 3 results { device: \"CUDA"] {
            let error = fit_autotune_results(text, &gpu).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidFile, "{text}");
        }
        assert!(fit_autotune_results("version: 3\n", &gpu).is_ok());
    }
}
