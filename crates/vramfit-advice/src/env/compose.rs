//! A service of Docker Compose, with its GPUs reserved.

use super::{Launch, notes, quote, variables};

pub(super) fn write(launch: &Launch) -> String {
    let lines = variables(launch, "      # ", |variable| {
        format!("      {}: {}", variable.name, quote::yaml_template(&variable.value))
    });
    let environment = match launch.variables.is_empty() {
        true => "    environment: {}\n".to_owned(),
        false => format!("    environment:\n{lines}"),
    };
    format!(
        "\
# Memory settings for JAX: `docker compose up`. The image is built from a Dockerfile;
# `vramfit env dockerfile` prints one. Values here take precedence over those of the image.
{}services:
  train:
    build:
      context: .
      args:
        # A file in this directory, or a URL; no package index has it.
        VRAMFIT: \"${{VRAMFIT:?name the wheel of vramfit}}\"
    command: [{}]
{environment}    # The GPUs. Without this block the container has none, and JAX computes on the CPU.
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: {}
              capabilities: [gpu]
    # Batches passed between processes are in shared memory; Docker's default is 64 MB.
    shm_size: 8gb
    # Without JAX: a second pool next to the program's would take memory from it.
    healthcheck:
      test: [CMD-SHELL, vramfit doctor --require gpu --no-jax]
      interval: 5m
      timeout: 2m
      start_period: 2m
",
        notes(launch, "# "),
        quote::yaml_template_list(&launch.command),
        launch.gpus
    )
}
