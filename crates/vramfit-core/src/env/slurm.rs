//! A batch job of SLURM.

use super::{Start, notes, quote, variables};

pub(super) fn write(start: &Start) -> String {
    let lines = variables(start, "# ", |variable| {
        format!("export {}={}", variable.name, quote::shell(&variable.value))
    });
    let Start { gpus, command, .. } = start;
    let command = quote::command(command);
    format!(
        "\
#!/bin/bash
#SBATCH --job-name=jax
#SBATCH --nodes=1
# One process for all cards of a node, as JAX likes it best.
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task=8
# Host memory, which also bounds what JAX can pin for transfers.
#SBATCH --mem=64G
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out

set -euo pipefail

# Settings for JAX's memory.
{}{lines}
# A job submitted with --export=NONE hands nothing on to its steps unless it is told to.
export SLURM_EXPORT_ENV=ALL

# The first step says whether the card can be had, before hours are waited for nothing.
srun --ntasks=1 env XLA_PYTHON_CLIENT_PREALLOCATE=false vramfit doctor --require gpu
srun --export=ALL {command}
",
        notes(start, "# ")
    )
}
