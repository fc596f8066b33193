//! A systemd service.

use super::{Launch, notes, quote, variables};

pub(super) fn write(launch: &Launch) -> String {
    let lines = variables(launch, "# ", |variable| {
        let assignment = format!("{}={}", variable.name, variable.value);
        format!("Environment={}", quote::systemd(&assignment))
    });
    // systemd searches its own path and rejects relative paths.
    let mut command = vec!["/usr/bin/env".to_owned()];
    command.extend_from_slice(&launch.command);
    format!(
        "\
# Memory settings for JAX in a service: /etc/systemd/system/jax-program.service, then
# `systemctl daemon-reload && systemctl start jax-program`.
{}[Unit]
Description=A JAX program

[Service]
Type=exec
WorkingDirectory=/srv/jax-program
{lines}
# The service does not start if JAX cannot use the GPU. The check does not preallocate a pool.
ExecStartPre=/usr/bin/env XLA_PYTHON_CLIENT_PREALLOCATE=false vramfit doctor --require gpu
ExecStart={}
# A program that ran out of memory would do so again.
Restart=no

[Install]
WantedBy=multi-user.target
",
        notes(launch, "# "),
        quote::systemd_command(&command)
    )
}
