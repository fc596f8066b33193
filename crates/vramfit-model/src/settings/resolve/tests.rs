//! Each rule; the properties that hold for all of them are in `tests/settings_properties.rs`.

use super::super::names::{ALLOCATOR, CREATE_OPTIONS, PREALLOCATE, UNIFIED_MEMORY};
use super::*;
use crate::allocator::AllocatorKind;
use crate::bytes::Bytes;
use crate::error::ErrorKind;

const NEW: Version = Version::new(0, 10, 2);
const OLD: Version = Version::new(0, 4, 31);

fn with(
    options: Options,
    version: Version,
    environment: &[(&str, &str)],
) -> Result<ResolvedSettings> {
    resolve_in(&options, &GpuBudgets::Unknown, Some(version), environment)
}

fn resolve_in(
    options: &Options,
    gpu_budgets: &GpuBudgets,
    jax: Option<Version>,
    environment: &[(&str, &str)],
) -> Result<ResolvedSettings> {
    let target = Target {
        jax,
        variable: &|name| value_of(environment, name),
        gpu_budgets: &|| Ok(gpu_budgets.clone()),
        detailed: true,
        ..Target::default()
    };
    resolve(options, &target)
}

/// Repairs what it finds, on a GPU of 16 GiB.
fn repair(
    options: Options,
    jax: Option<Version>,
    environment: &[(&str, &str)],
) -> Result<ResolvedSettings> {
    let target = Target {
        jax,
        variable: &|name| value_of(environment, name),
        gpu_budgets: &|| Ok(GpuBudgets::Known(vec![BUDGET])),
        detailed: true,
        repair: true,
        ..Target::default()
    };
    resolve(&options, &target)
}

/// The same without options.
fn repair_environment(environment: &[(&str, &str)]) -> Result<ResolvedSettings> {
    repair(Options::default(), Some(NEW), environment)
}

fn value_of(environment: &[(&str, &str)], name: &str) -> Option<String> {
    let found = environment.iter().find(|(known, _)| *known == name)?;
    Some(found.1.to_owned())
}

/// What is set, without the reasons.
fn values(done: &ResolvedSettings) -> Vec<(&str, &str)> {
    done.set.iter().map(|set| (set.name, &*set.value)).collect()
}

/// Returns `true` if nothing is to be done, and nothing to be known.
fn is_nothing(done: &ResolvedSettings) -> bool {
    let bare = ResolvedSettings { budget: done.budget, ..ResolvedSettings::default() };
    *done == bare
}

fn fraction(fraction: f64) -> Options {
    Options { fraction: Some(fraction), ..Options::default() }
}

fn allocator(kind: AllocatorKind) -> Options {
    Options { allocator: Some(kind), ..Options::default() }
}

/// Asserts that nothing is set, and that the first note says why.
fn assert_only_noted(done: &ResolvedSettings, words: &str) {
    assert!(done.set.is_empty(), "{done:?}");
    assert_noted(done, words);
}

fn assert_noted(done: &ResolvedSettings, words: &str) {
    assert!(done.notes[0].contains(words), "{done:?}");
}

#[test]
fn no_options_change_nothing() {
    for environment in [&[][..], &[(FRACTION, "0.5")], &[(OLD_FRACTION, "0.5")]] {
        let done = with(Options::default(), NEW, environment).unwrap();
        assert!(is_nothing(&done), "{environment:?}");
    }
}

#[test]
fn the_fraction_has_the_name_that_the_version_reads() {
    for (version, name) in [
        (OLD, OLD_FRACTION),
        (Version::new(0, 4, 32), OLD_FRACTION),
        (Version::new(0, 4, 33), FRACTION),
        (NEW, FRACTION),
    ] {
        let done = with(fraction(0.9), version, &[]).unwrap();
        assert_eq!(values(&done), [(name, "0.9")], "{version}");
        assert!(done.removed.is_empty() && done.notes.is_empty(), "{version}");
    }
}

#[test]
fn the_other_name_is_removed_with_a_note() {
    let done = with(fraction(0.5), NEW, &[(OLD_FRACTION, "0.8")]).unwrap();
    assert_eq!(done.removed, [OLD_FRACTION]);
    assert_noted(&done, "was 0.8");
    let done = with(fraction(0.5), OLD, &[(FRACTION, "0.8")]).unwrap();
    assert_eq!(done.removed, [FRACTION]);
    assert_noted(&done, "does not read it");
}

#[test]
fn one_of_two_names_is_removed_where_jax_rejects_both() {
    let both = [(FRACTION, "0.5"), (OLD_FRACTION, "0.8")];
    assert_eq!(with(Options::default(), NEW, &both).unwrap().removed, [OLD_FRACTION]);
    assert!(with(Options::default(), OLD, &both).unwrap().removed.is_empty());
    // JAX takes an empty value as unset.
    let empty = [(FRACTION, "0.5"), (OLD_FRACTION, "")];
    assert!(with(Options::default(), NEW, &empty).unwrap().removed.is_empty());
}

#[test]
fn a_changed_value_is_noted_and_an_equal_one_is_not() {
    let notes = |old| with(fraction(0.5), NEW, &[(FRACTION, old)]).unwrap().notes.len();
    assert_eq!((notes("0.8"), notes("0.5"), notes("")), (1, 0, 0));
}

#[test]
fn pool_sizes_out_of_range_are_rejected() {
    for part in [0.0, -0.5, 1.5, 100.0, f64::NAN, f64::INFINITY] {
        let error = with(fraction(part), NEW, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{part}");
    }
    let hint = with(fraction(90.0), NEW, &[]).unwrap_err();
    assert!(hint.hint_text().unwrap().contains("0.9"));
    for limit_bytes in [0, 101] {
        let limit = Options { limit: Some(Bytes(limit_bytes)), ..Options::default() };
        let done = resolve_in(&limit, &GpuBudgets::TotalOnly(100), Some(NEW), &[]);
        assert!(done.is_err(), "{limit_bytes}");
    }
}

#[test]
fn more_than_the_gpu_needs_unified_memory() {
    let unified = [("TF_FORCE_UNIFIED_MEMORY", "1")];
    let done = with(fraction(4.0), NEW, &unified).unwrap();
    assert_eq!(values(&done), [(FRACTION, "4")]);
}

#[test]
fn host_memory_beside_the_gpu_is_a_fraction_of_unified_memory() {
    let spill = Options { spill: Some(Bytes(8 * GIB)), ..Options::default() };
    let on = |options: &Options, environment: &[(&str, &str)]| {
        resolve_in(options, &GpuBudgets::Known(vec![BUDGET]), Some(NEW), environment)
    };
    let done = on(&spill, &[("XLA_PYTHON_CLIENT_PREALLOCATE", "false")]).unwrap();
    // 16 GiB and 8 GiB.
    let expected = [(UNIFIED_MEMORY, "true"), (PREALLOCATE, "true"), (FRACTION, "1.5")];
    assert_eq!(values(&done), expected);
    assert!(done.set[2].reason.contains("up to 8.0 GiB of host memory"), "{done:?}");
    assert_eq!(done.notes, ["`XLA_PYTHON_CLIENT_PREALLOCATE` was false and is now true"]);
    let growing = Options { preallocate: Some(false), ..spill };
    assert_eq!(on(&growing, &[]).unwrap().value(PREALLOCATE), Some("false"));
    for kind in [AllocatorKind::Platform, AllocatorKind::CudaAsync, AllocatorKind::Vmm] {
        let error = on(&Options { allocator: Some(kind), ..spill }, &[]).unwrap_err();
        assert!(error.message().contains("cannot use unified memory"), "{error}");
    }
    assert!(on(&Options { processes: Some(2), ..spill }, &[]).is_err());
    let unknown = resolve_in(&spill, &GpuBudgets::Unknown, Some(NEW), &[]).unwrap_err();
    assert!(unknown.message().contains("needs a GPU of known size"), "{unknown}");
}

#[test]
fn allocators_come_with_versions() {
    let ask = |kind, version: &str| {
        let options = allocator(kind);
        with(options, version.parse().unwrap(), &[])
    };
    for (kind, before, first) in
        [(AllocatorKind::Vmm, "0.9.2", "0.10.0"), (AllocatorKind::Address, "0.10.2", "0.11.0")]
    {
        let error = ask(kind, before).unwrap_err();
        assert!(error.message().contains(first), "{error}");
        assert_eq!(values(&ask(kind, first).unwrap()), [(ALLOCATOR, kind.name())]);
    }
    assert!(ask(AllocatorKind::CudaAsync, "0.4.26").is_ok());
}

#[test]
fn what_an_allocator_ignores_is_noted() {
    let notes = |options, environment: &[(&str, &str)]| {
        with(options, NEW, environment).unwrap().notes.join("; ")
    };
    let fraction = fraction(0.5);
    let platform = Options { allocator: Some(AllocatorKind::Platform), ..fraction };
    assert!(notes(platform, &[]).contains("neither a fraction nor"));
    assert!(notes(fraction, &[(ALLOCATOR, "Platform")]).contains("neither a fraction nor"));
    assert!(notes(fraction, &[(ALLOCATOR, "cuda_async")]).contains("not a limit"));
    assert_eq!(notes(fraction, &[]), "");
}

#[test]
fn preallocation_is_written_as_jax_reads_it() {
    for (on, text) in [(true, "true"), (false, "false")] {
        let options = Options { preallocate: Some(on), ..Options::default() };
        assert_eq!(values(&with(options, NEW, &[]).unwrap()), [(PREALLOCATE, text)]);
    }
}

#[test]
fn create_options_that_take_precedence_are_noted() {
    let environment = [(CREATE_OPTIONS, "allocator:platform;num_nodes:1")];
    let options = allocator(AllocatorKind::Bfc);
    let done = with(options, NEW, &environment).unwrap();
    assert!(done.notes.iter().any(|note| note.contains(CREATE_OPTIONS)), "{:?}", done.notes);
}

const GIB: u64 = 1 << 30;

const BUDGET: GpuMemoryBudget =
    GpuMemoryBudget { total_bytes: 16 * GIB, occupied_bytes: 0, outside_bytes: GIB };

#[test]
fn repair_leaves_a_correct_environment_alone() {
    for environment in [
        &[][..],
        &[(FRACTION, "0.5"), (PREALLOCATE, "false")],
        &[(OLD_FRACTION, "0.9"), (PREALLOCATE, "true"), (ALLOCATOR, "platform")],
        &[("XLA_FLAGS", "--xla_gpu_autotune_level=0"), ("JAX_PLATFORMS", "cpu")],
    ] {
        let done = repair_environment(environment).unwrap();
        assert!(is_nothing(&done), "{environment:?}");
    }
}

#[test]
fn the_nonexistent_limit_is_enforced() {
    let limit = ("JAX_PREALLOCATION_SIZE_LIMIT_BYTES", "8589934592");
    let done = repair_environment(&[limit, (OLD_FRACTION, "0.95")]).unwrap();
    assert_eq!(values(&done), [(FRACTION, "0.5")]);
    assert_eq!(done.removed, [OLD_FRACTION]);
    assert_noted(&done, "no release of JAX reads");
    // A smaller fraction stays.
    let done = repair_environment(&[limit, (FRACTION, "0.25")]).unwrap();
    assert_only_noted(&done, "4.0 GiB anyway");
    // It cannot be enforced without the GPU's size; an option takes precedence over it.
    let target = Target {
        jax: Some(NEW),
        variable: &|name| value_of(&[limit], name),
        repair: true,
        ..Target::default()
    };
    let done = resolve(&Options::default(), &target).unwrap();
    assert_only_noted(&done, "`--gpu`");
    let done = repair(fraction(0.9), Some(NEW), &[limit]).unwrap();
    assert_eq!(values(&done), [(FRACTION, "0.9")]);
    assert_noted(&done, "option takes precedence");
    let word = repair_environment(&[("JAX_PREALLOCATION_SIZE_LIMIT_BYTES", "lots")]).unwrap();
    assert_only_noted(&word, "not an amount");
}

/// All eight variables of a recipe that is copied from project to project.
const RECIPE: [(&str, &str); 8] = [
    (PREALLOCATE, "true"),
    (ALLOCATOR, "platform"),
    (OLD_FRACTION, "0.95"),
    ("JAX_PLATFORM_NAME", "gpu"),
    ("XLA_FLAGS", "--xla_force_host_platform_device_count=1"),
    ("JAX_DISABLE_JIT", "false"),
    ("JAX_ENABLE_X64", "false"),
    ("JAX_PREALLOCATION_SIZE_LIMIT_BYTES", "8589934592"),
];

#[test]
fn a_limit_that_the_allocator_cannot_enforce_is_an_error_until_one_is_chosen() {
    let error = repair_environment(&RECIPE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("at most 8.0 GiB"), "{error}");
    assert!(error.message().contains("enforces no limit"), "{error}");
    assert!(error.hint_text().unwrap().starts_with("unset"), "{error}");
    // The pool of `cuda_async` retains that much, but can exceed it.
    let async_pool = [RECIPE[7], (ALLOCATOR, "cuda_async")];
    assert!(repair_environment(&async_pool).is_err());
    // An allocator from an option takes precedence, and nothing is limited.
    let chosen = allocator(AllocatorKind::Platform);
    let done = repair(chosen, Some(NEW), &RECIPE).unwrap();
    assert_eq!(done.value(FRACTION), None, "{done:?}");
    assert!(done.notes.iter().any(|note| note.contains("`platform` was chosen")));
    // With a pool the same limit is enforced.
    let pooled = allocator(AllocatorKind::Bfc);
    let done = repair(pooled, Some(NEW), &RECIPE).unwrap();
    assert_eq!(done.value(FRACTION), Some("0.5"));
}

#[test]
fn sizes_that_an_allocator_without_a_pool_cannot_enforce_are_rejected() {
    let limit = Options { limit: Some(Bytes(GIB)), ..Options::default() };
    let split = Options { processes: Some(2), ..Options::default() };
    let memory = GpuBudgets::Known(vec![BUDGET]);
    for amount in [limit, split] {
        for kind in [AllocatorKind::Platform, AllocatorKind::CudaAsync, AllocatorKind::Bfc] {
            let options = Options { allocator: Some(kind), ..amount };
            let done = resolve_in(&options, &memory, Some(NEW), &[]);
            assert_eq!(done.is_err(), kind == AllocatorKind::Platform, "{kind:?} {amount:?}");
        }
        let environment = [(ALLOCATOR, "platform")];
        let error = resolve_in(&amount, &memory, Some(NEW), &environment).unwrap_err();
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("--allocator default"), "{hint}");
    }
}

#[test]
fn values_for_off_that_jax_takes_for_on_are_corrected() {
    for word in ["FALSE", "no", "off", " false"] {
        let done = repair_environment(&[(PREALLOCATE, word)]).unwrap();
        assert_eq!(values(&done), [(PREALLOCATE, "false")], "{word}");
    }
    let done = repair_environment(&[(ALLOCATOR, "")]).unwrap();
    assert_eq!(values(&done), [(ALLOCATOR, "default")]);
}

#[test]
fn one_name_of_the_fraction_is_left_where_the_release_is_not_known() {
    let unknown = |environment: &[_]| repair(Options::default(), None, environment).unwrap();
    let both = unknown(&[(FRACTION, "0.5"), (OLD_FRACTION, "0.8")]);
    assert_eq!(values(&both), [(OLD_FRACTION, "0.5")]);
    assert_eq!(both.removed, [FRACTION]);
    assert!(is_nothing(&unknown(&[(FRACTION, "0.5")])));
    let done = repair(fraction(0.25), None, &[(FRACTION, "0.5")]).unwrap();
    assert_eq!(values(&done), [(OLD_FRACTION, "0.25")]);
    assert_eq!(done.removed, [FRACTION]);
    // An old release would not see the new name at all.
    let old = repair(Options::default(), Some(OLD), &[(FRACTION, "0.5")]).unwrap();
    assert_eq!(values(&old), [(OLD_FRACTION, "0.5")]);
}

#[test]
fn a_gpu_is_required_by_naming_the_platform() {
    let asked = Options { require_gpu: Some(true), ..Options::default() };
    for (held, set) in [
        ("", Some("cuda,cpu")),
        ("cpu", Some("cuda,cpu")),
        ("cpu,cuda", Some("cuda,cpu")),
        ("cuda", None),
        ("gpu,cpu", None),
    ] {
        let done = with(asked, NEW, &[("JAX_PLATFORMS", held)]).unwrap();
        assert_eq!(done.value("JAX_PLATFORMS"), set, "{held}");
    }
    // JAX skips `cuda` where no device file is visible, unless it is the default by name.
    for (held, set) in [("", Some("cuda")), ("cpu", Some("cuda")), ("gpu", None)] {
        let done = with(asked, NEW, &[("JAX_PLATFORM_NAME", held)]).unwrap();
        assert_eq!(done.value("JAX_PLATFORM_NAME"), set, "{held}");
    }
    let amd = with(asked, NEW, &[("JAX_PLATFORMS", "rocm,cpu")]).unwrap();
    assert!(is_nothing(&amd));
}

#[test]
fn the_deprecated_platform_name_gets_what_it_means() {
    let done = repair_environment(&[("JAX_PLATFORM_NAME", "gpu")]).unwrap();
    assert_eq!(values(&done), [("JAX_PLATFORMS", "cuda,cpu")]);
    assert_noted(&done, "deprecated");
    // Both together are what requiring a GPU sets: nothing is left to say.
    let both = [("JAX_PLATFORM_NAME", "gpu"), ("JAX_PLATFORMS", "cuda,cpu")];
    assert!(is_nothing(&repair_environment(&both).unwrap()));
    let chosen = [("JAX_PLATFORM_NAME", "gpu"), ("JAX_PLATFORMS", "cpu")];
    let done = repair_environment(&chosen).unwrap();
    assert_only_noted(&done, "deprecated");
    let cpu = repair_environment(&[("JAX_PLATFORM_NAME", "cpu")]).unwrap();
    assert_only_noted(&cpu, "still uses memory");
}

const REMAT: &str = "JAX_COMPILER_ENABLE_REMAT_PASS";

#[test]
fn the_scheduler_is_set_behind_flags_that_say_otherwise() {
    let off = Options { latency_hiding: Some(false), ..Options::default() };
    let flag = "--xla_gpu_enable_latency_hiding_scheduler";
    let own = format!("{flag}=true");
    let done = with(off, NEW, &[("XLA_FLAGS", &own)]).unwrap();
    assert_eq!(values(&done), [("XLA_FLAGS", &*format!("{own} {flag}=false"))]);
    let own = format!("{flag}=false");
    assert!(with(off, NEW, &[("XLA_FLAGS", &own)]).unwrap().set.is_empty());
}

fn remat(on: bool) -> Options {
    Options { remat: Some(on), ..Options::default() }
}

#[test]
fn rematerialization_has_the_name_that_the_version_reads() {
    let (old, first) = (Version::new(0, 4, 33), Version::new(0, 4, 34));
    let flag = "--xla_disable_hlo_passes=rematerialization";
    let done = with(remat(false), old, &[]).unwrap();
    assert_eq!(values(&done), [("XLA_FLAGS", flag)]);
    assert_eq!(
        resolve_in(&remat(false), &GpuBudgets::Unknown, None, &[]).unwrap(),
        done,
        "a flag that all have"
    );
    let done = with(remat(false), first, &[]).unwrap();
    assert_eq!(values(&done), [(REMAT, "false")]);
    assert_eq!(values(&with(remat(true), first, &[]).unwrap()), [(REMAT, "true")]);
    assert!(with(remat(true), old, &[]).unwrap().set.is_empty(), "it is on already");
}

#[test]
fn other_disabled_passes_stay_disabled() {
    let users = [("XLA_FLAGS", "--xla_disable_hlo_passes=cse --xla_dump_to=/d"), (REMAT, "false")];
    for version in [NEW, Version::new(0, 11, 0), OLD] {
        let done = with(remat(false), version, &users).unwrap();
        assert_eq!(
            done.value("XLA_FLAGS").unwrap(),
            "--xla_disable_hlo_passes=cse --xla_dump_to=/d \
             --xla_disable_hlo_passes=cse,rematerialization",
            "{version}"
        );
        let left_on = (version != OLD).then_some("true");
        assert_eq!(done.value(REMAT), left_on, "off, it would drop `cse`");
    }
    // Once that was put right in JAX, the variable is enough.
    let done = with(remat(false), Version::new(0, 12, 0), &users[..1]).unwrap();
    assert_eq!(values(&done), [(REMAT, "false")]);
    let off = [("XLA_FLAGS", "--xla_disable_hlo_passes=rematerialization")];
    let done = with(remat(true), NEW, &off).unwrap();
    assert!(done.notes.iter().any(|note| note.contains("stays as it is")), "{done:?}");
}

#[test]
fn flags_of_the_user_stay_and_take_precedence() {
    let devices = Options { host_devices: Some(4), ..Options::default() };
    let flag = "--xla_force_host_platform_device_count";
    let done = with(devices, NEW, &[("XLA_FLAGS", "--a=1")]).unwrap();
    assert_eq!(done.value("XLA_FLAGS").unwrap(), format!("--a=1 {flag}=4"));
    let done = with(devices, NEW, &[("XLA_FLAGS", &*format!("{flag}=8"))]).unwrap();
    assert_only_noted(&done, "=8` already");
    let done = with(devices, NEW, &[("XLA_FLAGS", &*format!("{flag}=4"))]).unwrap();
    assert!(is_nothing(&done));
    let done = with(devices, NEW, &[("XLA_FLAGS", "flags.txt")]).unwrap();
    assert_only_noted(&done, "names a file");
}

#[test]
fn booleans_are_written_as_jax_reads_them() {
    let options = Options { x64: Some(false), jit: Some(true), ..Options::default() };
    let done = with(options, NEW, &[]).unwrap();
    assert_eq!(values(&done), [("JAX_ENABLE_X64", "false"), ("JAX_DISABLE_JIT", "false")]);
}

#[test]
fn what_a_fraction_leaves_is_given_in_bytes() {
    let of = |part, occupied_bytes| {
        let budget = GpuMemoryBudget { occupied_bytes, ..BUDGET };
        let memory = GpuBudgets::Known(vec![budget]);
        resolve_in(&fraction(part), &memory, Some(NEW), &[]).unwrap()
    };
    let done = of(0.95, 0);
    assert!(done.set[0].reason.contains("leaves 819.2 MiB"), "{done:?}");
    assert_noted(&done, "less than the estimated 1.0 GiB");
    let done = of(0.75, 4 * GIB);
    assert_noted(&done, "other processes use 4.0 GiB");
    assert!(of(0.75, 2 * GIB).notes.is_empty());
    // One that the environment sets is judged the same.
    let memory = GpuBudgets::Known(vec![BUDGET]);
    let environment = [(OLD_FRACTION, "0.95")];
    let done = resolve_in(&Options::default(), &memory, Some(NEW), &environment).unwrap();
    assert_noted(&done, "0.95 is set: 819.2 MiB outside");
}

#[test]
fn the_reason_of_a_split_lists_what_was_subtracted() {
    let options = Options { processes: Some(2), keep_free: Some(Bytes(GIB)), ..Options::default() };
    let memory = GpuBudgets::Known(vec![BUDGET]);
    let done = resolve_in(&options, &memory, Some(NEW), &[]).unwrap();
    // (16 - 1 - 2 * 1) / 2 of 16 GiB.
    assert_eq!(values(&done), [(FRACTION, "0.40625")]);
    for part in ["6.5 GiB of", "2 processes", "1.0 GiB each", "1.0 GiB kept free"] {
        assert!(done.set[0].reason.contains(part), "{done:?} lacks {part}");
    }
    let error = with(options, NEW, &[]).unwrap_err();
    assert!(error.hint_text().unwrap().contains("--gpu"), "{error}");
}

#[test]
fn what_cuda_async_makes_of_preallocation_is_noted() {
    let options = allocator(AllocatorKind::CudaAsync);
    let amount = ("TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC", "1073741824");
    let notes =
        |environment: &[(&str, &str)]| with(options, NEW, environment).unwrap().notes.join("; ");
    assert!(notes(&[amount]).contains("has no effect"));
    assert!(notes(&[amount, (PREALLOCATE, "false")]).contains("retains nothing"));
    assert_eq!(notes(&[]), "");
    let growing = Options { fraction: Some(0.5), preallocate: Some(false), ..options };
    let notes = with(growing, NEW, &[]).unwrap().notes.join("; ");
    assert!(notes.contains("the fraction has no effect"), "{notes}");
}
