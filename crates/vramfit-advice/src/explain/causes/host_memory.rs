use super::Judgement;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::message::{HostFailure, Message};

/// What programs are that run Python, or that start them, as the kernel names processes.
const OWN_PROGRAMS: [&str; 17] = [
    "python",
    "ipython",
    "jupyter",
    "ray::",
    "pt_",
    "ptxas",
    "nvlink",
    "srun",
    "slurm",
    "mpi",
    "orte",
    "prte",
    "torchrun",
    "accelerate",
    "bash",
    "sh",
    "uv",
];
/// The kernel cuts names of processes after so many bytes.
const MAX_NAME_BYTES: usize = 15;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    let first = facts.log.first(is_host)?;
    let (how, program) = find_reason(facts);
    // XLA copies without pinned memory then.
    if how == Some(HostFailure::PinnedRefused) && facts.goes_on_after(first) {
        return None;
    }
    let (confidence, summary) = match (how, program) {
        (None, Some(program)) => (
            Confidence::Possible,
            format!(
                "the kernel killed `{program}` because the host ran out of memory: another program than this one, as \
                 far as its name tells"
            ),
        ),
        (how, _) => {
            let (confidence, summary) = judge(how.unwrap_or(HostFailure::Compiler));
            (confidence, summary.to_owned())
        }
    };
    // What fails after a GPU request was refused may be a consequence: the traceback of the first failure. A program
    // that has ended well, or goes on, was not killed.
    let is_of_others = how.is_some_and(HostFailure::is_kill)
        && (facts.has_ended_before(first) || facts.goes_on_well_after(first));
    let (confidence, summary) = match is_of_others {
        true => {
            (Confidence::Possible, format!("{summary}; the program itself went on, or had ended"))
        }
        false if facts.is_after_failure(first) => (Confidence::Possible, summary),
        false => (confidence, summary),
    };
    Some(Judgement::new(confidence, summary, facts.quote_all(facts.log.all(is_host))))
}

fn is_host(message: &Message) -> bool {
    match message {
        Message::Host { .. } | Message::KilledByName { .. } | Message::CompiledPrograms => true,
        Message::DriverRefusal { pinned_host, .. } => *pinned_host,
        _ => false,
    }
}

/// Returns what tells most of how it is known: a kernel or job manager that names what it killed, else the first message
/// that does not only say that something was killed. The name is that of another program, where nothing else is known.
fn find_reason<'a>(facts: &Facts<'a>) -> (Option<HostFailure>, Option<&'a str>) {
    let names = facts.log.messages().filter_map(|(_, message)| match message {
        Message::KilledByName { program } => Some(program.as_str()),
        _ => None,
    });
    let names: Vec<&str> = names.collect();
    if names.iter().any(|name| is_own(facts, name)) {
        return (Some(HostFailure::Killed), None);
    }
    let told: Vec<HostFailure> = facts
        .log
        .messages()
        .filter_map(|(_, message)| match message {
            Message::Host { how, .. } => Some(*how),
            Message::DriverRefusal { pinned_host: true, .. } => Some(HostFailure::PinnedRefused),
            _ => None,
        })
        // The kernel names what it killed after it says that it looks for it.
        .filter(|how| names.is_empty() || *how != HostFailure::KillerRan)
        .collect();
    // XLA may do without the pinned memory that the driver refuses.
    let telling = told.iter().find(|how| **how == HostFailure::Killed);
    let telling = telling.or(told.iter().find(|how| **how != HostFailure::PinnedRefused));
    (telling.or(told.first()).copied(), names.first().copied())
}

/// Returns `true` if a process of this name may be the program, a part of it, or what started it.
fn is_own(facts: &Facts<'_>, name: &str) -> bool {
    let begins = OWN_PROGRAMS.iter().any(|own| match *own {
        "sh" | "uv" => name == *own,
        own => name.starts_with(own),
    });
    let mut words = facts.command.split([' ', '/']);
    let is_of_command = words.any(|word| {
        let cut = word.get(..MAX_NAME_BYTES).unwrap_or(word);
        !cut.is_empty() && cut == name
    });
    begins || name.ends_with(".py") || is_of_command
}

fn judge(how: HostFailure) -> (Confidence, &'static str) {
    match how {
        HostFailure::Python => {
            (Confidence::Sure, "an allocation of host memory failed in Python or NumPy")
        }
        HostFailure::Cpp => (Confidence::Likely, "a C++ library could not allocate host memory"),
        HostFailure::Killed => (
            Confidence::Sure,
            "the kernel or the job manager killed the process for its use of host memory",
        ),
        HostFailure::KillerRan => (
            Confidence::Likely,
            "the host ran out of memory, and the kernel looked for a process to kill; the log does not show which it \
             took",
        ),
        HostFailure::KilledBesideSteps => (
            Confidence::Possible,
            "a process of the job was killed for its use of host memory that is in none of its steps (`.extern`), such \
             as one of a login; whether the program was, the log does not show",
        ),
        HostFailure::CpuBackend => (
            Confidence::Sure,
            "JAX's backend for the CPU could not allocate; the program does not run on a GPU",
        ),
        HostFailure::KilledSilently => (
            Confidence::Likely,
            "the process was killed; too much host memory is the usual reason, and the kernel's log tells",
        ),
        HostFailure::PinnedPool => (
            Confidence::Sure,
            "XLA's pool of pinned host memory is full (64 GB unless XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB says otherwise), \
             or the host has no more to pin",
        ),
        HostFailure::PinnedRefused => (
            Confidence::Likely,
            "the driver could not pin host memory: too little is free, or a limit of the process (`ulimit -l`) forbids \
             it",
        ),
        HostFailure::UnifiedRefused => (
            Confidence::Possible,
            "the driver refused unified memory, which is that of the GPU and of the host together: the host has too \
             little, or the system gives none of it, as under WSL2",
        ),
        HostFailure::System => (
            Confidence::Likely,
            "the system refused memory to the process: the host has too little, or a limit of the process is reached",
        ),
        HostFailure::SharedSegment => (
            Confidence::Sure,
            "the memory that processes share, `/dev/shm`, is full; a container has 64 MB of it by default",
        ),
        HostFailure::SharedSegmentProbably => (
            Confidence::Likely,
            "memory that processes share could not be had: `/dev/shm` is probably full, of which a container has 64 MB \
             by default",
        ),
        HostFailure::Compiler => (
            Confidence::Possible,
            "the compiler could not allocate on the host, or the process has as many mappings as it may",
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::explain::{CauseId, Confidence, explain_text};

    #[test]
    fn who_was_killed_decides() {
        let killed =
            |name: &str| format!("[12.5] Out of memory: Killed process 71 ({name}) total-vm:9kB\n");
        let step = |step: &str| {
            format!(
                "slurmstepd: error: Detected 1 oom_kill event in StepId=5.{step}. Some of the step tasks have been OOM Killed.\n"
            )
        };
        let steps = "step 1 loss 0.3\nstep 2 loss 0.2\n";
        for (log, confidence) in [
            (killed("chrome"), Confidence::Possible),
            (killed("python3"), Confidence::Sure),
            (killed("ray::Trainer"), Confidence::Sure),
            (killed("pt_data_worker"), Confidence::Sure),
            (killed("fit_large_model"), Confidence::Possible),
            // The kernel cuts the name.
            (format!("$ uv run fit_large_model.py\n{}", killed("fit_large_model")), Confidence::Sure),
            (format!("{}{}", killed("chrome"), killed("python")), Confidence::Sure),
            (
                "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task_memcg=/a,task=java,pid=7,uid=0\n".to_owned(),
                Confidence::Possible,
            ),
            (
                "oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/a,task=python3,pid=7,uid=0\n".to_owned(),
                Confidence::Sure,
            ),
            ("python3 invoked oom-killer: gfp_mask=0x140cca, order=0\n".to_owned(), Confidence::Likely),
            (
                format!("python3 invoked oom-killer: gfp_mask=0x140cca\n{}", killed("java")),
                Confidence::Possible,
            ),
            (step("batch"), Confidence::Sure),
            (step("0"), Confidence::Sure),
            (step("extern"), Confidence::Possible),
            (format!("{}{}", step("extern"), step("batch")), Confidence::Sure),
            // The program was not killed.
            (format!("{steps}training finished\n{}", step("batch")), Confidence::Possible),
            (format!("step 1 loss 0.4\n{}step 2 loss 0.3\n", killed("python3")), Confidence::Possible),
        ] {
            let explanation = explain_text(&log);
            let cause = &explanation.causes[0];
            assert_eq!((cause.id, cause.confidence), (CauseId::HostMemory, confidence), "{log}");
            let names_other = cause.summary.contains("another program");
            assert!(!names_other || confidence == Confidence::Possible, "{log}");
        }
    }
}
