//! What the checks of `vramfit doctor` make of machines, environments and JAXs of every sort.

use std::collections::BTreeMap;

use vramfit_advice::doctor::Status::{Fail, Pass, Skip, Warn};
use vramfit_advice::doctor::{
    COLUMNS, Check, DoctorReport, Driver, Inventory, JaxProbe, ProbeExit, Status, SystemInfo,
    VirtualGpu, lines, summary,
};
use vramfit_model::host::{
    ComputeMode, GpuMemory, Host, HostEnvironment, HostGpu, HostMemoryLimit, Mig, Process,
    ProcessKind,
};

const GIB: u64 = 1 << 30;

fn gpu(index: u32) -> HostGpu {
    HostGpu {
        index,
        name: "NVIDIA A100-SXM4-80GB".to_owned(),
        compute_capability: Some((8, 0)),
        memory: Some(GpuMemory {
            total_bytes: 81 * GIB,
            reserved_bytes: Some(GIB),
            used_bytes: 0,
            free_bytes: 80 * GIB,
        }),
        compute_mode: Some(ComputeMode::Default),
        ..HostGpu::default()
    }
}

fn host(gpus: Vec<HostGpu>) -> Driver {
    Driver::Available(Host {
        driver: Some("580.82.07".to_owned()),
        cuda: Some("13.0".to_owned()),
        gpus,
        unknown: Vec::new(),
    })
}

fn packages(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, version): &(&str, &str)| ((*name).to_owned(), (*version).to_owned());
    all.iter().map(owned).collect()
}

/// An environment in which all of JAX 0.10.2 for CUDA 13 is there.
fn inventory() -> Inventory {
    Inventory {
        python: "3.12.1".to_owned(),
        executable: "/env/bin/python".to_owned(),
        environment: Some("/env".to_owned()),
        packages: packages(&[
            ("jax", "0.10.2"),
            ("jaxlib", "0.10.2"),
            ("jax-cuda13-plugin", "0.10.2"),
            ("jax-cuda13-pjrt", "0.10.2"),
            ("nvidia-cublas", "13.1.0"),
        ]),
        minimum_jaxlib: Some("0.10.1".to_owned()),
        requirements: BTreeMap::from([(
            "jax-cuda13-plugin".to_owned(),
            vec![
                "jax-cuda13-pjrt==0.10.2".to_owned(),
                "nvidia-cublas>=13.0.0.19; extra == \"with-cuda\"".to_owned(),
            ],
        )]),
        library_folders: vec!["/env/nvidia/cu13/lib".to_owned()],
    }
}

/// A trial in which these lines were told.
fn result(lines: &[&str]) -> JaxProbe {
    let mut probe = JaxProbe::default();
    probe.exit = ProbeExit::Finished;
    for line in lines {
        probe.on_line(line);
    }
    probe
}

const IMPORT: &str = r#"{"step":"import","state":"done","version":"0.10.2"}"#;
const GPU: &str = r#"{"step":"backend","state":"done","platform":"gpu","platform_version":"cuda 13000",
    "devices":[{"name":"cuda:0","kind":"NVIDIA A100-SXM4-80GB"}],"is_virtual":false,"logged":[]}"#;
const CPU: &str = r#"{"step":"backend","state":"done","platform":"cpu",
    "devices":[{"name":"TFRT_CPU_0","kind":"cpu"}],"is_virtual":false,"logged":[]}"#;
// 75 % of 80 GiB, all of it taken.
const POOL: &str = r#"{"step":"pool","state":"done","options":{},"pools":
    [{"device":"cuda:0","bytes_limit":64424509440,"pool_bytes":64424509440,"bytes_in_use":256}]}"#;
const RIGHT: &str = r#"{"step":"computation","state":"done","right":true,"compared":65536,
    "platforms":["gpu"],"devices":["cuda:0"]}"#;
const JIT: &str = r#"{"step":"jit","state":"done","disabled":false,"traced":[1,0],"compiled":[1,0],
    "seconds":[0.5,0.0001]}"#;
const TRANSFERS: &str = r#"{"step":"transfers","state":"done","bytes":67108864,
    "to_device_seconds":0.006,"to_host_seconds":0.012,"times":3,"right":true}"#;
const HOLD: &str = r#"{"step":"hold","state":"done","pid":4711}"#;
const TRAINING: &str = r#"{"step":"training","state":"done","steps":20,"first_loss":2.5,
    "last_loss":0.5,"platforms":["gpu"],"step_seconds":0.001}"#;

/// A host with a GPU on which all is well.
fn healthy() -> SystemInfo {
    let mut during = gpu(0);
    during.processes =
        vec![Process { pid: 4711, used_bytes: Some(61 * GIB), ..Process::default() }];
    SystemInfo {
        driver: host(vec![gpu(0)]),
        inventory: inventory(),
        dry_run: Some(Ok(())),
        probe: result(&[IMPORT, GPU, POOL, RIGHT, JIT, TRANSFERS, HOLD, TRAINING]),
        host_during_probe: Some(Host { gpus: vec![during], ..Host::default() }),
        ..SystemInfo::default()
    }
}

fn with(edit: impl FnOnce(&mut SystemInfo)) -> SystemInfo {
    let mut info = healthy();
    edit(&mut info);
    info
}

/// Returns what a check found.
fn found(info: &SystemInfo, id: &str) -> Vec<Check> {
    let checks = DoctorReport::new(info).checks;
    for check in &checks {
        let is_wrong = matches!(check.status, Warn | Fail);
        assert_eq!(is_wrong, check.fix.is_some(), "one act for all that is wrong: {check:?}");
        assert!(!check.message.ends_with('.'), "{check:?}");
    }
    let found: Vec<Check> = checks.into_iter().filter(|check| check.id == id).collect();
    assert!(!found.is_empty(), "there is no check `{id}`");
    found
}

fn one(info: &SystemInfo, id: &str) -> Check {
    let mut found = found(info, id);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Asserts that a check ends so, and says so.
fn expect(info: &SystemInfo, id: &str, status: Status, words: &[&str]) {
    let check = one(info, id);
    assert_eq!(check.status, status, "{check:?}");
    for word in words {
        let all = format!("{} | {:?} | {:?}", check.message, check.fix, check.evidence);
        assert!(all.contains(word), "{all} lacks {word}");
    }
}

#[test]
fn a_sound_machine_passes_everything() {
    let report = DoctorReport::new(&healthy());
    for check in &report.checks {
        assert_eq!(check.status, Pass, "{check:?}");
    }
    assert!(report.passed());
    let count = report.checks.len();
    assert_eq!(summary(&report), format!("no check failed: {count} passed"));
    expect(&healthy(), "pool", Pass, &["60.0 GiB preallocated", "75.0 %"]);
    expect(&healthy(), "outside-pool", Pass, &["1.0 GiB outside the pool"]);
    expect(&healthy(), "transfers", Pass, &["11.2 GB/s to the device, 5.6 GB/s back"]);
}

#[test]
fn quiet_lines_leave_out_what_is_as_it_should_be() {
    let info = with(|info| info.dry_run = None);
    let result = lines(&DoctorReport::new(&info), true, false, COLUMNS);
    assert_eq!(result.len(), 1);
    assert_eq!(result[0].status, Some(Skip));
    assert!(
        result[0].text.starts_with("  dry-run       the packages of this Python"),
        "{result:?}"
    );
}

#[test]
fn a_driver_that_does_not_work_is_distinguished_from_none() {
    let absent = with(|info| {
        info.driver = Driver::NotInstalled { cause: "no such file".to_owned() };
    });
    expect(&absent, "driver", Skip, &["no NVIDIA driver installed"]);
    let files_only = with(|info| {
        info.driver = absent.driver.clone();
        info.host_environment.device_files = vec!["nvidiactl".to_owned()];
    });
    expect(&files_only, "driver", Fail, &["device files"]);
    let asked_for = with(|info| {
        info.driver = absent.driver.clone();
        info.host_environment.container = Some("docker 3f4e5a6b7c8d".to_owned());
        info.host_environment.nvidia_visible_devices = Some("all".to_owned());
    });
    expect(&asked_for, "driver", Warn, &["--gpus all"]);
    let broken = with(|info| {
        info.driver = Driver::Broken {
            message: "NVIDIA's driver in memory and its libraries are of different versions"
                .to_owned(),
            cause: None,
            fix: "restart the machine".to_owned(),
        };
        info.probe = result(&[IMPORT, CPU]);
    });
    expect(&broken, "driver", Fail, &["different versions"]);
    expect(&broken, "backend", Fail, &["the driver does not work"]);
    let silent = with(|info| info.driver = Driver::TimedOut(60));
    expect(&silent, "driver", Fail, &["within 60 s"]);
}

#[test]
fn each_gpu_is_reported_with_its_holders() {
    let mut shared = gpu(1);
    shared.display = Some(true);
    shared.memory = Some(GpuMemory {
        total_bytes: 81 * GIB,
        reserved_bytes: Some(GIB),
        used_bytes: 30 * GIB,
        free_bytes: 50 * GIB,
    });
    shared.processes = vec![Process {
        pid: 42,
        used_bytes: Some(29 * GIB),
        kind: ProcessKind::Both,
        command: Some("python serve.py".to_owned()),
        user: Some("ada".to_owned()),
        container: None,
    }];
    let info = with(|info| info.driver = host(vec![gpu(0), shared]));
    let gpus = found(&info, "gpu");
    assert_eq!(gpus.len(), 2);
    let result = &gpus[1].message;
    for words in ["80.0 GiB", "50.0 GiB free", "1 process", "30.0 GiB", "drives a display"] {
        assert!(result.contains(words), "{result} lacks {words}");
    }
    let describe_process = &gpus[1].evidence[0];
    assert_eq!(describe_process, "process 42 uses 29.0 GiB, graphics, ada: python serve.py");
}

#[test]
fn modes_that_keep_programs_out_fail() {
    let mode = |mode, processes: usize| {
        with(|info| {
            let mut only = gpu(0);
            only.compute_mode = Some(mode);
            only.processes = vec![Process::default(); processes];
            info.driver = host(vec![only]);
        })
    };
    expect(&mode(ComputeMode::Prohibited, 0), "gpu", Fail, &["prohibits all processes"]);
    expect(
        &mode(ComputeMode::ExclusiveProcess, 1),
        "gpu",
        Fail,
        &["which already uses it", "--compute-mode=DEFAULT"],
    );
    expect(&mode(ComputeMode::ExclusiveProcess, 0), "gpu", Pass, &["one process"]);
}

#[test]
fn a_lost_gpu_fails_and_a_divided_one_is_used_by_its_slices() {
    let lost = with(|info| {
        info.driver = host(vec![HostGpu {
            unknown: vec!["everything: the GPU has fallen off the bus".to_owned()],
            ..HostGpu::default()
        }]);
    });
    expect(&lost, "gpu", Fail, &["fallen off the bus", "reboot"]);
    let divided = with(|info| {
        let mut parent = gpu(0);
        parent.mig = Mig::Parent;
        let mut slice = gpu(0);
        slice.mig =
            Mig::Instance { number: 0, gpu_instance: Some(3), parent_total_bytes: Some(80 * GIB) };
        slice.memory = Some(GpuMemory {
            total_bytes: 20 * GIB,
            reserved_bytes: Some(0),
            used_bytes: 0,
            free_bytes: 20 * GIB,
        });
        info.driver = host(vec![parent, slice]);
        // 75 % of the slice, not of the GPU.
        let pool = POOL.replace("64424509440", &(15 * GIB).to_string());
        info.probe.on_line(&pool);
    });
    let gpus = found(&divided, "gpu");
    assert!(gpus[0].message.contains("partitioned into MIG slices"), "{gpus:?}");
    assert!(gpus[1].message.contains("20.0 GiB, a MIG slice"), "{gpus:?}");
    expect(&divided, "pool", Pass, &["75.0 % of the GPU's 20.0 GiB"]);
}

#[test]
fn versions_that_do_not_fit_are_named_with_what_mends_them() {
    let versions =
        |edit: &[(&str, &str)]| with(|info| info.inventory.packages.extend(packages(edit)));
    type Packages<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Packages<'_>, &str, &str); 5] = [
        (&[("jaxlib", "0.11.0")], "newer than jax 0.10.2", "jax==0.11.0"),
        (&[("jaxlib", "0.9.2")], "requires 0.10.1 or later", "jaxlib==0.10.2"),
        (
            &[("jax-cuda13-plugin", "0.9.2")],
            "is incompatible with jaxlib 0.10.2",
            "jax-cuda13-plugin==0.10.2",
        ),
        (
            &[("jax-cuda13-pjrt", "0.9.2")],
            "is incompatible with jaxlib 0.10.2",
            "jax-cuda13-pjrt==0.10.2",
        ),
        (
            &[("jax-cuda12-plugin", "0.10.2")],
            "without `jax-cuda12-pjrt`",
            "jax-cuda12-pjrt==0.10.2",
        ),
    ];
    for (edit, message, fix) in cases {
        let found = found(&versions(edit), "jax");
        let check = &found[0];
        assert_eq!(check.status, Fail, "{check:?}");
        assert!(check.message.contains(message), "{check:?}");
        assert!(check.fix.as_ref().is_some_and(|text| text.contains(fix)), "{check:?}");
    }
    let both = versions(&[("jax-cuda12-plugin", "0.10.2"), ("jax-cuda12-pjrt", "0.10.2")]);
    expect(&both, "jax", Warn, &["CUDA 13 and CUDA 12", "uninstall jax-cuda12-plugin"]);
    let metal = versions(&[("jax-metal", "0.1.1")]);
    expect(&metal, "jax", Warn, &["experimental"]);
    let none = with(|info| {
        info.inventory.packages.clear();
        info.probe = JaxProbe::default();
    });
    expect(&none, "jax", Fail, &["no `jax`"]);
    expect(&none, "backend", Skip, &["was not probed"]);
}

#[test]
fn drivers_and_gpus_too_old_for_the_plugin_fail() {
    let old = with(|info| {
        if let Driver::Available(host) = &mut info.driver {
            host.driver = Some("550.54.14".to_owned());
        }
    });
    expect(&old, "cuda", Fail, &["driver 580 or later; this is 550.54.14", "jax[cuda12]"]);
    let volta = with(|info| {
        let mut volta = gpu(0);
        volta.compute_capability = Some((7, 0));
        info.driver = host(vec![volta]);
    });
    let checks = found(&volta, "cuda");
    assert_eq!(checks[1].status, Fail);
    assert!(checks[1].message.contains("7.0; CUDA 13 requires 7.5"), "{checks:?}");
}

#[test]
fn nvidias_packages_are_compared_with_what_the_plugin_asks() {
    let old = with(|info| {
        info.inventory.packages.extend(packages(&[("nvidia-cublas", "12.9.1")]));
    });
    expect(&old, "cuda-packages", Fail, &["nvidia-cublas is 12.9.1, required: >=13.0.0.19"]);
    let missing = |probe: JaxProbe, driver: Driver| {
        with(|info| {
            info.inventory.packages.remove("nvidia-cublas");
            info.probe = probe;
            info.driver = driver;
        })
    };
    let here = || host(vec![gpu(0)]);
    let absent = missing(result(&[IMPORT, CPU]), Driver::default());
    expect(&absent, "cuda-packages", Skip, &["only a real GPU requires"]);
    let system = missing(result(&[IMPORT, GPU]), here());
    expect(&system, "cuda-packages", Pass, &["the system's CUDA is used"]);
    let fallen = missing(result(&[IMPORT, CPU]), here());
    expect(&fallen, "cuda-packages", Fail, &["missing: nvidia-cublas>=13.0.0.19"]);
}

#[test]
fn libraries_that_shadow_the_packages_are_a_warning() {
    let shadowed = with(|info| {
        info.shadowing_libraries = vec!["/usr/lib/cuda/libcudnn.so.9".to_owned()];
    });
    expect(&shadowed, "library-path", Warn, &["unset LD_LIBRARY_PATH", "libcudnn.so.9"]);
    let local = with(|info| {
        info.shadowing_libraries = vec!["/usr/lib/cuda/libcudnn.so.9".to_owned()];
        info.inventory.library_folders.clear();
    });
    expect(&local, "library-path", Pass, &["come from `LD_LIBRARY_PATH`"]);
}

fn set(name: &str, value: &str) -> impl FnOnce(&mut SystemInfo) {
    let (name, value) = (name.to_owned(), value.to_owned());
    move |info| {
        info.environment.insert(name, value);
    }
}

#[test]
fn what_a_container_lacks_is_reported() {
    let contained = |edit: fn(&mut HostEnvironment)| {
        with(|info| {
            info.host_environment.container = Some("docker 3f4e5a6b7c8d".to_owned());
            info.host_environment.device_files = vec!["nvidia0".to_owned(), "nvidiactl".to_owned()];
            edit(&mut info.host_environment);
        })
    };
    expect(&contained(|_| {}), "container", Pass, &["with GPU access"]);
    let hidden = contained(|around| around.nvidia_visible_devices = Some("void".to_owned()));
    expect(&hidden, "container", Warn, &["NVIDIA_VISIBLE_DEVICES=void"]);
    let bare = contained(|around| around.device_files.clear());
    expect(&bare, "container", Warn, &["/dev/nvidiactl"]);
    let tight = contained(|around| {
        around.host_memory = Some(HostMemoryLimit {
            limit_bytes: 16 * GIB,
            used_bytes: None,
            reclaimable_bytes: None,
            source: "/sys/fs/cgroup/memory.max".to_owned(),
        });
    });
    expect(
        &tight,
        "host-memory",
        Warn,
        &["16.0 GiB", "64.0 GiB", "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB=8"],
    );
    let shared = with(|info| {
        info.driver = host(vec![gpu(0), gpu(1)]);
        info.shared_memory_bytes = Some(64 << 20);
    });
    let checks = found(&shared, "host-memory");
    assert_eq!(checks[0].status, Warn);
    assert!(checks[0].message.contains("NCCL with 2 GPUs"), "{checks:?}");
}

#[test]
fn the_cpu_in_place_of_a_gpu_fails_with_the_logged_reason() {
    let cpu = CPU.replace(
        r#""logged":[]"#,
        r#""logged":["Jax plugin configuration error\nValueError: could not convert string to float: '.XX'","An NVIDIA GPU may be present"]"#,
    );
    let mut info = with(set("XLA_PYTHON_CLIENT_MEM_FRACTION", ".XX"));
    info.probe = result(&[IMPORT, &cpu, RIGHT]);
    expect(&info, "backend", Fail, &["falls back to the CPU", "could not convert"]);
    let settings = found(&info, "settings");
    assert_eq!(settings[0].status, Fail);
    // What mends the setting mends the backend, which says where that is.
    expect(&info, "backend", Fail, &["see `settings`, which fails above"]);
    assert_eq!(one(&info, "backend").fix.as_deref(), Some("fix `settings` first"));
    expect(&info, "computation", Skip, &["not use the GPU"]);
    assert!(!DoctorReport::new(&info).passed());

    let mut chosen = with(set("JAX_PLATFORMS", "cpu"));
    chosen.probe = result(&[IMPORT, CPU]);
    expect(&chosen, "backend", Warn, &["JAX_PLATFORMS=cpu", "unset JAX_PLATFORMS"]);

    let plain = with(|info| {
        info.driver = Driver::default();
        info.probe = result(&[IMPORT, CPU, RIGHT, JIT]);
    });
    expect(&plain, "backend", Pass, &["there is no GPU"]);
    expect(&plain, "pool", Skip, &[]);
    assert!(DoctorReport::new(&plain).passed());
    let named = SystemInfo {
        environment: BTreeMap::from([("JAX_PLATFORMS".to_owned(), "cuda,cpu".to_owned())]),
        ..plain
    };
    expect(&named, "backend", Warn, &["includes a GPU, but there is none"]);
}

#[test]
fn both_names_of_the_fraction_fail() {
    let info = with(|info| {
        for name in ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"] {
            info.environment.insert(name.to_owned(), "0.9".to_owned());
        }
    });
    let checks = found(&info, "settings");
    assert!(
        checks.iter().any(|check| check.status == Fail
            && check.evidence.iter().any(|line| line.contains("fraction"))),
        "{checks:?}"
    );
}

/// Before JAX 0.10.2 the limit is no multiple of 256, and the pool is.
#[test]
fn a_pool_that_was_rounded_down_to_whole_units_is_healthy() {
    for (limit, status) in [("64424509441", Pass), ("64424509695", Pass), ("64424509696", Fail)] {
        let rounded =
            POOL.replace("\"bytes_limit\":64424509440", &format!("\"bytes_limit\":{limit}"));
        let mut info = healthy();
        info.probe.on_line(&rounded);
        expect(&info, "pool", status, &["60.0 GiB"]);
    }
}

#[test]
fn a_pool_that_could_not_be_had_fails() {
    let short = POOL.replace("\"pool_bytes\":64424509440", "\"pool_bytes\":32212254720");
    let mut info = healthy();
    info.probe.on_line(&short);
    info.probe.log = vec!["W0 CUDA_ERROR_OUT_OF_MEMORY: failed".to_owned(), "other".to_owned()];
    expect(
        &info,
        "pool",
        Fail,
        &["60.0 GiB requested", "30.0 GiB allocated", "--fraction 0.37", "CUDA_ERROR"],
    );
    let other_share = POOL.replace("{}", r#"{"memory_fraction":0.9}"#);
    let mut info = healthy();
    info.probe.on_line(&other_share);
    expect(&info, "pool", Fail, &["90.0 % of the GPU was requested"]);
    let growing = short.replace("{}", r#"{"preallocate":false}"#);
    let mut info = healthy();
    info.probe.on_line(&growing);
    expect(&info, "pool", Pass, &["grows up to 60.0 GiB"]);
}

/// The checks of the settings and of the pool say the same.
#[test]
fn a_pool_of_unified_memory_is_judged_by_the_memory_of_the_host() {
    let pool = |gib: u64, options: &str| {
        let limit = (gib * GIB).to_string();
        POOL.replace("64424509440", &limit).replace("{}", options)
    };
    let with_pool = |line: &str, available: Option<u64>| {
        let mut info = with(set("TF_FORCE_UNIFIED_MEMORY", "true"));
        info.host_environment.kernel_available_bytes = available;
        info.probe.on_line(line);
        info
    };
    // Without a fraction it is all of the GPU.
    let whole = with_pool(&pool(80, "{}"), None);
    expect(&whole, "pool", Pass, &["up to 80.0 GiB, all of the GPU"]);
    expect(&whole, "settings", Warn, &["uses no host memory"]);
    let doubled = pool(160, r#"{"memory_fraction":2.0}"#);
    for (available, status, text) in [
        (Some(200 * GIB), Pass, "80.0 GiB more than the GPU has"),
        (Some(30 * GIB), Warn, "the host has 30.0 GiB free"),
        (None, Pass, "80.0 GiB more than the GPU has"),
    ] {
        let mut info = with_pool(&doubled, available);
        info.environment.insert("XLA_CLIENT_MEM_FRACTION".to_owned(), "2.0".to_owned());
        expect(&info, "pool", status, &[text]);
        expect(&info, "settings", Pass, &[]);
    }
    // What lies beyond the GPUs lies in the same memory.
    let device = doubled.split_once("[").map(|(_, rest)| rest.trim_end_matches("]}")).unwrap();
    let two = doubled.replace(device, &format!("{device},{device}"));
    let mut info = with_pool(&two, Some(100 * GIB));
    info.environment.insert("XLA_CLIENT_MEM_FRACTION".to_owned(), "2.0".to_owned());
    for check in found(&info, "pool") {
        assert_eq!(check.status, Warn, "{check:?}");
        assert!(check.message.contains("100.0 GiB free for 2 GPUs"), "{check:?}");
    }
}

#[test]
fn wrong_numbers_and_wrong_places_fail() {
    let mut wrong = healthy();
    wrong.probe.on_line(&RIGHT.replace("true", "false"));
    expect(&wrong, "computation", Fail, &["computes wrong results"]);
    let mut elsewhere = healthy();
    elsewhere.probe.on_line(&RIGHT.replace("\"gpu\"", "\"cpu\""));
    expect(&elsewhere, "computation", Fail, &["instead of the GPU"]);
    let mut again = healthy();
    again.probe.on_line(&JIT.replace("[1,0]", "[1,1]"));
    expect(&again, "jit", Fail, &["second: traced 1"]);
    let mut off = healthy();
    off.probe.on_line(&JIT.replace("\"disabled\":false", "\"disabled\":true"));
    expect(&off, "jit", Warn, &["unset JAX_DISABLE_JIT"]);
    let mut changed = healthy();
    changed.probe.on_line(&TRANSFERS.replace("true", "false"));
    expect(&changed, "transfers", Fail, &["came back corrupted"]);
}

#[test]
fn a_trial_that_dies_is_reported_with_its_place() {
    let mut info = with(|info| info.probe = result(&[IMPORT, GPU]));
    info.probe.on_line(r#"{"step":"pool","state":"begin"}"#);
    info.probe.exit = ProbeExit::Died("was killed by SIGSEGV".to_owned());
    expect(&info, "pool", Fail, &["was killed by SIGSEGV while it created its first array"]);
    expect(&info, "jit", Skip, &["the probe ended in `pool`"]);
    info.probe.exit = ProbeExit::Hung(60);
    expect(&info, "pool", Fail, &["hung", "60 s"]);
    info.probe.exit = ProbeExit::Finished;
    expect(&info, "pool", Fail, &["exited unexpectedly"]);
}

#[test]
fn a_required_gpu_must_compute() {
    let required = |info: SystemInfo| SystemInfo { require_gpu: true, ..info };
    expect(&required(healthy()), "required-gpu", Pass, &[]);
    let none = required(with(|info| {
        info.driver = Driver::default();
        info.probe = result(&[IMPORT, CPU, &RIGHT.replace("gpu", "cpu")]);
    }));
    expect(&none, "required-gpu", Fail, &["none computes"]);
    let checks = DoctorReport::for_training(&none).checks;
    let last = checks.last().expect("five checks");
    assert_eq!((last.id, last.status), ("readiness", Fail));
}

#[test]
fn a_backend_refers_to_what_fails_above_whatever_that_is() {
    let failed =
        r#"{"step":"backend","state":"failed","error":"RuntimeError: no device","logged":[]}"#;
    type Change = fn(&mut SystemInfo);
    let earlier: [(&str, Change); 3] = [
        ("driver", |info| info.driver = Driver::TimedOut(60)),
        ("jax", |info| {
            info.inventory.packages.insert("jaxlib".to_owned(), "99.0.0".to_owned());
        }),
        ("settings", |info| {
            info.environment.insert("XLA_PYTHON_CLIENT_MEM_FRACTION".to_owned(), "x".to_owned());
        }),
    ];
    for (id, break_it) in earlier {
        let info = with(|info| {
            break_it(info);
            info.probe = result(&[IMPORT, failed]);
        });
        let fails = DoctorReport::new(&info).checks;
        let fails: Vec<&str> = fails
            .iter()
            .filter(|check| check.status == Fail && check.id != "pool")
            .map(|check| check.id)
            .collect();
        assert_eq!(fails[0], id, "{fails:?}");
        let fix = format!("fix `{id}` first");
        assert_eq!(one(&info, "backend").fix, Some(fix));
    }
    let alone = with(|info| info.probe = result(&[IMPORT, failed]));
    let backend = one(&alone, "backend");
    assert_eq!(backend.status, Fail);
    assert!(!backend.message.contains("above"), "{}", backend.message);
}

#[test]
fn without_jax_what_needs_it_is_skipped_and_the_driver_decides() {
    let without = |info: SystemInfo| SystemInfo {
        skips_jax: true,
        require_gpu: true,
        probe: JaxProbe::default(),
        ..info
    };
    // An image may have none at all.
    let info = without(with(|info| info.inventory.packages.clear()));
    let report = DoctorReport::new(&info);
    assert!(report.passed(), "{:?}", report.checks);
    for id in ["jax", "cuda", "backend", "pool", "computation", "transfers"] {
        expect(&info, id, Skip, &["`--no-jax`"]);
    }
    expect(&info, "driver", Pass, &[]);
    expect(&info, "required-gpu", Pass, &["whether it computes is not checked"]);
    let none = without(with(|info| info.driver = Driver::default()));
    expect(&none, "required-gpu", Fail, &["reports none"]);
    assert!(!DoctorReport::new(&none).passed());
}

#[test]
fn row_t9_training_has_five_checks_by_name() {
    let names = ["backend", "computation", "transfers", "jit", "readiness"];
    let of = |info: &SystemInfo| DoctorReport::for_training(info).checks;
    let checks = of(&healthy());
    assert_eq!(checks.iter().map(|check| check.id).collect::<Vec<_>>(), names);
    let last = &checks[4];
    assert_eq!(last.status, Pass, "{last:?}");
    assert!(last.message.contains("loss 2.5000 before, 0.5000 after 20 steps"), "{last:?}");

    let mut rising = healthy();
    rising.probe.on_line(&TRAINING.replace("0.5", "2.5"));
    assert_eq!(of(&rising)[4].status, Fail);
    let mut nan = healthy();
    nan.probe.on_line(&TRAINING.replace("0.5", "null"));
    assert!(of(&nan)[4].message.contains("NaN"));
    let mut wrong = healthy();
    wrong.probe.on_line(&RIGHT.replace("true", "false"));
    let last = &of(&wrong)[4];
    assert_eq!(last.message, "not ready to train: computation");
}

#[test]
fn a_virtual_gpu_is_reported_as_one() {
    let info = with(|info| {
        info.virtual_gpu = Some(VirtualGpu {
            name: "a100-80g".to_owned(),
            description: "NVIDIA A100-SXM4-80GB".to_owned(),
            count: 1,
            total_bytes: 80 * GIB,
            occupied_bytes: 8 * GIB,
            context_bytes: 400 << 20,
        });
        info.driver = Driver::default();
        let backend = GPU.replace("\"is_virtual\":false", "\"is_virtual\":true");
        info.probe.on_line(&backend);
        info.require_gpu = true;
    });
    expect(&info, "driver", Skip, &["virtual"]);
    expect(&info, "gpu", Pass, &["8.0 GiB used by others", "does not compute"]);
    expect(&info, "backend", Pass, &["a virtual GPU"]);
    expect(&info, "computation", Skip, &["does not compute"]);
    expect(&info, "outside-pool", Skip, &["400 MiB (estimate)"]);
    expect(&info, "required-gpu", Fail, &["virtual"]);
}
