//! A SLURM batch job.

use super::{
    CPUS_PER_PROCESS, HOST_MEMORY_PER_GPU, Launch, comment_lines, notes, quote, variables,
};

pub(super) fn write(launch: &Launch) -> String {
    let lines = variables(launch, "# ", |variable| {
        format!("export {}={}", variable.name, quote::shell(&variable.value))
    });
    let command = quote::command(&launch.command);
    let Shape { resources, check, step } = match launch.hosts {
        None => one_host(launch),
        Some(hosts) => several_hosts(launch, hosts),
    };
    format!(
        "\
#!/bin/bash
#SBATCH --job-name=jax
{resources}#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out

set -euo pipefail

# Memory settings for JAX.
{}{lines}
# A job submitted with --export=NONE passes no environment to its steps by default.
export SLURM_EXPORT_ENV=ALL
# Since SLURM 22.05, `srun` does not take this number from the job.
export SRUN_CPUS_PER_TASK={CPUS_PER_PROCESS}

{check} env XLA_PYTHON_CLIENT_PREALLOCATE=false vramfit doctor --require gpu
{step} {command}
",
        notes(launch, "# ")
    )
}

/// What a job requests, and how its steps begin.
struct Shape {
    resources: String,
    check: String,
    step: String,
}

fn one_host(launch: &Launch) -> Shape {
    Shape {
        resources: format!(
            "\
#SBATCH --nodes=1
# One process for all GPUs of a node, which suits JAX best.
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={}
#SBATCH --cpus-per-task={CPUS_PER_PROCESS}
# Host memory, which also limits what JAX can pin for transfers.
#SBATCH --mem=64G
",
            launch.gpus
        ),
        check: "\
# Check that the GPU is available before the program starts.
srun --ntasks=1"
            .to_owned(),
        step: "srun --export=ALL".to_owned(),
    }
}

/// Returns a job with one process for each GPU: `jax.distributed.initialize()` without arguments
/// gives a task of SLURM one GPU, whatever else it sees.
fn several_hosts(launch: &Launch, hosts: u32) -> Shape {
    let gpus = launch.gpus;
    let mut tasks =
        "One process for each GPU: `jax.distributed.initialize()` takes the GPU with the \
         number that the task has on its node."
            .to_owned();
    if gpus > 1 {
        tasks += &format!(
            " For one process per node set this to 1, --cpus-per-task to {} in both places, and \
             call `jax.distributed.initialize(local_device_ids=range({gpus}))`.",
            gpus * CPUS_PER_PROCESS
        );
    }
    let visible = "Every task sees all GPUs of its node. With --gpus-per-task=1 it would see one, \
         which has number 0 there, and JAX would not find the one that it takes.";
    Shape {
        resources: format!(
            "\
#SBATCH --nodes={hosts}
{}#SBATCH --ntasks-per-node={gpus}
{}#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={CPUS_PER_PROCESS}
# Host memory of a node, which also limits what JAX can pin for transfers.
#SBATCH --mem={}G
",
            comment_lines("# ", &tasks),
            comment_lines("# ", visible),
            gpus * HOST_MEMORY_PER_GPU,
        ),
        check: format!(
            "\
# Check on every node that the GPUs are available before the program starts.
srun --ntasks={hosts} --ntasks-per-node=1"
        ),
        step: "\
# When a process fails, the others would wait for it in the next collective operation.
srun --export=ALL --kill-on-bad-exit=1"
            .to_owned(),
    }
}
