//! A Dockerfile that keeps apart what is done while the image is built and while it runs.

use super::{Start, notes, quote, refuse_line_breaks, variables};
use crate::error::Result;

pub(super) fn write(start: &Start) -> Result<String> {
    refuse_line_breaks(start, "a Dockerfile")?;
    let Start {
        image,
        jax,
        cuda_extra,
        ..
    } = start;
    let lines = variables(start, "# ", |variable| {
        format!(
            "ENV {}={}",
            variable.name,
            quote::dockerfile(&variable.value)
        )
    });
    let command = serde_json::Value::from(start.command.clone());
    Ok(format!(
        "\
# syntax=docker/dockerfile:1
FROM {image}

# While the image is built there is no card. Nothing here opens one.
ARG JAX_VERSION={jax}
# What pip is to install as vramfit: a name, an address, or a wheel that was copied in before.
ARG VRAMFIT=vramfit
RUN pip install --no-cache-dir \"jax[{cuda_extra}]==${{JAX_VERSION}}\" \"${{VRAMFIT}}\"
WORKDIR /app
COPY . .
# A step of the build that runs JAX, such as tests, stays on the CPU and says so itself:
#   RUN JAX_PLATFORMS=cpu python -m pytest

# While it runs: the NVIDIA Container Toolkit reads the first two.
ENV NVIDIA_VISIBLE_DEVICES=\"all\"
ENV NVIDIA_DRIVER_CAPABILITIES=\"compute,utility\"
{}{lines}
# A check must not take a pool beside the program's: it lets its own grow.
HEALTHCHECK --interval=5m --timeout=2m --start-period=2m \\
    CMD XLA_PYTHON_CLIENT_PREALLOCATE=false vramfit doctor --require gpu

CMD {command}
",
        notes(start, "# ")
    ))
}
