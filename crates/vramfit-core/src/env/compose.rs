//! A service of Docker Compose, with its cards reserved.

use super::{Start, notes, quote, variables};

pub(super) fn write(start: &Start) -> String {
    let lines = variables(start, "      # ", |variable| {
        format!(
            "      {}: {}",
            variable.name,
            quote::compose(&variable.value)
        )
    });
    let command: Vec<_> = start
        .command
        .iter()
        .map(|word| quote::compose(word))
        .collect();
    let environment = match start.variables.is_empty() {
        true => "    environment: {}\n".to_owned(),
        false => format!("    environment:\n{lines}"),
    };
    format!(
        "\
# Settings for JAX's memory: `docker compose up`. The image is built from a Dockerfile;
# `vramfit env dockerfile` prints one. What stands here wins over what the image sets.
{}services:
  train:
    build: .
    command: [{}]
{environment}    # The cards. Without this block the container has none, and JAX computes on the CPU.
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: {}
              capabilities: [gpu]
    # Batches handed between processes lie in shared memory; Docker gives 64 MB unless told.
    shm_size: 8gb
    # A check must not take a pool beside the program's: it lets its own grow.
    healthcheck:
      test: [CMD-SHELL, XLA_PYTHON_CLIENT_PREALLOCATE=false vramfit doctor --require gpu]
      interval: 5m
      timeout: 2m
      start_period: 2m
",
        notes(start, "# "),
        command.join(", "),
        start.gpus
    )
}
