//! The board for Prometheus: its text format 0.0.4. It is served by [`super::server`].

use std::fmt::Write as _;

use super::snapshot::{GpuRow, ProcessRow, Reading, Snapshot};

type GpuMetric = (&'static str, &'static str, fn(&GpuRow) -> Option<f64>);
type ProcessMetric = (&'static str, &'static str, fn(&ProcessRow) -> Option<f64>);

const GPU_METRICS: &[GpuMetric] = &[
    ("vramfit_gpu_memory_total_bytes", "Total memory of the GPU.", |gpu| number(&gpu.total)),
    (
        "vramfit_gpu_memory_used_bytes",
        "Memory used by processes, as reported by the driver.",
        |gpu| number(&gpu.used),
    ),
    (
        "vramfit_gpu_utilization_ratio",
        "Fraction of time during which a kernel was running.",
        |gpu| gpu.utilization_percent.map(|percent| f64::from(percent) / 100.0),
    ),
    ("vramfit_gpu_temperature_celsius", "Temperature of the GPU.", |gpu| {
        gpu.temperature_c.map(f64::from)
    }),
    ("vramfit_gpu_power_watts", "Power draw of the GPU.", |gpu| {
        gpu.power_mw.map(|milliwatts| f64::from(milliwatts) / 1000.0)
    }),
];

const PROCESS_METRICS: &[ProcessMetric] = &[
    (
        "vramfit_process_driver_bytes",
        "GPU memory used by the process, as reported by the driver.",
        |row| number(&row.driver),
    ),
    (
        "vramfit_pool_reserved_bytes",
        "Memory that JAX's pool has reserved from the driver.",
        |row| number(&row.reserved),
    ),
    ("vramfit_pool_in_use_bytes", "Memory of the pool that is in use.", |row| number(&row.in_use)),
    ("vramfit_pool_peak_bytes", "Peak memory in use since the process started.", |row| {
        number(&row.peak)
    }),
    ("vramfit_pool_largest_free_bytes", "Largest free block of the pool.", |row| {
        number(&row.largest_free)
    }),
    ("vramfit_pool_limit_bytes", "Maximum size of the pool.", |row| number(&row.limit)),
    ("vramfit_pool_allocations_total", "Allocations that the pool has served.", |row| {
        row.pool.as_ref()?.allocations.map(|count| count as f64)
    }),
    (
        "vramfit_pool_stale",
        "1 if the statistics of the pool are older than two intervals.",
        |row| row.liveness.map(|liveness| f64::from(u8::from(liveness.is_stale()))),
    ),
];

fn number(reading: &Reading) -> Option<f64> {
    reading.bytes().map(|bytes| bytes as f64)
}

/// Writes all families; a figure that is not known has no line.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let has_driver = u8::from(snapshot.no_driver.is_none());
    family(&mut out, "vramfit_driver_up", "1 if the NVIDIA driver is available.");
    let _ = writeln!(out, "vramfit_driver_up {has_driver}");
    for (name, help, value) in GPU_METRICS {
        family(&mut out, name, help);
        for (position, gpu) in snapshot.gpus.iter().enumerate() {
            if let Some(value) = value(gpu) {
                let _ = writeln!(out, "{name}{{{}}} {value}", gpu_labels(position, gpu));
            }
        }
    }
    for (name, help, value) in PROCESS_METRICS {
        family(&mut out, name, help);
        for (position, gpu) in snapshot.gpus.iter().enumerate() {
            for row in &gpu.processes {
                if let Some(value) = value(row) {
                    let labels = gpu_labels(position, gpu);
                    let _ = writeln!(out, "{name}{{{labels},{}}} {value}", process_labels(row));
                }
            }
        }
    }
    out
}

/// Writes the head of a family. By the convention of Prometheus, the names of counters end in `_total`.
fn family(out: &mut String, name: &str, help: &str) {
    let kind = match name.ends_with("_total") {
        true => "counter",
        false => "gauge",
    };
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn gpu_labels(position: usize, gpu: &GpuRow) -> String {
    format!(
        "gpu=\"{position}\",label=\"{}\",name=\"{}\",uuid=\"{}\",virtual=\"{}\"",
        escape(&gpu.label),
        escape(&gpu.name),
        escape(gpu.uuid.as_deref().unwrap_or("")),
        u8::from(gpu.is_virtual)
    )
}

/// The command is not a label: it would make a new series of every run.
fn process_labels(row: &ProcessRow) -> String {
    let device = row.pool.as_ref().map_or_else(String::new, |pool| pool.device_id.to_string());
    format!(
        "pid=\"{}\",device=\"{device}\",user=\"{}\",container=\"{}\"",
        row.pid,
        escape(row.user.as_deref().unwrap_or("")),
        escape(row.container.as_deref().unwrap_or(""))
    )
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_has_no_line_and_labels_are_escaped() {
        let snapshot = Snapshot {
            gpus: vec![GpuRow {
                label: "GPU 0".to_owned(),
                name: "a \"GPU\"\\".to_owned(),
                total: Reading::Bytes(16 << 30),
                processes: vec![ProcessRow {
                    pid: 7,
                    in_use: Reading::Bytes(3),
                    ..ProcessRow::default()
                }],
                ..GpuRow::default()
            }],
            ..Snapshot::default()
        };
        let text = text(&snapshot);
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(lines("vramfit_gpu_memory_total_bytes{"), 1);
        assert_eq!(lines("vramfit_gpu_memory_used_bytes{"), 0);
        assert_eq!(lines("vramfit_pool_in_use_bytes{"), 1);
        assert_eq!(lines("vramfit_process_driver_bytes{"), 0);
        assert!(text.contains(r#"name="a \"GPU\"\\""#), "{text}");
        assert!(text.contains("} 17179869184\n"), "{text}");
    }
}
