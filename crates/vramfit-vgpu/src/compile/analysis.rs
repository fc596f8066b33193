//! What is found out about a compiled program from its optimized module: where its memory goes, and how long it takes.

use vramfit_model::program::{OptimizedModule, Program, ProgramMemory, ProgramTime};

use crate::device::machine;
use crate::hooks;
use crate::session::call_site::name_notebook_cell;

/// What is found out about a program.
pub(crate) struct ProgramAnalysis {
    /// Where its memory goes; `None` without a dump that says it.
    pub(crate) memory: Option<ProgramMemory>,
    /// How long one execution takes; `None` without a GPU whose rates are known, or without a module.
    pub(crate) time: Option<ProgramTime>,
}

impl ProgramAnalysis {
    /// Analyzes a program: its module is that of XLA's dump, or else that of its executable; `original` is XLA's dump of
    /// the module before its passes. `code` is what JAX has passed to the compiler; the names of arguments are found by it.
    pub(crate) fn new(
        program: &Program,
        dump: Option<&[u8]>,
        original: Option<&[u8]>,
        code: &[u8],
    ) -> Self {
        let dumped = dump.and_then(|dump| OptimizedModule::from_dump(dump).ok());
        let Some(module) = dumped.or_else(|| OptimizedModule::from_executable(program).ok()) else {
            return ProgramAnalysis { memory: None, time: None };
        };
        let graph = module.graph();
        let memory = module.assignment().map(|assignment| {
            let names = hooks::get().and_then(|hooks| hooks.value_names(code)).unwrap_or_default();
            let mut memory = ProgramMemory::read(program, &graph, assignment, &names);
            if let Some(original) = original {
                memory.find_promotion(original, read_statement);
            }
            memory.rename_sites(name_notebook_cell);
            memory
        });
        let time = machine::get().map(|machine| {
            let run = &machine.header.run;
            let mut time = program.time(&graph, &run.gpus.gpu, run.calibration.as_ref());
            rename_sites(time.operations.iter_mut().map(|operation| &mut operation.site));
            time
        });
        ProgramAnalysis { memory, time }
    }
}

/// Returns the text of the statement that begins at a line (`file:line (function)`), as far as its brackets are open.
fn read_statement(site: &str) -> Option<String> {
    const MAX_LINES: usize = 20;
    let (file, line) = site.split(" (").next()?.rsplit_once(':')?;
    let text = std::fs::read_to_string(file).ok()?;
    let mut statement = String::new();
    for line in text.lines().skip(line.parse::<usize>().ok()?.checked_sub(1)?).take(MAX_LINES) {
        statement.push_str(line);
        let count = |brackets: [char; 3]| statement.matches(brackets).count();
        if count(['(', '[', '{']) <= count([')', ']', '}']) {
            break;
        }
    }
    (!statement.is_empty()).then_some(statement)
}

/// Gives lines in cells of a notebook the names that their user knows.
pub(crate) fn rename_sites<'a>(sites: impl Iterator<Item = &'a mut String>) {
    for site in sites {
        if let Some(name) = name_notebook_cell(site) {
            *site = name;
        }
    }
}
