//! Properties of resolved settings: pools that fit, limits that hold, flags that survive.

use proptest::prelude::*;
use vramfit_model::Bytes;
use vramfit_model::allocator::{AllocatorKind, PoolOptions};
use vramfit_model::gpu;
use vramfit_model::settings::{
    GpuBudgets, GpuMemoryBudget, Options, Target, Version, XlaFlags, resolve,
};

const RELEASES: [Version; 4] = [
    Version::new(0, 4, 30),
    Version::new(0, 10, 1),
    Version::new(0, 10, 2),
    Version::new(0, 11, 0),
];

/// The pool that JAX of that release makes on a GPU with these options.
fn pool(options: &Options, memory: &GpuBudgets, total_memory_bytes: u64, release: Version) -> u64 {
    let target =
        Target { jax: Some(release), gpu_budgets: &|| Ok(memory.clone()), ..Target::default() };
    let done = resolve(options, &target).expect("the pool fits");
    let fraction = ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"]
        .iter()
        .find_map(|name| done.value(name))
        .expect("the size is a fraction");
    PoolOptions {
        total_memory_bytes,
        memory_fraction: f64::from(fraction.parse::<f64>().expect("a number") as f32),
        jax_version: release.into(),
        ..PoolOptions::default()
    }
    .limit_bytes()
}

#[test]
fn the_pools_of_all_processes_fit_on_every_gpu() {
    for gpu in gpu::all() {
        for processes in 1..=8_u32 {
            let budget = GpuMemoryBudget::from_catalog(gpu, 0, 1);
            let options = Options { processes: Some(processes), ..Options::default() };
            let memory = GpuBudgets::Known(vec![budget]);
            let all = |each: u64| (each + budget.outside_bytes) * u64::from(processes);
            if budget.pool_bytes_each(processes, 0).is_err() {
                // Rejected only where not even a page is left for each.
                assert!(all(2 << 20) > budget.total_bytes, "{} {processes}", gpu.name);
                continue;
            }
            for release in RELEASES {
                let had = pool(&options, &memory, budget.total_bytes, release);
                assert!(all(had) <= budget.total_bytes, "{} {processes} {release}", gpu.name);
                // Nothing useful is left: less than a page and a rounding step for each.
                let unused = budget.total_bytes - all(had);
                assert!(
                    unused < u64::from(processes) * (4 << 20),
                    "{} {processes} {release}: {unused} bytes unused",
                    gpu.name
                );
            }
        }
    }
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "--xla_[a-z]{1,6}=[a-z0-9,]{0,6}",
        "--xla_disable_hlo_passes=[a-z,]{0,8}",
        "--xla_force_host_platform_device_count=[0-9]{1,2}",
        "--[a-z]{1,4}='[a-z ]{0,6}'",
        "--[a-z]{1,4}=\"[a-z ]{0,4}",
        "[a-z=.]{1,5}",
    ]
}

proptest! {
    #[test]
    fn a_limit_is_never_exceeded(
        total in (256_u64 << 20)..(200 << 30),
        part in 0.001..=1.0_f64,
        release in prop::sample::select(&RELEASES[..]),
    ) {
        let limit_bytes = ((total as f64 * part) as u64).clamp(2 << 20, total);
        let options = Options { limit: Some(Bytes(limit_bytes)), ..Options::default() };
        let had = pool(&options, &GpuBudgets::TotalOnly(total), total, release);
        prop_assert!(had <= limit_bytes, "{} of {}: {}", limit_bytes, total, had);
        // What 24 bits of a fraction cannot express, and the rounding to pages.
        prop_assert!(limit_bytes - had < (2 << 20) + total / (1 << 22));
    }

    #[test]
    fn processes_of_a_split_fit_with_what_is_occupied_and_kept_free(
        total in (4_u64 << 30)..(200 << 30),
        occupied in 0_u64..(100 << 30),
        kept in 0_u64..(100 << 30),
        outside in (100_u64 << 20)..(2 << 30),
        processes in 1_u32..=16,
        release in prop::sample::select(&RELEASES[..]),
    ) {
        let budget =
            GpuMemoryBudget { total_bytes: total, occupied_bytes: occupied, outside_bytes: outside };
        let others = occupied + kept + outside * u64::from(processes);
        match budget.pool_bytes_each(processes, kept) {
            Err(_) => prop_assert!(others + u64::from(processes) * (2 << 20) > total),
            Ok(_) => {
                let options = Options {
                    processes: Some(processes),
                    keep_free: Some(Bytes(kept)),
                    ..Options::default()
                };
                let had = pool(&options, &GpuBudgets::Known(vec![budget]), total, release);
                prop_assert!(had * u64::from(processes) + others <= total);
            }
        }
    }

    #[test]
    fn merging_keeps_every_word_of_xla_flags(
        words in prop::collection::vec(word(), 0..6),
        gap in "[ \t]{1,3}",
        remat in any::<Option<bool>>(),
        host_devices in prop::option::of(1_u32..64),
        release in prop::option::of(prop::sample::select(&RELEASES[..])),
    ) {
        let users = words.join(&gap);
        let options = Options { remat, host_devices, ..Options::default() };
        let target = Target {
            jax: release,
            variable: &|name| (name == "XLA_FLAGS").then(|| users.clone()),
            ..Target::default()
        };
        let done = resolve(&options, &target).expect("nothing to reject");
        let Some(merged) = done.value("XLA_FLAGS") else { return Ok(()) };
        // The user's text is all there, in its order, with something put in between.
        let common = users.bytes().zip(merged.bytes()).take_while(|(a, b)| a == b).count();
        let tail = &users.as_bytes()[common..];
        prop_assert!(merged.as_bytes().ends_with(tail), "{:?} became {:?}", users, merged);
        // And every flag that XLA read before it reads now, with the same value.
        let (before, after) = (XlaFlags::parse(&users), XlaFlags::parse(merged));
        for word in &words {
            let name = word.trim_start_matches('-').split('=').next().expect("a name");
            if name != "xla_disable_hlo_passes" {
                prop_assert!(
                    before.value(name).is_none() || before.value(name) == after.value(name),
                    "{} in {:?} became {:?}", name, users, merged
                );
            }
        }
        let passes = |flags: &XlaFlags| -> Vec<String> {
            let value = flags.value("xla_disable_hlo_passes").unwrap_or_default();
            value.split(',').filter(|pass| !pass.is_empty()).map(str::to_owned).collect()
        };
        for pass in passes(&before) {
            prop_assert!(passes(&after).contains(&pass), "{} in {:?}", pass, merged);
        }
    }

    #[test]
    fn no_environment_makes_it_panic(
        text in "\\PC{0,40}",
        repair in any::<bool>(),
        release in prop::option::of(prop::sample::select(&RELEASES[..])),
        fraction in prop::option::of(any::<f64>()),
        allocator in prop::option::of(prop::sample::select(&AllocatorKind::ALL[..])),
    ) {
        let options = Options {
            fraction,
            allocator,
            require_gpu: Some(true),
            remat: Some(false),
            host_devices: Some(2),
            ..Options::default()
        };
        let budget = GpuMemoryBudget {
            total_bytes: 1 << 34,
            occupied_bytes: 1 << 33,
            outside_bytes: 1 << 30,
        };
        let target = Target {
            jax: release,
            variable: &|_| Some(text.clone()),
            gpu_budgets: &|| Ok(GpuBudgets::Known(vec![budget])),
            detailed: true,
            repair,
            ..Target::default()
        };
        // Whether it is rejected is not the question; each name is set once.
        if let Ok(done) = resolve(&options, &target) {
            for set in &done.set {
                prop_assert_eq!(done.set.iter().filter(|other| other.name == set.name).count(), 1);
                prop_assert!(!done.removed.contains(&set.name));
            }
        }
    }
}
