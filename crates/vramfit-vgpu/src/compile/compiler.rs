//! Compiles with the real compiler, on a topology instead of a device. Everything that JAX may ask
//! later is collected at once, and the real executable is destroyed.
//!
//! Some valid programs do not compile without a device: on a GPU the autotuner would have
//! chosen another kernel. For those there are several attempts, each with flags for that one
//! compile; which attempt was needed is recorded with the program. Flags that the user has set are never
//! changed: an attempt that would do so is skipped, and the compiler's error is returned.
//!
//! The second attempt also measures what the compiler's default choices leave open: on a GPU the
//! autotuner may choose cuBLAS where they say Triton.

use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vramfit_model::program::{
    Program, ProgramMemory, ProgramSizes, options::flag, options::with_flags,
    options::with_sorted_maps, proto::OptionValue,
};
use vramfit_model::trace::CompilerWarning;

use crate::compile::analysis::{ProgramAnalysis, rename_sites};
use crate::compile::compilation_cache::{self, CacheEntry, CompilerOutput};
use crate::compile::compiled::{CompileDiagnostics, CompiledProgram};
use crate::compile::dump::Dump;
use crate::compile::memory_kinds;
use crate::compile::stderr_capture::{self, Warning};
use crate::compile::user_flags::UserFlags;
use crate::device::machine;
use crate::pjrt::abi::executable::{
    CompileArgs, ExecutableDestroyArgs, ExecutableSerializeArgs, Program as RawProgram,
};
use crate::pjrt::abi::{Executable, TopologyDescription};
use crate::pjrt::args::read_sized;
use crate::pjrt::cuda_plugin::{self, zeroed_struct};
use crate::pjrt::pointers;
use crate::pjrt::status::{PjrtResult, Status, StatusCode};
use crate::session::log;

/// Makes XLA write its estimates of run times into the module. It changes nothing else of it.
const COST_MODEL: &str = "xla_gpu_collect_cost_model_stats";
/// PJRT API version of JAX 0.10.2. Nobody has tried what earlier releases write.
const MIN_MINOR_VERSION_OF_COST_MODEL: i32 = 112;
/// Set once a program compiled only without: XLA refuses for GPUs that it has no model of, such as those before Hopper.
static HAS_NO_COST_MODEL: AtomicBool = AtomicBool::new(false);

/// One compile attempt: its name, and the flags it adds.
struct CompileAttempt {
    name: &'static str,
    flags: &'static [(&'static str, i64)],
}

/// Before JAX 0.9, a deviceless compile insists on autotuning results; 0 switches that off.
const AUTOTUNING_OFF: (&str, i64) = ("xla_gpu_autotune_level", 0);
/// PJRT API version of JAX 0.9.0, from which on the default flags compile without a device.
const MIN_MINOR_VERSION_OF_DEFAULTS: i32 = 90;

impl CompileAttempt {
    /// Returns whether it changes none of the user's flags.
    fn is_compatible_with(&self, user_flags: &UserFlags<'_>) -> bool {
        let mut flags = self.flags.iter();
        flags.all(|(name, value)| !user_flags.conflicts_with(name, *value))
    }

    /// Returns whether the user has set all of its flags to the same values, so that it would change nothing.
    fn is_requested_by(&self, user_flags: &UserFlags<'_>) -> bool {
        self.is_compatible_with(user_flags)
            && self.flags.iter().all(|(name, _)| user_flags.is_set(name))
    }
}

const WITHOUT_TRITON: CompileAttempt =
    CompileAttempt { name: "without Triton GEMM", flags: &[("xla_gpu_enable_triton_gemm", 0)] };

const ATTEMPTS: &[CompileAttempt] = &[
    CompileAttempt { name: "", flags: &[] },
    WITHOUT_TRITON,
    CompileAttempt {
        name: "without Triton GEMM and cuDNN fusion",
        flags: &[("xla_gpu_enable_triton_gemm", 0), ("xla_gpu_cudnn_gemm_fusion_level", 0)],
    },
];

/// The program that JAX passes in.
///
/// A function that captures arrays has them in its code, which may be gigabytes: it is copied once, and moved then.
pub(crate) struct ProgramSource {
    /// With a NUL byte at its end: plugins up to 0.6.2 read MLIR text up to there, beyond its size.
    terminated_code: Vec<u8>,
    format: Vec<u8>,
}

impl ProgramSource {
    /// Copies the program of a compile call.
    ///
    /// # Safety
    /// `program` is valid for the call.
    pub(crate) unsafe fn read(program: *const RawProgram) -> PjrtResult<Self> {
        let program: RawProgram =
            read_sized(program).ok_or_else(|| Status::internal("no program to compile"))?;
        let mut code = Vec::with_capacity(program.code_size + 1);
        code.extend_from_slice(pointers::list(program.code.cast::<u8>(), program.code_size));
        let format = pointers::bytes(program.format, program.format_size);
        Ok(ProgramSource::new(code, format))
    }

    fn new(mut code: Vec<u8>, format: Vec<u8>) -> Self {
        code.push(0);
        ProgramSource { terminated_code: code, format }
    }

    fn code(&self) -> &[u8] {
        self.terminated_code.strip_suffix(&[0]).unwrap_or_default()
    }

    /// Returns the StableHLO; nothing of a program in another format.
    fn into_mlir(mut self) -> Vec<u8> {
        if self.format != b"mlir" {
            return Vec::new();
        }
        self.terminated_code.pop();
        self.terminated_code
    }
}

/// Compiles a program for a topology. With a `description` of what determines the topology, the result may come
/// from the compilation cache.
///
/// # Safety
/// `topology` is a live topology of the real plugin's.
pub(crate) unsafe fn compile(
    topology: *const TopologyDescription,
    description: Option<&str>,
    source: ProgramSource,
    options: &[u8],
) -> PjrtResult<Arc<CompiledProgram>> {
    let mut first_error = None;
    let user_flags = UserFlags::read(options);
    let attempts = ATTEMPTS.iter().filter(|attempt| attempt.is_compatible_with(&user_flags));
    let needs_dump = needs_attribution();
    // XLA dumps to one place only, which then is the user's.
    let dumps_apart = needs_dump && user_flags.writes_dump();
    for attempt in attempts {
        let entry = description.zip(cache_folder(&user_flags));
        let entry = entry.and_then(|(topology, folder)| {
            cache_entry(folder, topology, &source, options, attempt, needs_dump)
        });
        let (result, mut warnings) = match entry.as_ref().and_then(CacheEntry::read) {
            Some(output) => {
                HAS_NO_COST_MODEL.fetch_or(output.has_no_cost_model, Ordering::Relaxed);
                let replay = || stderr_capture::write_log(&output.log);
                let ((), log) = stderr_capture::capture_log(compiler_log(), replay);
                (Ok(output), log.warnings)
            }
            None => {
                let dump = needs_dump.then(|| Dump::new(compiler_log())).flatten();
                let compile_to = |dump: Option<&Dump>| {
                    compile_with_costs(topology, &source, options, attempt, dump)
                };
                let (result, log) = stderr_capture::capture_log(compiler_log(), || {
                    compile_to(dump.as_ref().filter(|_| !dumps_apart))
                });
                if let (Some(_), Ok(_), true) = (&dump, &result, dumps_apart) {
                    // The second time it says the same.
                    let _ = stderr_capture::capture_repeated_log(compiler_log(), &log, || {
                        compile_to(dump.as_ref())
                    });
                }
                let result = result.map(|serialized| CompilerOutput {
                    serialized,
                    dump: dump.as_ref().and_then(Dump::read),
                    original: dump.as_ref().and_then(Dump::read_original),
                    log: log.text.clone().unwrap_or_default(),
                    has_no_cost_model: HAS_NO_COST_MODEL.load(Ordering::Relaxed),
                });
                if let (Ok(output), Some(entry), Some(_)) = (&result, &entry, &log.text) {
                    entry.write(output);
                }
                (result, log.warnings)
            }
        };
        match result {
            Ok(CompilerOutput { serialized, dump, original, .. }) => {
                let mut program = Program::parse(&serialized, options)?;
                rename_sites(program.scratch.iter_mut().map(|need| &mut need.site));
                let ProgramAnalysis { memory, time } = ProgramAnalysis::new(
                    &program,
                    dump.as_deref(),
                    original.as_deref(),
                    source.code(),
                );
                if memory.is_none() && needs_dump {
                    warnings.push(not_attributed(dump.as_deref()));
                }
                return Ok(CompiledProgram::new(
                    program,
                    source.into_mlir(),
                    serialized,
                    options.to_vec(),
                    attempt.name.to_owned(),
                    CompileDiagnostics {
                        replaced_arguments: memory
                            .as_ref()
                            .map(ProgramMemory::replaced_arguments)
                            .unwrap_or_default(),
                        pass: memory.as_ref().and_then(ProgramMemory::pass),
                        memory: memory.map(|it| it.to_stored()).unwrap_or_default(),
                        time,
                        warnings,
                    },
                ));
            }
            // The first error is the one worth showing: later attempts fail for their own reasons.
            Err(error) if first_error.is_none() => {
                let is_retryable = is_retryable(&error);
                first_error = Some(error);
                if !is_retryable {
                    break;
                }
            }
            Err(_) => {}
        }
    }
    Err(first_error.unwrap_or_else(|| Status::internal("no compile attempt was made")))
}

/// A program compiled another way, only to measure it.
pub(crate) struct MeasuredVariant {
    pub(crate) name: &'static str,
    pub(crate) sizes: ProgramSizes,
}

/// Compiles a program without Triton GEMM and measures it. `None` when that is how it was compiled
/// anyway, or when it does not compile so; that is no error, the program has what it needs.
///
/// # Safety
/// As for [`compile`].
pub(crate) unsafe fn measure_variant(
    topology: *const TopologyDescription,
    compiled: &CompiledProgram,
) -> Option<MeasuredVariant> {
    let sizes = *compiled.variant.get_or_init(|| {
        // The other attempts are without it, too.
        if !compiled.compile_attempt.is_empty() || compiled.host_program.code.is_empty() {
            return None;
        }
        if WITHOUT_TRITON.is_requested_by(&UserFlags::read(&compiled.host_program.options)) {
            return None;
        }
        let source = ProgramSource::new(compiled.host_program.code.clone(), b"mlir".to_vec());
        let options = &compiled.host_program.options;
        let compile = || compile_once(topology, &source, options, &WITHOUT_TRITON, None);
        let measured = stderr_capture::hide_log(compiler_log(), compile)
            .and_then(|serialized| Ok(Program::parse(&serialized, options)?));
        match measured {
            Ok(program) => Some(program.sizes),
            Err(error) => {
                let (name, attempt) = (&compiled.program.name, WITHOUT_TRITON.name);
                let first_line = error.message().lines().next().unwrap_or_default();
                log::print_line(&format!("`{name}` could not be measured {attempt}: {first_line}"));
                None
            }
        }
    });
    Some(MeasuredVariant { name: WITHOUT_TRITON.name, sizes: sizes? })
}

/// Returns the compilation cache for a compile; `None` if there is none, or if the compiler reads or writes other files.
fn cache_folder(user_flags: &UserFlags<'_>) -> Option<&'static Path> {
    let run = &machine::get()?.header.run;
    let folder = run.compilation_cache.as_deref()?;
    let writes_files = user_flags.name_files() || user_flags.writes_dump();
    (run.autotune_results.is_none() && !writes_files).then_some(folder)
}

/// Returns the place of a compile in the compilation cache; `None` if the compiler cannot be identified.
fn cache_entry(
    folder: &Path,
    topology: &str,
    source: &ProgramSource,
    options: &[u8],
    attempt: &CompileAttempt,
    needs_dump: bool,
) -> Option<CacheEntry> {
    let is_captured = compiler_log().is_some();
    let has_no_cost_model = HAS_NO_COST_MODEL.load(Ordering::Relaxed);
    let settings =
        format!("{topology}\n{}\n{needs_dump} {is_captured} {has_no_cost_model}", attempt.name);
    // What XLA makes of such a program is not kept.
    if source.code().len() > compilation_cache::MAX_BYTES {
        return None;
    }
    let options = with_sorted_maps(options);
    let parts = [settings.as_bytes(), &source.format, source.code(), &options];
    CacheEntry::new(folder, &parts)
}

/// Returns whether the memory of programs is to be attributed to owners.
fn needs_attribution() -> bool {
    machine::get().is_none_or(|machine| machine.header.run.attribution)
}

/// Says why it is not known what the memory of a program belongs to.
fn not_attributed(dump: Option<&[u8]>) -> Warning {
    let why = match dump {
        Some(_) => "XLA's dump of it does not describe its memory",
        None => "XLA's dump of it could not be written or read",
    };
    Warning { source: CompilerWarning::NOT_ATTRIBUTED.to_owned(), text: why.to_owned() }
}

/// Returns the folder for the compiler's log, if there is one. A forked process does not capture: a thread of
/// its parent may have held the lock that it would wait for.
fn compiler_log() -> Option<&'static Path> {
    let machine = machine::get().filter(|_| !machine::is_forked())?;
    machine.run_folder()
}

/// Returns whether another attempt may succeed: failures inside the compiler may vanish with other kernels,
/// but an invalid program, an unknown option or a missing tool fails every attempt.
fn is_retryable(error: &Status) -> bool {
    [
        StatusCode::Internal,
        StatusCode::Unimplemented,
        StatusCode::ResourceExhausted,
        StatusCode::FailedPrecondition,
    ]
    .iter()
    .any(|code| *code as i32 == error.code())
        && !["libdevice", "ptxas", "compile option", "While setting option"]
            .iter()
            .any(|part| error.message().contains(part))
}

/// Compiles a program so that its module says how long it takes, or else without that.
unsafe fn compile_with_costs(
    topology: *const TopologyDescription,
    source: &ProgramSource,
    options: &[u8],
    attempt: &CompileAttempt,
    dump: Option<&Dump>,
) -> PjrtResult<Vec<u8>> {
    let plain = |options: &[u8]| compile_once(topology, source, options, attempt, dump);
    if cuda_plugin::get()?.minor_version() < MIN_MINOR_VERSION_OF_COST_MODEL
        || UserFlags::read(options).is_set(COST_MODEL)
        || HAS_NO_COST_MODEL.load(Ordering::Relaxed)
    {
        return plain(options);
    }
    let with_costs = with_flags(options, &[(COST_MODEL, OptionValue::Bool(true))]);
    plain(&with_costs).or_else(|_| {
        let result = plain(options);
        HAS_NO_COST_MODEL.fetch_or(result.is_ok(), Ordering::Relaxed);
        result
    })
}

unsafe fn compile_once(
    topology: *const TopologyDescription,
    source: &ProgramSource,
    options: &[u8],
    attempt: &CompileAttempt,
    dump: Option<&Dump>,
) -> PjrtResult<Vec<u8>> {
    let plugin = cuda_plugin::get()?;
    let flags = dump.map(|dump| dump.flags(&UserFlags::read(options)));
    let mut flags: Vec<(&str, OptionValue)> = flags.unwrap_or_default();
    // Overrides `XLA_FLAGS`: with any other level nothing would compile.
    let old = plugin.minor_version() < MIN_MINOR_VERSION_OF_DEFAULTS;
    if old && flag(options, AUTOTUNING_OFF.0).is_none() {
        flags.push((AUTOTUNING_OFF.0, OptionValue::Int(AUTOTUNING_OFF.1)));
    }
    for (name, value) in attempt.flags {
        let value = match *name {
            "xla_gpu_enable_triton_gemm" => OptionValue::Bool(*value != 0),
            _ => OptionValue::Int(*value),
        };
        flags.push((name, value));
    }
    let results = machine::get().and_then(|machine| machine.header.run.autotune_results.as_ref());
    if let Some(path) = results {
        flags.push((
            "xla_gpu_load_autotune_results_from",
            OptionValue::Text(path.display().to_string()),
        ));
    }
    let options = memory_kinds::add_memory_kinds(options, source.code(), plugin.minor_version())?;
    let options = with_flags(&options, &flags);
    let mut program: RawProgram = zeroed_struct();
    // Only read: the C API has no `const` here.
    program.code = source.terminated_code.as_ptr().cast_mut().cast();
    program.code_size = source.code().len();
    program.format = source.format.as_ptr().cast();
    program.format_size = source.format.len();
    let mut args: CompileArgs = zeroed_struct();
    args.topology = topology;
    args.program = &raw const program;
    args.compile_options = options.as_ptr().cast();
    args.compile_options_size = options.len();
    plugin.call("PJRT_Compile", &mut args)?;
    let serialized = serialize(args.executable);
    let mut destroy: ExecutableDestroyArgs = zeroed_struct();
    destroy.executable = args.executable;
    plugin.call("PJRT_Executable_Destroy", &mut destroy)?;
    serialized
}

unsafe fn serialize(executable: *mut Executable) -> PjrtResult<Vec<u8>> {
    let mut args: ExecutableSerializeArgs = zeroed_struct();
    args.executable = executable;
    cuda_plugin::get()?.call("PJRT_Executable_Serialize", &mut args)?;
    let bytes = pointers::bytes(args.serialized_bytes, args.serialized_bytes_size);
    if let Some(delete) = args.serialized_executable_deleter {
        delete(args.serialized_executable.cast::<c_void>());
    }
    Ok(bytes)
}
