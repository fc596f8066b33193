//! What the checks of `vramfit doctor` make of machines, environments and JAXs of every sort.

use std::collections::BTreeMap;

use vramfit_core::doctor::{
    Check, Driver, Ended, Examination, Facts, Inventory, Status, Trial, VirtualCard, lines, summary,
};
use vramfit_core::host::{
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

fn machine(gpus: Vec<HostGpu>) -> Driver {
    Driver::Machine(Host {
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
fn told(lines: &[&str]) -> Trial {
    let mut trial = Trial::default();
    trial.ended = Ended::Finished;
    for line in lines {
        trial.hear(line);
    }
    trial
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

/// A machine with a GPU on which all is well.
fn healthy() -> Facts {
    let mut during = gpu(0);
    during.processes = vec![Process {
        pid: 4711,
        used_bytes: Some(61 * GIB),
        ..Process::default()
    }];
    Facts {
        driver: machine(vec![gpu(0)]),
        inventory: inventory(),
        dry_run: Some(Ok(())),
        trial: told(&[IMPORT, GPU, POOL, RIGHT, JIT, TRANSFERS, HOLD, TRAINING]),
        machine_during_trial: Some(Host {
            gpus: vec![during],
            ..Host::default()
        }),
        ..Facts::default()
    }
}

fn with(edit: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = healthy();
    edit(&mut facts);
    facts
}

/// Returns what a check found.
fn found(facts: &Facts, id: &str) -> Vec<Check> {
    let checks = Examination::of(facts).checks;
    for check in &checks {
        let is_wrong = matches!(check.status, Status::Warn | Status::Fail);
        assert_eq!(
            is_wrong,
            check.fix.is_some(),
            "one act for all that is wrong: {check:?}"
        );
        assert!(!check.sentence.ends_with('.'), "{check:?}");
    }
    let found: Vec<Check> = checks.into_iter().filter(|check| check.id == id).collect();
    assert!(!found.is_empty(), "there is no check `{id}`");
    found
}

fn one(facts: &Facts, id: &str) -> Check {
    let mut found = found(facts, id);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Asserts that a check ends so, and says so.
fn expect(facts: &Facts, id: &str, status: Status, words: &[&str]) {
    let check = one(facts, id);
    assert_eq!(check.status, status, "{check:?}");
    for word in words {
        let all = format!(
            "{} | {:?} | {:?}",
            check.sentence, check.fix, check.evidence
        );
        assert!(all.contains(word), "{all} lacks {word}");
    }
}

#[test]
fn a_sound_machine_passes_everything() {
    let examination = Examination::of(&healthy());
    for check in &examination.checks {
        assert_eq!(check.status, Status::Pass, "{check:?}");
    }
    assert!(examination.is_all_right());
    let count = examination.checks.len();
    assert_eq!(summary(&examination), format!("all right: {count} passed"));
    expect(
        &healthy(),
        "pool",
        Status::Pass,
        &["60.0 GiB taken at once", "75.0 %"],
    );
    expect(
        &healthy(),
        "outside-pool",
        Status::Pass,
        &["1.0 GiB beside the pool"],
    );
    expect(
        &healthy(),
        "transfers",
        Status::Pass,
        &["11.2 GB/s to the device, 5.6 GB/s back"],
    );
}

#[test]
fn quiet_lines_leave_out_what_is_as_it_should_be() {
    let facts = with(|facts| facts.dry_run = None);
    let told = lines(&Examination::of(&facts), true, false);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].status, Some(Status::Skip));
    assert!(
        told[0].text.starts_with("  dry-run       this Python"),
        "{told:?}"
    );
}

#[test]
fn a_driver_that_does_not_work_is_told_apart_from_none() {
    let absent = with(|facts| {
        facts.driver = Driver::NotInstalled {
            cause: "no such file".to_owned(),
        };
    });
    expect(&absent, "driver", Status::Skip, &["no NVIDIA driver here"]);
    let files_only = with(|facts| {
        facts.driver = absent.driver.clone();
        facts.surroundings.device_files = vec!["nvidiactl".to_owned()];
    });
    expect(&files_only, "driver", Status::Fail, &["device files"]);
    let asked_for = with(|facts| {
        facts.driver = absent.driver.clone();
        facts.surroundings.container = Some("docker 3f4e5a6b7c8d".to_owned());
        facts.surroundings.nvidia_visible_devices = Some("all".to_owned());
    });
    expect(&asked_for, "driver", Status::Warn, &["--gpus all"]);
    let broken = with(|facts| {
        facts.driver = Driver::Broken {
            message: "NVIDIA's driver in memory and its libraries are of different versions"
                .to_owned(),
            cause: None,
            fix: "restart the machine".to_owned(),
        };
        facts.trial = told(&[IMPORT, CPU]);
    });
    expect(&broken, "driver", Status::Fail, &["different versions"]);
    expect(
        &broken,
        "backend",
        Status::Fail,
        &["the driver does not work"],
    );
    let silent = with(|facts| facts.driver = Driver::Silent(60));
    expect(&silent, "driver", Status::Fail, &["within 60 s"]);
}

#[test]
fn each_gpu_is_told_with_its_holders() {
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
    let facts = with(|facts| facts.driver = machine(vec![gpu(0), shared]));
    let gpus = found(&facts, "card");
    assert_eq!(gpus.len(), 2);
    let told = &gpus[1].sentence;
    for words in [
        "80.0 GiB",
        "50.0 GiB free",
        "1 process",
        "30.0 GiB",
        "a display runs",
    ] {
        assert!(told.contains(words), "{told} lacks {words}");
    }
    let holder = &gpus[1].evidence[0];
    assert_eq!(
        holder,
        "process 42 holds 29.0 GiB, drawing, ada: python serve.py"
    );
}

#[test]
fn modes_that_keep_programs_out_fail() {
    let mode = |mode, processes: usize| {
        with(|facts| {
            let mut only = gpu(0);
            only.compute_mode = Some(mode);
            only.processes = vec![Process::default(); processes];
            facts.driver = machine(vec![only]);
        })
    };
    expect(
        &mode(ComputeMode::Prohibited, 0),
        "card",
        Status::Fail,
        &["no process"],
    );
    expect(
        &mode(ComputeMode::ExclusiveProcess, 1),
        "card",
        Status::Fail,
        &["that one is there", "--compute-mode=DEFAULT"],
    );
    expect(
        &mode(ComputeMode::ExclusiveProcess, 0),
        "card",
        Status::Pass,
        &["one process"],
    );
}

#[test]
fn a_lost_gpu_fails_and_a_divided_one_is_used_by_its_slices() {
    let lost = with(|facts| {
        facts.driver = machine(vec![HostGpu {
            unknown: vec!["everything: the GPU has fallen off the bus".to_owned()],
            ..HostGpu::default()
        }]);
    });
    expect(
        &lost,
        "card",
        Status::Fail,
        &["fell off the bus", "restart"],
    );
    let divided = with(|facts| {
        let mut parent = gpu(0);
        parent.mig = Mig::Parent;
        let mut slice = gpu(0);
        slice.mig = Mig::Slice {
            number: 0,
            gpu_instance: Some(3),
            parent_total_bytes: Some(80 * GIB),
        };
        slice.memory = Some(GpuMemory {
            total_bytes: 20 * GIB,
            reserved_bytes: Some(0),
            used_bytes: 0,
            free_bytes: 20 * GIB,
        });
        facts.driver = machine(vec![parent, slice]);
        // 75 % of the slice, not of the GPU.
        let pool = POOL.replace("64424509440", &(15 * GIB).to_string());
        facts.trial.hear(&pool);
    });
    let gpus = found(&divided, "card");
    assert!(gpus[0].sentence.contains("divided (MIG)"), "{gpus:?}");
    assert!(
        gpus[1].sentence.contains("20.0 GiB, a MIG slice"),
        "{gpus:?}"
    );
    expect(
        &divided,
        "pool",
        Status::Pass,
        &["75.0 % of the GPU's 20.0 GiB"],
    );
}

#[test]
fn versions_that_do_not_fit_are_named_with_what_mends_them() {
    let versions =
        |edit: &[(&str, &str)]| with(|facts| facts.inventory.packages.extend(packages(edit)));
    type Packages<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Packages<'_>, &str, &str); 5] = [
        (
            &[("jaxlib", "0.11.0")],
            "newer than jax 0.10.2",
            "jax==0.11.0",
        ),
        (
            &[("jaxlib", "0.9.2")],
            "older than 0.10.1",
            "jaxlib==0.10.2",
        ),
        (
            &[("jax-cuda13-plugin", "0.9.2")],
            "does not fit jaxlib 0.10.2",
            "jax-cuda13-plugin==0.10.2",
        ),
        (
            &[("jax-cuda13-pjrt", "0.9.2")],
            "does not fit jaxlib 0.10.2",
            "jax-cuda13-pjrt==0.10.2",
        ),
        (
            &[("jax-cuda12-plugin", "0.10.2")],
            "without `jax-cuda12-pjrt`",
            "jax-cuda12-pjrt==0.10.2",
        ),
    ];
    for (edit, sentence, fix) in cases {
        let found = found(&versions(edit), "jax");
        let check = &found[0];
        assert_eq!(check.status, Status::Fail, "{check:?}");
        assert!(check.sentence.contains(sentence), "{check:?}");
        assert!(
            check.fix.as_ref().is_some_and(|text| text.contains(fix)),
            "{check:?}"
        );
    }
    let both = versions(&[
        ("jax-cuda12-plugin", "0.10.2"),
        ("jax-cuda12-pjrt", "0.10.2"),
    ]);
    expect(
        &both,
        "jax",
        Status::Warn,
        &["CUDA 13 and 12", "uninstall jax-cuda12-plugin"],
    );
    let metal = versions(&[("jax-metal", "0.1.1")]);
    expect(&metal, "jax", Status::Warn, &["experimental"]);
    let none = with(|facts| {
        facts.inventory.packages.clear();
        facts.trial = Trial::default();
    });
    expect(&none, "jax", Status::Fail, &["no `jax`"]);
    expect(&none, "backend", Status::Skip, &["was not tried"]);
}

#[test]
fn drivers_and_gpus_too_old_for_the_plugin_fail() {
    let old = with(|facts| {
        if let Driver::Machine(machine) = &mut facts.driver {
            machine.driver = Some("550.54.14".to_owned());
        }
    });
    expect(
        &old,
        "cuda",
        Status::Fail,
        &["from 580 on; this one is 550.54.14", "jax[cuda12]"],
    );
    let volta = with(|facts| {
        let mut volta = gpu(0);
        volta.compute_capability = Some((7, 0));
        facts.driver = machine(vec![volta]);
    });
    let checks = found(&volta, "cuda");
    assert_eq!(checks[1].status, Status::Fail);
    assert!(
        checks[1].sentence.contains("7.0; CUDA 13 needs 7.5"),
        "{checks:?}"
    );
}

#[test]
fn nvidias_packages_are_compared_with_what_the_plugin_asks() {
    let old = with(|facts| {
        facts
            .inventory
            .packages
            .extend(packages(&[("nvidia-cublas", "12.9.1")]));
    });
    expect(
        &old,
        "cuda-packages",
        Status::Fail,
        &["nvidia-cublas is 12.9.1, wanted: >=13.0.0.19"],
    );
    let missing = |trial: Trial, driver: Driver| {
        with(|facts| {
            facts.inventory.packages.remove("nvidia-cublas");
            facts.trial = trial;
            facts.driver = driver;
        })
    };
    let here = || machine(vec![gpu(0)]);
    let absent = missing(told(&[IMPORT, CPU]), Driver::default());
    expect(
        &absent,
        "cuda-packages",
        Status::Skip,
        &["only a real GPU needs"],
    );
    let system = missing(told(&[IMPORT, GPU]), here());
    expect(
        &system,
        "cuda-packages",
        Status::Pass,
        &["CUDA is the system's"],
    );
    let fallen = missing(told(&[IMPORT, CPU]), here());
    expect(
        &fallen,
        "cuda-packages",
        Status::Fail,
        &["missing: nvidia-cublas>=13.0.0.19"],
    );
}

#[test]
fn libraries_that_shadow_the_packages_are_a_warning() {
    let shadowed = with(|facts| {
        facts.shadowing_libraries = vec!["/usr/lib/cuda/libcudnn.so.9".to_owned()];
    });
    expect(
        &shadowed,
        "library-path",
        Status::Warn,
        &["unset LD_LIBRARY_PATH", "libcudnn.so.9"],
    );
    let local = with(|facts| {
        facts.shadowing_libraries = vec!["/usr/lib/cuda/libcudnn.so.9".to_owned()];
        facts.inventory.library_folders.clear();
    });
    expect(
        &local,
        "library-path",
        Status::Pass,
        &["come from `LD_LIBRARY_PATH`"],
    );
}

fn set(name: &str, value: &str) -> impl FnOnce(&mut Facts) {
    let (name, value) = (name.to_owned(), value.to_owned());
    move |facts| {
        facts.environment.insert(name, value);
    }
}

#[test]
fn containers_are_told_what_they_lack() {
    let contained = |edit: fn(&mut HostEnvironment)| {
        with(|facts| {
            facts.surroundings.container = Some("docker 3f4e5a6b7c8d".to_owned());
            facts.surroundings.device_files = vec!["nvidia0".to_owned(), "nvidiactl".to_owned()];
            edit(&mut facts.surroundings);
        })
    };
    expect(
        &contained(|_| {}),
        "container",
        Status::Pass,
        &["let through"],
    );
    let hidden = contained(|around| around.nvidia_visible_devices = Some("void".to_owned()));
    expect(
        &hidden,
        "container",
        Status::Warn,
        &["NVIDIA_VISIBLE_DEVICES=void"],
    );
    let bare = contained(|around| around.device_files.clear());
    expect(&bare, "container", Status::Warn, &["/dev/nvidiactl"]);
    let tight = contained(|around| {
        around.host_memory = Some(HostMemoryLimit {
            limit_bytes: 16 * GIB,
            used_bytes: None,
            source: "/sys/fs/cgroup/memory.max".to_owned(),
        });
    });
    expect(
        &tight,
        "host-memory",
        Status::Warn,
        &[
            "16.0 GiB",
            "64.0 GiB",
            "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB=8",
        ],
    );
    let shared = with(|facts| {
        facts.driver = machine(vec![gpu(0), gpu(1)]);
        facts.shared_memory_bytes = Some(64 << 20);
    });
    let checks = found(&shared, "host-memory");
    assert_eq!(checks[0].status, Status::Warn);
    assert!(
        checks[0].sentence.contains("NCCL between 2 GPUs"),
        "{checks:?}"
    );
}

#[test]
fn the_cpu_in_place_of_a_gpu_fails_with_the_logged_reason() {
    let cpu = CPU.replace(
        r#""logged":[]"#,
        r#""logged":["Jax plugin configuration error\nValueError: could not convert string to float: '.XX'","An NVIDIA GPU may be present"]"#,
    );
    let mut facts = with(set("XLA_PYTHON_CLIENT_MEM_FRACTION", ".XX"));
    facts.trial = told(&[IMPORT, &cpu, RIGHT]);
    expect(
        &facts,
        "backend",
        Status::Fail,
        &["goes on with the CPU", "could not convert"],
    );
    let settings = found(&facts, "settings");
    assert_eq!(settings[0].status, Status::Fail);
    // What mends the setting mends the backend.
    assert_eq!(one(&facts, "backend").fix, settings[0].fix);
    expect(&facts, "computation", Status::Skip, &["not on the GPU"]);
    assert!(!Examination::of(&facts).is_all_right());

    let mut chosen = with(set("JAX_PLATFORMS", "cpu"));
    chosen.trial = told(&[IMPORT, CPU]);
    expect(
        &chosen,
        "backend",
        Status::Warn,
        &["JAX_PLATFORMS=cpu", "unset JAX_PLATFORMS"],
    );

    let plain = with(|facts| {
        facts.driver = Driver::default();
        facts.trial = told(&[IMPORT, CPU, RIGHT, JIT]);
    });
    expect(&plain, "backend", Status::Pass, &["there is no GPU here"]);
    expect(&plain, "pool", Status::Skip, &[]);
    assert!(Examination::of(&plain).is_all_right());
    let named = Facts {
        environment: BTreeMap::from([("JAX_PLATFORMS".to_owned(), "cuda,cpu".to_owned())]),
        ..plain
    };
    expect(
        &named,
        "backend",
        Status::Warn,
        &["names a GPU; there is none"],
    );
}

#[test]
fn both_names_of_the_fraction_fail() {
    let facts = with(|facts| {
        for name in ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"] {
            facts.environment.insert(name.to_owned(), "0.9".to_owned());
        }
    });
    let checks = found(&facts, "settings");
    assert!(
        checks.iter().any(|check| check.status == Status::Fail
            && check.evidence.iter().any(|line| line.contains("fraction"))),
        "{checks:?}"
    );
}

/// Before JAX 0.10.2 the limit is no multiple of 256, and the pool is.
#[test]
fn a_pool_that_was_rounded_down_to_whole_units_is_healthy() {
    for (limit, status) in [
        ("64424509441", Status::Pass),
        ("64424509695", Status::Pass),
        ("64424509696", Status::Fail),
    ] {
        let rounded = POOL.replace(
            "\"bytes_limit\":64424509440",
            &format!("\"bytes_limit\":{limit}"),
        );
        let mut facts = healthy();
        facts.trial.hear(&rounded);
        expect(&facts, "pool", status, &["60.0 GiB"]);
    }
}

#[test]
fn a_pool_that_could_not_be_had_fails() {
    let short = POOL.replace("\"pool_bytes\":64424509440", "\"pool_bytes\":32212254720");
    let mut facts = healthy();
    facts.trial.hear(&short);
    facts.trial.log = vec![
        "W0 CUDA_ERROR_OUT_OF_MEMORY: failed".to_owned(),
        "other".to_owned(),
    ];
    expect(
        &facts,
        "pool",
        Status::Fail,
        &[
            "60.0 GiB were asked for",
            "30.0 GiB could be had",
            "--fraction 0.37",
            "CUDA_ERROR",
        ],
    );
    let other_share = POOL.replace("{}", r#"{"memory_fraction":0.9}"#);
    let mut facts = healthy();
    facts.trial.hear(&other_share);
    expect(
        &facts,
        "pool",
        Status::Fail,
        &["90.0 % of the GPU was asked for"],
    );
    let growing = short.replace("{}", r#"{"preallocate":false}"#);
    let mut facts = healthy();
    facts.trial.hear(&growing);
    expect(&facts, "pool", Status::Pass, &["grows up to 60.0 GiB"]);
}

#[test]
fn wrong_numbers_and_wrong_places_fail() {
    let mut wrong = healthy();
    wrong.trial.hear(&RIGHT.replace("true", "false"));
    expect(&wrong, "computation", Status::Fail, &["computes wrongly"]);
    let mut elsewhere = healthy();
    elsewhere.trial.hear(&RIGHT.replace("\"gpu\"", "\"cpu\""));
    expect(&elsewhere, "computation", Status::Fail, &["not on the GPU"]);
    let mut again = healthy();
    again.trial.hear(&JIT.replace("[1,0]", "[1,1]"));
    expect(&again, "jit", Status::Fail, &["second: traced 1"]);
    let mut off = healthy();
    off.trial
        .hear(&JIT.replace("\"disabled\":false", "\"disabled\":true"));
    expect(&off, "jit", Status::Warn, &["unset JAX_DISABLE_JIT"]);
    let mut changed = healthy();
    changed.trial.hear(&TRANSFERS.replace("true", "false"));
    expect(&changed, "transfers", Status::Fail, &["came back changed"]);
}

#[test]
fn a_trial_that_dies_is_told_where() {
    let mut facts = with(|facts| facts.trial = told(&[IMPORT, GPU]));
    facts.trial.hear(r#"{"step":"pool","state":"begin"}"#);
    facts.trial.ended = Ended::Died("was killed by SIGSEGV".to_owned());
    expect(
        &facts,
        "pool",
        Status::Fail,
        &["was killed by SIGSEGV while it made its first array"],
    );
    expect(&facts, "jit", Status::Skip, &["it ended in `pool`"]);
    facts.trial.ended = Ended::Hung(60);
    expect(&facts, "pool", Status::Fail, &["hung", "60 s"]);
    facts.trial.ended = Ended::Finished;
    expect(&facts, "pool", Status::Fail, &["ended without a word"]);
}

#[test]
fn a_required_gpu_must_compute() {
    let required = |facts: Facts| Facts {
        require_gpu: true,
        ..facts
    };
    expect(&required(healthy()), "required-gpu", Status::Pass, &[]);
    let none = required(with(|facts| {
        facts.driver = Driver::default();
        facts.trial = told(&[IMPORT, CPU, &RIGHT.replace("gpu", "cpu")]);
    }));
    expect(&none, "required-gpu", Status::Fail, &["none computes"]);
    let checks = Examination::from_training(&none).checks;
    let last = checks.last().expect("five checks");
    assert_eq!((last.id, last.status), ("readiness", Status::Fail));
}

#[test]
fn row_t9_training_has_five_checks_by_name() {
    let names = ["backend", "computation", "transfers", "jit", "readiness"];
    let of = |facts: &Facts| Examination::from_training(facts).checks;
    let checks = of(&healthy());
    assert_eq!(
        checks.iter().map(|check| check.id).collect::<Vec<_>>(),
        names
    );
    let last = &checks[4];
    assert_eq!(last.status, Status::Pass, "{last:?}");
    assert!(
        last.sentence
            .contains("loss 2.5000 before, 0.5000 after 20 steps"),
        "{last:?}"
    );

    let mut rising = healthy();
    rising.trial.hear(&TRAINING.replace("0.5", "2.5"));
    assert_eq!(of(&rising)[4].status, Status::Fail);
    let mut nan = healthy();
    nan.trial.hear(&TRAINING.replace("0.5", "null"));
    assert!(of(&nan)[4].sentence.contains("not a number"));
    let mut wrong = healthy();
    wrong.trial.hear(&RIGHT.replace("true", "false"));
    let last = &of(&wrong)[4];
    assert_eq!(last.sentence, "not ready to train: computation");
}

#[test]
fn a_virtual_gpu_is_told_to_be_one() {
    let facts = with(|facts| {
        facts.virtual_gpu = Some(VirtualCard {
            name: "a100-80g".to_owned(),
            description: "NVIDIA A100-SXM4-80GB".to_owned(),
            count: 1,
            total_bytes: 80 * GIB,
            held_bytes: 8 * GIB,
            context_bytes: 400 << 20,
        });
        facts.driver = Driver::default();
        let backend = GPU.replace("\"is_virtual\":false", "\"is_virtual\":true");
        facts.trial.hear(&backend);
        facts.require_gpu = true;
    });
    expect(&facts, "driver", Status::Skip, &["virtual"]);
    expect(
        &facts,
        "card",
        Status::Pass,
        &["something else holds 8.0 GiB", "nothing computes"],
    );
    expect(&facts, "backend", Status::Pass, &["a virtual GPU"]);
    expect(&facts, "computation", Status::Skip, &["no arithmetic"]);
    expect(
        &facts,
        "outside-pool",
        Status::Skip,
        &["400.0 MiB (estimate)"],
    );
    expect(&facts, "required-gpu", Status::Fail, &["virtual"]);
}
