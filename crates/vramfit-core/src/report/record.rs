//! What `vramfit dryrun --json` prints. Keys are only ever added within a schema.

use serde::Serialize;

use super::held::{Held, OwnerSum, held, owners};
use super::processes;
use super::settings::{self, Variable};
use crate::analysis::{
    AbortInfo, AllocationFailure, CallbackSummary, CompilationSummary, DeviceSummary, Evidence,
    LeakSummary, NoContextSummary, PeakContext, Plan, ProgramSummary, RunSummary, ScratchSummary,
    StepSearch, UnknownReads,
};
use crate::lint::Finding;
use crate::replay::TotalRangeSummary;
use crate::trace::{CompilerWarning, NotComputed, ProgramExit, Sharing};

/// Version of the object; it changes when a key changes its meaning or goes away.
const SCHEMA: u32 = 2;

#[derive(Serialize)]
struct Record<'a> {
    schema: u32,
    jax: &'a str,
    gpu: Gpu<'a>,
    pid: u32,
    sharing: Sharing,
    fits: Option<bool>,
    verdict: serde_json::Value,
    complete: bool,
    program_exit: Option<ProgramExit>,
    limit_bytes: Option<u64>,
    capacity_bytes: u64,
    pool_bytes: Option<u64>,
    peak_bytes: u64,
    held_by_others_bytes: u64,
    steady_state_bytes: u64,
    largest_free_block_bytes: Option<u64>,
    fragmentation: Option<f64>,
    peak: Option<&'a PeakContext>,
    step: Option<&'a str>,
    step_evidence: Option<Evidence>,
    step_search: Option<&'a StepSearch>,
    plan: Option<Plan>,
    owners: Vec<OwnerSum>,
    attribution: Option<Held<'a>>,
    programs: Vec<Program<'a>>,
    oom: Option<OutOfMemory<'a>>,
    oom_count: u64,
    abort: Option<&'a AbortInfo>,
    no_context: Option<&'a NoContextSummary>,
    processes: serde_json::Value,
    total_range: Option<TotalRangeSummary>,
    autotune_range: Option<AutotuneRange<'a>>,
    scratch: Option<&'a ScratchSummary>,
    leaks: Vec<Leak<'a>>,
    compiler_warnings: &'a [CompilerWarning],
    compilations: &'a [CompilationSummary],
    devices: Vec<Device<'a>>,
    context_bytes_estimate: u64,
    unknown_reads: &'a [UnknownReads],
    likely_cause: Option<LikelyCause<'a>>,
    callbacks: &'a [CallbackSummary],
    not_computed: &'a [NotComputed],
    executions: u64,
    evaluated: Option<u64>,
    settings: Settings<'a>,
    allocator_model: Option<&'a str>,
    not_covered: &'a [String],
    command: &'a [String],
}

#[derive(Serialize)]
struct LikelyCause<'a> {
    kind: &'static str,
    site: &'a str,
}

#[derive(Serialize)]
struct Gpu<'a> {
    name: &'a str,
    description: &'a str,
    count: u32,
    machine_count: u32,
    total_memory_bytes: u64,
    max_total_memory_bytes: Option<u64>,
}

#[derive(Serialize)]
struct AutotuneRange<'a> {
    variants: Vec<Variant<'a>>,
    programs_measured: u64,
    programs_not_measured: u64,
    small_programs: u64,
    small_programs_temp_bytes: u64,
}

#[derive(Serialize)]
struct Variant<'a> {
    name: &'a str,
    peak_bytes: u64,
    fits: Option<bool>,
}

#[derive(Serialize)]
struct Program<'a> {
    name: &'a str,
    calls: u64,
    argument_bytes: u64,
    output_bytes: u64,
    alias_bytes: u64,
    temp_bytes: u64,
    variant_temp_bytes: Option<u64>,
    constant_bytes: u64,
    code_bytes: u64,
    devices: u32,
    compilations: u64,
    loaded: u64,
    compile_attempt: &'a str,
    site: &'a str,
}

#[derive(Serialize)]
pub(super) struct OutOfMemory<'a> {
    requested_bytes: u64,
    program: Option<&'a str>,
    message: &'a str,
    device: u32,
    call: u64,
    purpose: crate::trace::Purpose,
    event: u64,
    in_use_bytes: u64,
    free_bytes: Option<u64>,
    largest_free_block_bytes: Option<u64>,
    growth_bytes: Option<u64>,
    available_bytes: u64,
    held_by_others_bytes: u64,
    short_bytes: u64,
    fragmented: bool,
    fatal: Option<&'a str>,
    recovered: bool,
}

#[derive(Serialize)]
struct Leak<'a> {
    bytes_per_step: u64,
    #[serde(flatten)]
    leak: &'a LeakSummary,
}

#[derive(Serialize)]
struct Device<'a> {
    device: u32,
    gpu: u32,
    limit_bytes: Option<u64>,
    capacity_bytes: u64,
    pool_bytes: Option<u64>,
    peak_bytes: u64,
    held_by_others_bytes: u64,
    variant_peak_bytes: Option<u64>,
    peak: Option<&'a PeakContext>,
    steady_state_bytes: u64,
    free_at_peak_bytes: Option<u64>,
    largest_free_block_bytes: Option<u64>,
    fragmentation: Option<f64>,
    in_use_at_end_bytes: u64,
    free_at_end_bytes: Option<u64>,
    largest_free_block_at_end_bytes: Option<u64>,
    fragmentation_at_end: Option<f64>,
    outside_bytes: u64,
    oom_count: u64,
}

#[derive(Serialize)]
struct Settings<'a> {
    allocator: &'a str,
    memory_fraction: f64,
    asked_limit_bytes: Option<u64>,
    preallocate: bool,
    spatial_partitioning: bool,
    occupied_bytes: u64,
    autotune_results: bool,
    variables: Vec<Variable<'a>>,
    findings: Vec<Finding>,
}

/// Returns the record of an answer, with the points that it does not cover.
pub(super) fn record(answer: &RunSummary, not_covered: &[String]) -> serde_json::Value {
    let header = &answer.header;
    let empty = DeviceSummary::default();
    let worst = answer.worst_device().unwrap_or(&empty);
    let record = Record {
        schema: SCHEMA,
        jax: &header.jax,
        gpu: Gpu {
            name: &header.gpu,
            description: &header.gpu_description,
            count: header.devices,
            machine_count: header.machine_gpu_count(),
            total_memory_bytes: header.total_memory_bytes,
            max_total_memory_bytes: Some(header.max_total_memory_bytes).filter(|max| *max > 0),
        },
        pid: header.pid,
        sharing: header.sharing,
        fits: answer.fits(),
        verdict: super::verdict::record(answer),
        complete: answer.complete,
        program_exit: answer.program_exit,
        limit_bytes: worst.limit_bytes,
        capacity_bytes: worst.capacity_bytes,
        pool_bytes: worst.pool_bytes,
        peak_bytes: worst.peak_bytes,
        held_by_others_bytes: worst.held_by_others_bytes,
        steady_state_bytes: worst.steady_state_bytes,
        largest_free_block_bytes: worst.at_peak.largest_free_block_bytes,
        fragmentation: worst.at_peak.fragmentation(),
        peak: worst.peak.as_ref(),
        step: answer.step().map(|step| &step.name[..]),
        step_evidence: answer.step_evidence,
        step_search: answer.step_search.as_ref(),
        plan: answer.plan(),
        owners: owners(answer.attribution.as_ref()),
        attribution: answer
            .attribution
            .as_ref()
            .map(|attribution| held(attribution, &answer.programs)),
        programs: answer.programs.iter().map(program).collect(),
        oom: answer.out_of_memory().map(out_of_memory),
        oom_count: answer.refusal_count,
        abort: answer.abort.as_ref(),
        no_context: answer.no_context.as_ref(),
        processes: processes::record(answer),
        total_range: answer.total_range,
        autotune_range: autotune_range(answer, worst),
        scratch: answer.scratch.as_ref(),
        leaks: answer.leaks.iter().map(leak).collect(),
        compiler_warnings: &answer.compiler_warnings,
        compilations: &answer.compilations,
        devices: answer.devices.iter().map(|of| device(answer, of)).collect(),
        context_bytes_estimate: header.context_bytes,
        unknown_reads: &answer.unknown_reads,
        likely_cause: answer.likely_cause().map(|site| LikelyCause {
            kind: "made_up_read",
            site,
        }),
        callbacks: &answer.callbacks,
        not_computed: &answer.not_computed,
        executions: answer.executions,
        evaluated: answer.evaluated,
        settings: Settings {
            allocator: &header.allocator,
            memory_fraction: header.memory_fraction,
            asked_limit_bytes: header.asked_limit_bytes,
            preallocate: header.preallocate,
            spatial_partitioning: header.spatial_partitioning,
            occupied_bytes: header.occupied_bytes,
            autotune_results: header.autotune_results,
            variables: settings::variables(answer),
            findings: settings::findings(answer),
        },
        allocator_model: answer.allocator_model,
        not_covered,
        command: &header.command,
    };
    serde_json::to_value(record).expect("the keys are texts and no map is in it")
}

fn program(program: &ProgramSummary) -> Program<'_> {
    let sizes = &program.sizes;
    Program {
        name: &program.name,
        calls: program.calls,
        argument_bytes: sizes.argument_bytes,
        output_bytes: sizes.output_bytes,
        alias_bytes: sizes.alias_bytes,
        temp_bytes: sizes.temp_bytes,
        variant_temp_bytes: program.variant_temp_bytes,
        constant_bytes: sizes.constant_bytes,
        code_bytes: sizes.code_bytes,
        devices: program.devices,
        compilations: program.compilations,
        loaded: program.loaded,
        compile_attempt: &program.compile_attempt,
        site: &program.site,
    }
}

fn leak(leak: &LeakSummary) -> Leak<'_> {
    Leak {
        bytes_per_step: leak.bytes_per_step(),
        leak,
    }
}

pub(super) fn out_of_memory(refusal: &AllocationFailure) -> OutOfMemory<'_> {
    OutOfMemory {
        requested_bytes: refusal.moment.requested_bytes,
        program: refusal.moment.program.as_deref(),
        message: &refusal.message,
        device: refusal.device,
        call: refusal.moment.call,
        purpose: refusal.moment.purpose,
        event: refusal.moment.event,
        in_use_bytes: refusal.pool.in_use_bytes,
        free_bytes: refusal.pool.free_bytes,
        largest_free_block_bytes: refusal.pool.largest_free_block_bytes,
        growth_bytes: refusal.growth_bytes,
        available_bytes: refusal.available_bytes(),
        held_by_others_bytes: refusal.held_by_others_bytes,
        short_bytes: refusal.short_bytes(),
        fragmented: refusal.fragmented(),
        fatal: refusal.fatal.as_deref(),
        recovered: refusal.recovered,
    }
}

/// Returns the peaks of the worst device, the compiler's default choices first.
fn autotune_range<'a>(answer: &'a RunSummary, worst: &DeviceSummary) -> Option<AutotuneRange<'a>> {
    let autotune_range = answer.autotune_range.as_ref()?;
    let mut variants = vec![Variant {
        name: "default",
        peak_bytes: worst.peak_bytes,
        fits: answer.fits(),
    }];
    if autotune_range.measured > 0 {
        variants.push(Variant {
            name: &autotune_range.variant,
            peak_bytes: variant_peak(answer, worst).unwrap_or(0),
            fits: autotune_range.fits,
        });
    }
    Some(AutotuneRange {
        variants,
        programs_measured: autotune_range.measured,
        programs_not_measured: autotune_range.unmeasured,
        small_programs: autotune_range.small,
        small_programs_temp_bytes: autotune_range.small_temp_bytes,
    })
}

fn variant_peak(answer: &RunSummary, device: &DeviceSummary) -> Option<u64> {
    let autotune_range = answer.autotune_range.as_ref().filter(|b| b.measured > 0)?;
    autotune_range
        .peak_bytes
        .get(device.device as usize)
        .copied()
}

fn device<'a>(answer: &RunSummary, device: &'a DeviceSummary) -> Device<'a> {
    Device {
        device: device.device,
        gpu: answer.header.gpu_of(device.device),
        limit_bytes: device.limit_bytes,
        capacity_bytes: device.capacity_bytes,
        pool_bytes: device.pool_bytes,
        peak_bytes: device.peak_bytes,
        held_by_others_bytes: device.held_by_others_bytes,
        variant_peak_bytes: variant_peak(answer, device),
        peak: device.peak.as_ref(),
        steady_state_bytes: device.steady_state_bytes,
        free_at_peak_bytes: device.at_peak.free_bytes,
        largest_free_block_bytes: device.at_peak.largest_free_block_bytes,
        fragmentation: device.at_peak.fragmentation(),
        in_use_at_end_bytes: device.at_end.in_use_bytes,
        free_at_end_bytes: device.at_end.free_bytes,
        largest_free_block_at_end_bytes: device.at_end.largest_free_block_bytes,
        fragmentation_at_end: device.at_end.fragmentation(),
        outside_bytes: device.outside_bytes,
        oom_count: device.refusals,
    }
}
