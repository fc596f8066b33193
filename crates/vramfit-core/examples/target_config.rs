//! Prints the description of a card that XLA takes: `cargo run --example target_config h100-80g`.
//! Without a name it lists the names of all cards. `tests/test_gpu_targets.py` compiles for each.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

fn main() -> vramfit_core::Result<()> {
    match std::env::args().nth(1) {
        Some(name) => {
            print!("{}", vramfit_core::gpu::target_config_text(&vramfit_core::gpu::find(&name)?));
        }
        None => vramfit_core::gpu::all().iter().for_each(|gpu| println!("{}", gpu.name)),
    }
    Ok(())
}
