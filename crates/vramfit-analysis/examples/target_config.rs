//! Prints the description of a GPU that XLA takes: `cargo run --example target_config h100-80g`.
//! Without a name, one JSON object with the description of every GPU and the CUDA releases that
//! can compile for it; `tests/test_gpu_targets.py` compiles a program for each.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

use vramfit_model::gpu::{all, find, target_config_text};

fn main() -> vramfit_analysis::Result<()> {
    if let Some(name) = std::env::args().nth(1) {
        print!("{}", target_config_text(&find(&name)?));
        return Ok(());
    }
    let targets: serde_json::Map<_, _> = all()
        .iter()
        .map(|gpu| {
            let target = serde_json::json!({
                "target_config": target_config_text(gpu),
                "supports_cuda_12": gpu.supports_cuda(12),
                "supports_cuda_13": gpu.supports_cuda(13),
            });
            (gpu.name.clone(), target)
        })
        .collect();
    println!("{}", serde_json::Value::Object(targets));
    Ok(())
}
