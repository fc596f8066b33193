//! Samples all GPUs of the host, once or every second.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use nvml_wrapper::{Device, Nvml};
use vramfit_model::host::{Host, HostGpu, Mig};

use crate::device::{self, MigInstance};
use crate::nvml::{self, UnavailableReadings, reason};
use crate::{DriverUnavailable, processes};

/// How often the expensive queries are made. A list of processes keeps the driver busy for milliseconds,
/// during which all other callers wait.
const SLOW_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// A session with NVML that caches what seldom changes.
#[derive(Debug)]
pub struct Sampler {
    nvml: Nvml,
    last_scan: Option<CachedScan>,
}

/// The last full scan.
#[derive(Debug)]
struct CachedScan {
    at: Instant,
    host: Host,
    devices: Vec<CachedDevice>,
}

/// A GPU of the last full scan: its indices, and which properties were unavailable.
#[derive(Debug)]
struct CachedDevice {
    index: u32,
    slice: Option<u32>,
    unknown: Vec<String>,
}

impl Sampler {
    /// Opens NVML and starts a session, which ends when the sampler is dropped.
    ///
    /// # Errors
    /// Why the driver is unavailable; converts into an error of the kind `no-driver`.
    pub fn open() -> Result<Sampler, DriverUnavailable> {
        Sampler::open_library(&nvml::library())
    }

    /// As [`Sampler::open`], with the library that has this name or path.
    ///
    /// # Errors
    /// As [`Sampler::open`].
    pub fn open_library(library: &OsStr) -> Result<Sampler, DriverUnavailable> {
        Ok(Sampler { nvml: nvml::open(library)?, last_scan: None })
    }

    /// Queries everything.
    pub fn scan(&mut self) -> Host {
        self.scan_at(Instant::now())
    }

    /// Queries metrics, and processes and properties at most every five seconds. `now` is the caller's
    /// clock.
    pub fn sample(&mut self, now: Instant) -> Host {
        match self.last_scan.take() {
            Some(scan) if now.saturating_duration_since(scan.at) < SLOW_POLL_INTERVAL => {
                let host = self.refresh(&scan);
                self.last_scan = Some(scan);
                host
            }
            _ => self.scan_at(now),
        }
    }

    /// Queries everything and caches it.
    fn scan_at(&mut self, now: Instant) -> Host {
        let mut unknown = UnavailableReadings::default();
        let mut host = Host {
            driver: unknown.ok_or_note("driver version", self.nvml.sys_driver_version()),
            cuda: unknown
                .ok_or_note("CUDA version", self.nvml.sys_cuda_driver_version())
                .map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
            ..Host::default()
        };
        let count = unknown.ok_or_note("number of GPUs", self.nvml.device_count());
        let mut devices = Vec::new();
        for index in 0..count.unwrap_or(0) {
            match self.nvml.device_by_index(index) {
                Ok(device) => self.poll_device(&device, index, &mut host.gpus, &mut devices),
                Err(error) => {
                    let unknown = vec![format!("everything: {}", reason(&error))];
                    host.gpus.push(HostGpu {
                        index,
                        unknown: unknown.clone(),
                        ..HostGpu::default()
                    });
                    devices.push(CachedDevice { index, slice: None, unknown });
                }
            }
        }
        host.unknown = unknown.reasons();
        self.last_scan = Some(CachedScan { at: now, host: host.clone(), devices });
        host
    }

    /// Adds a GPU and its slices.
    fn poll_device(
        &self,
        device: &Device<'_>,
        index: u32,
        gpus: &mut Vec<HostGpu>,
        devices: &mut Vec<CachedDevice>,
    ) {
        let parent = self.push(device, index, None, gpus, devices);
        let (capability, total) =
            (parent.compute_capability, parent.memory.map(|memory| memory.total_bytes));
        if parent.mig != Mig::Parent {
            return;
        }
        // The driver counts as many indices as the GPU could have slices; most are empty.
        for number in 0..device.mig_device_count().unwrap_or(0) {
            if let Ok(part) = device.mig_device_by_index(number) {
                let slice = MigInstance { number, parent_total_bytes: total, capability };
                self.push(&part, index, Some(&slice), gpus, devices);
            }
        }
    }

    /// Adds one GPU or slice.
    fn push<'gpus>(
        &self,
        device: &Device<'_>,
        index: u32,
        slice: Option<&MigInstance>,
        gpus: &'gpus mut Vec<HostGpu>,
        devices: &mut Vec<CachedDevice>,
    ) -> &'gpus HostGpu {
        let mut unavailable_properties = UnavailableReadings::default();
        let mut gpu =
            device::read_properties(&self.nvml, device, index, slice, &mut unavailable_properties);
        if gpu.is_usable() {
            gpu.processes =
                processes::list_processes(&self.nvml, device, &mut unavailable_properties);
        }
        devices.push(CachedDevice {
            index,
            slice: slice.map(|slice| slice.number),
            unknown: unavailable_properties.reasons(),
        });
        let mut unavailable = unavailable_properties;
        device::read_metrics(&self.nvml, device, &mut gpu, &mut unavailable);
        gpu.unknown = unavailable.reasons();
        gpus.push(gpu);
        gpus.last().expect("a GPU was just added")
    }

    /// Returns the last full scan with current metrics.
    fn refresh(&self, scan: &CachedScan) -> Host {
        let mut host = scan.host.clone();
        for (gpu, cached) in host.gpus.iter_mut().zip(&scan.devices) {
            let found =
                self.nvml.device_by_index(cached.index).and_then(|device| match cached.slice {
                    Some(number) => device.mig_device_by_index(number),
                    None => Ok(device),
                });
            gpu.unknown.clone_from(&cached.unknown);
            match found {
                Ok(device) => {
                    let mut unknown = UnavailableReadings::default();
                    device::read_metrics(&self.nvml, &device, gpu, &mut unknown);
                    gpu.unknown.extend(unknown.reasons());
                }
                Err(error) => {
                    gpu.memory = None;
                    gpu.utilization_percent = None;
                    gpu.temperature_c = None;
                    gpu.power_mw = None;
                    let reason = format!("everything: {}", reason(&error));
                    if !gpu.unknown.contains(&reason) {
                        gpu.unknown.push(reason);
                    }
                }
            }
        }
        host
    }
}
