//! A Dockerfile that separates what is done while the image is built and while it runs.

use super::{Launch, notes, quote, reject_line_breaks, variables};
use crate::error::Result;

pub(super) fn write(launch: &Launch) -> Result<String> {
    reject_line_breaks(launch, "a Dockerfile")?;
    let Launch { image, jax, cuda_extra, .. } = launch;
    let lines = variables(launch, "# ", |variable| {
        format!("ENV {}={}", variable.name, quote::dockerfile(&variable.value))
    });
    let version = env!("CARGO_PKG_VERSION");
    let command = serde_json::Value::from(launch.command.clone());
    Ok(format!(
        "\
# syntax=docker/dockerfile:1
FROM {image}

# While the image is built there is no GPU. Nothing here uses one.
ARG JAX_VERSION={jax}
# The wheel of vramfit: a file in this directory, or a URL. No package index has it:
#   docker build --build-arg VRAMFIT=vramfit-{version}-cp311-abi3-manylinux_2_28_x86_64.whl .
ARG VRAMFIT
RUN --mount=type=bind,target=/context cd /context && \\
    pip install --no-cache-dir \"jax[{cuda_extra}]==${{JAX_VERSION}}\" \"${{VRAMFIT:?name its wheel}}\"
WORKDIR /app
COPY . .
# A build step that runs JAX, such as tests, must select the CPU itself:
#   RUN JAX_PLATFORMS=cpu python -m pytest

# While it runs: the NVIDIA Container Toolkit reads the first two.
ENV NVIDIA_VISIBLE_DEVICES=\"all\"
ENV NVIDIA_DRIVER_CAPABILITIES=\"compute,utility\"
{}{lines}
# Without JAX: a second pool next to the program's would take memory from it.
HEALTHCHECK --interval=5m --timeout=2m --start-period=2m \\
    CMD vramfit doctor --require gpu --no-jax

CMD {command}
",
        notes(launch, "# ")
    ))
}
