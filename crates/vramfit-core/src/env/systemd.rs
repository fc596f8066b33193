//! A service of systemd.

use super::{Start, notes, quote, variables};

pub(super) fn write(start: &Start) -> String {
    let lines = variables(start, "# ", |variable| {
        let assignment = format!("{}={}", variable.name, variable.value);
        format!("Environment={}", quote::systemd(&assignment))
    });
    // systemd looks for a program in its own path and wants no relative one.
    let mut command = vec!["/usr/bin/env".to_owned()];
    command.extend_from_slice(&start.command);
    format!(
        "\
# Settings for JAX's memory in a service: /etc/systemd/system/jax-program.service, then
# `systemctl daemon-reload && systemctl start jax-program`.
{}[Unit]
Description=A JAX program

[Service]
Type=exec
WorkingDirectory=/srv/jax-program
{lines}
# The service does not start where JAX cannot have the card. The check lets its pool grow.
ExecStartPre=/usr/bin/env XLA_PYTHON_CLIENT_PREALLOCATE=false vramfit doctor --require gpu
ExecStart={}
# A program that ran out of memory does so again.
Restart=no

[Install]
WantedBy=multi-user.target
",
        notes(start, "# "),
        quote::systemd_command(&command)
    )
}
