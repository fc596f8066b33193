//! A SLURM batch job.

use super::{Launch, notes, quote, variables};

pub(super) fn write(launch: &Launch) -> String {
    let lines = variables(launch, "# ", |variable| {
        format!("export {}={}", variable.name, quote::shell(&variable.value))
    });
    let Launch { gpus, command, .. } = launch;
    let command = quote::command(command);
    format!(
        "\
#!/bin/bash
#SBATCH --job-name=jax
#SBATCH --nodes=1
# One process for all GPUs of a node, which suits JAX best.
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task=8
# Host memory, which also limits what JAX can pin for transfers.
#SBATCH --mem=64G
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out

set -euo pipefail

# Memory settings for JAX.
{}{lines}
# A job submitted with --export=NONE passes no environment to its steps by default.
export SLURM_EXPORT_ENV=ALL

# Check that the GPU is available before the program starts.
srun --ntasks=1 env XLA_PYTHON_CLIENT_PREALLOCATE=false vramfit doctor --require gpu
srun --export=ALL {command}
",
        notes(launch, "# ")
    )
}
